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
    /// A free index. Those of a (pool, stream) are four in a row, the first a multiple of four: small and large
    /// requests in fixed segments, and the same in virtual ones.
    ListId
);

impl ListId {
    /// The list beside the first one of a (pool, stream) that serves such requests.
    #[inline]
    pub fn beside(self, small: bool, virtual_memory: bool) -> Self {
        debug_assert!(self.0.is_multiple_of(4));
        Self(self.0 | u32::from(!small) | u32::from(virtual_memory) << 1)
    }

    /// Whether it serves small requests (≤ 1 MiB).
    #[inline]
    pub fn is_small(self) -> bool {
        self.0 & 1 == 0
    }

    /// Whether its blocks lie in virtual segments; fixed and virtual ones never share a list.
    #[inline]
    pub fn is_virtual(self) -> bool {
        self.0 & 2 != 0
    }

    /// The list of fixed segments for the same requests.
    #[inline]
    pub fn fixed(self) -> Self {
        Self(self.0 & !2)
    }
}
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
