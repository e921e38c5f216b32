//! Columns of numbers, made small: each value is the difference to the one before, in as few bytes as it
//! takes (seven bits a byte, sign in the lowest bit); all columns together compressed with gzip and
//! written in base64.

use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

/// Columns being packed.
#[derive(Debug, Default)]
pub struct Packer {
    bytes: Vec<u8>,
}

impl Packer {
    /// Appends a column. The reader must know how many values there are.
    pub fn column(&mut self, values: impl Iterator<Item = u64>) {
        let mut last = 0;
        for value in values {
            let step = value.wrapping_sub(last) as i64;
            let mut zigzag = ((step << 1) ^ (step >> 63)) as u64;
            while zigzag >= 0x80 {
                self.bytes.push(zigzag as u8 | 0x80);
                zigzag >>= 7;
            }
            self.bytes.push(zigzag as u8);
            last = value;
        }
    }

    /// The text that holds all of them.
    pub fn finish(self) -> std::io::Result<String> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.bytes)?;
        Ok(STANDARD.encode(encoder.finish()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn columns_are_differences_in_few_bytes() {
        let mut packer = Packer::default();
        packer.column([5, 4, 300].into_iter());
        packer.column([1].into_iter());
        let text = packer.finish().expect("packed");
        let compressed = STANDARD.decode(text).expect("base64");
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(compressed.as_slice())
            .read_to_end(&mut bytes)
            .expect("gzip");
        // 5 → 10; −1 → 1; 296 → 592 = 0b100_1010000; 1 → 2.
        assert_eq!(bytes, [10, 1, 0xd0, 4, 2]);
    }
}
