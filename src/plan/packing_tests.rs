//! Packed blocks never meet, and take little more than is alive at once.

use proptest::prelude::*;

use super::*;

fn item(from: usize, stay: usize, size: usize) -> Item {
    Item { from, stay, size }
}

fn obstacle(offset: usize, size: usize) -> Obstacle {
    Obstacle { offset, size }
}

#[test]
fn many_blocks_are_packed_in_fewer_ways() {
    let counts = [0, 1, 2048, 2896, 4096, 8192, 1 << 20];
    assert_eq!(counts.map(ways), [10, 10, 10, 5, 4, 4, 4]);
}

#[test]
fn blocks_that_never_meet_share_a_place() {
    let items = [item(0, 5, 300), item(5, 5, 200), item(9, 1, 100)];
    let packing = pack(&items, &[], 10, 1);
    assert_eq!((packing.offsets, packing.height), (vec![0, 0, 200], 300));
}

#[test]
fn what_stays_over_the_end_of_a_period_meets_what_comes_first() {
    let items = [item(8, 4, 300), item(1, 2, 200), item(2, 6, 100)];
    let packing = pack(&items, &[], 10, 1);
    assert_eq!((packing.offsets, packing.height), (vec![0, 300, 0], 500));
}

#[test]
fn obstacles_are_gone_around_and_do_not_count() {
    let items = [item(0, 5, 300), item(5, 5, 200), item(9, 1, 100)];
    let packing = pack(&items, &[obstacle(200, 50), obstacle(600, 10)], 10, 1);
    assert_eq!(packing.offsets, [250, 250, 0]);
    assert_eq!((packing.height, packing.bytes), (550, 400));
}

#[test]
fn the_gap_that_fits_as_asked_counts_and_offsets_are_aligned() {
    let taken = [(0, 10), (100, 20), (140, 10), (300, 1)];
    let taken = taken.map(|(offset, size)| obstacle(offset, size));
    assert_eq!(gap(Fit::Lowest, taken, 100, 32), 160);
    assert_eq!(gap(Fit::Lowest, taken, 20, 1), 10);
    assert_eq!(gap(Fit::Largest, taken, 20, 1), 150);
    for fit in [Fit::Lowest, Fit::Largest] {
        assert_eq!(gap(fit, taken, 200, 32), 320);
        // One that reaches over others.
        assert_eq!(gap(fit, [obstacle(0, 100), obstacle(10, 20)], 5, 1), 100);
    }
}

/// A training step that is sharded over others: each layer's weights are gathered for a while, forward and backward,
/// and what it leaves for the way back stays until then.
fn sharded_step(layers: usize) -> Vec<Item> {
    // Size, and when it goes.
    type Came = Vec<(usize, Option<usize>)>;
    let begin = |came: &mut Came, size: usize| {
        came.push((size, None));
        came.len() - 1
    };
    let end = |came: &mut Came, at: usize| came[at].1 = Some(came.len());
    let mut came = Came::new();
    let (mut left, mut gathered) = (Vec::new(), Vec::new());
    for way in 0..2 {
        for layer in 0..layers {
            gathered.push(begin(&mut came, 384 + 32 * (layer % 3)));
            let temporary = begin(&mut came, 160);
            if way == 0 {
                left.push([136, 68, 34, 17].map(|size| begin(&mut came, size)));
            } else {
                let shard = begin(&mut came, 52);
                left.pop()
                    .into_iter()
                    .flatten()
                    .for_each(|at| end(&mut came, at));
                end(&mut came, shard);
            }
            end(&mut came, temporary);
            if gathered.len() > 2 {
                end(&mut came, gathered.remove(0));
            }
        }
    }
    let period = came.len();
    let items = came.into_iter().enumerate();
    items
        .map(|(from, (size, end))| item(from, end.unwrap_or(period) - from, size))
        .collect()
}

#[test]
fn sharded_steps_take_little_more_than_is_alive_at_once_around_what_stays() {
    // Layers, addresses between obstacles, and what is taken at the most for 1,000 that are alive. Of the first it is 1,007
    // by classes of sizes alone, of the second 1,066 by exact sizes alone.
    for (layers, gap, most) in [(12, 391, 1000), (16, 171, 1038)] {
        let items = sharded_step(layers);
        let mut end = 0;
        let stays = (0..40).map(|at| {
            let (offset, size) = (end + at * 37 % gap, 40 - at % 5 * 4);
            end = offset + size;
            obstacle(offset, size)
        });
        let stays: Vec<Obstacle> = stays.collect();
        let packing = pack(&items, &stays, items.len(), 1);
        let least = most_alive(&items, items.len());
        assert!(
            packing.bytes * 1000 <= most * least,
            "{layers}: {} of {least}",
            packing.bytes
        );
    }
}

#[test]
fn many_blocks_get_the_places_that_they_get_where_all_are_compared() {
    // Items that stay for one step to all of a period of 700, which is no multiple of the windows' lengths.
    let period = 700;
    let items = (0..period).map(|from| {
        let stay = [1, 3, 11, 12, 40, 44, 175, 176, 300, period][from * 7 % 10];
        item(from, stay, 50 + from * 37 % 90)
    });
    let items: Vec<Item> = items.collect();
    assert_eq!((levels(items.len()), levels(511)), (LEVELS, 1));
    let mut placed = [1, LEVELS].map(|levels| Placed::new(period, levels));
    for (at, it) in items.iter().enumerate() {
        let [one, other] = placed.each_ref().map(|placed| {
            let met: Vec<Obstacle> = placed.met(it).collect();
            met
        });
        assert_eq!(one, other, "{at}");
        // Some lie upon each other, others apart.
        let place = obstacle(at * 61 % 977 * 10, it.size);
        placed
            .iter_mut()
            .for_each(|placed| placed.insert(place, *it));
    }
}

#[test]
fn what_stays_briefly_is_compared_with_few() {
    // Windows of a period of 1,000 are twice 250, 63 and 16 steps long: half, an eighth and a 32nd of it.
    let with = |stay: usize, items: usize| {
        let items = vec![item(0, stay, 1); items];
        comparisons(&items, 1024 - items.len(), 1000) / items.len()
    };
    let stays = [16, 17, 63, 64, 250, 251, 1000];
    assert_eq!(
        stays.map(|stay| with(stay, 512)),
        [32, 128, 128, 512, 512, 1024, 1024]
    );
    // So few are compared with all.
    assert_eq!(stays.map(|stay| with(stay, 511)), [1024; 7]);
}

/// Who is alive before each item comes.
fn alive(items: &[Item], period: usize, at: usize) -> Vec<usize> {
    let mut now = vec![false; items.len()];
    // Two periods, as time goes round.
    for time in 0..2 * period {
        for (id, item) in items.iter().enumerate() {
            if (item.from + item.stay) % period == time % period {
                now[id] = false;
            }
        }
        if time >= period && time % period == items[at].from {
            break;
        }
        for (id, item) in items.iter().enumerate() {
            if item.from == time % period {
                now[id] = true;
            }
        }
    }
    (0..items.len()).filter(|&id| now[id] && id != at).collect()
}

proptest! {
    #[test]
    fn no_two_blocks_lie_in_the_same_place_at_once(
        drawn in prop::collection::vec((1usize..40, 1usize..50), 1..40), align in 1usize..9,
        between in prop::collection::vec((0usize..60, 1usize..30), 0..6)
    ) {
        // One comes at each time.
        let period = drawn.len();
        let items: Vec<Item> = drawn
            .iter()
            .enumerate()
            .map(|(from, &(stay, size))| item(from, stay.min(period), size))
            .collect();
        let mut end = 0;
        let obstacles: Vec<Obstacle> = between
            .iter()
            .map(|&(free, size)| {
                let offset = end + free;
                end = offset + size;
                obstacle(offset, size)
            })
            .collect();
        let packing = pack(&items, &obstacles, period, align);
        let below = neighbours_below(&items, &obstacles, period, &packing);
        let place = |id: usize| packing.offsets[id]..packing.offsets[id] + items[id].size;
        let mut bytes = vec![false; packing.height];
        let mut most = 0;
        for (at, &under) in below.iter().enumerate() {
            let mine = place(at);
            prop_assert!(mine.start % align == 0 && mine.end <= packing.height);
            let mut nearest = None;
            let there = alive(&items, period, at);
            most = most.max(there.iter().chain([&at]).map(|&id| items[id].size).sum());
            let fixed = obstacles.iter().map(|it| it.offset..it.offset + it.size);
            for theirs in there.into_iter().map(place).chain(fixed) {
                prop_assert!(theirs.end <= mine.start || mine.end <= theirs.start);
                if theirs.end <= mine.start {
                    nearest = nearest.max(Some((theirs.end, theirs.start)));
                }
            }
            bytes[mine].fill(true);
            prop_assert_eq!(under, nearest.map(|(_, start)| start));
        }
        prop_assert_eq!(packing.bytes, bytes.into_iter().filter(|&it| it).count());
        prop_assert_eq!(most_alive(&items, period), most);
    }
}
