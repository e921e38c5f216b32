//! Compresses and writes in a thread of its own.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::lock::{lock, unlock};

/// What every recording begins with.
pub const FIRST_LINE: &str = "# npualloc-trace v1";
/// Bytes of text in a piece.
pub const PIECE: usize = 256 << 10;
/// Pieces that wait for the thread. When they are all full, the program waits: nothing is lost.
const PIECES: usize = 16;

/// A file being written.
#[derive(Debug)]
pub struct Writer {
    pieces: SyncSender<Vec<u8>>,
    thread: JoinHandle<io::Result<u64>>,
    process: u32,
}

impl Writer {
    /// Makes the file. An older recording is emptied, unless another process is writing it; any other file stays.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        if file.metadata()?.is_file() {
            lock(&file)?;
            if !may_be_replaced(path)? {
                unlock(&file);
                let what = "it exists, and is no recording that could be replaced";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
            }
            file.set_len(0)?;
        }
        let path = path.to_owned();
        let (pieces, received) = sync_channel(PIECES);
        let thread = std::thread::Builder::new()
            .name("npualloc-trace".into())
            .spawn(move || write(file, &path, &received))?;
        Ok(Self {
            pieces,
            thread,
            process: std::process::id(),
        })
    }

    /// Hands a piece over; false when it can't be written any more.
    pub fn send(&self, piece: Vec<u8>) -> bool {
        // The thread is not there in a process forked from the one that made it.
        std::process::id() == self.process && self.pieces.send(piece).is_ok()
    }

    /// Waits until everything is written; the size of the file.
    pub fn finish(self) -> io::Result<u64> {
        if std::process::id() != self.process {
            std::mem::forget(self.thread);
            return Ok(0);
        }
        drop(self.pieces);
        match self.thread.join() {
            Ok(written) => written,
            Err(_) => Err(io::Error::other("the writing thread failed")),
        }
    }
}

/// Whether a file is empty, or a recording.
fn may_be_replaced(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    let most = FIRST_LINE.len() as u64;
    File::open(path)?.take(most).read_to_end(&mut start)?;
    if start.is_empty() || start == FIRST_LINE.as_bytes() {
        return Ok(true);
    }
    let mut plain = Vec::new();
    let mut unpacked = MultiGzDecoder::new(BufReader::new(File::open(path)?)).take(most);
    // What is no gzip file ends at once, and holds nothing then.
    let _ = unpacked.read_to_end(&mut plain);
    Ok(plain == FIRST_LINE.as_bytes())
}

fn write(mut file: File, path: &Path, pieces: &Receiver<Vec<u8>>) -> io::Result<u64> {
    let mut written = 0;
    let outcome = pieces.iter().try_for_each(|piece| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&piece)?;
        let compressed = encoder.finish()?;
        file.write_all(&compressed)?;
        written += compressed.len() as u64;
        Ok(())
    });
    let outcome = outcome.and_then(|()| match file.metadata()?.is_file() {
        true => file.sync_all(),
        false => Ok(()),
    });
    if let Err(error) = &outcome {
        // Part of a piece would make the file one that ends in the middle.
        let _ = file.set_len(written);
        tell(path, &format!("{error}; the recording ends here"));
    }
    unlock(&file);
    outcome.map(|()| written)
}

/// Says at once what `finish` will say, perhaps hours later.
pub fn tell(path: &Path, what: &str) {
    let _ = writeln!(io::stderr(), "npualloc: {}: {what}", path.display());
}
