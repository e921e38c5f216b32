//! A configuration string as tokens: words, and each of `:` `,` `[` `]` by itself.

use super::{ConfigError, number};

/// The tokens of a configuration string.
///
/// As in the stock allocator, white space vanishes (also inside a word), and a separator's place
/// is only required to hold *some* token: `key,value` reads like `key:value`.
pub(super) struct Tokens(Vec<String>);

impl Tokens {
    pub(super) fn new(text: &str) -> Self {
        let mut tokens = Vec::new();
        let mut word = String::new();
        for c in text.chars() {
            match c {
                ',' | ':' | '[' | ']' => {
                    if !word.is_empty() {
                        tokens.push(std::mem::take(&mut word));
                    }
                    tokens.push(c.to_string());
                }
                // What C's isspace accepts in the default locale.
                ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r' => {}
                _ => word.push(c),
            }
        }
        if !word.is_empty() {
            tokens.push(word);
        }
        Self(tokens)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The token at `index`; also the check that a separator's place is filled.
    pub(super) fn get(&self, index: usize) -> Result<&str, ConfigError> {
        self.0
            .get(index)
            .map(String::as_str)
            .ok_or(ConfigError::Truncated)
    }

    pub(super) fn size(&self, index: usize) -> Result<usize, ConfigError> {
        number::unsigned(self.get(index)?)
    }

    pub(super) fn double(&self, index: usize) -> Result<f64, ConfigError> {
        number::double(self.get(index)?)
    }

    pub(super) fn bool(&self, index: usize) -> Result<bool, ConfigError> {
        match self.get(index)? {
            "True" => Ok(true),
            "False" => Ok(false),
            token => Err(ConfigError::NotABool {
                index,
                token: token.to_string(),
            }),
        }
    }

    /// The index of the last token of the value whose key is at `key`: the value itself, or the
    /// first `]` where the value is a list.
    pub(super) fn end_of_value(&self, key: usize) -> Result<usize, ConfigError> {
        self.get(key + 1)?;
        let value = key + 2;
        if self.get(value)? != "[" {
            return Ok(value);
        }
        (value + 1..self.len())
            .find(|&index| self.0[index] == "]")
            .ok_or(ConfigError::UnclosedList)
    }

    /// The index of the next key, given the index of the last token of a value.
    pub(super) fn next_key(&self, end: usize) -> usize {
        end + 2
    }
}
