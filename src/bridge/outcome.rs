//! Errors on their way to C++: a status by value, the text in thread-local storage.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::ffi::{OomReport, Outcome, Status};
use crate::config::{ConfigError, ErrorClass, ErrorCode};
use crate::driver::OUT_OF_MEMORY_CODE;
use crate::error::{self, AllocError, Result};

thread_local! {
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
    static FAILURE: Cell<(Status, i32)> = const { Cell::new((Status::Ok, 0)) };
    static REPORT: RefCell<Option<error::OomReport>> = const { RefCell::new(None) };
}

/// Runs `call`; a panic becomes an internal error, so that it never reaches C++.
#[inline]
pub(super) fn guard<T>(call: impl FnOnce() -> Result<T>) -> std::result::Result<T, Outcome> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failure(error)),
        Err(panic) => Err(panicked(panic)),
    }
}

/// As [`guard`], for calls that have an answer at once or leave it to another one.
#[inline]
pub(super) fn quick<T>(
    call: impl FnOnce() -> Option<T>,
) -> std::result::Result<Option<T>, Outcome> {
    catch_unwind(AssertUnwindSafe(call)).map_err(panicked)
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> Outcome {
    failure(AllocError::Internal(panic_text(panic.as_ref())))
}

/// As [`guard`], for calls that return nothing.
#[inline]
pub(super) fn outcome(call: impl FnOnce() -> Result<()>) -> Outcome {
    match guard(call) {
        Ok(()) => OK,
        Err(outcome) => outcome,
    }
}

const OK: Outcome = Outcome {
    status: Status::Ok,
    code: 0,
};

pub(super) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("no message"))
}

fn config_status(error: &ConfigError) -> Status {
    match error.class() {
        ErrorClass::Value => Status::ConfigValue,
        ErrorClass::Runtime => Status::ConfigRuntime,
        ErrorClass::InvalidArgument => Status::ConfigNotANumber,
        ErrorClass::OutOfRange => Status::ConfigOutOfRange,
    }
}

fn config_code(error: &ConfigError) -> i32 {
    error.code().map_or(-1, ErrorCode::number)
}

#[cold]
fn failure(error: AllocError) -> Outcome {
    MESSAGE.with_borrow_mut(|message| *message = error.to_string());
    let (status, code) = match &error {
        AllocError::OutOfMemory(_) => (Status::OutOfMemory, OUT_OF_MEMORY_CODE),
        AllocError::Rejected(_) => (Status::Rejected, OUT_OF_MEMORY_CODE),
        AllocError::UnknownPool { .. }
        | AllocError::PoolState { .. }
        | AllocError::Sleep { .. }
        | AllocError::NoCapture { .. } => (Status::InvalidArgument, 0),
        AllocError::InvalidPointer { .. } | AllocError::ExplainedPointer { .. } => {
            (Status::InvalidPointer, 0)
        }
        AllocError::Damage { .. } => (Status::Damage, 0),
        AllocError::InvalidDevice { .. } => (Status::InvalidDevice, 0),
        AllocError::InvalidFraction { .. } => (Status::InvalidArgument, 0),
        AllocError::Config(error) => (config_status(error), config_code(error)),
        AllocError::Driver(error) => (Status::DriverError, error.code),
        AllocError::Internal(_) => (Status::Internal, 0),
    };
    if let AllocError::OutOfMemory(report) | AllocError::Rejected(report) = error {
        REPORT.with_borrow_mut(|last| *last = Some(*report));
    }
    FAILURE.set((status, code));
    Outcome { status, code }
}

pub(super) fn last_failure() -> Outcome {
    let (status, code) = FAILURE.get();
    Outcome { status, code }
}

pub(super) fn take_error_message() -> String {
    MESSAGE.take()
}

pub(super) fn last_oom_report() -> OomReport {
    REPORT.with_borrow(|last| {
        last.as_ref().map_or(
            OomReport {
                device: -1,
                alloc_size: 0,
                limit: 0,
                device_total: 0,
                device_free: 0,
                allocated: 0,
                reserved: 0,
            },
            |report| OomReport {
                device: report.device.0 as i32,
                alloc_size: report.alloc_size,
                limit: report.limit.unwrap_or(report.device_total),
                device_total: report.device_total,
                device_free: report.device_free,
                allocated: report.allocated,
                reserved: report.reserved,
            },
        )
    })
}
