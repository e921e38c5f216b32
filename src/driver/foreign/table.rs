//! Rust's view of `npualloc::DriverTable`.

use std::ffi::c_void;

use crate::driver::StreamToken;

type User = *mut c_void;

/// See `include/npualloc/driver_table.h`, which this mirrors field by field.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs)]
pub struct DriverTable {
    pub user: User,
    pub malloc: unsafe extern "C" fn(User, i32, usize, i32, *mut usize) -> i32,
    pub free: unsafe extern "C" fn(User, i32, usize) -> i32,
    pub memory_info: unsafe extern "C" fn(User, i32, *mut usize, *mut usize) -> i32,
    pub synchronize_device: unsafe extern "C" fn(User, i32) -> i32,
    pub event_create: unsafe extern "C" fn(User, i32, *mut usize) -> i32,
    pub event_destroy: unsafe extern "C" fn(User, usize) -> i32,
    pub event_record: unsafe extern "C" fn(User, usize, StreamToken) -> i32,
    pub event_query: unsafe extern "C" fn(User, usize, *mut i32) -> i32,
    pub event_synchronize: unsafe extern "C" fn(User, usize) -> i32,
    pub run_free_callbacks: unsafe extern "C" fn(User, i32, *mut i32) -> i32,
    pub release_external_caches: unsafe extern "C" fn(User, i32) -> i32,
    pub reserve_address: Option<unsafe extern "C" fn(User, i32, usize, *mut usize) -> i32>,
    pub release_address: Option<unsafe extern "C" fn(User, i32, usize) -> i32>,
    pub malloc_physical: Option<unsafe extern "C" fn(User, i32, usize, i32, *mut usize) -> i32>,
    pub free_physical: Option<unsafe extern "C" fn(User, i32, usize) -> i32>,
    pub map: Option<unsafe extern "C" fn(User, i32, usize, usize, usize) -> i32>,
    pub unmap: Option<unsafe extern "C" fn(User, i32, usize) -> i32>,
    pub is_capturing: Option<unsafe extern "C" fn(User, i32, *mut i32) -> i32>,
    pub is_stream_capturing: Option<unsafe extern "C" fn(User, StreamToken, *mut i32) -> i32>,
    pub pool_malloc: Option<unsafe extern "C" fn(User, i32, u64, u64, usize, *mut usize) -> i32>,
    pub pool_free: Option<unsafe extern "C" fn(User, i32, u64, u64, usize) -> i32>,
    pub context_drop: Option<unsafe extern "C" fn(User, usize)>,
    pub event_record_fence: Option<unsafe extern "C" fn(User, i32, usize, usize) -> i32>,
    pub stream_wait: Option<unsafe extern "C" fn(User, i32, usize, usize) -> i32>,
    pub settle: Option<unsafe extern "C" fn(User, i32) -> i32>,
    pub fill: Option<unsafe extern "C" fn(User, i32, usize, usize, u8) -> i32>,
    pub read: Option<unsafe extern "C" fn(User, i32, usize, usize, *mut u8) -> i32>,
    pub stack: Option<unsafe extern "C" fn(User, *mut u8, usize) -> usize>,
    pub log_wanted: Option<unsafe extern "C" fn(User, i32) -> i32>,
    pub log: Option<unsafe extern "C" fn(User, i32, *const u8, usize)>,
    pub event_record_for_streams: Option<unsafe extern "C" fn(User, usize, StreamToken) -> i32>,
}

// The C++ header asserts the same numbers.
const _: () = assert!(size_of::<DriverTable>() == 32 * size_of::<usize>());
const _: () = assert!(size_of::<StreamToken>() == 16);

// SAFETY: same layout as the C++ struct, trivially copyable on both sides.
unsafe impl cxx::ExternType for DriverTable {
    type Id = cxx::type_id!("npualloc::DriverTable");
    type Kind = cxx::kind::Trivial;
}

// SAFETY: as above.
unsafe impl cxx::ExternType for StreamToken {
    type Id = cxx::type_id!("npualloc::StreamToken");
    type Kind = cxx::kind::Trivial;
}
