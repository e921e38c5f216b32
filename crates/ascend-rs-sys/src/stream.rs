//! Streams and the work that is put on them.

use core::ffi::{c_uint, c_void};

use crate::base::{aclrtCallback, aclrtEvent, aclrtHostFunc, aclrtStream};
use crate::error::aclError;

pub type aclrtStreamStatus = c_uint;
pub const ACL_STREAM_STATUS_COMPLETE: aclrtStreamStatus = 0;
pub const ACL_STREAM_STATUS_NOT_READY: aclrtStreamStatus = 1;
pub const ACL_STREAM_STATUS_RESERVED: aclrtStreamStatus = 0xFFFF;

pub type aclrtCallbackBlockType = c_uint;
pub const ACL_CALLBACK_NO_BLOCK: aclrtCallbackBlockType = 0;
pub const ACL_CALLBACK_BLOCK: aclrtCallbackBlockType = 1;

pub const ACL_STREAM_FAST_LAUNCH: u32 = 1;
pub const ACL_STREAM_FAST_SYNC: u32 = 2;
pub const ACL_STREAM_PERSISTENT: u32 = 4;
pub const ACL_STREAM_HUGE: u32 = 8;
pub const ACL_STREAM_CPU_SCHEDULE: u32 = 0x10;
pub const ACL_STREAM_DEVICE_USE_ONLY: u32 = 0x20;

pub const ACL_STREAM_WAIT_VALUE_GEQ: u32 = 0;
pub const ACL_STREAM_WAIT_VALUE_EQ: u32 = 1;
pub const ACL_STREAM_WAIT_VALUE_AND: u32 = 2;
pub const ACL_STREAM_WAIT_VALUE_NOR: u32 = 3;

pub const ACL_CONTINUE_ON_FAILURE: u64 = 0;
pub const ACL_STOP_ON_FAILURE: u64 = 1;

unsafe extern "C" {
    pub fn aclrtCreateStream(stream: *mut aclrtStream) -> aclError;
    pub fn aclrtCreateStreamWithConfig(
        stream: *mut aclrtStream,
        priority: u32,
        flag: u32,
    ) -> aclError;
    pub fn aclrtDestroyStream(stream: aclrtStream) -> aclError;
    pub fn aclrtDestroyStreamForce(stream: aclrtStream) -> aclError;
    pub fn aclrtStreamQuery(stream: aclrtStream, status: *mut aclrtStreamStatus) -> aclError;
    pub fn aclrtStreamGetId(stream: aclrtStream, streamId: *mut i32) -> aclError;
    pub fn aclrtSynchronizeStream(stream: aclrtStream) -> aclError;
    pub fn aclrtSynchronizeStreamWithTimeout(stream: aclrtStream, timeout: i32) -> aclError;
    pub fn aclrtStreamWaitEvent(stream: aclrtStream, event: aclrtEvent) -> aclError;
    pub fn aclrtStreamAbort(stream: aclrtStream) -> aclError;
    pub fn aclrtValueWait(
        devAddr: *mut c_void,
        value: u64,
        flag: u32,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtValueWrite(
        devAddr: *mut c_void,
        value: u64,
        flag: u32,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtLaunchCallback(
        callback: aclrtCallback,
        userData: *mut c_void,
        blockType: aclrtCallbackBlockType,
        stream: aclrtStream,
    ) -> aclError;
    pub fn aclrtLaunchHostFunc(
        stream: aclrtStream,
        callback: aclrtHostFunc,
        args: *mut c_void,
    ) -> aclError;
    pub fn aclrtSubscribeReport(threadId: u64, stream: aclrtStream) -> aclError;
    pub fn aclrtUnSubscribeReport(threadId: u64, stream: aclrtStream) -> aclError;
    pub fn aclrtProcessReport(timeout: i32) -> aclError;
}
