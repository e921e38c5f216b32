//! Memory of graphs and of work that no stream orders against them: tests. A graph is replayed on any stream, and nothing
//! tells the allocator of it.

use std::sync::Arc;

use super::races::{MIB, device, token};
use crate::device::*;
use crate::driver::fake::FakeDriver;
use crate::ids::{MempoolId, StreamKey};

const CAPTURED: StreamKey = StreamKey(5);
const REPLAYED: StreamKey = StreamKey(6);
const POOL: MempoolId = MempoolId {
    first: 1,
    second: 0,
};

struct Machine {
    driver: Arc<FakeDriver>,
    device: Arc<DeviceAllocator>,
}

impl Machine {
    fn new(settings: &str) -> Self {
        let (driver, device) = device(256 * MIB, settings);
        device.choose_engine();
        Self { driver, device }
    }

    fn begin_capture(&self) {
        self.device
            .create_or_incref_pool(POOL, false)
            .expect("made");
        self.device.mark_capture_begin();
        self.driver.set_capturing(true);
        self.driver.capture(Some(token(CAPTURED)));
    }

    fn end_capture(&self) {
        self.driver.capture(None);
        self.driver.set_capturing(false);
        self.device.mark_capture_end().expect("begun");
    }

    /// Handles under a block.
    fn pages(&self, addr: usize, bytes: usize) -> Vec<usize> {
        let spans = self.driver.spans(0, addr, bytes).expect("mapped");
        spans.iter().map(|span| span.handle).collect()
    }
}

/// A graph is replayed and destroyed at once, and its memory wanted: whether that was had while the replay runs.
fn taken_from_a_running_graph(settings: &str) -> bool {
    let machine = Machine::new(settings);
    let (driver, device) = (&machine.driver, &machine.device);
    machine.begin_capture();
    let temporary = device.allocate_in(160 * MIB, CAPTURED, POOL, None);
    let temporary = temporary.expect("fits");
    let of_graph = machine.pages(temporary, 160 * MIB);
    assert!(device.deallocate(temporary));
    machine.end_capture();
    driver.submit(token(REPLAYED));
    device.release_pool(POOL).expect("released");
    let wanted = device.allocate(128 * MIB, StreamKey(7)).expect("fits");
    let pages = machine.pages(wanted, 128 * MIB);
    let (submitted, done) = driver.progress(token(REPLAYED));
    pages.iter().any(|page| of_graph.contains(page)) && done < submitted
}

#[test]
fn memory_of_a_graph_that_runs_is_not_moved_with_virtual_segments() {
    assert!(!taken_from_a_running_graph("expandable_segments:True"));
}

#[test]
fn memory_of_a_graph_that_runs_is_not_moved_by_default() {
    assert!(!taken_from_a_running_graph(""));
}

#[test]
fn memory_of_a_pool_without_a_graph_moves_without_a_wait_for_the_device() {
    let machine = Machine::new("expandable_segments:True");
    let device = &machine.device;
    device.create_or_incref_pool(POOL, false).expect("made");
    let block = device.allocate_in(160 * MIB, CAPTURED, POOL, None);
    assert!(device.deallocate(block.expect("fits")));
    device.release_pool(POOL).expect("released");
    device.allocate(128 * MIB, StreamKey(7)).expect("fits");
    assert_eq!(machine.driver.calls("synchronize_device"), 0);
}

#[test]
fn a_graph_gets_no_memory_that_earlier_work_of_its_stream_uses() {
    let machine = Machine::new("expandable_segments:True");
    let (driver, device) = (&machine.driver, &machine.device);
    let block = device.allocate(200 * MIB, CAPTURED).expect("fits");
    let of_block = machine.pages(block, 200 * MIB);
    driver.submit(token(CAPTURED));
    assert!(device.deallocate(block));
    machine.begin_capture();
    // There may be none then: a capture can't wait.
    if let Ok(addr) = device.allocate_in(100 * MIB, CAPTURED, POOL, None) {
        let pages = machine.pages(addr, 100 * MIB);
        assert!(!pages.iter().any(|page| of_block.contains(page)));
    }
    assert_eq!(driver.progress(token(CAPTURED)), (1, 0));
}

/// A graph's pool, which is in use still, has a request that finds no memory, outside of a capture, as between two graphs of
/// a tree.
#[test]
fn an_oversize_segment_of_a_graph_is_not_returned() {
    let machine = Machine::new("expandable_segments:False,max_split_size_mb:32");
    let device = &machine.device;
    machine.begin_capture();
    let temporary = device.allocate_in(160 * MIB, CAPTURED, POOL, None);
    let temporary = temporary.expect("fits");
    assert!(device.deallocate(temporary));
    machine.end_capture();
    assert!(device.allocate_in(200 * MIB, CAPTURED, POOL, None).is_err());
    assert!(machine.driver.spans(0, temporary, 160 * MIB).is_some());
}
