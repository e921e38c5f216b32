//! Which device an address belongs to, as far as it is known: a guess that is right unless memory has
//! changed hands, to be confirmed by the device. One load while there is one owner, as in most processes; three
//! otherwise. No lock.

use crate::primitives::OnceLock;
use crate::primitives::atomic::{AtomicU8, Ordering};

/// Addresses are told apart in units of 2 MiB: no driver gives out memory of two devices within one.
/// In models there are few.
const GRANULE_BITS: u32 = if cfg!(loom) { 42 } else { 21 };
const LEAF_BITS: u32 = if cfg!(loom) { 2 } else { 15 };
const ROOT_BITS: u32 = 48 - GRANULE_BITS - LEAF_BITS;

type Leaf = [AtomicU8; 1 << LEAF_BITS];

/// [`Owners::only`]: more than one.
const MANY: u8 = u8::MAX;

/// A radix table over the 48 bits of an address.
pub struct Owners {
    /// One more than the only device that was ever remembered; 0 for none.
    only: AtomicU8,
    root: Box<[OnceLock<Box<Leaf>>]>,
}

impl Default for Owners {
    fn default() -> Self {
        Self {
            only: AtomicU8::new(0),
            root: (0..1 << ROOT_BITS).map(|_| OnceLock::new()).collect(),
        }
    }
}

fn new_leaf() -> Box<Leaf> {
    Box::new(std::array::from_fn(|_| AtomicU8::new(0)))
}

/// Indexes of root and leaf.
#[inline]
fn place(addr: usize) -> (usize, usize) {
    let granule = addr >> GRANULE_BITS;
    (granule >> LEAF_BITS, granule & ((1 << LEAF_BITS) - 1))
}

impl Owners {
    /// The device last known to own the memory at `addr`; while only one is known, that one.
    #[inline]
    pub fn get(&self, addr: usize) -> Option<usize> {
        // With what `set` releases: who learns that there are more knows what the table says of each.
        let only = self.only.load(Ordering::Acquire);
        if only != MANY {
            return usize::from(only).checked_sub(1);
        }
        let (root, leaf) = place(addr);
        let leaf = &self.root.get(root)?.get()?[leaf];
        usize::from(leaf.load(Ordering::Relaxed)).checked_sub(1)
    }

    /// Remembers the owner. An address beyond 48 bits, or a device beyond 254, is not remembered.
    #[cold]
    pub fn set(&self, addr: usize, device: usize) {
        let (root, leaf) = place(addr);
        let (Some(slot), Ok(device)) = (self.root.get(root), u8::try_from(device + 1)) else {
            return;
        };
        slot.get_or_init(new_leaf)[leaf].store(device, Ordering::Relaxed);
        let one_more = |only| {
            Some(if only == 0 || only == device {
                device
            } else {
                MANY
            })
        };
        let _ = self
            .only
            .fetch_update(Ordering::Release, Ordering::Relaxed, one_more);
    }
}

#[cfg(test)]
mod tests {
    use super::Owners;

    #[test]
    fn remembers_the_last_owner_of_each_granule() {
        let owners = Owners::default();
        assert_eq!(owners.get(0x2000_0000_0000), None);
        owners.set(0x2000_0000_0000, 0);
        owners.set(0x2000_0040_0000, 0);
        let everywhere = [0x2000_0000_0000, 0x2000_0020_0000, usize::MAX];
        assert_eq!(everywhere.map(|addr| owners.get(addr)), [Some(0); 3]);
        owners.set(0x2000_0020_0000, 63);
        assert_eq!(owners.get(0x2000_001F_FFFF), Some(0));
        assert_eq!(owners.get(0x2000_0020_0000), Some(63));
        owners.set(0x2000_0000_0200, 1);
        assert_eq!(owners.get(0x2000_0000_0000), Some(1));
        owners.set(usize::MAX, 1);
        owners.set(0, 300);
        assert_eq!((owners.get(usize::MAX), owners.get(0)), (None, None));
    }
}
