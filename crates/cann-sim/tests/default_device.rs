//! A device that `aclInit` names for threads that choose none; in a program of its
//! own, because a process has one `aclInit`. Source: reference, aclInit; the runtime's
//! `ApiImpl::GetDevice` and `ApiImpl::ContextGetCurrent`, which make nothing current.

use std::ffi::CString;
use std::ptr::null_mut;

use ascend_rs_sys::ACL_ERROR_RT_CONTEXT_NULL;
use ascendcl::ffi::device::{aclrtGetCurrentContext, aclrtGetDevice, aclrtGetPrimaryCtxState};
use ascendcl::ffi::memory::{aclrtFree, aclrtMalloc};
use ascendcl::ffi::runtime::aclInit;

#[test]
fn the_default_device_is_active_once_a_thread_uses_it() {
    let file = std::env::temp_dir().join(format!("cann-sim-acl-{}.json", std::process::id()));
    let text = r#"{"defaultDevice":{"default_device":"1"}}"#;
    std::fs::write(&file, text).unwrap();
    let path = CString::new(file.to_str().unwrap()).unwrap();
    assert_eq!(aclInit(path.as_ptr()), 0);
    std::fs::remove_file(file).unwrap();
    let active = |device| {
        let mut active = 9;
        assert_eq!(aclrtGetPrimaryCtxState(device, null_mut(), &mut active), 0);
        active
    };
    let (mut device, mut context) = (9, null_mut());
    assert_eq!((aclrtGetDevice(&mut device), device), (0, 1));
    let code = aclrtGetCurrentContext(&mut context);
    assert_eq!(code, ACL_ERROR_RT_CONTEXT_NULL);
    assert_eq!((active(0), active(1)), (0, 0));
    let mut memory = null_mut();
    assert_eq!(aclrtMalloc(&mut memory, 64, 0), 0);
    assert_eq!((active(0), active(1)), (0, 1));
    assert_eq!(aclrtGetCurrentContext(&mut context), 0);
    assert_eq!(aclrtFree(memory), 0);
}
