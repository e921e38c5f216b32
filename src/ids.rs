//! Newtypes for the things the allocator names.

/// Index of a device, as the runtime counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// A stream as the client names it when it allocates (the raw runtime handle; 0 = default stream).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamKey(pub usize);

macro_rules! index_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// Stands for "no such thing" where a link may be absent.
            pub const NONE: Self = Self(u32::MAX);

            /// Whether this names something.
            #[inline]
            pub fn is_some(self) -> bool {
                self != Self::NONE
            }

            /// `None` for [`Self::NONE`].
            #[inline]
            pub fn some(self) -> Option<Self> {
                self.is_some().then_some(self)
            }

            /// As an index into a table.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}

index_type!(
    /// A block in a device's arena. Reused after the block is gone.
    BlockId
);
index_type!(
    /// A segment in a device's segment table. Reused after the segment is gone.
    SegmentId
);
index_type!(
    /// A free index: one for each (pool, stream, small or large).
    ListId
);
index_type!(
    /// A memory pool; 0 is the default pool.
    PoolId
);

impl PoolId {
    /// The pool every allocation uses unless it is routed to a private one.
    pub const DEFAULT: Self = Self(0);
}

/// A pool as clients name it. (0, 0) is the default pool; `first` is set by graph capture, `second` by
/// `MemPool`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MempoolId {
    /// Capture id, or 0.
    pub first: u64,
    /// User pool id, or 0.
    pub second: u64,
}

impl MempoolId {
    /// The default pool.
    pub const DEFAULT: Self = Self {
        first: 0,
        second: 0,
    };
}
