//! Stacks of a snapshot's allocations, each once.

use std::collections::HashMap;

use super::error::MAX_TEXT;
use crate::pickle::{Heap, Value};

/// Frames of a stack that are kept.
const MOST_FRAMES: usize = 40;
/// Characters of a name or a path that are kept.
const MOST_NAME: usize = 500;

/// Stacks, numbered as they appear; 0 is none.
pub(super) struct Stacks<'a> {
    heap: &'a Heap,
    /// A frame a line.
    texts: Vec<String>,
    /// Numbers by the list of their frames, and by their text.
    by_frames: HashMap<u32, u32>,
    by_text: HashMap<String, u32>,
    /// Bytes of the texts.
    bytes: usize,
    too_long: bool,
}

impl<'a> Stacks<'a> {
    pub fn new(heap: &'a Heap) -> Self {
        Self {
            heap,
            texts: vec![String::new()],
            by_frames: HashMap::new(),
            by_text: HashMap::from([(String::new(), 0)]),
            bytes: 0,
            too_long: false,
        }
    }

    /// Whether there are more than [`MAX_TEXT`] bytes of them.
    pub fn are_too_long(&self) -> bool {
        self.too_long
    }

    /// The texts by their numbers.
    pub fn into_texts(self) -> Vec<String> {
        self.texts
    }

    /// The number of an entry's or a block's stack.
    pub fn of(&mut self, described: Value) -> u32 {
        let Some(frames) = self.heap.get(described, "frames") else {
            return 0;
        };
        let Value::List(id) = frames else { return 0 };
        if let Some(known) = self.by_frames.get(&id) {
            return *known;
        }
        let frames = self.heap.list(frames).unwrap_or(&[]).iter();
        let lines: Vec<String> = frames
            .take(MOST_FRAMES)
            .map(|frame| self.line(*frame))
            .collect();
        let text = lines.join("\n");
        if self.bytes + text.len() > MAX_TEXT {
            self.too_long = true;
            return 0;
        }
        let (texts, bytes) = (&mut self.texts, &mut self.bytes);
        let stack = *self.by_text.entry(text).or_insert_with_key(|text| {
            *bytes += text.len();
            texts.push(text.clone());
            texts.len() as u32 - 1
        });
        self.by_frames.insert(id, stack);
        stack
    }

    fn line(&self, frame: Value) -> String {
        let part = |key| {
            let value = self.heap.get(frame, key);
            let text = value.and_then(|value| self.heap.text(value)).unwrap_or("?");
            let end = text.char_indices().nth(MOST_NAME);
            &text[..end.map_or(text.len(), |(at, _)| at)]
        };
        let line = self.heap.number(frame, "line").unwrap_or(0);
        format!("{} at {}:{line}", part("name"), part("filename"))
    }
}
