//! Physical handles that back no address in use.

use std::collections::BTreeMap;

use crate::driver::PhysicalHandle;
use crate::ids::StreamKey;

/// The last use of a page: it is over for everybody once the stream has passed what was freed up to a tick
/// of the device's clock; for that stream itself it always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastUse {
    /// The stream that used it.
    pub stream: StreamKey,
    /// When it was freed.
    pub tick: u64,
}

/// The idle handles of a device, by size. Any range of any stream or pool may take those whose last use is
/// over.
#[derive(Debug, Default)]
pub struct PagePool {
    idle: BTreeMap<usize, Vec<(PhysicalHandle, Option<LastUse>)>>,
    bytes: usize,
}

impl PagePool {
    /// Bytes in idle handles.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an idle handle; with its last use, unless that is over for everybody.
    pub fn put(&mut self, page_size: usize, handle: PhysicalHandle, used: Option<LastUse>) {
        self.idle.entry(page_size).or_default().push((handle, used));
        self.bytes += page_size;
    }

    /// Takes up to `count` handles of a size, the latest first, of those that `may` be taken.
    pub fn take(
        &mut self,
        page_size: usize,
        count: usize,
        may: impl Fn(PhysicalHandle, Option<LastUse>) -> bool,
    ) -> Vec<(PhysicalHandle, Option<LastUse>)> {
        let mut taken = Vec::new();
        let Some(idle) = self.idle.get_mut(&page_size) else {
            return taken;
        };
        let mut at = idle.len();
        while at > 0 && taken.len() < count {
            at -= 1;
            if may(idle[at].0, idle[at].1) {
                taken.push(idle.remove(at));
            }
        }
        self.bytes -= taken.len() * page_size;
        taken
    }

    /// The sizes of which there are idle handles.
    pub fn sizes(&self) -> impl Iterator<Item = usize> + '_ {
        let some = self.idle.iter().filter(|(_, handles)| !handles.is_empty());
        some.map(|(size, _)| *size)
    }

    /// The idle handles of a size.
    pub fn of_size(
        &self,
        page_size: usize,
    ) -> impl Iterator<Item = (PhysicalHandle, Option<LastUse>)> + '_ {
        self.idle.get(&page_size).into_iter().flatten().copied()
    }
}
