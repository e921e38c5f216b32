//! What stands behind device addresses. The model tells a [`Backing`] what is
//! allocated, mapped, copied and filled; [`phantom`] keeps nothing, [`pages`]
//! keeps real pages at the same addresses.

pub mod pages;
pub mod phantom;

/// Memory behind addresses. All ranges the model passes to the copy and fill
/// functions are live allocations or mappings, or host memory that the caller
/// of the C API named.
pub trait Backing: Send {
    /// A plain allocation was made. False if there is no memory for it.
    fn allocate(&mut self, addr: u64, len: u64) -> bool;
    /// A plain allocation is gone.
    fn release(&mut self, addr: u64, len: u64);
    /// A physical handle was made; `host` if its pages are host memory. False
    /// if there is no memory for it.
    fn create(&mut self, handle: u64, len: u64, host: bool) -> bool;
    /// The pages of a handle are gone.
    fn destroy(&mut self, handle: u64);
    /// A handle was mapped. False if that cannot be done.
    fn map(&mut self, addr: u64, len: u64, handle: u64) -> bool;
    /// A handle was mapped once more, with other memory behind the address. False if that cannot be done.
    fn map_apart(&mut self, addr: u64, len: u64) -> bool;
    /// A mapping is gone.
    fn unmap(&mut self, addr: u64, len: u64, handle: u64);
    /// Copies; `dst_device` and `src_device` say which ends are device memory.
    fn copy(&mut self, dst: u64, src: u64, len: u64, dst_device: bool, src_device: bool);
    /// Sets every byte of device memory.
    fn fill(&mut self, dst: u64, value: u8, len: u64);
    /// Reads a word that a stream may wait for.
    fn read_word(&self, addr: u64) -> u64;
    /// Writes a word.
    fn write_word(&mut self, addr: u64, value: u64);
    /// True if device memory can be read and written.
    fn real(&self) -> bool;
    /// Makes a handle's pages available to other processes; a path they can open.
    fn share(&self, handle: u64) -> Option<String>;
    /// Where the pages of plain memory are; a path others can open, and the
    /// offset in that file.
    fn share_plain(&self, addr: u64) -> Option<(String, u64)>;
    /// Puts plain memory of another process at an address.
    fn allocate_shared(&mut self, addr: u64, len: u64, source: Option<(&str, u64)>) -> bool;
    /// Takes it away again.
    fn release_shared(&mut self, addr: u64, len: u64);
    /// Makes a handle of the pages another process shares.
    fn adopt(&mut self, handle: u64, len: u64, path: &str) -> bool;
}
