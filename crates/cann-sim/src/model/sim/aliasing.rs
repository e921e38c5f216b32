//! Use of one physical page at two addresses. A program may map a handle twice
//! to give its pages another place; it must then order the uses of both places,
//! which no driver checks.

use super::Sim;
use crate::model::ledger::HazardKind;
use crate::model::stream::Pending;
use crate::model::work::Access;

impl Sim {
    /// Reports a task that uses pages which another task, running at the same
    /// time, or the task itself uses at another address. Tasks of different
    /// streams that happen not to overlap in time are not found.
    pub(super) fn check_aliases(&mut self, device: u32, task: &Pending) {
        for (index, access) in task.accesses.iter().enumerate() {
            for (addr, len) in self.vmm.aliases(access.addr, access.len) {
                let other = Access { addr, len };
                let touches = |it: &Access| it.overlaps(other.addr, other.len);
                let itself = task.accesses[index + 1..].iter().any(touches);
                let another = || {
                    let streams = self.streams.iter();
                    let mut tasks = streams.flat_map(|(_, stream)| &stream.pending);
                    tasks.any(|it| {
                        it.start < task.end
                            && task.start < it.end
                            && it.accesses.iter().any(touches)
                    })
                };
                if itself || another() {
                    let Access { addr, len } = *access;
                    self.hazard(HazardKind::AliasedUse, device, addr, len, task.name);
                    return;
                }
            }
        }
    }
}
