//! The private pools of a trace in the allocator that replays it.

use std::collections::HashMap;

use npualloc::device::DeviceAllocator;
use npualloc::error::AllocError;
use npualloc::ids::{MempoolId, StreamKey};

/// Added to the second number of an id that the program used again.
const NEXT_LIFE: u64 = 1 << 40;

/// The ids here of a trace's pools: the program's own, unless one comes a second time; under other
/// settings the first may still hold memory.
pub fn ids(given: &[(u64, u64)]) -> impl Iterator<Item = MempoolId> {
    let mut lives = HashMap::new();
    given.iter().map(move |(first, second)| {
        let life: &mut u64 = lives.entry((*first, *second)).or_default();
        let second = second.wrapping_add(*life * NEXT_LIFE);
        *life += 1;
        let first = *first;
        MempoolId { first, second }
    })
}

/// Pools, made when they first serve a request.
#[derive(Debug)]
pub struct Pools {
    /// Their ids here, and whether they are made.
    pools: Vec<(MempoolId, bool)>,
}

impl Pools {
    /// For a trace with these pools.
    pub fn new(given: &[(u64, u64)]) -> Self {
        let pools = ids(given).map(|id| (id, false)).collect();
        Self { pools }
    }

    /// A block of at least `bytes` from a pool of the trace; 0 is the default one.
    ///
    /// # Errors
    /// Those of the allocator.
    pub fn allocate(
        &mut self,
        allocator: &DeviceAllocator,
        pool: u16,
        bytes: usize,
        stream: u32,
    ) -> Result<usize, AllocError> {
        let stream = StreamKey(stream as usize);
        let Some((id, made)) = self.entry(pool) else {
            return allocator.allocate(bytes, stream);
        };
        if !*made {
            allocator.create_or_incref_pool(*id, false)?;
            *made = true;
        }
        allocator.allocate_in(bytes, stream, *id, None)
    }

    /// A pool lost its last user.
    ///
    /// # Errors
    /// Those of the allocator.
    pub fn release(&mut self, allocator: &DeviceAllocator, pool: u16) -> Result<(), AllocError> {
        match self.entry(pool) {
            Some((id, made)) if *made => allocator.release_pool(*id),
            _ => Ok(()),
        }
    }

    fn entry(&mut self, pool: u16) -> Option<&mut (MempoolId, bool)> {
        self.pools.get_mut((pool as usize).checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_programs_until_they_come_again() {
        let ids: Vec<(u64, u64)> = ids(&[(0, 1), (2, 0), (0, 1)])
            .map(|id| (id.first, id.second))
            .collect();
        assert_eq!(ids, [(0, 1), (2, 0), (0, 1 + NEXT_LIFE)]);
    }
}
