//! The members of a gzip file, and whether its end can be a tear.

use std::io::{self, BufRead, ErrorKind, Read};

use flate2::bufread::GzDecoder;

/// What each member begins with.
const MAGIC: [u8; 3] = [0x1F, 0x8B, 8];
/// Bytes of a member's header without options.
const HEADER: u64 = 10;
const HEADER_BITS: u128 = (1 << (8 * HEADER)) - 1;

/// The text of all members. Its end within a member is `UnexpectedEof` where the file was cut there; where a
/// further member begins before it, the one that swallowed it is damaged.
pub(super) struct Members<R> {
    /// Absent once everything is read.
    member: Option<GzDecoder<Watched<R>>>,
}

impl<R: BufRead> Members<R> {
    pub(super) fn new(input: R) -> Self {
        let input = Watched {
            input,
            last: 0,
            taken: 0,
            first: None,
            swallowed: false,
        };
        Self {
            member: Some(GzDecoder::new(input)),
        }
    }
}

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            match member.read(into) {
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                    return Err(member.get_ref().why_it_ends(error));
                }
                other => return other,
            }
            let Some(mut input) = self.member.take().map(GzDecoder::into_inner) else {
                break;
            };
            let next = input.fill_buf()?;
            if !next.is_empty() {
                // Less than a header would look like one that was cut.
                let alike = next.iter().zip(MAGIC).all(|(byte, magic)| *byte == magic);
                if !alike {
                    return Err(io::Error::new(
                        ErrorKind::InvalidData,
                        "invalid gzip header: something else follows the last member",
                    ));
                }
                input.begin();
                self.member = Some(GzDecoder::new(input));
            }
        }
        Ok(0)
    }
}

/// Looks for what the first member begins with: one program's members begin alike.
struct Watched<R> {
    input: R,
    /// The bytes taken last, the latest in the lowest bits.
    last: u128,
    /// Bytes of this member.
    taken: u64,
    /// The first member's header.
    first: Option<u128>,
    /// Whether that was seen within this member.
    swallowed: bool,
}

impl<R> Watched<R> {
    /// What follows is another member.
    fn begin(&mut self) {
        self.taken = 0;
        self.swallowed = false;
    }

    fn why_it_ends(&self, error: io::Error) -> io::Error {
        if self.swallowed {
            let what = "corrupt gzip stream: a member goes on where the next one begins";
            return io::Error::new(ErrorKind::InvalidData, what);
        }
        error
    }
}

impl<R: BufRead> Read for Watched<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(into)?;
        self.consume(count);
        Ok(count)
    }
}

impl<R: BufRead> BufRead for Watched<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.input.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        // What is consumed is in the buffer: nothing is read, so nothing fails.
        let buffered = self.input.fill_buf().unwrap_or_default();
        for byte in &buffered[..count.min(buffered.len())] {
            self.last = (self.last << 8 | u128::from(*byte)) & HEADER_BITS;
            self.taken += 1;
            if self.taken == HEADER && self.first.is_none() {
                self.first = Some(self.last);
            } else if self.taken > HEADER {
                self.swallowed |= self.first == Some(self.last);
            }
        }
        self.input.consume(count);
    }
}
