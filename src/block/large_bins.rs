//! Free blocks of sizes above those that have a class each: bins of 1/64 of an octave.
//!
//! One size of a bin lies in a table, a cache line for each bin; that is all as long as a bin holds blocks of a
//! single size, as most do. The others wait in order beside it.

use super::arena::BlockArena;
use super::bitmap::{BITS, Bitmap};
use super::lazy_array::{LazyArray, Zeroable};
use super::ordered_bin::OrderedBin;
use super::size_class::SizeClass;
use crate::ids::BlockId;

/// log2 of the number of bins in an octave.
const BIN_BITS: u32 = 6;
/// Sizes above 2 to the power of this have bins.
const FIRST_OCTAVE: u32 = 21;
const OCTAVES: usize = 48 - FIRST_OCTAVE as usize;
const BINS: usize = OCTAVES << BIN_BITS;
const _: () = assert!(BINS <= BITS);

/// The largest size that has no bin.
pub(super) const LARGE_FROM: usize = 1 << FIRST_OCTAVE;

/// One size of a bin and its blocks. A cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Bin {
    /// The size, a multiple of 512; 0: the bin is empty. [`OTHERS`] is added when it has other sizes too.
    tag: usize,
    class: SizeClass,
}

const OTHERS: usize = 1;

// SAFETY: a number and a class, which may be zero.
#[allow(unsafe_code)]
unsafe impl Zeroable for Bin {}

impl Bin {
    #[inline]
    fn size(&self) -> usize {
        self.tag & !OTHERS
    }

    #[inline]
    fn has_others(&self) -> bool {
        self.tag & OTHERS != 0
    }
}

/// The bins of a free index, see the module's text.
#[derive(Debug, Default)]
pub struct LargeBins {
    occupied: Bitmap,
    /// Made when they are used first.
    bins: Option<LazyArray<Bin>>,
    others: Vec<OrderedBin>,
}

#[cold]
fn new_bins() -> LazyArray<Bin> {
    LazyArray::new(BINS.next_power_of_two())
}

#[inline]
fn bin_of(size: usize) -> usize {
    let octave = size.ilog2();
    let step = (size >> (octave - BIN_BITS)) & ((1 << BIN_BITS) - 1);
    ((((octave - FIRST_OCTAVE) as usize) << BIN_BITS) | step).min(BINS - 1)
}

/// The first bin that may hold `size`, which may lie below all of them.
#[inline]
fn first_bin(size: usize) -> usize {
    if size <= LARGE_FROM { 0 } else { bin_of(size) }
}

impl LargeBins {
    /// Adds a block.
    #[inline(never)]
    pub fn insert(&mut self, arena: &mut BlockArena, id: BlockId, addr: usize, size: usize) {
        let at = bin_of(size);
        let bin = self.bins.get_or_insert_with(new_bins).at_mut(at);
        if bin.tag == 0 {
            bin.tag = size;
            self.occupied.set(at);
        } else if bin.size() != size {
            bin.tag |= OTHERS;
            return self.insert_beside(arena, id, addr, size);
        }
        bin.class.insert(arena, id, addr);
    }

    #[inline(never)]
    fn insert_beside(&mut self, arena: &mut BlockArena, id: BlockId, addr: usize, size: usize) {
        if self.others.is_empty() {
            self.others.resize_with(BINS, OrderedBin::default);
        }
        self.others[bin_of(size)]
            .entry(size)
            .insert(arena, id, addr);
    }

    /// Takes a block out.
    #[inline(never)]
    pub fn remove(&mut self, arena: &mut BlockArena, id: BlockId, addr: usize, size: usize) {
        let at = bin_of(size);
        let Some(bins) = &mut self.bins else {
            return;
        };
        let bin = bins.at_mut(at);
        if bin.size() != size {
            let others = &mut self.others[at];
            others.change(size, |class| class.remove(arena, id, addr));
            if others.is_empty() {
                bin.tag &= !OTHERS;
            }
        } else if bin.class.remove(arena, id, addr) {
            if bin.has_others() {
                self.move_in(at);
            } else {
                bin.tag = 0;
                self.occupied.clear_if(at, true);
            }
        }
    }

    /// Another size takes the place of one that is used up.
    #[inline(never)]
    fn move_in(&mut self, at: usize) {
        let others = &mut self.others[at];
        if let (Some(bins), Some((size, class))) = (&mut self.bins, others.pop()) {
            let tag = size | if others.is_empty() { 0 } else { OTHERS };
            *bins.at_mut(at) = Bin { tag, class };
        }
    }

    /// The smallest size ≥ `size`, which may lie below all bins, and its blocks.
    #[inline(never)]
    pub fn at_least(&self, size: usize) -> Option<(usize, &SizeClass)> {
        let at = self.occupied.next(first_bin(size))?;
        if let Some(found) = self.at_least_in(at, size) {
            return Some(found);
        }
        // Only the request's own bin can hold smaller blocks alone.
        let at = self.occupied.next(at + 1)?;
        self.at_least_in(at, size)
    }

    #[inline]
    fn at_least_in(&self, at: usize, size: usize) -> Option<(usize, &SizeClass)> {
        let bin = self.bins.as_ref()?.at(at);
        let own = (bin.size() >= size).then_some((bin.size(), &bin.class));
        if bin.has_others() {
            return self.least(at, size, own);
        }
        own
    }

    #[inline(never)]
    fn least<'a>(
        &'a self,
        at: usize,
        size: usize,
        own: Option<(usize, &'a SizeClass)>,
    ) -> Option<(usize, &'a SizeClass)> {
        let other = self.others[at].at_least(size);
        match (own, other) {
            (Some(own), Some(other)) => Some(if own.0 < other.0 { own } else { other }),
            _ => own.or(other),
        }
    }

    /// Every class that holds blocks, ascending by size, from the bin of `size` on.
    pub fn classes_from(&self, size: usize) -> impl Iterator<Item = &SizeClass> {
        let first = self.occupied.next(first_bin(size));
        let bins = std::iter::successors(first, |at| self.occupied.next(at + 1));
        bins.filter_map(|at| Some((at, self.bins.as_ref()?.at(at))))
            .flat_map(|(at, bin)| {
                let others = self.others.get(at);
                let (below, above) =
                    others.map_or((&[][..], &[][..]), |others| others.split_at(bin.size()));
                let before = below.iter().map(|entry| &entry.1);
                let after = above.iter().map(|entry| &entry.1);
                before.chain(std::iter::once(&bin.class)).chain(after)
            })
    }

    /// Gives back the room of sizes that are no longer here.
    pub fn shrink(&mut self) {
        self.others.iter_mut().for_each(OrderedBin::shrink);
    }

    /// Bytes of bookkeeping held.
    pub fn heap_bytes(&self) -> usize {
        let bins = self.bins.as_ref().map_or(0, LazyArray::len) * size_of::<Bin>();
        let sizes: usize = self.others.iter().map(OrderedBin::heap_bytes).sum();
        bins + sizes + self.others.capacity() * size_of::<OrderedBin>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ListId, SegmentId};

    #[test]
    fn a_bin_fills_one_cache_line() {
        assert_eq!(size_of::<Bin>(), 64);
    }

    #[test]
    fn room_for_sizes_that_are_gone_is_given_back() {
        let mut arena = BlockArena::default();
        let mut bins = LargeBins::default();
        let sizes = (1..=40).map(|step| LARGE_FROM + 512 * step);
        let blocks: Vec<_> = sizes
            .map(|size| {
                let addr = size << 8;
                let id = arena.insert(addr, size, SegmentId(0), ListId(0));
                bins.insert(&mut arena, id, addr, size);
                (id, addr, size)
            })
            .collect();
        // All but two, one of which waits beside the other.
        for &(id, addr, size) in &blocks[2..] {
            bins.remove(&mut arena, id, addr, size);
        }
        let held = bins.heap_bytes();
        bins.shrink();
        let entry = size_of::<super::super::ordered_bin::Entry>();
        assert!(bins.heap_bytes() + 38 * entry <= held, "{held}");
        let (found, class) = bins.at_least(blocks[1].2).expect("it stays");
        assert_eq!((found, class.first()), (blocks[1].2, blocks[1].0));
    }

    #[test]
    fn bins_ascend_with_sizes() {
        let sizes = (LARGE_FROM + 512..64 << 20).step_by(512 * 37);
        let bins: Vec<usize> = sizes.map(bin_of).collect();
        assert!(bins.is_sorted() && bins[0] == 0);
        assert_eq!(bin_of(1 << 47) + 64, BINS);
        assert_eq!(bin_of(usize::MAX), BINS - 1);
    }
}
