//! What a trace may hold.

/// The most that the reader of traces takes in a file. A recording that comes to one of them ends there: a
/// longer one would be refused as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Events.
    pub events: u64,
    /// Streams.
    pub streams: usize,
    /// Private pools, of which a used id is another one.
    pub pools: usize,
    /// Stacks. Allocations with further ones have none.
    pub stacks: u32,
    /// Bytes of markers and stacks, with [`Limits::TEXT_COST`] for each.
    pub text: usize,
}

impl Limits {
    /// What a text costs besides its bytes.
    pub const TEXT_COST: usize = 64;
    /// Those of the reader.
    pub const READER: Self = Self {
        events: 1 << 26,
        streams: 1024,
        pools: u16::MAX as usize,
        stacks: 1 << 20,
        text: 1 << 30,
    };
}
