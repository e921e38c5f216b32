//! Reads the argument list of an operator whose signature is not known.
//!
//! All `aclnnXxxGetWorkspaceSize` functions end with two pointers, for the size
//! of the workspace and for the executor, which the caller has set to zero and
//! which lie in the caller's frames. Objects among the arguments are handles
//! that only this library gives out, so a word is an object or it is not; and
//! the end of the list is where two such pointers follow each other. If no end
//! is found nothing is written, which callers read as "no workspace".

use super::objects::Objects;
use crate::model::work::Accesses;

/// Words that are looked at; no operator has as many arguments.
const MOST: usize = 64;

/// How far above the arguments the callers' frames are expected to reach.
const FRAMES: u64 = 256 << 10;

/// The integer and pointer arguments of one call, in order.
#[derive(Debug)]
pub struct Arguments {
    /// The words before the two closing pointers.
    pub words: Vec<u64>,
    /// The arguments in vector registers, as doubles.
    pub floats: [f64; 8],
    /// Where the workspace size and the executor go.
    pub results: Option<(*mut u64, *mut u64)>,
}

/// Walks an argument list.
///
/// # Safety
/// `registers` points at six words, `floats` at eight doubles, `stack` at the first argument passed in
/// memory of a call that is still in progress.
pub unsafe fn read(registers: *const u64, floats: *const f64, stack: *const u64) -> Arguments {
    // SAFETY: the caller's promise.
    let floats = std::array::from_fn(|index| unsafe { *floats.add(index) });
    let word = |index: usize| {
        // SAFETY: the caller's promise; a thread that calls an operator has far
        // more than `MOST` words of frames above the arguments.
        unsafe {
            if index < 6 {
                *registers.add(index)
            } else {
                *stack.add(index - 6)
            }
        }
    };
    let base = stack as u64;
    let is_result = |value: u64| {
        value > base
            && value < base + FRAMES
            && value.is_multiple_of(8)
            // SAFETY: an aligned address between this frame and its callers'.
            && unsafe { *(value as *const u64) } == 0
    };
    let mut words = Vec::with_capacity(8);
    for index in 0..MOST {
        let (value, next) = (word(index), word(index + 1));
        if value != next && is_result(value) && is_result(next) {
            return Arguments {
                words,
                floats,
                results: Some((value as *mut u64, next as *mut u64)),
            };
        }
        words.push(value);
    }
    // Without an end the words in memory may be anything; those in registers
    // are still arguments.
    words.truncate(6);
    Arguments {
        words,
        floats,
        results: None,
    }
}

impl Arguments {
    /// All memory that tensors and lists of tensors among the arguments cover.
    pub fn accesses(&self, objects: &Objects) -> Accesses {
        let mut accesses = Accesses::new();
        for &word in &self.words {
            if let Some(tensor) = objects.tensors.get(word) {
                accesses.extend(tensor.access());
            } else if let Some(list) = objects.tensor_lists.get(word) {
                let tensors = list
                    .iter()
                    .filter_map(|&tensor| objects.tensors.get(tensor));
                accesses.extend(tensors.filter_map(|tensor| tensor.access()));
            }
        }
        accesses
    }
}
