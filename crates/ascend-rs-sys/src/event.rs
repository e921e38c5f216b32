//! Events.

use core::ffi::{c_char, c_uint};

use crate::base::{aclrtEvent, aclrtStream};
use crate::error::aclError;

pub type aclrtEventRecordedStatus = c_uint;
pub const ACL_EVENT_RECORDED_STATUS_NOT_READY: aclrtEventRecordedStatus = 0;
pub const ACL_EVENT_RECORDED_STATUS_COMPLETE: aclrtEventRecordedStatus = 1;

pub type aclrtEventWaitStatus = c_uint;
pub const ACL_EVENT_WAIT_STATUS_COMPLETE: aclrtEventWaitStatus = 0;
pub const ACL_EVENT_WAIT_STATUS_NOT_READY: aclrtEventWaitStatus = 1;
pub const ACL_EVENT_WAIT_STATUS_RESERVED: aclrtEventWaitStatus = 0xFFFF;

pub const ACL_EVENT_SYNC: u32 = 1;
pub const ACL_EVENT_CAPTURE_STREAM_PROGRESS: u32 = 2;
pub const ACL_EVENT_TIME_LINE: u32 = 8;
pub const ACL_EVENT_DEVICE_USE_ONLY: u32 = 0x10;
pub const ACL_EVENT_EXTERNAL: u32 = 0x20;
pub const ACL_EVENT_IPC: u32 = 0x40;

pub const ACL_IPC_EVENT_HANDLE_SIZE: usize = 64;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct aclrtIpcEventHandle {
    pub reserved: [c_char; ACL_IPC_EVENT_HANDLE_SIZE],
}

unsafe extern "C" {
    pub fn aclrtCreateEvent(event: *mut aclrtEvent) -> aclError;
    pub fn aclrtCreateEventWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
    pub fn aclrtCreateEventExWithFlag(event: *mut aclrtEvent, flag: u32) -> aclError;
    pub fn aclrtDestroyEvent(event: aclrtEvent) -> aclError;
    pub fn aclrtRecordEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
    pub fn aclrtResetEvent(event: aclrtEvent, stream: aclrtStream) -> aclError;
    pub fn aclrtQueryEventStatus(
        event: aclrtEvent,
        status: *mut aclrtEventRecordedStatus,
    ) -> aclError;
    pub fn aclrtQueryEventWaitStatus(
        event: aclrtEvent,
        status: *mut aclrtEventWaitStatus,
    ) -> aclError;
    pub fn aclrtSynchronizeEvent(event: aclrtEvent) -> aclError;
    pub fn aclrtSynchronizeEventWithTimeout(event: aclrtEvent, timeout: i32) -> aclError;
    pub fn aclrtEventElapsedTime(
        ms: *mut f32,
        startEvent: aclrtEvent,
        endEvent: aclrtEvent,
    ) -> aclError;
    pub fn aclrtEventGetTimestamp(event: aclrtEvent, timestamp: *mut u64) -> aclError;
    pub fn aclrtIpcGetEventHandle(event: aclrtEvent, handle: *mut aclrtIpcEventHandle) -> aclError;
    pub fn aclrtIpcOpenEventHandle(handle: aclrtIpcEventHandle, event: *mut aclrtEvent)
    -> aclError;
}
