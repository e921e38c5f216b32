//! A slot table that hands out handles which are never dereferenced and which
//! it recognises as stale after their object is gone.

/// What a handle names; part of its bits, so that a stream is not taken for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Tag {
    /// A stream.
    Stream = 0x51,
    /// An event.
    Event = 0x52,
    /// A physical memory handle.
    Physical = 0x53,
    /// A captured model.
    Model = 0x54,
    /// A task group of a captured model.
    TaskGroup = 0x55,
    /// A context.
    Context = 0x56,
    /// A kernel function or binary.
    Function = 0x57,
    /// A tensor of the operator interface.
    Tensor = 0x58,
    /// A list of tensors.
    TensorList = 0x59,
    /// A scalar.
    Scalar = 0x5A,
    /// A list of scalars.
    ScalarList = 0x5B,
    /// An array of numbers.
    Array = 0x5C,
    /// An operator that was prepared and not launched.
    Executor = 0x5D,
    /// A tensor description of the older operator interface.
    Desc = 0x5E,
    /// A data buffer of the older operator interface.
    Buffer = 0x5F,
    /// Attributes of the older operator interface.
    Attr = 0x60,
    /// A condition of a captured model.
    Condition = 0x61,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u16,
    value: Option<T>,
}

/// Objects of one kind by handle.
#[derive(Debug)]
pub struct Table<T> {
    tag: Tag,
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    /// An object may have the handle of one that is gone.
    given_again: bool,
}

impl<T> Table<T> {
    /// An empty table of objects of kind `tag`.
    pub fn new(tag: Tag) -> Self {
        Table {
            tag,
            slots: Vec::new(),
            free: Vec::new(),
            given_again: false,
        }
    }

    /// Where asked to, gives the handle that was free last again: none is recognised as stale once there is
    /// another such object.
    pub fn giving_again(self, given_again: bool) -> Self {
        Table {
            given_again,
            ..self
        }
    }

    /// Number of live objects.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// True if nothing is in the table.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts an object in and returns its handle, which is never zero.
    pub fn insert(&mut self, value: T) -> u64 {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Slot {
                    generation: 0,
                    value: None,
                });
                (self.slots.len() - 1) as u32
            }
        };
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        self.handle(index, slot_generation(&self.slots, index))
    }

    fn handle(&self, index: u32, generation: u16) -> u64 {
        (self.tag as u64) << 56 | u64::from(generation) << 32 | u64::from(index + 1)
    }

    fn index(&self, handle: u64) -> Option<usize> {
        let index = (handle as u32).checked_sub(1)?;
        let slot = self.slots.get(index as usize)?;
        (handle == self.handle(index, slot.generation) && slot.value.is_some())
            .then_some(index as usize)
    }

    /// The object of a live handle.
    pub fn get(&self, handle: u64) -> Option<&T> {
        self.slots[self.index(handle)?].value.as_ref()
    }

    /// The object of a live handle, to change.
    pub fn get_mut(&mut self, handle: u64) -> Option<&mut T> {
        let index = self.index(handle)?;
        self.slots[index].value.as_mut()
    }

    /// Takes an object out; its handle is stale from then on.
    pub fn remove(&mut self, handle: u64) -> Option<T> {
        let index = self.index(handle)?;
        let slot = &mut self.slots[index];
        if !self.given_again {
            slot.generation = slot.generation.wrapping_add(1);
        }
        self.free.push(index as u32);
        slot.value.take()
    }

    /// All live objects with their handles, in slot order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(move |(index, slot)| {
                let value = slot.value.as_ref()?;
                Some((self.handle(index as u32, slot.generation), value))
            })
    }

    /// All live objects, to change.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }
}

fn slot_generation<T>(slots: &[Slot<T>], index: u32) -> u16 {
    slots[index as usize].generation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_stale_after_removal() {
        let mut table = Table::new(Tag::Stream);
        let first = table.insert(1);
        assert_eq!(table.remove(first), Some(1));
        let second = table.insert(2);
        assert_ne!(first, second);
        assert_eq!(table.get(first), None);
        assert_eq!(table.get(second), Some(&2));
    }

    #[test]
    fn a_handle_is_given_again_where_asked_to() {
        let mut table = Table::new(Tag::Stream).giving_again(true);
        let first = table.insert(1);
        table.insert(2);
        assert_eq!(table.remove(first), Some(1));
        assert_eq!(table.get(first), None);
        assert_eq!(table.insert(3), first);
        assert_eq!(table.get(first), Some(&3));
    }

    #[test]
    fn a_handle_of_another_kind_is_not_taken() {
        let mut streams = Table::new(Tag::Stream);
        let mut events = Table::new(Tag::Event);
        let stream = streams.insert(());
        events.insert(());
        assert!(events.get(stream).is_none());
        assert!(events.get(0).is_none());
    }
}
