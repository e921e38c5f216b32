//! How large a thing is that a call names by its address or handle only.

use super::Sim;
use crate::model::cost::CallKind;
use crate::model::memory::device_of;

impl Sim {
    /// Bytes of what a call of this kind would take away; 0 if nothing has this
    /// address or handle.
    pub fn len_of(&self, kind: CallKind, object: u64) -> u64 {
        let found = match kind {
            CallKind::Free => self.plain_len(object),
            CallKind::FreePhysical => self.vmm.handle(object).ok().map(|it| it.len),
            CallKind::Unmap => self.vmm.mapping_at(object).ok().map(|it| it.len),
            CallKind::ReleaseAddress => self.vmm.reservation_at(object).map(|it| it.len),
            CallKind::FreeHost => self.host.get(&object).map(|it| it.len),
            CallKind::HostUnregister => self.registered.get(&object).map(|it| it.len),
            _ => None,
        };
        found.unwrap_or(0)
    }

    fn plain_len(&self, addr: u64) -> Option<u64> {
        let device = self.devices.get(device_of(addr)? as usize)?;
        Some(device.memory.get(addr)?.len)
    }
}
