//! What the driver was asked, for people. Silent unless somebody wants it; nothing is formatted before that is
//! known.

use std::ffi::c_void;
use std::fmt;
use std::io::Write as _;
use std::sync::OnceLock;

use super::DriverTable;
use crate::driver::DriverResult;
use crate::ids::DeviceId;

/// Numbers as in Python's `logging`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Level {
    /// Every call.
    Debug = 10,
    /// The device is full, or the embedding program has an exception to throw.
    Info = 20,
    /// A call failed.
    Warning = 30,
    /// The allocator panicked.
    Error = 40,
}

/// Which levels the process's `NPUALLOC_LOG` asks for: those from this number on.
const OFF: i32 = 100;

/// Where lines go: to the embedding program where it takes them, else to standard error as `NPUALLOC_LOG` says.
#[derive(Clone, Copy)]
pub struct Log {
    user: *mut c_void,
    wanted: Option<unsafe extern "C" fn(*mut c_void, i32) -> i32>,
    write: Option<unsafe extern "C" fn(*mut c_void, i32, *const u8, usize)>,
    /// From which level on lines go to standard error.
    lowest: i32,
}

impl Log {
    pub fn new(table: &DriverTable) -> Self {
        static LOWEST: OnceLock<i32> = OnceLock::new();
        Self {
            user: table.user,
            wanted: table.log_wanted,
            write: table.log,
            lowest: *LOWEST.get_or_init(environment),
        }
    }

    fn wants(&self, level: Level) -> bool {
        match self.wanted {
            // SAFETY: the table's contract (`ForeignDriver::new`).
            Some(wanted) if self.write.is_some() => unsafe { wanted(self.user, level as i32) != 0 },
            _ => level as i32 >= self.lowest,
        }
    }

    /// A driver call came back.
    pub fn call(&self, device: DeviceId, result: &DriverResult<()>, what: fmt::Arguments<'_>) {
        let level = match result {
            Ok(()) => Level::Debug,
            Err(error) if error.is_out_of_memory() => Level::Info,
            // Not the driver's, but the embedding program's: its exception says what it was.
            Err(error) if error.code < 0 => Level::Info,
            Err(_) => Level::Warning,
        };
        if !self.wants(level) {
            return;
        }
        match result {
            Ok(()) => self.say(level, format_args!("device {}: {what}", device.0)),
            Err(error) => self.say(
                level,
                format_args!("device {}: {what}: failed, error {}", device.0, error.code),
            ),
        }
    }

    /// The allocator has a bug.
    pub fn bug(&self, text: &str) {
        if self.wants(Level::Error) {
            self.say(Level::Error, format_args!("{text}"));
        }
    }

    fn say(&self, level: Level, text: fmt::Arguments<'_>) {
        let line = format!("npualloc: {text}");
        match self.write {
            // SAFETY: the table's contract; the text lives until the call is over.
            Some(write) if self.wanted.is_some() => unsafe {
                write(self.user, level as i32, line.as_ptr(), line.len());
            },
            _ => {
                // Nobody to tell when standard error is closed.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        }
    }
}

/// The lowest level of a text, as a number.
fn parse(text: &str) -> Option<i32> {
    Some(match text {
        "" | "off" | "0" => OFF,
        "warning" | "warn" => Level::Warning as i32,
        "info" => Level::Info as i32,
        "debug" => Level::Debug as i32,
        _ => return None,
    })
}

fn environment() -> i32 {
    let text = std::env::var("NPUALLOC_LOG").unwrap_or_default();
    parse(&text).unwrap_or_else(|| {
        let _ = writeln!(
            std::io::stderr(),
            "npualloc: NPUALLOC_LOG={text:?} is none of off, warning, info, debug"
        );
        OFF
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::DriverError;

    unsafe extern "C" fn wanted(user: *mut c_void, level: i32) -> i32 {
        // SAFETY: `user` is the vector of `log`.
        let lines = unsafe { &*user.cast::<Vec<String>>() };
        i32::from(level >= 20 && lines.len() < 4)
    }

    unsafe extern "C" fn write(user: *mut c_void, level: i32, text: *const u8, length: usize) {
        // SAFETY: as above; the text is `length` bytes.
        let (lines, text) = unsafe {
            let text = std::slice::from_raw_parts(text, length);
            (&mut *user.cast::<Vec<String>>(), text)
        };
        lines.push(format!("{level} {}", String::from_utf8_lossy(text)));
    }

    #[test]
    fn lines_go_to_the_program_where_it_wants_them() {
        let mut lines: Vec<String> = Vec::new();
        let log = Log {
            user: (&raw mut lines).cast(),
            wanted: Some(wanted),
            write: Some(write),
            lowest: OFF,
        };
        let failure = |code| {
            Err(DriverError {
                call: "malloc",
                code,
            })
        };
        let device = DeviceId(1);
        log.call(device, &Ok(()), format_args!("malloc of 1 bytes"));
        log.call(device, &failure(207_001), format_args!("malloc of 2 bytes"));
        log.call(device, &failure(507_000), format_args!("malloc of 3 bytes"));
        log.call(device, &failure(-70_001), format_args!("malloc of 4 bytes"));
        log.bug("device 1 is poisoned");
        log.call(device, &failure(507_000), format_args!("malloc of 5 bytes"));
        assert_eq!(
            lines,
            [
                "20 npualloc: device 1: malloc of 2 bytes: failed, error 207001",
                "30 npualloc: device 1: malloc of 3 bytes: failed, error 507000",
                "20 npualloc: device 1: malloc of 4 bytes: failed, error -70001",
                "40 npualloc: device 1 is poisoned",
            ]
        );
    }

    #[test]
    fn levels_are_known_by_their_names() {
        assert_eq!(parse("debug"), Some(10));
        assert_eq!(parse("info"), Some(20));
        assert_eq!(parse("warn"), parse("warning"));
        assert_eq!(parse(""), Some(OFF));
        assert_eq!(parse("verbose"), None);
    }
}
