//! A made-up training run, for when no recorded trace is at hand.

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

/// Text of a trace: weights that stay, activations of a length that changes from step to step and
/// that live until the backward pass, temporary buffers, gradients that a second stream uses too.
pub fn training(layers: u64, steps: u64, seed: u64) -> String {
    let mut random = Random::new(seed);
    let mut text = String::from(
        "# npualloc-trace v1\n# capacity 68719476736\n# workload made-up training, lengths change\n",
    );
    let mut next = 0u64;
    // Writing to a string can't fail.
    let mut alloc = |text: &mut String, bytes: u64| {
        let _ = writeln!(text, "a {next} {bytes} 0");
        next += 1;
        next - 1
    };
    let weights: Vec<u64> = (0..layers)
        .map(|_| alloc(&mut text, (1 + random.below(32)) << 20))
        .collect();
    for step in 0..steps {
        let _ = writeln!(text, "m step {step}");
        let tokens = 64 + random.below(1985);
        let mut kept = Vec::new();
        for _ in &weights {
            for width in [4096, 11008, 4096] {
                let temporary = alloc(&mut text, 512 * (1 + random.below(511)));
                kept.push(alloc(&mut text, 2 * tokens * width));
                let _ = writeln!(text, "f {temporary}");
            }
        }
        for weight in weights.iter().rev() {
            let gradient = alloc(&mut text, 2 * tokens * 4096);
            if weight % 8 == 0 {
                let _ = writeln!(text, "u {gradient} 1");
            }
            for block in kept.split_off(kept.len() - 3) {
                let _ = writeln!(text, "f {block}");
            }
            let _ = writeln!(text, "f {gradient}");
        }
        text.push_str("s *\n");
    }
    text
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
}
