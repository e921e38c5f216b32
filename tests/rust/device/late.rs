//! What a free leaves for later: whether it is finished at once makes no difference that anyone can see.

use crate::*;
use npualloc::config::SkippedRungs;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Alloc(usize, usize),
    Free(usize),
    /// Free and allocate again, some times: which block, the size of the new one (0: the same).
    Again(usize, usize, u8),
    Reset(bool),
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![
        prop::sample::select(vec![1usize, 400, 480, 481, 4000]),
        1usize..200_000,
        prop::sample::select(vec![MIB, 3 * MIB, 8 * MIB, 9 * MIB, 19 * MIB, 30 * MIB]),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (size(), 0usize..2).prop_map(|(bytes, stream)| Op::Alloc(bytes, stream)),
        3 => any::<usize>().prop_map(Op::Free),
        4 => (any::<usize>(), prop_oneof![Just(0), size()], 1u8..5)
            .prop_map(|(at, bytes, times)| Op::Again(at, bytes, times)),
        1 => any::<bool>().prop_map(Op::Reset),
    ]
}

struct Run {
    device: DeviceAllocator,
    /// Looks at the device after every call, so that nothing is late.
    look: bool,
    live: Vec<(usize, usize, StreamKey)>,
}

impl Run {
    fn new(config: &str, look: bool) -> Self {
        let mut settings = settings(config);
        // Whoever looks sees blocks merged that were kept, and the next request may get another one.
        let kept = |_: &str| Some("kept_blocks".to_owned());
        settings.skipped_rungs = SkippedRungs::from_environment(kept).expect("known");
        let driver = Arc::new(FakeDriver::new(4 * GIB));
        let device = DeviceAllocator::new(DeviceId(0), driver, settings, 32).expect("device");
        let live = Vec::new();
        Self { device, look, live }
    }

    fn looked(&self) {
        if self.look {
            self.device.check_consistency().expect("consistent");
        }
    }

    fn alloc(&mut self, bytes: usize, stream: StreamKey) {
        let addr = self.device.allocate(bytes, stream).expect("fits");
        self.looked();
        self.live.push((addr, bytes, stream));
    }

    fn free(&mut self, at: usize) -> (usize, usize, StreamKey) {
        let block = self.live.swap_remove(at % self.live.len());
        assert!(self.device.deallocate(block.0));
        self.looked();
        block
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Alloc(bytes, stream) => self.alloc(bytes, StreamKey(stream)),
            Op::Reset(true) => self.device.reset_peak_stats(),
            Op::Reset(false) => self.device.reset_accumulated_stats(),
            _ if self.live.is_empty() => {}
            Op::Free(at) => {
                self.free(at);
            }
            Op::Again(at, bytes, times) => {
                let mut at = at;
                for _ in 0..times {
                    let (_, same, stream) = self.free(at);
                    self.alloc(if bytes == 0 { same } else { bytes }, stream);
                    at = self.live.len() - 1;
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_shows_that_a_free_was_finished_later(
        ops in prop::collection::vec(op(), 1..120), expandable in any::<bool>()
    ) {
        let config = if expandable { "expandable_segments:True" } else { "" };
        let (mut late, mut prompt) = (Run::new(config, false), Run::new(config, true));
        for op in &ops {
            late.step(op);
            prompt.step(op);
            prop_assert_eq!(&late.live, &prompt.live);
        }
        prop_assert_eq!(late.device.stats(), prompt.device.stats());
        late.device.check_consistency().expect("consistent");
        prop_assert_eq!(late.device.cache_info(), prompt.device.cache_info());
    }
}

#[test]
fn a_second_free_is_refused_at_every_stage() {
    let (_, device) = device(GIB);
    let addr = device.allocate(4096, S0).expect("fits");
    for _ in 0..4 {
        assert!(device.deallocate(addr));
        assert!(!device.deallocate(addr));
        assert_eq!(device.allocate(4096, S0).expect("fits"), addr);
        assert!(device.deallocate(addr));
        assert_eq!(device.allocate(4096, S0).expect("fits"), addr);
    }
}

#[test]
fn a_handle_is_stale_after_a_free_that_is_not_finished() {
    let (_, device) = device(GIB);
    let addr = device.allocate(4096, S0).expect("fits");
    for _ in 0..3 {
        let handle = device.describe_block(addr).expect("live").handle;
        for _ in 0..3 {
            assert!(device.deallocate(addr));
            assert_eq!(device.allocate(4096, S0).expect("fits"), addr);
        }
        assert_eq!(device.describe_handle(handle), None);
        assert!(device.deallocate(addr));
        assert_eq!(device.describe_block(addr), None);
        assert_eq!(device.allocate(4096, S0).expect("fits"), addr);
    }
}

#[test]
fn a_use_recorded_while_a_block_comes_and_goes_delays_it() {
    let (driver, device) = device(GIB);
    let addr = device.allocate(4096, S0).expect("fits");
    for _ in 0..3 {
        assert!(device.deallocate(addr));
        assert_eq!(device.allocate(4096, S0).expect("fits"), addr);
    }
    assert!(device.record_stream(addr, SIDE));
    driver.submit(SIDE);
    assert!(device.deallocate(addr));
    assert_ne!(device.allocate(4096, S0).expect("fits"), addr);
    driver.finish(SIDE);
    assert_eq!(device.allocate(4096, S0).expect("fits"), addr);
}
