//! Errors on their way to C++: a status by value, the text in thread-local storage.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::LocalKey;

use super::allocator::Allocator;
use super::ffi::{OomReport, Outcome, Status};
use crate::config::{ConfigError, ErrorClass, ErrorCode};
use crate::driver::OUT_OF_MEMORY_CODE;
use crate::error::{self, AllocError, Result};
use crate::sync::{Refused, take_unwound};

thread_local! {
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
    static FAILURE: Cell<(Status, i32)> = const { Cell::new((Status::Ok, 0)) };
    static REPORT: RefCell<Option<error::OomReport>> = const { RefCell::new(None) };
}

impl Allocator {
    /// Runs `call`; a panic becomes an error, so that it never reaches C++. Where it went through the lock of a device, that
    /// is poisoned, and the error says so.
    #[inline]
    pub(super) fn catch<T>(&self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(self.panicked(panic)))
    }

    /// As [`Self::catch`], with the error on its way to C++.
    #[inline]
    pub(super) fn guard<T>(
        &self,
        call: impl FnOnce() -> Result<T>,
    ) -> std::result::Result<T, Outcome> {
        self.catch(call).map_err(failure)
    }

    /// As [`Self::guard`], for calls that have an answer at once or leave it to another one.
    #[inline]
    pub(super) fn quick<T>(
        &self,
        call: impl FnOnce() -> Option<T>,
    ) -> std::result::Result<Option<T>, AllocError> {
        catch_unwind(AssertUnwindSafe(call)).map_err(|panic| self.panicked(panic))
    }

    /// As [`Self::guard`], for calls that return nothing.
    #[inline]
    pub(super) fn outcome(&self, call: impl FnOnce() -> Result<()>) -> Outcome {
        as_outcome(self.guard(call))
    }

    /// As [`Self::outcome`], for what destructors call: an error there would end the program. On a poisoned device nothing
    /// happens; the next call that may fail tells of it.
    #[inline]
    pub(super) fn lenient(&self, call: impl FnOnce() -> Result<()>) -> Outcome {
        as_outcome(self.catch(call).or_else(Self::forgive))
    }

    /// See [`Self::lenient`].
    #[cold]
    pub(super) fn forgive(error: AllocError) -> std::result::Result<(), Outcome> {
        match error {
            AllocError::Poisoned { .. } => Ok(()),
            other => Err(failure(other)),
        }
    }

    #[cold]
    fn panicked(&self, panic: Box<dyn Any + Send>) -> AllocError {
        let text = (!panic.is::<Refused>()).then(|| panic_text(panic.as_ref()));
        let poisoned = self.registry.blame(take_unwound(), text.as_deref());
        poisoned.unwrap_or_else(|| bug(&text.unwrap_or_default()))
    }
}

/// Runs `call`, which knows no device.
pub(super) fn outcome(call: impl FnOnce() -> Result<()>) -> Outcome {
    let done = catch_unwind(AssertUnwindSafe(call));
    let done = done.unwrap_or_else(|panic| Err(bug(&panic_text(panic.as_ref()))));
    as_outcome(done.map_err(failure))
}

#[inline]
fn as_outcome(done: std::result::Result<(), Outcome>) -> Outcome {
    match done {
        Ok(()) => OK,
        Err(outcome) => outcome,
    }
}

const OK: Outcome = Outcome {
    status: Status::Ok,
    code: 0,
};

/// The error of a panic that left all devices as they were.
fn bug(text: &str) -> AllocError {
    AllocError::Internal(format!("panic: {text}"))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
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

/// Keeps what a thread may ask for next. One whose own storage is gone already, because it or the process ends, goes
/// without.
fn keep<T>(place: &'static LocalKey<RefCell<T>>, value: T) {
    let _ = place.try_with(|kept| kept.replace(value));
}

#[cold]
pub(super) fn failure(error: AllocError) -> Outcome {
    keep(&MESSAGE, error.to_string());
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
        AllocError::Internal(_) | AllocError::Poisoned { .. } => (Status::Internal, 0),
    };
    if let AllocError::OutOfMemory(report) | AllocError::Rejected(report) = error {
        keep(&REPORT, Some(*report));
    }
    FAILURE.set((status, code));
    Outcome { status, code }
}

pub(super) fn last_failure() -> Outcome {
    let (status, code) = FAILURE.get();
    Outcome { status, code }
}

pub(super) fn take_error_message() -> String {
    MESSAGE.try_with(RefCell::take).unwrap_or_default()
}

pub(super) fn last_oom_report() -> OomReport {
    let last = REPORT.try_with(|last| last.borrow().clone());
    let none = OomReport {
        device: -1,
        alloc_size: 0,
        limit: 0,
        device_total: 0,
        device_free: 0,
        allocated: 0,
        reserved: 0,
    };
    last.ok().flatten().map_or(none, |report| OomReport {
        device: report.device.0 as i32,
        alloc_size: report.alloc_size,
        limit: report.limit.unwrap_or(report.device_total),
        device_total: report.device_total,
        device_free: report.device_free,
        allocated: report.allocated,
        reserved: report.reserved,
    })
}

#[cfg(test)]
mod tests {
    use super::{failure, last_oom_report, take_error_message};
    use crate::error::AllocError;
    use std::sync::mpsc::{Sender, channel};

    /// Fails when the thread's storage goes.
    struct Late(Sender<(String, i32)>);

    impl Drop for Late {
        fn drop(&mut self) {
            failure(AllocError::Internal("late".into()));
            let seen = (take_error_message(), last_oom_report().device);
            self.0.send(seen).expect("somebody waits");
        }
    }

    thread_local! {
        static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
    }

    #[test]
    fn a_failure_while_the_thread_ends_is_none_of_the_process() {
        let (seen, sees) = channel();
        std::thread::spawn(move || {
            // What is used first goes last.
            LATE.set(Some(Late(seen)));
            failure(AllocError::Internal("early".into()));
        });
        assert_eq!(sees.recv(), Ok((String::new(), -1)));
    }
}
