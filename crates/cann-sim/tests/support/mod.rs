//! Device memory as tests of the exported functions ask for it.

// Each program of tests uses some of these.
#![allow(dead_code)]

use ascend_rs_sys::*;

pub const DEVICE_0: aclrtMemLocation = aclrtMemLocation {
    id: 0,
    r#type: ACL_MEM_LOCATION_TYPE_DEVICE,
};

/// Physical memory in pages of 2 MiB.
pub const HUGE_PAGES: aclrtPhysicalMemProp = aclrtPhysicalMemProp {
    handleType: ACL_MEM_HANDLE_TYPE_NONE,
    allocationType: ACL_MEM_ALLOCATION_TYPE_PINNED,
    memAttr: ACL_HBM_MEM_HUGE,
    location: DEVICE_0,
    reserve: 0,
};

pub const READ_AND_WRITE: aclrtMemAccessDesc = aclrtMemAccessDesc {
    flags: ACL_RT_MEM_ACCESS_FLAGS_READWRITE,
    location: DEVICE_0,
    rsv: [0; 12],
};
