//! What the debug mode looks for: the words of `NPUALLOC_DEBUG`.

use super::ConfigError;

/// Which checks are on; none by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DebugOptions {
    /// Writes past the end of a block.
    pub redzones: bool,
    /// Writes to a block after it was freed.
    pub poison: bool,
    /// Who allocated and freed a block, with stacks.
    pub history: bool,
    /// Kernels may write whole units of [`UNIT`] bytes: what lies in a block's last one is no write past
    /// its end.
    pub units: bool,
}

/// The unit in which a device's vector cores move data, bytes.
pub const UNIT: usize = 32;

const WORDS: &str = "redzones, poison, history, units";

impl DebugOptions {
    /// Reads words separated by commas; blanks around them and empty ones do not matter.
    ///
    /// # Errors
    /// [`ConfigError::UnknownDebugWord`], [`ConfigError::UnitsWithoutRedzones`].
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let mut options = Self::default();
        for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
            match word {
                "redzones" => options.redzones = true,
                "poison" => options.poison = true,
                "history" => options.history = true,
                "units" => options.units = true,
                _ => {
                    return Err(ConfigError::UnknownDebugWord {
                        word: word.to_owned(),
                        known: WORDS,
                    });
                }
            }
        }
        if options.units && !options.redzones {
            return Err(ConfigError::UnitsWithoutRedzones);
        }
        Ok(options)
    }

    /// Whether anything is on.
    pub fn any(self) -> bool {
        self != Self::default()
    }

    /// Whether the contents of memory are looked at.
    pub fn contents(self) -> bool {
        self.redzones || self.poison
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_switch_checks_on() {
        assert_eq!(DebugOptions::parse(""), Ok(DebugOptions::default()));
        assert!(!DebugOptions::default().any());
        let all = DebugOptions::parse(" history,redzones, units,,poison").unwrap();
        assert!(all.redzones && all.poison && all.history && all.units);
        let poison = DebugOptions::parse("poison").unwrap();
        assert!(poison.any() && poison.contents() && !poison.redzones);
        let history = DebugOptions::parse("history").unwrap();
        assert!(history.any() && !history.contents());
    }

    #[test]
    fn other_words_are_refused_by_name() {
        for bad in [
            "red-zones",
            "redzones=1",
            "REDZONES",
            "redzones;poison",
            "all",
        ] {
            let error = DebugOptions::parse(bad).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!(
                    "NPUALLOC_DEBUG: unknown word '{bad}', expected some of redzones, poison, \
                     history, units"
                )
            );
        }
        assert_eq!(
            DebugOptions::parse("units,poison"),
            Err(ConfigError::UnitsWithoutRedzones)
        );
    }
}
