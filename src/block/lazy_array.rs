//! Arrays whose memory the system supplies as it is touched.

use std::alloc::{Layout, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Arrays of at least this size are aligned to it and asked to be in pages of this size.
const HUGE_PAGE: usize = 2 << 20;

/// Types of which a value of zero bytes is a valid one.
///
/// # Safety
/// All-zero bytes must be a valid value, dropping one must do nothing, and the type must not be of size 0.
#[allow(unsafe_code)]
pub unsafe trait Zeroable: Copy {}

/// An array of zeroed values. Its length is a power of two and an index counts modulo the length, so that no
/// index is out of bounds. What was never touched takes no memory.
#[derive(Debug)]
pub struct LazyArray<T: Zeroable> {
    first: NonNull<T>,
    /// The length minus one.
    mask: usize,
    /// The mapping that holds the array.
    mapping: (NonNull<libc::c_void>, usize),
    owns: PhantomData<T>,
}

// SAFETY: it owns its values as a boxed slice does.
#[allow(unsafe_code)]
unsafe impl<T: Zeroable + Send> Send for LazyArray<T> {}
// SAFETY: shared access only reads.
#[allow(unsafe_code)]
unsafe impl<T: Zeroable + Sync> Sync for LazyArray<T> {}

#[allow(unsafe_code)]
impl<T: Zeroable> LazyArray<T> {
    /// `len` zeroed values; `len` is a power of two. Ends the process when there are no addresses left,
    /// as collections do.
    #[cold]
    pub fn new(len: usize) -> Self {
        assert!(len.is_power_of_two());
        let bytes = len * size_of::<T>();
        let layout = Layout::array::<T>(len).unwrap_or(Layout::new::<T>());
        let huge = bytes >= HUGE_PAGE;
        let length = bytes + if huge { HUGE_PAGE } else { 0 };
        // SAFETY: a private mapping at an address of the system's choice touches nobody's memory.
        let mapped = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        let base = match NonNull::new(mapped) {
            Some(base) if mapped != libc::MAP_FAILED => base,
            _ => handle_alloc_error(layout),
        };
        let mut first = base.cast::<u8>();
        if huge {
            let offset = first.align_offset(HUGE_PAGE);
            // SAFETY: the mapping is longer than the array by a huge page, and `offset` is below one.
            first = unsafe { first.add(offset) };
            // SAFETY: the range lies in the mapping. A refusal leaves small pages, which do as well.
            unsafe { libc::madvise(first.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        }
        Self {
            first: first.cast(),
            mask: len - 1,
            mapping: (base, length),
            owns: PhantomData,
        }
    }

    /// The number of values.
    #[inline]
    pub fn len(&self) -> usize {
        self.mask + 1
    }

    /// A value.
    #[inline]
    pub fn at(&self, index: usize) -> &T {
        // SAFETY: `index & mask` is below the length; the mapping holds that many values, which were valid
        // when zero and are changed by safe code only; it is page-aligned.
        unsafe { self.first.add(index & self.mask).as_ref() }
    }

    /// A value, to change it.
    #[inline]
    pub fn at_mut(&mut self, index: usize) -> &mut T {
        // SAFETY: as in `at`; the array is borrowed for as long as the value.
        unsafe { self.first.add(index & self.mask).as_mut() }
    }

    /// The first `len` values (all of them, if there are fewer).
    pub fn head(&self, len: usize) -> &[T] {
        // SAFETY: as in `at`.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), len.min(self.len())) }
    }

    /// A copy with room for `len` values, a power of two not below the present length; the first `used` of
    /// them are copied, the others are zero.
    #[cold]
    pub fn grown(&self, len: usize, used: usize) -> Self {
        let grown = Self::new(len);
        let head = self.head(used);
        assert!(head.len() <= grown.len());
        // SAFETY: both are valid for as many values, and a new mapping overlaps no other.
        unsafe {
            std::ptr::copy_nonoverlapping(head.as_ptr(), grown.first.as_ptr(), head.len());
        }
        grown
    }
}

impl<T: Zeroable> Drop for LazyArray<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        let (base, length) = self.mapping;
        // SAFETY: the mapping was made by `new` and nobody can refer to it any more. Failing leaves it.
        unsafe { libc::munmap(base.as_ptr(), length) };
    }
}

#[cfg(test)]
mod tests {
    use super::{HUGE_PAGE, LazyArray, Zeroable};

    // SAFETY: zero is a number.
    #[allow(unsafe_code)]
    unsafe impl Zeroable for u64 {}

    #[test]
    fn begins_zeroed_and_counts_modulo_its_length() {
        let mut array = LazyArray::<u64>::new(8);
        assert_eq!((array.len(), array.head(9)), (8, &[0; 8][..]));
        *array.at_mut(3) = 5;
        assert_eq!((*array.at(3), *array.at(11), *array.at(4)), (5, 5, 0));
        let grown = array.grown(16, 8);
        assert_eq!((grown.len(), *grown.at(3), *grown.at(11)), (16, 5, 0));
    }

    #[test]
    fn large_arrays_are_aligned_and_writable_to_the_end() {
        let len = HUGE_PAGE / 8 * 2;
        let mut array = LazyArray::<u64>::new(len);
        assert_eq!(array.at(0) as *const u64 as usize % HUGE_PAGE, 0);
        *array.at_mut(len - 1) = 7;
        assert_eq!((*array.at(usize::MAX), array.head(len)[len - 1]), (7, 7));
    }
}
