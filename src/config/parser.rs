//! From a configuration string to [`Settings`], in the stock allocator's order: every key is
//! checked first, then the keys common to all accelerators are read, then torch_npu's own, then
//! what excludes each other. The first fault found in that order is the one reported.

use super::tokenizer::Tokens;
use super::{ConfigError, ErrorCode, ExpandableSegments, MAX_BASE_ALIGN, Settings, number};
use crate::size::{MIN_LARGE_ALLOC, POWER2_INTERVALS};

const MIB: usize = 1 << 20;
/// The largest number of MiB whose bytes fit; larger values are reduced to it.
const MAX_MIB: usize = usize::MAX / MIB;

/// Keys that every accelerator knows.
const COMMON_KEYS: [&str; 9] = [
    "max_split_size_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
    "pinned_use_background_threads",
    "large_segment_size_mb",
    "max_non_split_rounding_mb",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
];

/// torch_npu's own keys.
const NPU_KEYS: [&str; 10] = [
    "pin_memory_expandable_segments",
    "pinned_mem_register",
    "base_addr_aligned_kb",
    "page_size",
    "segment_size_mb",
    "multi_stream_lazy_reclaim",
    "pinned_reserve_segment_size_mb",
    "per_process_memory_fraction",
    "release_lock_on_npumalloc",
    "throw_on_npumalloc_oom",
];

/// Keys that may change while the process runs.
const RUN_TIME_KEYS: [&str; 8] = [
    "expandable_segments",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "release_lock_on_npumalloc",
    "throw_on_npumalloc_oom",
    "per_process_memory_fraction",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
];

impl Settings {
    /// The settings that `text` describes: `key:value` pairs separated by commas.
    ///
    /// # Errors
    /// A [`ConfigError`] that names the first fault.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::default().apply(text, None)
    }

    /// The settings that `text` describes as torch's for all accelerators: keys of torch_npu's own may be there and
    /// have no effect. As torch alone reads it, what excludes each other is no error;
    /// `expandable_segments:True` prevails.
    ///
    /// # Errors
    /// A [`ConfigError`] that names the first fault.
    pub fn parse_common(text: &str) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        if text.is_empty() {
            return Ok(settings);
        }
        let tokens = Tokens::new(text);
        check_keys(&tokens, None)?;
        settings.read_common(&tokens)?;
        if settings.expandable_segments == ExpandableSegments::On {
            let defaults = Self::default();
            settings.max_split_size = defaults.max_split_size;
            settings.garbage_collection_threshold = defaults.garbage_collection_threshold;
        }
        settings.precompute();
        Ok(settings)
    }

    /// These settings changed at run time by `text`, which may hold only the keys the stock
    /// allocator accepts then. As there, a non-empty `text` first puts `max_split_size_mb`,
    /// `max_non_split_rounding_mb`, `roundup_power2_divisions` and `garbage_collection_threshold`
    /// back to their defaults; every other setting stays unless given.
    ///
    /// # Errors
    /// A [`ConfigError`] that names the first fault; `self` is what it was.
    pub fn apply_runtime(&self, text: &str) -> Result<Self, ConfigError> {
        self.clone().apply(text, Some(&RUN_TIME_KEYS))
    }

    /// These settings changed at run time by `text`, which may hold every key: what torch's settings
    /// for all accelerators accept. Otherwise as [`Settings::apply_runtime`].
    ///
    /// # Errors
    /// A [`ConfigError`] that names the first fault; `self` is what it was.
    pub fn apply_any(&self, text: &str) -> Result<Self, ConfigError> {
        self.clone().apply(text, None)
    }

    fn apply(mut self, text: &str, allowed: Option<&[&str]>) -> Result<Self, ConfigError> {
        if text.is_empty() {
            return Ok(self);
        }
        let tokens = Tokens::new(text);
        check_keys(&tokens, allowed)?;
        self.read_common(&tokens)?;
        self.read_npu(&tokens)?;
        self.check_combinations()?;
        self.precompute();
        Ok(self)
    }

    fn read_common(&mut self, tokens: &Tokens) -> Result<(), ConfigError> {
        let defaults = Self::default();
        self.max_split_size = defaults.max_split_size;
        self.roundup_power2_divisions = defaults.roundup_power2_divisions;
        self.garbage_collection_threshold = defaults.garbage_collection_threshold;

        // Two other keys have this size as their lower bound, wherever it stands in the text. Any
        // token of this name counts, also one in a value's place.
        let mut at = 0;
        while at < tokens.len() {
            if tokens.get(at)? == "large_segment_size_mb" {
                self.large_segment_size = large_segment_size(tokens, at)?;
                at += 2;
            }
            at += 1;
        }
        self.max_non_split_rounding_size = self.large_segment_size;

        let mut at = 0;
        while at < tokens.len() {
            let value = at + 2;
            let mut end = value;
            match tokens.get(at)? {
                "max_split_size_mb" => {
                    self.max_split_size = self.size_above_segment(tokens, at, COMMON_KEYS[0])?;
                }
                "max_non_split_rounding_mb" => {
                    self.max_non_split_rounding_size =
                        self.size_above_segment(tokens, at, COMMON_KEYS[6])?;
                }
                "garbage_collection_threshold" => {
                    tokens.get(at + 1)?;
                    let threshold = tokens.double(value)?;
                    if !(threshold > 0.0 && threshold < 1.0) {
                        return Err(ConfigError::GarbageCollectionThreshold);
                    }
                    self.garbage_collection_threshold = threshold;
                }
                "roundup_power2_divisions" => {
                    end = read_divisions(tokens, at, &mut self.roundup_power2_divisions)?;
                }
                "expandable_segments" => {
                    tokens.get(at + 1)?;
                    self.expandable_segments = if tokens.bool(value)? {
                        ExpandableSegments::On
                    } else {
                        ExpandableSegments::Off
                    };
                }
                "pinned_use_background_threads" => {
                    tokens.get(at + 1)?;
                    self.pinned_use_background_threads = tokens.bool(value)?;
                }
                "pinned_max_round_threshold_mb" => {
                    self.pinned_max_round_threshold = mebibytes(tokens, at)?;
                }
                "pinned_max_cached_size_mb" => {
                    self.pinned_max_cached_size = mebibytes(tokens, at)?;
                }
                key if key == "large_segment_size_mb" || NPU_KEYS.contains(&key) => {
                    end = tokens.end_of_value(at)?;
                }
                key => {
                    return Err(ConfigError::UnknownCommonKey {
                        key: key.to_string(),
                    });
                }
            }
            at = tokens.next_key(end);
        }
        Ok(())
    }

    /// A size that may not be below the large segment's.
    fn size_above_segment(
        &self,
        tokens: &Tokens,
        at: usize,
        key: &'static str,
    ) -> Result<usize, ConfigError> {
        tokens.get(at + 1)?;
        let value = tokens.size(at + 2)?;
        let minimum_mb = self.large_segment_size / MIB;
        if value < minimum_mb {
            return Err(ConfigError::TooSmall { key, minimum_mb });
        }
        Ok(value.min(MAX_MIB) * MIB)
    }

    fn read_npu(&mut self, tokens: &Tokens) -> Result<(), ConfigError> {
        use ErrorCode::{OpsParam, PtaParam};
        let mut at = 0;
        while at < tokens.len() {
            let end = tokens.end_of_value(at)?;
            let value = at + 2;
            let flag = |key, code| match tokens.get(value)? {
                "True" => Ok(true),
                "False" => Ok(false),
                _ => Err(ConfigError::NotAnNpuBool { key, code }),
            };
            match tokens.get(at)? {
                "pin_memory_expandable_segments" => {
                    self.pin_memory_expandable_segments = flag(NPU_KEYS[0], OpsParam)?;
                }
                "pinned_mem_register" => self.pinned_mem_register = flag(NPU_KEYS[1], OpsParam)?,
                "base_addr_aligned_kb" => {
                    self.base_addr_aligned_size = base_addr_aligned(tokens.get(value)?)?;
                }
                "page_size" => match tokens.get(value)? {
                    "1g" => self.page_size_1g = true,
                    other => {
                        return Err(ConfigError::PageSize {
                            value: other.to_string(),
                        });
                    }
                },
                "segment_size_mb" => self.segment_size = segment_size(tokens.get(value)?)?,
                "multi_stream_lazy_reclaim" => {
                    self.multi_stream_lazy_reclaim = flag(NPU_KEYS[5], PtaParam)?;
                }
                "pinned_reserve_segment_size_mb" => {
                    self.pinned_reserve_segment_size = tokens.size(value)?.min(MAX_MIB) * MIB;
                }
                "per_process_memory_fraction" => {
                    let fraction = tokens.double(value)?;
                    if !(0.0..=1.0).contains(&fraction) {
                        return Err(ConfigError::MemoryFraction);
                    }
                    self.per_process_memory_fraction = fraction;
                }
                "release_lock_on_npumalloc" => {
                    self.release_lock_on_npumalloc = flag(NPU_KEYS[8], PtaParam)?;
                }
                "throw_on_npumalloc_oom" => {
                    self.throw_on_npumalloc_oom = flag(NPU_KEYS[9], PtaParam)?;
                }
                _ => {}
            }
            at = tokens.next_key(end);
        }
        Ok(())
    }

    fn check_combinations(&mut self) -> Result<(), ConfigError> {
        if self.expandable_segments == ExpandableSegments::On
            && (self.max_split_size != usize::MAX || self.garbage_collection_threshold != 0.0)
        {
            return Err(ConfigError::ExpandableConflict);
        }
        if self.pin_memory_expandable_segments {
            self.pinned_mem_register = false;
        }
        Ok(())
    }
}

/// Every key is known and allowed, every value is there, every list is closed.
fn check_keys(tokens: &Tokens, allowed: Option<&[&str]>) -> Result<(), ConfigError> {
    let mut at = 0;
    while at < tokens.len() {
        let key = tokens.get(at)?;
        if !COMMON_KEYS.contains(&key) && !NPU_KEYS.contains(&key) {
            return Err(ConfigError::UnknownKey {
                key: key.to_string(),
            });
        }
        if allowed.is_some_and(|allowed| !allowed.contains(&key)) {
            return Err(ConfigError::NotAtRunTime {
                key: key.to_string(),
            });
        }
        at = tokens.next_key(tokens.end_of_value(at)?);
    }
    Ok(())
}

fn mebibytes(tokens: &Tokens, at: usize) -> Result<usize, ConfigError> {
    tokens.get(at + 1)?;
    Ok(tokens.size(at + 2)?.min(MAX_MIB) * MIB)
}

fn large_segment_size(tokens: &Tokens, at: usize) -> Result<usize, ConfigError> {
    let bound_mb = MIN_LARGE_ALLOC / MIB;
    tokens.get(at + 1)?;
    let value = tokens.size(at + 2)?;
    if value <= bound_mb {
        return Err(ConfigError::LargeSegmentTooSmall { bound_mb });
    }
    Ok(value.min(MAX_MIB) * MIB)
}

/// Reads one number for all intervals, or a list `[first:divisions,…,>:divisions]`, where the first
/// entry also governs all intervals below it and `>` all above the last. Returns the index of the
/// value's last token.
fn read_divisions(
    tokens: &Tokens,
    key: usize,
    divisions: &mut [usize; POWER2_INTERVALS],
) -> Result<usize, ConfigError> {
    tokens.get(key + 1)?;
    let mut at = key + 2;
    if tokens.get(at)? != "[" {
        let value = tokens.size(at)?;
        if !value.is_power_of_two() {
            return Err(ConfigError::Divisions);
        }
        divisions.fill(value);
        return Ok(at);
    }
    let (mut first, mut last) = (true, 0);
    at += 1;
    while at < tokens.len() && tokens.get(at)? != "]" {
        tokens.get(at + 1)?;
        let value = tokens.size(at + 2)?;
        if value != 0 && !value.is_power_of_two() {
            return Err(ConfigError::ListedDivisions);
        }
        if tokens.get(at)? == ">" {
            divisions[last + 1..].fill(value);
        } else {
            let boundary = tokens.size(at)?;
            if !boundary.is_power_of_two() {
                return Err(ConfigError::Interval);
            }
            // The boundary is in MiB, so that its logarithm is the interval's index.
            let index = (boundary.ilog2() as usize).min(POWER2_INTERVALS - 1);
            if first {
                divisions[..index].fill(value);
                first = false;
            }
            divisions[index] = value;
            last = index;
        }
        at += if tokens.get(at + 3)? == "]" { 3 } else { 4 };
    }
    if at >= tokens.len() {
        return Err(ConfigError::UnclosedList);
    }
    Ok(at)
}

/// A torch_npu size: digits only.
fn digits(token: &str, key: &'static str) -> Result<usize, ConfigError> {
    if token.is_empty() || !token.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ConfigError::NotDigits { key });
    }
    number::int_of_digits(token)
}

fn base_addr_aligned(token: &str) -> Result<usize, ConfigError> {
    let kib = digits(token, "base_addr_aligned_kb")?;
    let leading_zeros = token.len() > 1 && token.starts_with('0');
    if leading_zeros || kib > MAX_BASE_ALIGN >> 10 {
        return Err(ConfigError::BaseAddrAligned);
    }
    Ok(kib << 10)
}

fn segment_size(token: &str) -> Result<usize, ConfigError> {
    let mib = digits(token, "segment_size_mb")?;
    if !(20..=512).contains(&mib) {
        return Err(ConfigError::SegmentSize);
    }
    Ok(mib * MIB)
}
