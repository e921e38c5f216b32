//! Made-up training runs, for when no recorded trace is at hand.

use std::fmt::Write;

/// Numbers that are the same on every machine (xorshift64*).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator; different seeds give different numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % bound
    }
}

/// A trace as it is written.
struct Writer {
    text: String,
    next: u64,
}

impl Writer {
    fn new(workload: &str) -> Self {
        let text = format!("# npualloc-trace v1\n# capacity 68719476736\n# workload {workload}\n");
        Self { text, next: 0 }
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.text, "{line}");
    }

    fn alloc(&mut self, bytes: u64, stream: u32) -> u64 {
        self.next += 1;
        let id = self.next - 1;
        self.line(format_args!("a {id} {bytes} {stream}"));
        id
    }

    fn free(&mut self, id: u64) {
        self.line(format_args!("f {id}"));
    }

    /// Frees a block that another stream uses too.
    fn lent(&mut self, id: u64, stream: u32) {
        self.line(format_args!("u {id} {stream}"));
        self.free(id);
    }
}

/// Text of a trace: weights that stay, activations of a length that changes from step to step and
/// that live until the backward pass, temporary buffers, gradients that a second stream uses too.
pub fn training(layers: u64, steps: u64, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut out = Writer::new("made-up training, lengths change");
    let weights: Vec<u64> = (0..layers)
        .map(|_| out.alloc((1 + random.below(32)) << 20, 0))
        .collect();
    for step in 0..steps {
        out.line(format_args!("m step {step}"));
        let tokens = 64 + random.below(1985);
        let mut kept = Vec::new();
        for _ in &weights {
            for width in [4096, 11008, 4096] {
                let temporary = out.alloc(512 * (1 + random.below(511)), 0);
                kept.push(out.alloc(2 * tokens * width, 0));
                out.free(temporary);
            }
        }
        for weight in weights.iter().rev() {
            let gradient = out.alloc(2 * tokens * 4096, 0);
            if weight % 8 == 0 {
                out.line(format_args!("u {gradient} 1"));
            }
            for block in kept.split_off(kept.len() - 3) {
                out.free(block);
            }
            out.free(gradient);
        }
        out.line(format_args!("s *"));
    }
    out.text
}

/// Text of a trace: training whose parameters are shards on eight devices. Each layer's are gathered on a
/// stream of their own before they are used, and dropped afterwards; gradients are reduced on a third stream
/// and handed to a fourth; activations on the default stream have a length that changes from step to step, and
/// are computed again in the backward pass.
pub fn sharded(layers: u64, steps: u64, seed: u64) -> String {
    const WIDTH: u64 = 4096;
    const LAYER: u64 = 2 * (4 * WIDTH * WIDTH + 3 * WIDTH * 11008);
    const SHARD: u64 = LAYER / 8;
    let mut random = Random::new(seed);
    let mut out = Writer::new("made-up sharded training, four streams");
    // A shard with the optimizer's two moments.
    for _ in 0..3 * layers {
        out.alloc(2 * SHARD, 0);
    }
    for step in 0..steps {
        out.line(format_args!("m step {step}"));
        let tokens = 256 + 8 * random.below(481);
        let row = 2 * tokens * WIDTH;
        let forward = |out: &mut Writer| -> Vec<u64> {
            let sizes = [row, 3 * row, row, 4 * tokens, 5 * row, 5 * row];
            let kept = sizes.iter().map(|size| out.alloc(*size, 0)).collect();
            let temporary = out.alloc(row, 0);
            out.free(temporary);
            kept
        };
        let mut inputs = Vec::new();
        let mut gathered = out.alloc(LAYER, 1);
        for layer in 0..layers {
            let ahead = (layer + 1 < layers).then(|| out.alloc(LAYER, 1));
            inputs.push(out.alloc(row, 0));
            let kept = forward(&mut out);
            kept.into_iter().for_each(|id| out.free(id));
            if let Some(ahead) = ahead {
                out.lent(gathered, 0);
                gathered = ahead;
            }
        }
        for layer in (0..layers).rev() {
            let ahead = (layer > 0).then(|| out.alloc(LAYER, 1));
            let kept = forward(&mut out);
            let gradient = out.alloc(LAYER, 0);
            kept.into_iter().rev().for_each(|id| out.free(id));
            let reduced = out.alloc(SHARD, 2);
            out.lent(gradient, 2);
            let handed = out.alloc(2 * SHARD, 3);
            out.lent(reduced, 3);
            out.free(handed);
            out.lent(gathered, 0);
            inputs.pop().into_iter().for_each(|id| out.free(id));
            gathered = ahead.unwrap_or(gathered);
        }
    }
    out.text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::trace::Trace;

    #[test]
    fn it_is_a_trace_and_repeats() {
        let text = super::training(6, 4, 1);
        assert_eq!(text, super::training(6, 4, 1));
        assert_ne!(text, super::training(6, 4, 2));
        let trace = Trace::parse(Path::new("t"), text.as_bytes()).expect("a trace");
        // Each step: 3 activations and temporaries a layer, 1 gradient.
        assert_eq!(trace.blocks, 6 + 4 * 6 * 7);
        assert_eq!((trace.streams, trace.labels.len()), (2, 4));
    }

    #[test]
    fn sharded_training_is_a_trace_too() {
        let text = super::sharded(3, 5, 1);
        let trace = Trace::parse(Path::new("t"), text.as_bytes()).expect("a trace");
        assert_eq!((trace.streams, trace.labels.len()), (4, 5));
        // Only the shards stay.
        let freed = text.lines().filter(|line| line.starts_with('f')).count();
        assert_eq!(trace.blocks as usize, 9 + freed);
    }
}
