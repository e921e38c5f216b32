//! What is noted of programs that may repeat themselves.

use super::races::{MIB, device};
use crate::device::*;
use crate::ids::StreamKey;
use crate::plan::MOST_STEPS;

const STREAM: StreamKey = StreamKey(1);
/// What the blocks of a full device may take, MiB.
const ROOM: usize = 470;

/// Memory moves until requests are noted: sizes in no order on a full device.
fn until_noting(device: &DeviceAllocator) {
    let mut alive: Vec<(usize, usize)> = Vec::new();
    for step in 1.. {
        if device.state.lock().planning.is_noting() {
            break;
        }
        assert!(step < 3000, "memory never moved");
        let size = 5 + step * step * 7919 % 83;
        while alive.iter().map(|(_, size)| size + 4).sum::<usize>() + size + 4 > ROOM {
            let (addr, _) = alive.remove(step * 5 % alive.len());
            assert!(device.deallocate(addr));
        }
        let addr = device.allocate(size * MIB, STREAM).expect("fits");
        alive.push((addr, size));
    }
    for (addr, _) in alive {
        assert!(device.deallocate(addr));
    }
}

#[test]
fn noting_ends_where_one_size_alone_comes_again_and_again() {
    let (_driver, device) = device(512 * MIB, "expandable_segments:True");
    until_noting(&device);
    for _ in 0..=MOST_STEPS {
        let addr = device.allocate(64 * MIB, STREAM).expect("fits");
        assert!(device.deallocate(addr));
    }
    assert!(!device.state.lock().planning.is_on());
}
