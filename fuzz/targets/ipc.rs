//! Handles of shared memory, which come from other processes: what is accepted has exactly the length that
//! it gives.
#![no_main]

use std::ffi::c_int;

use libfuzzer_sys::fuzz_target;

unsafe extern "C" {
    fn npualloc_fuzz_ipc_text(
        text: *const u8,
        bytes: usize,
        page_size: *mut usize,
        count: *mut usize,
        sum: *mut u64,
    ) -> c_int;
}

const KEY: c_int = 0;
const PAGES: c_int = 1;

fuzz_target!(|data: &[u8]| {
    let (mut page_size, mut count, mut sum) = (0, 0, 0);
    // SAFETY: `data` is readable for its length, the rest is written only; nothing is kept.
    let verdict = unsafe {
        npualloc_fuzz_ipc_text(
            data.as_ptr(),
            data.len(),
            &mut page_size,
            &mut count,
            &mut sum,
        )
    };
    match verdict {
        KEY => {
            assert_eq!((count, sum), (0, 65));
            assert!(data.len() == 65 || data.len() >= 67 && data[..2] == [data[0], b'c']);
        }
        PAGES => {
            assert_eq!(data.len(), 2 + 16 + 8 * count);
            assert!((1..=1 << 20).contains(&count) && (1..=1 << 30).contains(&page_size));
            let expected = data[18..].chunks_exact(8).fold(0u64, |sum, bytes| {
                sum.wrapping_add(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
            });
            assert_eq!(sum, expected);
        }
        refused => assert!((2..=4).contains(&refused) && count == 0),
    }
});
