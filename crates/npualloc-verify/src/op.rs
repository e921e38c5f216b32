//! Operations on the allocator, and programs of them. Numbers that name something are taken modulo what
//! there is, so every program makes sense.

use npualloc::config::{ConfigError, DefaultEngine, Settings};
use npualloc::driver::OUT_OF_MEMORY_CODE;

/// Settings at the start.
pub const CONFIGS: [&str; 11] = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.5,per_process_memory_fraction:0.7",
    "multi_stream_lazy_reclaim:True",
    "expandable_segments:True,large_segment_size_mb:20",
    "expandable_segments:True,roundup_power2_divisions:8",
    "throw_on_npumalloc_oom:True,per_process_memory_fraction:0.8",
    "expandable_segments:True,multi_stream_lazy_reclaim:True",
    "expandable_segments:True,per_process_memory_fraction:0.6",
];

/// The settings of a configuration string; with `probe` the driver decides between the engines where the string
/// doesn't, as it does for users. Otherwise segments are fixed then.
///
/// # Errors
/// When the string is refused.
pub fn settings(config: &str, probe: bool) -> Result<Settings, ConfigError> {
    let mut settings = Settings::parse(config)?;
    if probe {
        settings.default_engine = DefaultEngine::Probe;
    }
    Ok(settings)
}

/// Changes of settings while a program runs. The last one is always refused, others when they exclude what
/// is set.
pub const CHANGES: [&str; 6] = [
    "expandable_segments:True",
    "expandable_segments:False",
    "max_split_size_mb:32",
    "max_non_split_rounding_mb:64",
    "throw_on_npumalloc_oom:False",
    "max_split_size_mb:1",
];

/// Codes that driver calls fail with: no memory, internal error, no memory for events, lost device,
/// invalid argument, not supported, page fault in memory.
pub const FAULT_CODES: [i32; 7] = [
    OUT_OF_MEMORY_CODE,
    500_000,
    207_000,
    107_022,
    107_000,
    507_899,
    507_053,
];

/// Streams of each device.
pub const STREAMS: u8 = 3;
/// Private pools of each device. The last is external.
pub const POOLS: u8 = 3;

/// A step of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    /// Pool 0 is the default one.
    Allocate {
        device: u8,
        stream: u8,
        pool: u8,
        bytes: u32,
    },
    Free {
        pick: u16,
    },
    /// An address that is not the start of a live block.
    FreeWrong {
        pick: u16,
    },
    Record {
        pick: u16,
        stream: u8,
    },
    Erase {
        pick: u16,
        stream: u8,
    },
    Submit {
        device: u8,
        stream: u8,
    },
    Finish {
        device: u8,
        stream: u8,
    },
    EmptyCache {
        device: u8,
        pool: u8,
    },
    EmptyVirtual {
        device: u8,
    },
    Fraction {
        device: u8,
        percent: u8,
    },
    Settings {
        change: u8,
    },
    AddUser {
        device: u8,
        pool: u8,
    },
    DropUser {
        device: u8,
        pool: u8,
    },
    Overflow {
        device: u8,
        pool: u8,
        on: bool,
    },
    NoSplit {
        device: u8,
        pool: u8,
    },
    BeginCapture {
        device: u8,
    },
    EndCapture {
        device: u8,
    },
    Save {
        device: u8,
        pool: u8,
    },
    Restore,
    History {
        device: u8,
        on: bool,
    },
    Snapshot {
        device: u8,
    },
    /// Another process holds a share of the device.
    Others {
        device: u8,
        percent: u8,
    },
    Fault {
        after: u8,
        code: u8,
    },
}

/// What a program runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Position in [`CONFIGS`].
    pub config: u8,
    /// The driver decides between the engines where the configuration leaves that open, as it does for users.
    pub probe: bool,
    /// The driver maps a handle at two addresses.
    pub aliasing: bool,
    /// Frees with uses share events from the beginning, as if there had been many.
    pub heavy: bool,
    /// Free blocks serve other streams from the beginning, not only where memory would have to move.
    pub lends: bool,
    /// The large blocks of all streams come into one list as soon as two streams have some.
    pub shares: bool,
    /// Threads get leases from the beginning, as if they had waited for each other.
    pub crowded: bool,
    /// The steps are repeated, and large blocks get places of their own as soon as that is noticed.
    pub repeats: bool,
    /// 1 to 3.
    pub devices: u8,
    /// Of each device, MiB.
    pub capacity: u16,
}

/// A setup and steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// What it runs on.
    pub setup: Setup,
    /// What it does.
    pub ops: Vec<Op>,
}

/// More steps than this are not read from bytes.
const MOST_OPS: usize = 400;

struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.0.next().copied()
    }

    fn word(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes([self.byte()?, self.byte()?]))
    }

    /// A size: an exponent and a mantissa, so that all magnitudes are reached. Up to 768 MiB.
    fn size(&mut self) -> Option<u32> {
        let word = u32::from(self.word()?);
        let (octave, rest) = (word >> 11, word & 0x7FF);
        let low = 1u32 << (octave % 30);
        Some(low.min(512 << 20) + ((u64::from(rest) * u64::from(low.min(256 << 20))) >> 11) as u32)
    }
}

impl Program {
    /// Every text of bytes is a program.
    pub fn from_bytes(data: &[u8]) -> Self {
        let mut bytes = Bytes(data.iter());
        let mut head = || bytes.byte().unwrap_or(0);
        let (config, flags, capacity) = (head(), head(), head());
        let setup = Setup {
            config,
            probe: flags & 0x80 != 0,
            aliasing: flags & 1 != 0,
            heavy: flags & 2 != 0,
            lends: flags & 0x40 != 0,
            shares: config & 0x80 != 0,
            crowded: config & 0x40 != 0,
            repeats: capacity & 0x80 != 0,
            devices: 1 + (flags >> 2 & 0xF) % 3,
            capacity: 64 + 4 * u16::from(capacity),
        };
        let ops = std::iter::from_fn(|| read_op(&mut bytes)).take(MOST_OPS);
        Self {
            setup,
            ops: ops.collect(),
        }
    }
}

fn read_op(bytes: &mut Bytes) -> Option<Op> {
    let kind = bytes.byte()?;
    // The upper bits name the device, so that a step stays short.
    let device = kind >> 6;
    Some(match kind & 0x3F {
        0..=15 => {
            let place = bytes.byte()?;
            let (stream, pool) = (
                place & 3,
                if place & 0x80 == 0 { 0 } else { place >> 2 & 3 },
            );
            let bytes = bytes.size()?;
            Op::Allocate {
                device,
                stream,
                pool,
                bytes,
            }
        }
        16..=30 => Op::Free {
            pick: bytes.word()?,
        },
        31 => Op::FreeWrong {
            pick: bytes.word()?,
        },
        32..=35 => Op::Record {
            pick: bytes.word()?,
            stream: device,
        },
        36 => Op::Erase {
            pick: bytes.word()?,
            stream: device,
        },
        37..=40 => Op::Submit {
            device,
            stream: bytes.byte()?,
        },
        41..=43 => Op::Finish {
            device,
            stream: bytes.byte()?,
        },
        44 => Op::EmptyCache {
            device,
            pool: bytes.byte()?,
        },
        45 => Op::EmptyVirtual { device },
        46 => Op::Fraction {
            device,
            percent: bytes.byte()?,
        },
        47 => Op::Settings {
            change: bytes.byte()?,
        },
        48..=50 => Op::AddUser {
            device,
            pool: bytes.byte()?,
        },
        51 => Op::DropUser {
            device,
            pool: bytes.byte()?,
        },
        52 => Op::Overflow {
            device,
            pool: bytes.byte()?,
            on: true,
        },
        53 => Op::NoSplit {
            device,
            pool: bytes.byte()?,
        },
        54 => Op::BeginCapture { device },
        55 => Op::EndCapture { device },
        56 => Op::Save {
            device,
            pool: bytes.byte()?,
        },
        57 => Op::Restore,
        58 => Op::History {
            device,
            on: bytes.byte()? & 1 == 0,
        },
        59 => Op::Snapshot { device },
        60 => Op::Others {
            device,
            percent: bytes.byte()?,
        },
        61 => Op::Overflow {
            device,
            pool: bytes.byte()?,
            on: false,
        },
        _ => Op::Fault {
            after: bytes.byte()?,
            code: bytes.byte()?,
        },
    })
}
