//! Compresses and writes in a thread of its own.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use flate2::Compression;
use flate2::write::GzEncoder;

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
    /// Makes the file.
    pub fn create(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        let (pieces, received) = sync_channel(PIECES);
        let thread = std::thread::Builder::new()
            .name("npualloc-trace".into())
            .spawn(move || write(file, &received))?;
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

fn write(mut file: File, pieces: &Receiver<Vec<u8>>) -> io::Result<u64> {
    let mut written = 0;
    for piece in pieces {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&piece)?;
        let compressed = encoder.finish()?;
        file.write_all(&compressed)?;
        written += compressed.len() as u64;
    }
    file.sync_all()?;
    Ok(written)
}
