//! Lines to events, each checked against what came before.

use super::{Event, Trace};

/// More streams than a device has.
pub(super) const MAX_STREAMS: u32 = 1024;
/// The most events that are read: 1.5 GiB of memory.
pub(super) const MAX_EVENTS: usize = 1 << 26;
/// The most stacks that are read.
pub(super) const MAX_STACKS: usize = 1 << 20;
/// The most private pools that are read.
pub(super) const MAX_POOLS: usize = u16::MAX as usize;
/// The most lines that say nothing: a compressed file holds any number of them.
const MAX_IDLE: usize = 1 << 20;
/// The longest label that is kept, characters.
const MAX_LABEL: usize = 200;
/// The most bytes of labels and stacks together.
const MAX_TEXT: usize = if cfg!(test) { 1 << 16 } else { MOST_TEXT };
pub(super) const MOST_TEXT: usize = 1 << 30;
/// What a text costs besides its bytes.
pub(super) const TEXT_COST: usize = 64;
/// More bytes than a system of devices has.
const ONE_EXBIBYTE: u64 = 1 << 60;

#[derive(Default)]
pub(super) struct Parser {
    pub(super) trace: Trace,
    /// Bytes of each block while it is alive; `None` once freed.
    live: Vec<Option<u64>>,
    /// Whether each private pool has users.
    pools: Vec<bool>,
    bytes: u64,
    /// Lines that said nothing.
    idle: usize,
    /// Bytes of the texts so far.
    text: usize,
    /// The last allocation that a failed request's marker precedes: its event, and the peak before it.
    announced: Option<(usize, u64)>,
}

impl Parser {
    /// Takes a line, without its end.
    pub(super) fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or("");
        let mut number = |what: &str| -> Result<u64, String> {
            let word = words.next().ok_or_else(|| format!("{what} is missing"))?;
            word.parse()
                .map_err(|_| format!("{what} {word:?} is no number"))
        };
        let event = match kind {
            "a" => {
                let (id, mut bytes) = (number("the block's id")?, number("the size")?);
                let stream = self.stream(number("the stream")?)?;
                self.allocated_by(words.next())?;
                let pool = words.next().map_or(Ok(0), |word| self.pool(word))?;
                if id != self.live.len() as u64 || id >= u64::from(u32::MAX) {
                    return Err(format!("block {id} should be {}", self.live.len()));
                }
                if self.is_announced(bytes) {
                    self.announced = Some((self.trace.events.len(), self.trace.peak_live));
                    // A program may ask for anything; this is more than any device has.
                    bytes = bytes.min(ONE_EXBIBYTE - 1 - self.bytes);
                }
                self.live.push(Some(bytes));
                self.bytes = self
                    .bytes
                    .checked_add(bytes)
                    .filter(|bytes| *bytes < ONE_EXBIBYTE)
                    .ok_or("more than 1 EiB is alive")?;
                self.trace.peak_live = self.trace.peak_live.max(self.bytes);
                self.trace.blocks += 1;
                Event::Alloc {
                    bytes,
                    stream,
                    pool,
                }
            }
            "p" => {
                let id = (number("the pool's id")?, number("the pool's id")?);
                if id == (0, 0) {
                    return Err("(0, 0) is the default pool".to_owned());
                }
                if self.pools.len() >= MAX_POOLS {
                    return Err(format!("more than {MAX_POOLS} pools"));
                }
                if let Some(more) = words.next() {
                    return Err(format!("{more:?} is too much"));
                }
                self.pools.push(true);
                self.trace.pools.push(id);
                return Ok(());
            }
            "d" => {
                let pool = self.pool(words.next().ok_or("the pool is missing")?)?;
                match self.pools.get_mut((pool as usize).wrapping_sub(1)) {
                    Some(used) => *used = false,
                    None => return Err("the default pool stays".to_owned()),
                }
                Event::ReleasePool { pool }
            }
            "f" => {
                let id = number("the block's id")?;
                let block = self.block(id)?;
                self.bytes -= self.live[block as usize].take().unwrap_or(0);
                if let Some((at, peak)) = self.announced
                    && at + 1 == self.trace.events.len()
                    && block + 1 == self.trace.blocks
                {
                    self.trace.peak_live = peak;
                    self.trace.failed.push(block);
                }
                Event::Free { block }
            }
            "u" => {
                let id = number("the block's id")?;
                let block = self.block(id)?;
                let stream = self.stream(number("the stream")?)?;
                Event::Use { block, stream }
            }
            "s" if line == "s *" => return self.push(Event::SyncDevice),
            "s" => {
                let stream = self.stream(number("the stream")?)?;
                Event::SyncStream { stream }
            }
            "w" => {
                let stream = self.stream(number("the stream")?)?;
                let back = number("the number of events")?;
                if back > self.trace.events.len() as u64 {
                    return Err(format!("there are no {back} events before"));
                }
                Event::WaitStream {
                    stream,
                    back: back as u32,
                }
            }
            "e" => Event::EmptyCache,
            "m" => {
                let label: String = line[1..].trim().chars().take(MAX_LABEL).collect();
                self.keep(&label)?;
                self.trace.labels.push(label);
                let label = (self.trace.labels.len() - 1) as u32;
                return self.push(Event::Mark { label });
            }
            "k" => return self.add_stack(&line[1..]),
            "#" => {
                self.idle()?;
                return self.header(line[1..].trim());
            }
            "" if line.is_empty() => return self.idle(),
            _ => return Err(format!("unknown event {kind:?}")),
        };
        if let Some(more) = words.next() {
            return Err(format!("{more:?} is too much"));
        }
        self.push(event)
    }

    /// The file was cut after the last line. A failed request whose free was cut off is left out: it would
    /// count as alive.
    pub(super) fn tear(&mut self) {
        self.trace.torn = true;
        let Some((at, peak)) = self.announced else {
            return;
        };
        if at + 1 == self.trace.events.len() {
            self.trace.events.pop();
            self.trace.blocks -= 1;
            self.trace.stack_of.truncate(self.trace.blocks as usize);
            self.trace.peak_live = peak;
        }
    }

    fn push(&mut self, event: Event) -> Result<(), String> {
        if self.trace.events.len() >= MAX_EVENTS {
            return Err(format!("more than {MAX_EVENTS} events"));
        }
        self.trace.events.push(event);
        Ok(())
    }

    /// Whether the last event says that a request for so many bytes failed.
    fn is_announced(&self, bytes: u64) -> bool {
        let Some(Event::Mark { label }) = self.trace.events.last() else {
            return false;
        };
        let label = &self.trace.labels[*label as usize];
        let asked = label.strip_prefix("out of memory: ");
        let asked = asked.and_then(|rest| rest.strip_suffix(" bytes"));
        asked.and_then(|asked| asked.parse().ok()) == Some(bytes)
    }

    /// Counts a line that is no event.
    fn idle(&mut self) -> Result<(), String> {
        self.idle += 1;
        if self.idle > MAX_IDLE {
            return Err(format!("more than {MAX_IDLE} lines that are no events"));
        }
        Ok(())
    }

    /// Counts a text that is kept.
    fn keep(&mut self, text: &str) -> Result<(), String> {
        self.text += text.len() + TEXT_COST;
        if self.text > MAX_TEXT {
            return Err(format!("more than {MAX_TEXT} bytes of markers and stacks"));
        }
        Ok(())
    }

    fn add_stack(&mut self, frames: &str) -> Result<(), String> {
        self.keep(frames)?;
        let stacks = &mut self.trace.stacks;
        if stacks.is_empty() {
            stacks.push(String::new());
        }
        if stacks.len() > MAX_STACKS {
            return Err(format!("more than {MAX_STACKS} stacks"));
        }
        stacks.push(frames.trim().replace('\t', "\n"));
        Ok(())
    }

    /// The next block's stack, by its number.
    fn allocated_by(&mut self, word: Option<&str>) -> Result<(), String> {
        let stack = match word {
            None => 0,
            Some(word) => word
                .parse()
                .map_err(|_| format!("the stack {word:?} is no number"))?,
        };
        if stack != 0 && stack as usize >= self.trace.stacks.len() {
            return Err(format!("stack {stack} is not there"));
        }
        let stack_of = &mut self.trace.stack_of;
        if stack != 0 || !stack_of.is_empty() {
            // The ones before the first that has one.
            stack_of.resize(self.live.len(), 0);
            stack_of.push(stack);
        }
        Ok(())
    }

    fn header(&mut self, text: &str) -> Result<(), String> {
        if let Some(capacity) = text.strip_prefix("capacity ") {
            self.trace.capacity = capacity
                .parse()
                .map_err(|_| format!("capacity {capacity:?} is no number"))?;
        } else if let Some(workload) = text.strip_prefix("workload ") {
            self.trace.workload = workload.to_owned();
        }
        Ok(())
    }

    fn stream(&mut self, stream: u64) -> Result<u32, String> {
        if stream >= u64::from(MAX_STREAMS) {
            return Err(format!("stream {stream} is not below {MAX_STREAMS}"));
        }
        self.trace.streams = self.trace.streams.max(stream as u32 + 1);
        Ok(stream as u32)
    }

    /// A pool with users, by its number; 0 is the default one.
    fn pool(&self, word: &str) -> Result<u16, String> {
        let pool: u16 = word
            .parse()
            .map_err(|_| format!("the pool {word:?} is no number"))?;
        match pool.checked_sub(1).map(|at| self.pools.get(at as usize)) {
            None | Some(Some(true)) => Ok(pool),
            Some(Some(false)) => Err(format!("pool {pool} has no user any more")),
            Some(None) => Err(format!("pool {pool} is not there")),
        }
    }

    fn block(&self, id: u64) -> Result<u32, String> {
        match self.live.get(id as usize) {
            Some(Some(_)) => Ok(id as u32),
            Some(None) => Err(format!("block {id} is not alive any more")),
            None => Err(format!("block {id} was never allocated")),
        }
    }
}
