//! The table of owners: a guess that is never a device that was not told, and that is there once told.

use std::sync::Arc;

use npualloc::owners::Owners;

use crate::{Turns, every_order, joined, thread};

/// Three granules, two of them in one leaf (see the table's sizes in models).
const A: usize = 1 << 44;
const B: usize = A + (1 << 42);
const C: usize = 2 << 44;

#[test]
fn owners_set_at_once_are_all_known() {
    every_order(4, || {
        let owners = Arc::new(Owners::default());
        let set = |addr, device| {
            let owners = owners.clone();
            thread(move || owners.set(addr, device))
        };
        let (one, other) = (set(A, 0), set(B, 1));
        owners.set(C, 2);
        joined(one);
        joined(other);
        let known = [A, B, C].map(|addr| owners.get(addr));
        assert_eq!(known, [Some(0), Some(1), Some(2)]);
    });
}

#[test]
fn an_owner_is_one_that_was_told() {
    every_order(4, || {
        let owners = Arc::new(Owners::default());
        let turns = Turns::new();
        let (set, turn) = (owners.clone(), turns.clone());
        let told = thread(move || {
            turn.next();
            set.set(A, 0);
            turn.next();
            set.set(A, 1);
        });
        let mut latest = None;
        for _ in 0..2 {
            turns.next();
            let known = owners.get(A);
            assert!(
                known <= Some(1) && known >= latest,
                "{known:?} after {latest:?}"
            );
            // While one device is all that is known, it is the guess for everything.
            assert!(matches!(owners.get(B), None | Some(0)));
            latest = known;
        }
        joined(told);
        assert_eq!((owners.get(A), owners.get(B)), (Some(1), None));
    });
}
