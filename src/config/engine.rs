//! Which kind of segments serves requests.

use super::{ConfigError, ExpandableSegments, Settings};
use crate::size::LARGE_SEGMENT;

/// The variable that says what holds when `expandable_segments` is not given.
const VARIABLE: &str = "NPUALLOC_DEFAULT_ENGINE";

/// What `expandable_segments` means when it is not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DefaultEngine {
    /// Fixed segments.
    #[default]
    Fixed,
    /// Virtual segments where a try of the driver finds that it can map memory, otherwise fixed ones.
    Probe,
}

impl DefaultEngine {
    /// From `NPUALLOC_DEFAULT_ENGINE`: `probe` (also when it is not set or empty) or `fixed`.
    ///
    /// # Errors
    /// [`ConfigError::UnknownEngine`] for anything else.
    pub fn from_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, ConfigError> {
        match get(VARIABLE) {
            None => Ok(Self::Probe),
            Some(value) => match value.as_str() {
                "" | "probe" => Ok(Self::Probe),
                "fixed" => Ok(Self::Fixed),
                _ => Err(ConfigError::UnknownEngine { value }),
            },
        }
    }
}

impl Settings {
    /// Whether new segments are virtual, given what a try of the driver found; `None` when that must be
    /// known first.
    pub fn virtual_segments(&self, found: Option<bool>) -> Option<bool> {
        match (self.expandable_segments, self.default_engine) {
            (ExpandableSegments::On, _) => Some(true),
            (ExpandableSegments::Off, _) | (_, DefaultEngine::Fixed) => Some(false),
            (ExpandableSegments::Default, DefaultEngine::Probe) if self.tunes_fixed_segments() => {
                Some(false)
            }
            (ExpandableSegments::Default, DefaultEngine::Probe) => found,
        }
    }

    /// Whether a setting was given that concerns fixed segments, or means something else for virtual ones.
    pub(crate) fn tunes_fixed_segments(&self) -> bool {
        self.max_split_size != usize::MAX
            || self.garbage_collection_threshold != 0.0
            || self.large_segment_size != LARGE_SEGMENT
            || self.segment_size != 0
            || self.page_size_1g
            || self.throw_on_npumalloc_oom
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        let mut settings = Settings::parse(text).unwrap();
        settings.default_engine = DefaultEngine::Probe;
        settings
    }

    #[test]
    fn the_key_decides_where_it_is_given() {
        for found in [None, Some(false), Some(true)] {
            let on = settings("expandable_segments:True");
            assert_eq!(on.virtual_segments(found), Some(true));
            let off = settings("expandable_segments:False");
            assert_eq!(off.virtual_segments(found), Some(false));
        }
    }

    #[test]
    fn the_driver_decides_where_it_is_not() {
        for found in [None, Some(false), Some(true)] {
            assert_eq!(settings("").virtual_segments(found), found);
            let rounded = settings("roundup_power2_divisions:4");
            assert_eq!(rounded.virtual_segments(found), found);
        }
    }

    #[test]
    fn settings_for_fixed_segments_keep_them() {
        for text in [
            "max_split_size_mb:64",
            "garbage_collection_threshold:0.5",
            "large_segment_size_mb:40",
            "page_size:1g",
            "throw_on_npumalloc_oom:True",
        ] {
            let settings = settings(text);
            assert_eq!(settings.virtual_segments(Some(true)), Some(false), "{text}");
        }
    }

    #[test]
    fn the_variable_is_read_and_checked() {
        let read = |value: Option<&str>| {
            DefaultEngine::from_environment(|name| {
                assert_eq!(name, "NPUALLOC_DEFAULT_ENGINE");
                value.map(str::to_string)
            })
        };
        assert_eq!(read(None).unwrap(), DefaultEngine::Probe);
        assert_eq!(read(Some("")).unwrap(), DefaultEngine::Probe);
        assert_eq!(read(Some("probe")).unwrap(), DefaultEngine::Probe);
        assert_eq!(read(Some("fixed")).unwrap(), DefaultEngine::Fixed);
        let error = read(Some("Fixed")).unwrap_err().to_string();
        assert!(error.contains("NPUALLOC_DEFAULT_ENGINE"), "{error}");
        assert!(error.contains("\"Fixed\""), "{error}");
    }
}
