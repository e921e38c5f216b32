//! Values in device memory that one stream writes and others wait for.

use ascend_rs_sys::{
    ACL_ERROR_RT_PARAM_INVALID, ACL_STREAM_WAIT_VALUE_AND, ACL_STREAM_WAIT_VALUE_EQ,
    ACL_STREAM_WAIT_VALUE_GEQ,
};

use super::Sim;
use crate::model::capture::Step;
use crate::model::error::{Result, fail};
use crate::model::stream::Command;
use crate::model::work::{Access, Action, Work};

impl Sim {
    /// Makes a stream wait for a value in memory.
    pub fn wait_value(&mut self, stream: u64, addr: u64, value: u64, flag: u32) -> Result<()> {
        if flag > 3 {
            return fail(ACL_ERROR_RT_PARAM_INVALID, "unknown comparison");
        }
        if !self.mapped(&Access { addr, len: 8 }) {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "address is not mapped device memory",
            );
        }
        if let Some(model) = self.stream(stream)?.capture {
            self.capture(model, stream, Step::WaitValue { addr, value, flag });
            return Ok(());
        }
        self.block(stream, Command::WaitValue { addr, value, flag })
    }

    /// A task of the given length that writes a value.
    pub fn write_value(&mut self, stream: u64, addr: u64, value: u64) -> Result<()> {
        if !self.mapped(&Access { addr, len: 8 }) {
            return fail(
                ACL_ERROR_RT_PARAM_INVALID,
                "address is not mapped device memory",
            );
        }
        let mut work = Work {
            name: "aclrtValueWrite",
            ..Work::default()
        };
        work.accesses.push(Access { addr, len: 8 });
        work.action = Some(Action::WriteValue { addr, value });
        self.submit(stream, work)
    }
}

/// `ACL_STREAM_WAIT_VALUE_*`: how the word in memory is compared.
pub(super) fn holds(word: u64, value: u64, flag: u32) -> bool {
    match flag {
        ACL_STREAM_WAIT_VALUE_GEQ => word.wrapping_sub(value) as i64 >= 0,
        ACL_STREAM_WAIT_VALUE_EQ => word == value,
        ACL_STREAM_WAIT_VALUE_AND => word & value != 0,
        _ => !(word | value) != 0,
    }
}
