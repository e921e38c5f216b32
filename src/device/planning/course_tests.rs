//! When requests are noted, and when a plan is worth having or given up.

use super::*;
use crate::config::Settings;
use crate::ids::StreamKey;
use crate::plan::{MOST_STEPS, Tenancy};

const MIB: usize = 1 << 20;

/// A period of one block of 64 MiB.
fn period(moved: u64, bytes: usize, change: usize) -> Period {
    let tenancy = Tenancy {
        key: 1,
        list: ListId(3),
        size: 64 * MIB,
        stay: Some(1),
    };
    Period {
        tenancies: vec![tenancy],
        moved,
        times: 2,
        bytes,
        change,
    }
}

/// A device that holds 128 MiB.
fn state() -> State {
    let mut state = State::new(Settings::parse("").expect("valid"));
    let bytes = 128 * MIB as i64;
    state.stats.reserved_bytes.increase(false, bytes);
    let list = state.lists.of(PoolId::DEFAULT, StreamKey(0), false, true);
    assert_eq!(list, ListId(3));
    state
}

#[test]
fn a_plan_is_worth_having_where_much_moves_that_comes_and_goes() {
    let state = state();
    let worth = |period: Period| state.plan(&period, 2 * MIB).is_some();
    assert!(worth(period(4, 64 * MIB, 2 * MIB)));
    assert!(!worth(period(3, 64 * MIB, 2 * MIB)), "an eighth moves");
    assert!(!worth(period(4, 64 * MIB, 3 * MIB)), "it keeps some");
    assert!(worth(period(4, 32 * MIB, 0)));
    assert!(!worth(period(4, 31 * MIB, 0)), "there is a larger one");
    let long = |requests: usize, moved, bytes| {
        let one = period(moved, bytes, 0);
        let tenancies = one.tenancies.repeat(requests);
        worth(Period { tenancies, ..one })
    };
    assert!(long(512, 4, 16 * MIB));
    assert!(!long(512, 4, 15 * MIB) && !long(511, 4, 16 * MIB));
    assert!(long(512, 2, 64 * MIB));
    assert!(!long(512, 1, 64 * MIB) && !long(511, 2, 64 * MIB));
}

#[test]
fn one_repetition_is_enough_where_blocks_are_used_on_several_streams() {
    for (streams, times, planned) in [(1, 1, false), (1, 2, true), (2, 1, true)] {
        let mut state = state();
        state.use_on_streams(streams);
        let period = Period {
            times,
            ..period(4, 64 * MIB, 0)
        };
        let worth = state.plan(&period, 2 * MIB).is_some();
        assert_eq!(worth, planned, "{streams} {times}");
    }
}

#[test]
fn requests_are_noted_sooner_where_blocks_are_used_on_several_streams() {
    // Of 128 MiB a sixteenth and an eighth, in pages of 2 MiB.
    for (streams, ample, pages) in [(1, false, 8), (2, false, 4), (2, true, 8)] {
        let mut state = state();
        state.paging.virtual_memory = true;
        // By so much where nobody asked for virtual segments.
        state.budget.total = if ample { 64 << 30 } else { 128 * MIB };
        state.use_on_streams(streams);
        for page in 1..=pages {
            state.ladder.pages_lent = page;
            state.note_move(2 * MIB);
            let noting = state.planning.is_noting();
            assert_eq!(noting, page == pages, "{streams} {ample} {page}");
        }
    }
}

#[test]
fn no_plan_is_made_where_what_moves_comes_to_an_end_by_itself() {
    let mut state = state();
    let worth = |state: &State| state.plan(&period(4, 64 * MIB, 0), 2 * MIB).is_some();
    state.paging.virtual_memory = true;
    state.budget.total = 64 << 30;
    for (settings, full, planned) in [
        ("", false, false),
        ("", true, true),
        ("expandable_segments:True", false, true),
    ] {
        state.settings = Settings::parse(settings).expect("valid");
        state.budget.device_full = full;
        assert_eq!(worth(&state), planned, "{settings}, {full}");
    }
}

#[test]
fn fewer_requests_are_noted_where_no_plan_may_be_needed() {
    for (settings, total, most) in [
        ("", 1024, 1 << 12),
        ("", 200, MOST_STEPS),
        ("expandable_segments:True", 1024, MOST_STEPS),
    ] {
        let mut state = state();
        state.settings = Settings::parse(settings).expect("valid");
        state.paging.virtual_memory = true;
        state.budget.total = total * MIB;
        state.planning.course = Course::Noting(Box::default());
        let mut noted = 0;
        while state.planning.is_on() {
            let mut request = state.request((64 + noted) * MIB, 0, StreamKey(0), PoolId::DEFAULT);
            request.virtual_memory = true;
            assert!(matches!(state.next_step(&request), Next::Nothing));
            noted += 1;
        }
        assert_eq!(noted, most, "{settings}, {total}");
    }
}

/// A plan for a period in which `before` pages moved without it is followed. Where its block lies.
fn follow(state: &mut State, before: u64, change: impl FnOnce(&mut Followed)) -> Site {
    let table = Timetable::new(&period(4, 64 * MIB, 0), &[], 1).expect("comes and goes");
    let site = Site {
        segment: SegmentId(7),
        addr: 0,
        size: 64 * MIB,
    };
    state.follow(table, site, before);
    let Course::Following(followed) = &mut state.planning.course else {
        panic!("a plan is followed");
    };
    change(followed);
    site
}

#[test]
fn a_plan_that_never_comes_to_rest_gets_a_range_of_its_own() {
    for (restless, own, given_up) in [(63, false, false), (64, true, false), (64, false, true)] {
        let mut state = state();
        state.paging.virtual_memory = true;
        let site = follow(&mut state, 10, |followed| followed.restless = restless);
        if own {
            state.take_range(site.segment);
        }
        let mut request = state.request(64 * MIB, 0, StreamKey(0), PoolId::DEFAULT);
        request.virtual_memory = true;
        // In this period, too.
        state.ladder.pages_lent += 1;
        state.next_step(&request);
        assert_eq!(state.planning.apart, given_up);
        assert_eq!(state.planning.is_on(), !given_up);
    }
}

#[test]
fn a_longer_period_is_looked_for_after_one_whose_plan_never_settled() {
    for (spared, loops) in [(-1, 1), (0, 0)] {
        let mut state = state();
        state.settings = Settings::parse("expandable_segments:True").expect("valid");
        state.paging.virtual_memory = true;
        follow(&mut state, 0, |followed| {
            followed.unsettled = SETTLING;
            followed.spared = spared + 1;
        });
        let request = |state: &mut State, size: usize| {
            let mut request = state.request(size, 0, StreamKey(0), PoolId::DEFAULT);
            request.virtual_memory = true;
            request
        };
        // More than without the plan, once more.
        state.ladder.pages_lent += 1;
        let first = request(&mut state, 64 * MIB);
        state.next_step(&first);
        assert!(!state.planning.is_on());
        assert_eq!((state.planning.loops, state.planning.in_vain), (loops, 0));
        state.planning.note_moved(1 << 20, 2 * MIB, MIB);
        let mut noted = 40;
        let plans = (0..noted).filter(|_| matches!(state.next_step(&first), Next::Plan(_)));
        let planned = plans.count() > 0;
        assert_eq!(planned, loops == 0);
        // Nothing longer comes again.
        while state.planning.is_on() {
            noted += 1;
            let next = request(&mut state, (64 + noted) * MIB);
            assert!(matches!(state.next_step(&next), Next::Nothing));
        }
        assert_eq!(noted, MOST_STEPS << (2 * loops), "{spared}");
        assert_eq!((state.planning.loops, state.planning.in_vain), (0, 1));
    }
}

#[test]
fn a_plan_is_given_up_where_as_much_moves_as_without() {
    let table = Timetable::new(&period(4, 64 * MIB, 0), &[], 1).expect("a block comes and goes");
    let mut followed = Followed {
        table,
        before: 10,
        moved: 100,
        unsettled: 0,
        called: 50,
        restless: 0,
        spared: 0,
    };
    // Half as much is less; what settles once may be disturbed again.
    let moved = [200, 300, 400, 405, 411, 417, 423, 429];
    let pays = moved.map(|moved| followed.pays(moved, moved as i64));
    assert_eq!(pays, [true, true, true, true, true, true, true, false]);
    assert_eq!(followed.restless, 8);
    // What is taken back without a call is no matter.
    assert!(followed.pays(433, 429));
    assert_eq!(followed.restless, 0);
    followed.spared -= 6;
    // What came to 329 pages would have been 80.
    assert_eq!(followed.spared, 80 - 329);
}
