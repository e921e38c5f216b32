//! Real pages at device addresses. The plain memory of each device is one
//! sparse file in memory, and each physical handle is a file of its own, so
//! that a handle can be mapped at several addresses and both can be shared with
//! other processes. Pages come into being when they are first touched, so a
//! large device costs only what is written.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};

use super::Backing;
use crate::model::memory::{WINDOW, WINDOW_BASE, device_of};

/// A backing with real pages.
#[derive(Debug, Default)]
pub struct Pages {
    files: HashMap<u64, File>,
    plain: HashMap<u32, Plain>,
    mapped: BTreeMap<u64, u64>,
}

/// The file of a device's plain memory.
#[derive(Debug)]
struct Plain {
    file: File,
    /// The process that made it. A child of `fork` has its parent's files: it may not give the
    /// parent's pages back, nor use those that the parent takes next.
    process: u32,
}

impl Plain {
    fn own(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for (&addr, &len) in &self.mapped {
            // SAFETY: the ranges are what `map_at` mapped and nobody unmapped.
            unsafe { libc::munmap(addr as *mut libc::c_void, len as usize) };
        }
    }
}

fn memory_file(len: u64) -> Option<File> {
    // SAFETY: the name is a C string; the call has no other precondition.
    let fd = unsafe { libc::memfd_create(c"cann-sim".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: memfd_create just returned this descriptor and nobody else owns it.
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len).ok()?;
    Some(file)
}

/// Where the page of a plain address is in its device's file.
fn offset(addr: u64) -> u64 {
    (addr - WINDOW_BASE) % WINDOW
}

/// Path under which another process of the user can open a descriptor.
fn path_of(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

impl Pages {
    fn map_at(
        mapped: &mut BTreeMap<u64, u64>,
        addr: u64,
        len: u64,
        file: &File,
        offset: u64,
    ) -> bool {
        // SAFETY: MAP_FIXED_NOREPLACE never takes away an existing mapping, so
        // no memory that Rust or C code uses changes under it.
        let at = unsafe {
            libc::mmap(
                addr as *mut libc::c_void,
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if at == libc::MAP_FAILED {
            return false;
        }
        if at as u64 != addr {
            // A kernel that does not know MAP_FIXED_NOREPLACE takes the address as a hint.
            // SAFETY: this mapping was made just now and nobody knows of it.
            unsafe { libc::munmap(at, len as usize) };
            return false;
        }
        mapped.insert(addr, len);
        true
    }

    fn unmap_at(&mut self, addr: u64, len: u64) {
        if self.mapped.remove(&addr).is_none() {
            return;
        }
        // SAFETY: the range was mapped through `map_at`, and only device
        // addresses lie in it.
        unsafe { libc::munmap(addr as *mut libc::c_void, len as usize) };
    }
}

impl Backing for Pages {
    fn allocate(&mut self, addr: u64, len: u64) -> bool {
        let Some(device) = device_of(addr) else {
            return false;
        };
        let plain = match self.plain.entry(device) {
            Entry::Occupied(slot) => slot.into_mut(),
            Entry::Vacant(slot) => {
                let Some(file) = memory_file(WINDOW) else {
                    return false;
                };
                let process = std::process::id();
                slot.insert(Plain { file, process })
            }
        };
        plain.own() && Self::map_at(&mut self.mapped, addr, len, &plain.file, offset(addr))
    }

    fn release(&mut self, addr: u64, len: u64) {
        self.unmap_at(addr, len);
        let plain = device_of(addr).and_then(|device| self.plain.get(&device));
        let Some(Plain { file, .. }) = plain.filter(|plain| plain.own()) else {
            return;
        };
        // Gives the pages back; the next allocation here reads zeros.
        // SAFETY: the descriptor is open; the call touches no memory of the process.
        unsafe {
            libc::fallocate(
                file.as_raw_fd(),
                libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE,
                offset(addr) as libc::off_t,
                len as libc::off_t,
            )
        };
    }

    fn create(&mut self, handle: u64, len: u64, _host: bool) -> bool {
        let Some(file) = memory_file(len) else {
            return false;
        };
        self.files.insert(handle, file);
        true
    }

    fn destroy(&mut self, handle: u64) {
        self.files.remove(&handle);
    }

    fn map(&mut self, addr: u64, len: u64, handle: u64) -> bool {
        self.files
            .get(&handle)
            .is_some_and(|file| Self::map_at(&mut self.mapped, addr, len, file, 0))
    }

    fn map_apart(&mut self, addr: u64, len: u64) -> bool {
        memory_file(len).is_some_and(|file| Self::map_at(&mut self.mapped, addr, len, &file, 0))
    }

    fn unmap(&mut self, addr: u64, len: u64, _handle: u64) {
        self.unmap_at(addr, len);
    }

    fn copy(&mut self, dst: u64, src: u64, len: u64, _dst_device: bool, _src_device: bool) {
        // SAFETY: device ranges are live (the trait's contract) and mapped read
        // and write; host ranges are what the caller of the C API vouches for.
        unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, len as usize) };
    }

    fn fill(&mut self, dst: u64, value: u8, len: u64) {
        // SAFETY: as in `copy`.
        unsafe { std::ptr::write_bytes(dst as *mut u8, value, len as usize) };
    }

    fn read_word(&self, addr: u64) -> u64 {
        // SAFETY: as in `copy`; the word need not be aligned.
        unsafe { std::ptr::read_unaligned(addr as *const u64) }
    }

    fn write_word(&mut self, addr: u64, value: u64) {
        // SAFETY: as in `copy`; the word need not be aligned.
        unsafe { std::ptr::write_unaligned(addr as *mut u64, value) };
    }

    fn real(&self) -> bool {
        true
    }

    fn share(&self, handle: u64) -> Option<String> {
        self.files.get(&handle).map(path_of)
    }

    fn share_plain(&self, addr: u64) -> Option<(String, u64)> {
        let plain = self.plain.get(&device_of(addr)?)?;
        Some((path_of(&plain.file), offset(addr)))
    }

    fn allocate_shared(&mut self, addr: u64, len: u64, source: Option<(&str, u64)>) -> bool {
        let Some((path, offset)) = source else {
            return false;
        };
        let Ok(file) = File::options().read(true).write(true).open(path) else {
            return false;
        };
        Self::map_at(&mut self.mapped, addr, len, &file, offset)
    }

    fn release_shared(&mut self, addr: u64, len: u64) {
        self.unmap_at(addr, len);
    }

    fn adopt(&mut self, handle: u64, _len: u64, path: &str) -> bool {
        let Ok(file) = File::options().read(true).write(true).open(path) else {
            return false;
        };
        self.files.insert(handle, file);
        true
    }
}
