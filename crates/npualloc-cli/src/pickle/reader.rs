//! The machine that a pickle is a program for, with only the instructions that plain data need
//! (the opcodes of CPython's `pickletools`, protocols 2 to 5).

use super::value::{Heap, Value};

/// The largest pickle that is read, bytes.
pub const MAX_FILE: u64 = 2 << 30;
/// The most values a pickle may hold: about 1 GiB of memory.
const MAX_VALUES: usize = if cfg!(test) { 1 << 12 } else { 1 << 26 };

/// Why a pickle was not read.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum PickleError {
    /// It does not begin like one.
    #[error("not a pickle of protocol 2 to 5")]
    Foreign,
    /// It ends in the middle.
    #[error("the pickle ends in the middle, at byte {at}")]
    Truncated {
        /// Where.
        at: usize,
    },
    /// It wants Python to find or call something.
    #[error("at byte {at} the pickle asks for a Python object ({name}): only plain data are read")]
    Code {
        /// Where.
        at: usize,
        /// The opcode.
        name: &'static str,
    },
    /// It makes no sense.
    #[error("at byte {at} the pickle is damaged: {what}")]
    Damaged {
        /// Where.
        at: usize,
        /// How.
        what: &'static str,
    },
    /// It holds more than is read.
    #[error("the pickle holds more than {MAX_VALUES} values")]
    TooLarge,
}

/// Opcodes that name, make or call objects.
const CODE: [(u8, &str); 13] = [
    (b'c', "GLOBAL"),
    (0x93, "STACK_GLOBAL"),
    (b'R', "REDUCE"),
    (b'b', "BUILD"),
    (b'i', "INST"),
    (b'o', "OBJ"),
    (0x81, "NEWOBJ"),
    (0x92, "NEWOBJ_EX"),
    (0x82, "EXT1"),
    (0x83, "EXT2"),
    (0x84, "EXT4"),
    (b'P', "PERSID"),
    (b'Q', "BINPERSID"),
];

/// Reads a pickle.
///
/// # Errors
/// When it is none, is damaged, holds too much, or wants anything but plain data.
pub fn read(bytes: &[u8]) -> Result<(Heap, Value), PickleError> {
    if bytes.len() < 2 || bytes[0] != 0x80 || !(2..=5).contains(&bytes[1]) {
        return Err(PickleError::Foreign);
    }
    let mut machine = Machine {
        bytes,
        at: 0,
        heap: Heap::default(),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        values: 0,
    };
    loop {
        if machine.step()? {
            let result = machine.pop()?;
            return Ok((machine.heap, result));
        }
    }
}

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    heap: Heap,
    stack: Vec<Value>,
    /// Heights of the stack.
    marks: Vec<usize>,
    memo: Vec<Option<Value>>,
    values: usize,
}

impl Machine<'_> {
    fn damaged<T>(&self, what: &'static str) -> Result<T, PickleError> {
        Err(PickleError::Damaged { at: self.at, what })
    }

    fn take(&mut self, count: usize) -> Result<&[u8], PickleError> {
        let end = self.at.checked_add(count);
        match end.and_then(|end| self.bytes.get(self.at..end)) {
            Some(taken) => {
                self.at += count;
                Ok(taken)
            }
            None => Err(PickleError::Truncated {
                at: self.bytes.len(),
            }),
        }
    }

    /// An unsigned number of up to eight bytes, the lowest first.
    fn unsigned(&mut self, count: usize) -> Result<u64, PickleError> {
        let bytes = self.take(count)?.iter().rev();
        Ok(bytes.fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, count: usize) -> Result<usize, PickleError> {
        let length = self.unsigned(count)?;
        usize::try_from(length).or_else(|_| self.damaged("a length"))
    }

    /// One more value, or mark.
    fn count(&mut self) -> Result<(), PickleError> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(PickleError::TooLarge);
        }
        Ok(())
    }

    fn push(&mut self, value: Value) -> Result<(), PickleError> {
        self.count()?;
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Result<Value, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        if self.stack.len() <= floor {
            return self.damaged("a value is missing");
        }
        let popped = self.stack.pop();
        popped.map_or_else(|| self.damaged("a value is missing"), Ok)
    }

    fn top(&self) -> Result<Value, PickleError> {
        self.stack
            .last()
            .map_or_else(|| self.damaged("a value is missing"), |value| Ok(*value))
    }

    /// What was pushed since the last mark.
    fn since_mark(&mut self) -> Result<Vec<Value>, PickleError> {
        match self.marks.pop() {
            Some(height) if height <= self.stack.len() => Ok(self.stack.split_off(height)),
            _ => self.damaged("a mark is missing"),
        }
    }

    fn push_text(&mut self, length: usize) -> Result<(), PickleError> {
        // Surrogates are legal in Python's texts; they are of no interest here.
        let text = String::from_utf8_lossy(self.take(length)?).into_owned();
        self.heap.texts.push(text.into_boxed_str());
        self.push(Value::Text(self.heap.texts.len() as u32 - 1))
    }

    fn push_list(&mut self, elements: Vec<Value>) -> Result<(), PickleError> {
        self.heap.lists.push(elements);
        self.push(Value::List(self.heap.lists.len() as u32 - 1))
    }

    fn push_tuple(&mut self, count: usize) -> Result<(), PickleError> {
        let mut elements = vec![Value::None; count];
        for slot in elements.iter_mut().rev() {
            *slot = self.pop()?;
        }
        self.push_list(elements)
    }

    fn push_dict(&mut self, elements: &[Value]) -> Result<(), PickleError> {
        self.heap.dicts.push(Vec::new());
        let dict = self.heap.dicts.len() as u32 - 1;
        self.push(Value::Dict(dict))?;
        self.set_items(elements)
    }

    fn append(&mut self, elements: &[Value]) -> Result<(), PickleError> {
        match self.top()? {
            Value::List(id) => {
                self.heap.lists[id as usize].extend_from_slice(elements);
                Ok(())
            }
            _ => self.damaged("no list to append to"),
        }
    }

    fn set_items(&mut self, elements: &[Value]) -> Result<(), PickleError> {
        let Value::Dict(id) = self.top()? else {
            return self.damaged("no dictionary to set an item of");
        };
        if !elements.len().is_multiple_of(2) {
            return self.damaged("a key without a value");
        }
        let pairs = elements.chunks_exact(2).map(|pair| (pair[0], pair[1]));
        self.heap.dicts[id as usize].extend(pairs);
        Ok(())
    }

    fn memoise(&mut self, index: usize) -> Result<(), PickleError> {
        let value = self.top()?;
        // A pickle numbers what it keeps from 0 up.
        if index > self.values {
            return self.damaged("a memo's number");
        }
        if index >= self.memo.len() {
            self.memo.resize(index + 1, None);
        }
        self.memo[index] = Some(value);
        Ok(())
    }

    fn recall(&mut self, index: usize) -> Result<(), PickleError> {
        match self.memo.get(index).copied().flatten() {
            Some(value) => self.push(value),
            None => self.damaged("nothing was kept under this number"),
        }
    }

    fn long(&mut self, length: usize) -> Result<(), PickleError> {
        let bytes = self.take(length)?;
        if length > 9 || (length == 9 && bytes[8] != 0) {
            return self.damaged("an integer of more than 64 bits");
        }
        let negative = bytes.last().is_some_and(|byte| byte & 0x80 != 0);
        let fill = if negative { 0xff } else { 0 };
        let mut wide = [fill; 8];
        let kept = length.min(8);
        wide[..kept].copy_from_slice(&bytes[..kept]);
        // Handles and addresses above 2^63 keep their bits.
        self.push(Value::Int(i64::from_le_bytes(wide)))
    }

    /// One instruction; whether it was the last.
    fn step(&mut self) -> Result<bool, PickleError> {
        let begin = self.at;
        let opcode = self.take(1)?[0];
        match opcode {
            0x80 => drop(self.take(1)?),
            // FRAME: its length says nothing that matters here.
            0x95 => drop(self.take(8)?),
            b'.' => return Ok(true),
            b'(' => {
                self.count()?;
                self.marks.push(self.stack.len());
            }
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => self.top().and_then(|value| self.push(value))?,
            b'N' => self.push(Value::None)?,
            0x88 => self.push(Value::Bool(true))?,
            0x89 => self.push(Value::Bool(false))?,
            b'J' => {
                let number = self.unsigned(4)? as u32 as i32;
                self.push(Value::Int(number.into()))?;
            }
            b'K' => {
                let number = self.unsigned(1)? as i64;
                self.push(Value::Int(number))?;
            }
            b'M' => {
                let number = self.unsigned(2)? as i64;
                self.push(Value::Int(number))?;
            }
            0x8a => {
                let length = self.length(1)?;
                self.long(length)?;
            }
            0x8b => {
                let length = self.length(4)?;
                self.long(length)?;
            }
            b'G' => {
                let bits = self.unsigned(8)?.swap_bytes();
                self.push(Value::Float(f64::from_bits(bits)))?;
            }
            0x8c => self.length(1).and_then(|length| self.push_text(length))?,
            b'X' => self.length(4).and_then(|length| self.push_text(length))?,
            0x8d => self.length(8).and_then(|length| self.push_text(length))?,
            b'C' => self.length(1).and_then(|length| self.skip(length))?,
            b'B' => self.length(4).and_then(|length| self.skip(length))?,
            0x8e | 0x96 => self.length(8).and_then(|length| self.skip(length))?,
            b']' => self.push_list(Vec::new())?,
            b')' => self.push_list(Vec::new())?,
            b'l' | b't' => self.since_mark().and_then(|all| self.push_list(all))?,
            0x85..=0x87 => self.push_tuple(usize::from(opcode - 0x84))?,
            b'}' => self.push_dict(&[])?,
            b'd' => self.since_mark().and_then(|all| self.push_dict(&all))?,
            b'a' => self.pop().and_then(|value| self.append(&[value]))?,
            b'e' => self.since_mark().and_then(|all| self.append(&all))?,
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.set_items(&[key, value])?;
            }
            b'u' => self.since_mark().and_then(|all| self.set_items(&all))?,
            0x94 => self.memoise(self.memo.len())?,
            b'q' => self.length(1).and_then(|index| self.memoise(index))?,
            b'r' => self.length(4).and_then(|index| self.memoise(index))?,
            b'h' => self.length(1).and_then(|index| self.recall(index))?,
            b'j' => self.length(4).and_then(|index| self.recall(index))?,
            _ => {
                self.at = begin;
                return match CODE.iter().find(|(code, _)| *code == opcode) {
                    Some((_, name)) => Err(PickleError::Code { at: begin, name }),
                    None => self.damaged("an unknown opcode"),
                };
            }
        }
        Ok(false)
    }

    fn skip(&mut self, length: usize) -> Result<(), PickleError> {
        self.take(length)?;
        self.push(Value::Bytes)
    }
}

#[cfg(test)]
mod tests;
