//! Which sizes come back.
//!
//! A block of one of few sizes has up to an eighth more than its request, for the sake of the next ones ([`kept_size`]). What
//! stays, as weights and the states of an optimizer do, serves no next one: it gets its own size.
//!
//! [`kept_size`]: crate::size::kept_size

use crate::size::{KEPT_SIZES, MOST_STEPPED, kept_number};

/// Blocks of about a size that come back until more are expected to. Recorded diffusion programs, which have many weights of
/// 1 to 2 MiB, need 1.009, 1.011 and 1.005 times what is live with it (on the core, without settings); with 1 1.013, 1.007 and 1.007, with 16 as much as with 64, and
/// 1.019, 1.011 and 1.008 where all requests get blocks of few sizes. S1 to s4 need the same, to 0.1 %.
const OFTEN: u8 = 64;

/// How many blocks of each of the few sizes came back, up to how many make a difference.
#[derive(Debug)]
pub struct Returns([u8; KEPT_SIZES]);

impl Default for Returns {
    fn default() -> Self {
        Self([0; KEPT_SIZES])
    }
}

impl Returns {
    /// A block of `size` bytes came back.
    #[inline]
    pub fn note(&mut self, size: usize) {
        if size <= MOST_STEPPED {
            let count = &mut self.0[kept_number(size)];
            *count += u8::from(*count < OFTEN);
        }
    }

    /// Whether blocks for requests of about `size` bytes, at most [`MOST_STEPPED`], come back.
    #[inline]
    pub fn expects(&self, size: usize) -> bool {
        self.0[kept_number(size)] == OFTEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_came_back_often_are_expected_to() {
        let mut returns = Returns::default();
        // One more than a step of 64 KiB.
        const SIZE: usize = (960 << 10) + 512;
        for _ in 0..OFTEN {
            assert!(!returns.expects(SIZE));
            returns.note(1 << 20);
            returns.note(MOST_STEPPED + 512);
        }
        assert!(returns.expects(SIZE) && returns.expects(1 << 20));
        assert!(!returns.expects(960 << 10) && !returns.expects((1 << 20) + 512));
        assert!(!returns.expects(MOST_STEPPED));
        // Counting ends there.
        for _ in 0..300 {
            returns.note(SIZE);
        }
        assert!(returns.expects(SIZE));
    }
}
