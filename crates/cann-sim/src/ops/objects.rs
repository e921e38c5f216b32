//! Tensors, scalars, arrays and prepared operators by handle. One table for the
//! process; its lock is never held while the simulator's is taken, nor the
//! other way round.

use std::sync::{Arc, LazyLock};

use parking_lot::{Mutex, MutexGuard};

use crate::model::table::{Table, Tag};
use crate::model::work::{Access, Accesses, Kernel};

/// A view of device memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Address of the storage.
    pub data: u64,
    /// `aclDataType`.
    pub dtype: i32,
    /// Sizes, in elements.
    pub dims: Vec<i64>,
    /// Strides, in elements.
    pub strides: Vec<i64>,
    /// Offset of the first element in the storage, in elements.
    pub offset: i64,
}

/// Bytes of an element; 0 if it is not known or not a whole byte.
pub fn element_size(dtype: i32) -> u64 {
    match dtype {
        2 | 4 | 12 | 34..=37 => 1,
        1 | 6 | 7 | 27 => 2,
        0 | 3 | 8 | 33 => 4,
        9 | 10 | 11 | 16 => 8,
        17 => 16,
        _ => 0,
    }
}

/// Bits of an element; 0 if they are not known. Elements of less than a byte lie side
/// by side.
fn element_bits(dtype: i32) -> u64 {
    match dtype {
        29 | 40 | 41 => 4,
        30 => 1,
        38 | 39 => 6,
        _ => 8 * element_size(dtype),
    }
}

impl Tensor {
    /// Number of elements.
    pub fn count(&self) -> u64 {
        self.dims
            .iter()
            .map(|&dim| u64::try_from(dim).unwrap_or(0))
            .fold(1, u64::saturating_mul)
    }

    /// The range of addresses from the first to the last element; none if there
    /// is no element, or no range of addresses has room for it.
    pub fn access(&self) -> Option<Access> {
        let bits = element_bits(self.dtype);
        if self.data == 0 || bits == 0 || self.count() == 0 {
            return None;
        }
        let (mut low, mut high) = (self.offset, self.offset);
        for (&dim, &stride) in self.dims.iter().zip(&self.strides) {
            let reach = (dim - 1).checked_mul(stride)?;
            if reach < 0 {
                low = low.checked_add(reach)?;
            } else {
                high = high.checked_add(reach)?;
            }
        }
        let low = u64::try_from(low).ok()?;
        let high = u64::try_from(high).ok()?;
        let first = low.checked_mul(bits)? / 8;
        let end = high.checked_add(1)?.checked_mul(bits)?.div_ceil(8);
        let (addr, len) = (self.data.checked_add(first)?, end - first);
        addr.checked_add(len)?;
        Some(Access { addr, len })
    }

    /// True if all its elements lie in the range that [`Self::access`] gives.
    pub fn covered(&self) -> bool {
        self.count() == 0 || self.access().is_some()
    }
}

/// An operator between its two phases.
#[derive(Clone, Default)]
pub struct Prepared {
    /// What it touches.
    pub accesses: Accesses,
    /// What it computes, if it does.
    pub kernel: Option<Arc<dyn Kernel>>,
}

/// A scalar: its bits, and their type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scalar {
    /// `aclDataType`.
    pub dtype: i32,
    /// The first 16 bytes of the value.
    pub bits: [u8; 16],
}

/// All objects.
pub struct Objects {
    /// Tensors.
    pub tensors: Table<Tensor>,
    /// Lists of tensors, by handle.
    pub tensor_lists: Table<Vec<u64>>,
    /// Scalars.
    pub scalars: Table<Scalar>,
    /// Lists of scalars, by handle.
    pub scalar_lists: Table<Vec<u64>>,
    /// Arrays of numbers; floats and truths by their bits.
    pub arrays: Table<Vec<i64>>,
    /// Operators between their phases.
    pub executors: Table<Prepared>,
    /// Descriptions of the older interface.
    pub descs: Table<Desc>,
    /// Buffers of the older interface: address and bytes.
    pub buffers: Table<(u64, u64)>,
    /// Attributes of the older interface; none is read.
    pub attrs: Table<()>,
}

/// Description of a tensor in the older interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desc {
    /// `aclDataType`.
    pub dtype: i32,
    /// `aclFormat`.
    pub format: i32,
    /// Sizes.
    pub dims: Vec<i64>,
}

static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(|| {
    Mutex::new(Objects {
        tensors: Table::new(Tag::Tensor),
        tensor_lists: Table::new(Tag::TensorList),
        scalars: Table::new(Tag::Scalar),
        scalar_lists: Table::new(Tag::ScalarList),
        arrays: Table::new(Tag::Array),
        executors: Table::new(Tag::Executor),
        descs: Table::new(Tag::Desc),
        buffers: Table::new(Tag::Buffer),
        attrs: Table::new(Tag::Attr),
    })
});

/// The table of this process.
pub fn objects() -> MutexGuard<'static, Objects> {
    OBJECTS.lock()
}
