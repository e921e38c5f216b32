//! A recorded trace as a workload.

use npualloc::registry::Registry;

use crate::workloads::{STREAM, Workload, registry};

/// Replays the allocations and frees of a trace (see `npualloc-replay`; here as plain text), all on the
/// default stream. A step is the whole trace.
pub struct Replay {
    registry: Registry,
    /// Bytes to allocate as the next block; 0: free the block of that number.
    events: Vec<(usize, u32)>,
    blocks: Vec<usize>,
}

impl Replay {
    /// The trace in the file at `path`; an error when there is none.
    pub fn read(path: &str, config: &str) -> std::io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<usize>().ok());
        let (mut events, mut blocks) = (Vec::new(), 0);
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let kind = words.next();
            match (kind, number(words.next()), number(words.next())) {
                (Some("a"), Some(id), Some(bytes)) => {
                    events.push((bytes, id as u32));
                    blocks = blocks.max(id + 1);
                }
                (Some("f"), Some(id), _) => events.push((0, id as u32)),
                _ => {}
            }
        }
        Ok(Self {
            registry: registry(config),
            events,
            blocks: vec![0; blocks],
        })
    }
}

impl Workload for Replay {
    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            for &(bytes, id) in &self.events {
                let block = &mut self.blocks[id as usize];
                if bytes == 0 {
                    self.registry
                        .deallocate(std::mem::take(block))
                        .expect("live");
                } else {
                    *block = self.registry.allocate(1, bytes, STREAM).expect("memory");
                }
            }
            for block in self.blocks.iter_mut().filter(|addr| **addr != 0) {
                self.registry
                    .deallocate(std::mem::take(block))
                    .expect("live");
            }
        }
    }

    fn operations(&self, steps: usize) -> usize {
        steps * self.events.len()
    }

    fn registry(&self) -> &Registry {
        &self.registry
    }
}
