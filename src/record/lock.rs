//! A file that one recording writes at a time. The lock is the kernel's: it ends with the process, too.

#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;

/// Takes the lock. Where the file system has none, nothing is locked.
pub fn lock(file: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed.
    let taken = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
    if taken || io::Error::last_os_error().kind() != ErrorKind::WouldBlock {
        return Ok(());
    }
    Err(io::Error::other(
        "being written by another recording; %p in the name stands for the process, %r for its rank",
    ))
}

/// Gives it back, although a forked child has the file, too.
pub fn unlock(file: &File) {
    // SAFETY: the descriptor is open as long as `file` is borrowed.
    let _ = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}
