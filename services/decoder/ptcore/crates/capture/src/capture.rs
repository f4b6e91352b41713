//! What a recording holds.

use crate::{ByTime, Bytes, Conversion, Memory, Stays, Views};
use pt_flow::Config;
use pt_image::Image;
use std::fmt;

/// By what it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Griffin,
    Lldb,
    PerfData,
    /// Packets alone; code is given by hand.
    Raw,
    /// A permille session's folder.
    Session,
}

impl Kind {
    /// A short stable name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Griffin => "griffin",
            Kind::Lldb => "lldb",
            Kind::PerfData => "perf.data",
            Kind::Raw => "raw",
            Kind::Session => "session",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whose packets a stream holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    Thread { pid: u32, tid: u32 },
    Core(u32),
}

/// A core changed from one thread to another or to none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// TSC ticks.
    pub tsc: u64,
    pub pid: u32,
    pub tid: u32,
    /// The thread begins to run; otherwise it stops.
    pub enters: bool,
}

/// Who runs, in which address space. Streams name views by number where the flow layer wants epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// 0 where it is not known who ran, and for the idle thread.
    pub pid: u32,
    pub tid: u32,
    /// Number in `Capture::images`.
    pub image: usize,
    /// Epoch of that image.
    pub epoch: u32,
    /// Epoch of the kernel's image.
    pub kernel: u32,
    /// How often the thread had come from another core by then, and its number from another process; 0 where that is not known.
    pub stay: u32,
}

impl View {
    /// As [`CodeMemory::thread`](pt_flow::CodeMemory::thread).
    pub fn thread(&self) -> u64 {
        u64::from(self.tid) << 32 | u64::from(self.stay)
    }
}

/// The packets of one thread or core.
pub struct Stream {
    pub name: String,
    pub data: Bytes,
    /// The size of the whole stream where `data` is its beginning alone.
    pub cut_from: Option<usize>,
    pub of: Of,
    /// Who runs as tracing of the core begins, where that is told.
    pub begins: Option<Switch>,
    /// By time; empty for the stream of a thread.
    pub switches: Vec<Switch>,
    /// The image at the beginning.
    pub image: usize,
    /// From which offset on which of the capture's views holds; the first begins at 0.
    pub epochs: Vec<(usize, u32)>,
    /// Who runs by time, where that is found while the stream is read ([`Capture::decode`]): `epochs` has only the first.
    pub by_time: Option<ByTime>,
    /// Offsets at which packets are missing: the recorder's buffer was full, or a piece is not in the recording.
    pub lost: Vec<usize>,
}

impl Stream {
    /// Bytes of the whole stream.
    pub fn size(&self) -> usize {
        self.cut_from.unwrap_or(self.data.len())
    }

    /// In front of this offset nothing depends on what was cut off.
    pub fn certain(&self) -> usize {
        match self.cut_from {
            Some(_) => self.data.len() / 2,
            None => usize::MAX,
        }
    }

    /// A stream of which there are so many bytes in all.
    pub(crate) fn of_size(size: usize, name: String, data: Bytes, of: Of) -> Self {
        Stream { cut_from: (data.len() < size).then_some(size), ..Stream::new(name, data, of) }
    }

    /// A whole stream, without views yet.
    pub(crate) fn new(name: String, data: Bytes, of: Of) -> Self {
        Stream {
            name,
            data,
            cut_from: None,
            of,
            begins: None,
            switches: Vec::new(),
            image: 0,
            epochs: Vec::new(),
            by_time: None,
            lost: Vec::new(),
        }
    }
}

/// Everything that a recording says.
pub struct Capture {
    pub kind: Kind,
    pub config: Config,
    /// Family, model and stepping of the processor that recorded.
    pub cpu: Option<(u16, u8, u8)>,
    /// How TSC ticks become nanoseconds, where the recording says it.
    pub conversion: Option<Conversion>,
    pub images: Vec<Image>,
    /// Number in `images` of what all address spaces share: the kernel's half.
    pub kernel: Option<usize>,
    pub views: Views,
    /// The cores that threads were on, where the streams of cores tell all that ran there.
    pub stays: Option<Stays>,
    pub streams: Vec<Stream>,
    /// Names of threads by process and tid, the last known.
    pub names: std::collections::BTreeMap<(u32, u32), String>,
    pub warnings: Vec<String>,
}

impl Capture {
    pub(crate) fn new(kind: Kind) -> Self {
        Capture {
            kind,
            config: Config::default(),
            cpu: None,
            conversion: None,
            images: Vec::new(),
            kernel: None,
            views: Views::default(),
            stays: None,
            streams: Vec::new(),
            names: Default::default(),
            warnings: Vec::new(),
        }
    }

    /// The code of every stream: what `Flow::new` and `Calls::new` want.
    pub fn memory(&self) -> Memory<'_> {
        Memory::new(self)
    }
}
