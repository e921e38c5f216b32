//! Why a configuration string is refused. `Display` gives the stock allocator's text.

/// Why a configuration string, or the environment, is refused.
///
/// The texts are those of torch 2.14.0 and torch_npu 2.14.0 without what depends on one build or
/// run: the source position in front of an internal assertion, and the time, process and code that
/// torch_npu appends (see [`ConfigError::code`]).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Both environment variables are set.
    #[error(
        "Both PYTORCH_NPU_ALLOC_CONF and PYTORCH_ALLOC_CONF have been set, please set only one of \
         them."
    )]
    BothVariables,
    /// A key nobody knows.
    #[error("Unrecognized key '{key}' in NPU allocator config, ")]
    UnknownKey {
        /// The key as given.
        key: String,
    },
    /// A token where the common parser expects a key; only malformed lists lead here.
    #[error("Unrecognized key '{key}' in Accelerator allocator config.")]
    UnknownCommonKey {
        /// The token as given.
        key: String,
    },
    /// A key that may only be set before the process starts.
    #[error("torch_npu.npu.memory._set_allocator_settings() unsupported setting: {key}")]
    NotAtRunTime {
        /// The key as given.
        key: String,
    },
    /// The string ends where a token should be.
    #[error("Index out of bounds in ConfigTokenizer")]
    Truncated,
    /// A list without its closing bracket.
    #[error("Expected closing bracket ']' in ConfigTokenizer but reached end of config")]
    UnclosedList,
    /// Not a number. The text is the name of the C++ conversion that refuses it, as in the stock
    /// allocator; the token is kept here.
    #[error("{conversion}")]
    NotANumber {
        /// The conversion: `stoull`, `stoi` or `stod`.
        conversion: &'static str,
        /// The token as given.
        token: String,
    },
    /// A number outside the range of its type. The text is as for [`ConfigError::NotANumber`].
    #[error("{conversion}")]
    NumberOutOfRange {
        /// The conversion: `stoull`, `stoi` or `stod`.
        conversion: &'static str,
        /// The token as given.
        token: String,
    },
    /// A common key's value is neither `True` nor `False`.
    #[error("Expected 'True' or 'False' at index {index} in ConfigTokenizer but got '{token}'")]
    NotABool {
        /// Position of the token, counted from 0; separators are tokens too.
        index: usize,
        /// The token as given.
        token: String,
    },
    /// A torch_npu key's value is neither `True` nor `False`.
    #[error("Expected a single True/False argument for {key}")]
    NotAnNpuBool {
        /// The key.
        key: &'static str,
        /// The code that torch_npu appends.
        code: ErrorCode,
    },
    /// `max_split_size_mb` or `max_non_split_rounding_mb` below the large segment's size.
    #[error("CachingAllocator option {key} too small, must be >= {minimum_mb}")]
    TooSmall {
        /// The key.
        key: &'static str,
        /// The least value, in MiB.
        minimum_mb: usize,
    },
    /// `large_segment_size_mb` is not above the size from which a request has its own segment.
    #[error("CachingAllocator option large_segment_size_mb must be > {bound_mb} MB")]
    LargeSegmentTooSmall {
        /// The exclusive lower bound, in MiB.
        bound_mb: usize,
    },
    /// `garbage_collection_threshold` outside (0, 1).
    #[error("garbage_collect_threshold is invalid, set it in (0.0, 1.0)")]
    GarbageCollectionThreshold,
    /// A single `roundup_power2_divisions` that is not a power of two.
    #[error("For roundups, the divisions has to be power of 2 ")]
    Divisions,
    /// A `roundup_power2_divisions` in a list that is neither a power of two nor 0.
    #[error("For roundups, the divisions has to be power of 2 or 0 to disable roundup ")]
    ListedDivisions,
    /// An interval of `roundup_power2_divisions` that is not a power of two.
    #[error("For roundups, the intervals have to be power of 2 ")]
    Interval,
    /// A torch_npu size that holds something else than digits.
    #[error("CachingAllocator option {key} is invalid.")]
    NotDigits {
        /// The key.
        key: &'static str,
    },
    /// `base_addr_aligned_kb` outside [0, 16], or with leading zeros.
    #[error("CachingAllocator option base_addr_aligned_kb error, must be [0~16], dtype is int")]
    BaseAddrAligned,
    /// `segment_size_mb` outside [20, 512].
    #[error("CachingAllocator option segment_size_mb error, must be [20, 512], dtype is int")]
    SegmentSize,
    /// `per_process_memory_fraction` outside [0, 1].
    #[error("per_process_memory_fraction is invalid, set it in [0.0, 1.0]")]
    MemoryFraction,
    /// A `page_size` other than `1g`.
    #[error("Unsupported page_size value: {value}")]
    PageSize {
        /// The value as given.
        value: String,
    },
    /// A word of `NPUALLOC_DEBUG` that nobody knows.
    #[error("NPUALLOC_DEBUG: unknown word '{word}', expected some of {known}")]
    UnknownDebugWord {
        /// The word as given.
        word: String,
        /// The words there are.
        known: &'static str,
    },
    /// `units` in `NPUALLOC_DEBUG` without what it modifies.
    #[error("NPUALLOC_DEBUG: 'units' says how 'redzones' are laid, which is not there")]
    UnitsWithoutRedzones,
    /// `expandable_segments:True` with a limit on splitting or a collection threshold.
    #[error(
        "`max_split_size_mb` or `garbage_collection_threshold`, cannot be enabled with \
         `expandable_segments`, please set `expandable_segments` to `False`."
    )]
    ExpandableConflict,
    /// `NPUALLOC_SKIP_RUNGS` names a rung that there is not.
    #[error("NPUALLOC_SKIP_RUNGS: {name:?} is none of {known}")]
    UnknownRung {
        /// The name as given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// `NPUALLOC_DEFAULT_ENGINE` is neither `probe` nor `fixed`.
    #[error("NPUALLOC_DEFAULT_ENGINE should be probe or fixed, not {value:?}")]
    UnknownEngine {
        /// The value as given.
        value: String,
    },
    /// `NPUALLOC_PREFETCH_MB` is no number, or too large.
    #[error("NPUALLOC_PREFETCH_MB should be a number from 0 to 1024, not {value:?}")]
    Prefetch {
        /// The value as given.
        value: String,
    },
}

/// The C++ exception that the stock allocator throws. Which Python class the standard ones become
/// depends on the caller: torch's bindings give `ValueError` and `IndexError`, torch_npu's
/// `_set_allocator_settings` gives `RuntimeError`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// `c10::ValueError`.
    Value,
    /// `c10::Error`.
    Runtime,
    /// `std::invalid_argument`.
    InvalidArgument,
    /// `std::out_of_range`.
    OutOfRange,
}

/// The code that torch_npu appends to a text: sub-module and kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// `OPS_ERROR(ErrCode::VALUE)`.
    OpsValue,
    /// `OPS_ERROR(ErrCode::PARAM)`.
    OpsParam,
    /// `PTA_ERROR(ErrCode::VALUE)`.
    PtaValue,
    /// `PTA_ERROR(ErrCode::PARAM)`.
    PtaParam,
}

impl ErrorCode {
    /// The code as torch_npu writes it, such as `ERR01003`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::OpsValue => "ERR01003",
            Self::OpsParam => "ERR01001",
            Self::PtaValue => "ERR00003",
            Self::PtaParam => "ERR00001",
        }
    }

    /// The code as a number: thousands of the sub-module plus the kind.
    pub fn number(self) -> i32 {
        match self {
            Self::OpsValue => 1003,
            Self::OpsParam => 1001,
            Self::PtaValue => 3,
            Self::PtaParam => 1,
        }
    }
}

impl ConfigError {
    /// The exception that the stock allocator throws.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::UnknownKey { .. }
            | Self::UnknownCommonKey { .. }
            | Self::NotAtRunTime { .. }
            | Self::NotABool { .. }
            | Self::TooSmall { .. }
            | Self::LargeSegmentTooSmall { .. }
            | Self::GarbageCollectionThreshold
            | Self::Divisions
            | Self::ListedDivisions
            | Self::Interval
            | Self::UnknownDebugWord { .. }
            | Self::UnitsWithoutRedzones => ErrorClass::Value,
            Self::NotANumber { .. } => ErrorClass::InvalidArgument,
            Self::NumberOutOfRange { .. } => ErrorClass::OutOfRange,
            Self::BothVariables
            | Self::Truncated
            | Self::UnclosedList
            | Self::NotAnNpuBool { .. }
            | Self::NotDigits { .. }
            | Self::BaseAddrAligned
            | Self::SegmentSize
            | Self::MemoryFraction
            | Self::PageSize { .. }
            | Self::ExpandableConflict
            | Self::UnknownRung { .. }
            | Self::UnknownEngine { .. }
            | Self::Prefetch { .. } => ErrorClass::Runtime,
        }
    }

    /// The code that torch_npu appends, where it appends one.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::BothVariables
            | Self::UnknownKey { .. }
            | Self::NotAtRunTime { .. }
            | Self::BaseAddrAligned
            | Self::SegmentSize
            | Self::PageSize { .. } => Some(ErrorCode::OpsValue),
            Self::ExpandableConflict => Some(ErrorCode::OpsParam),
            Self::MemoryFraction => Some(ErrorCode::PtaValue),
            Self::NotAnNpuBool { code, .. } => Some(*code),
            _ => None,
        }
    }
}
