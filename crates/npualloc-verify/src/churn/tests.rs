//! Whether an error that nobody planned is noticed.

use super::*;

const PLANNED: i32 = 500_000;

/// A round of fixed segments, without a thread beside it, whose first planned failure has happened.
fn after_a_failure() -> Round {
    let mut rounds = (0..).map(|seed| Round::new(seed, CONFIGS.len()));
    let mut round = rounds.find(|round| round.ahead == 0).expect("half of them");
    round.plan(0, PLANNED);
    let other = round.device(0).empty_cache(MempoolId::DEFAULT);
    assert!(other.is_err(), "the device could not be waited for");
    assert_eq!(round.failed(), Some(PLANNED));
    round
}

/// Allocates until the failure that is under way in the driver has happened.
fn allocate_until_it_happens(round: &mut Round) {
    while round.driver.failure_is_planned() {
        round.allocate(0);
    }
}

#[test]
fn a_planned_failure_is_accepted() {
    let mut round = after_a_failure();
    round.plan(0, PLANNED);
    allocate_until_it_happens(&mut round);
    assert_eq!(round.finish().faults, 2);
}

#[test]
#[should_panic(expected = "nobody planned")]
fn a_failure_that_has_happened_excuses_no_other() {
    let mut round = after_a_failure();
    round.driver.fail_call(0, PLANNED);
    allocate_until_it_happens(&mut round);
}

#[test]
#[should_panic(expected = "nobody planned")]
fn another_code_is_not_the_planned_failure() {
    let mut round = after_a_failure();
    round.plan(0, PLANNED);
    round.driver.fail_call(0, PLANNED + 1);
    allocate_until_it_happens(&mut round);
}
