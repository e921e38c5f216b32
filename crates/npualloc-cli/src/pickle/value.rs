//! What a pickle holds. Containers live in a heap and are named by position: a pickle may share them and
//! may even let one contain itself.

/// A scalar, or a thing in a [`Heap`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// `None`.
    None,
    /// `True`, `False`.
    Bool(bool),
    /// An integer. Larger ones are not read.
    Int(i64),
    /// A number.
    Float(f64),
    /// A text.
    Text(u32),
    /// Bytes; their contents are dropped.
    Bytes,
    /// A list or a tuple.
    List(u32),
    /// A dictionary.
    Dict(u32),
}

/// The most pairs of a dictionary that is looked into. Those of a snapshot have about ten, and the same one may
/// stand in many places: each look goes through all of its pairs.
const MAX_PAIRS: usize = 64;

/// Texts and containers of one pickle.
#[derive(Debug, Default)]
pub struct Heap {
    pub(super) texts: Vec<Box<str>>,
    pub(super) lists: Vec<Vec<Value>>,
    pub(super) dicts: Vec<Vec<(Value, Value)>>,
}

impl Heap {
    /// The text, if it is one.
    pub fn text(&self, value: Value) -> Option<&str> {
        match value {
            Value::Text(id) => self.texts.get(id as usize).map(AsRef::as_ref),
            _ => None,
        }
    }

    /// The elements of a list or tuple.
    pub fn list(&self, value: Value) -> Option<&[Value]> {
        match value {
            Value::List(id) => self.lists.get(id as usize).map(Vec::as_slice),
            _ => None,
        }
    }

    /// The value under a key of a dictionary: the last one given. `None` too where there are too many.
    pub fn get(&self, value: Value, key: &str) -> Option<Value> {
        let Value::Dict(id) = value else { return None };
        let pairs = self.dicts.get(id as usize)?;
        if pairs.len() > MAX_PAIRS {
            return None;
        }
        let found = pairs.iter().rev().find(|(k, _)| self.text(*k) == Some(key));
        found.map(|(_, value)| *value)
    }

    /// An integer under a key as its bits: a handle.
    pub fn bits(&self, value: Value, key: &str) -> Option<u64> {
        match self.get(value, key)? {
            Value::Int(number) => Some(number.cast_unsigned()),
            _ => None,
        }
    }

    /// A number of bytes or an address under a key.
    pub fn number(&self, value: Value, key: &str) -> Option<u64> {
        match self.get(value, key)? {
            Value::Int(number) => u64::try_from(number).ok(),
            _ => None,
        }
    }
}
