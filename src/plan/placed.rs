//! What is packed already, by offset and by the time it is there: what stays briefly is compared with what it may meet alone.

use super::item::{Item, Obstacle};

/// Windows of time of one length, which overlap by half: whatever stays for no longer than `step` is there within one alone.
#[derive(Debug)]
struct Level {
    step: usize,
    /// Which items are there at some time of a window, by offset. They begin at multiples of `step` and are twice as long.
    windows: Vec<Vec<u32>>,
}

/// Half of the length of a level's windows. Those of the first one are as long as the period, of each other level a quarter of
/// those before.
fn step(period: usize, level: u32) -> usize {
    period.div_ceil(1 << (2 * level)).max(1)
}

/// The level of the shortest windows that hold whatever stays for so long.
fn shortest(stay: usize, period: usize, levels: u32) -> u32 {
    let holds = |&level: &u32| stay <= step(period, level);
    (1..levels).take_while(holds).last().unwrap_or(0)
}

/// With how many of `all` items one that stays for so long is compared, about.
pub(super) fn compared(stay: usize, all: usize, period: usize, levels: u32) -> usize {
    match shortest(stay, period, levels) {
        0 => all,
        level => all >> (2 * level - 1),
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Placed {
    period: usize,
    /// Their places, in the order in which they came.
    all: Vec<(Obstacle, Item)>,
    /// The longest windows first.
    levels: Vec<Level>,
}

impl Placed {
    /// Nothing yet, of a period of so many steps, in windows of as many lengths as `levels`.
    pub fn new(period: usize, levels: u32) -> Self {
        let level = |level: u32| {
            let step = step(period, level);
            Level {
                step,
                windows: vec![Vec::new(); period.div_ceil(step).max(1)],
            }
        };
        Self {
            period,
            all: Vec::new(),
            levels: (0..levels).map(level).collect(),
        }
    }

    /// An item has its place.
    pub fn insert(&mut self, place: Obstacle, item: Item) {
        let id = self.all.len() as u32;
        self.all.push((place, item));
        let (all, period) = (&self.all, self.period);
        for Level { step, windows } in &mut self.levels {
            let len = period.min(2 * *step);
            for (at, window) in windows.iter_mut().enumerate() {
                let span = Item {
                    from: at * *step,
                    stay: len,
                    size: 0,
                };
                if item.meets(&span, period) {
                    let upto = |&other: &u32| all[other as usize].0.offset <= place.offset;
                    window.insert(window.partition_point(upto), id);
                }
            }
        }
    }

    /// The places of what is there at the same time as an item, by offset.
    pub fn met(&self, item: &Item) -> impl Iterator<Item = Obstacle> {
        let (item, all, period) = (*item, &self.all, self.period);
        let level = &self.levels[shortest(item.stay, period, self.levels.len() as u32) as usize];
        let window = level.windows[item.from / level.step].iter();
        let places = window.map(move |&id| all[id as usize]);
        places
            .filter(move |(_, other)| item.meets(other, period))
            .map(|(place, _)| place)
    }
}
