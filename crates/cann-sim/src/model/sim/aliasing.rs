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
        // Few of the tasks that are pending run at the same time.
        let tasks = self.streams.iter().flat_map(|(_, it)| &it.pending);
        let meanwhile: Vec<&Access> = tasks
            .filter(|it| it.start < task.end && task.start < it.end)
            .flat_map(|it| &it.accesses)
            .collect();
        let twice = task.accesses.iter().enumerate().find(|(index, access)| {
            let itself = &task.accesses[index + 1..];
            if itself.is_empty() && meanwhile.is_empty() {
                return false;
            }
            let mut aliases = self.vmm.aliases(access.addr, access.len).into_iter();
            aliases.any(|(addr, len)| {
                let mut others = itself.iter().chain(meanwhile.iter().copied());
                others.any(|it| it.overlaps(addr, len))
            })
        });
        if let Some((_, &Access { addr, len })) = twice {
            self.hazard(HazardKind::AliasedUse, device, addr, len, task.name);
        }
    }
}
