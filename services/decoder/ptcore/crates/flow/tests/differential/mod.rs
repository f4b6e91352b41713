//! Streams through libipt and through this decoder: the same packets, instructions, events and times, in one order.
//!
//! What libipt makes of a stream are the lines that `tests/oracle` of the repository prints (`listing.h` there).
#![allow(dead_code)]

mod flow;
pub mod packets;
mod returns;
mod times;

pub use flow::Against;

use pt_flow::{CodeMemory, Config, Flow};
use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The folder of the programs that print what libipt sees; `None`, with a word on stderr, where they cannot be built.
pub fn oracle() -> Option<&'static Path> {
    static ORACLE: OnceLock<Option<PathBuf>> = OnceLock::new();
    ORACLE
        .get_or_init(|| {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../../tests/oracle");
            let made = Command::new("make").arg("-C").arg(&folder).output().ok()?;
            if !made.status.success() {
                eprintln!("skipped: {}", String::from_utf8_lossy(&made.stderr));
                return None;
            }
            Some(folder)
        })
        .as_deref()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    Packets,
    Instructions,
    Blocks,
}

impl Layer {
    pub const ALL: [Layer; 3] = [Layer::Packets, Layer::Instructions, Layer::Blocks];

    pub fn name(self) -> &'static str {
        match self {
            Layer::Packets => "packets",
            Layer::Instructions => "instructions",
            Layer::Blocks => "blocks",
        }
    }
}

/// What was compared and found equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Equal {
    pub packets: u64,
    pub instructions: u64,
    pub events: u64,
    /// Of the events, those with a time.
    pub timed: u64,
    /// Of those, the ones where libipt's time goes back behind one it gave before.
    pub behind: u64,
    pub errors: u64,
    /// Instructions that libipt gave together with an error or the end, which the flow stops in front of.
    pub reached: u64,
    /// Where libipt's instruction layer gives up and its block layer does not (see `Against`).
    pub stricter: u64,
}

impl Equal {
    fn add(&mut self, other: &Equal) {
        self.packets += other.packets;
        self.instructions += other.instructions;
        self.events += other.events;
        self.timed += other.timed;
        self.behind += other.behind;
        self.errors += other.errors;
        self.reached += other.reached;
        self.stricter += other.stricter;
    }
}

impl fmt::Display for Equal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Equal { packets, instructions, events, timed, behind, errors, reached, stricter } = self;
        write!(
            f,
            "packets {packets} instructions {instructions} events {events} timed {timed} behind {behind} errors {errors} \
             reached {reached} stricter {stricter}"
        )
    }
}

/// The clock with libipt's rules, of which some differ here on purpose (see docs/pt-conformance.md).
pub fn as_libipt(config: &Config) -> Config {
    Config { clock_of_libipt: true, forget_rate_at_overflow: true, ..*config }
}

/// Runs libipt and hands its lines to `compare`.
pub fn with_lines<T>(
    mut oracle: Command,
    compare: impl FnOnce(&mut dyn Iterator<Item = String>) -> Result<T, String>,
) -> Result<T, String> {
    let mut child = oracle.stdout(Stdio::piped()).spawn().unwrap_or_else(|error| panic!("{oracle:?}: {error}"));
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines().map(|line| line.expect("text"));
    let compared = compare(&mut lines);
    // Lets a child go on that has more to say.
    lines.for_each(drop);
    let status = child.wait().expect("its end");
    if status.success() {
        compared
    } else {
        Err(format!("{}: {status}", oracle.get_program().to_string_lossy()))
    }
}

/// One layer of a stream; `oracle` prints libipt's lines of it. An error says where the two differ first.
pub fn compare<M: CodeMemory>(
    layer: Layer,
    oracle: Command,
    stream: &[u8],
    config: &Config,
    memory: M,
    epochs: &[(usize, u32)],
) -> Result<Equal, String> {
    with_lines(oracle, |lines| {
        if layer == Layer::Packets {
            return packets::compare(lines, stream, config);
        }
        let (mut flow, mut all, mut from) = (Flow::new(memory), Equal::default(), 0);
        loop {
            let mut against = Against::new(layer, &stream[from..], from, lines);
            flow.decode(&stream[from..], config, &behind(epochs, from), &mut against);
            let compared = against.finish().map_err(|why| format!("from offset {from:x}, {why}"))?;
            all.add(&compared.equal);
            all.behind += times::compare(&compared, &stream[from..], config)?;
            // Where libipt gave up alone, both begin anew at the PSB where it goes on.
            match next_sync(lines) {
                Some(offset) if compared.equal.stricter > 0 => from = offset,
                _ => return Ok(all),
            }
        }
    })
}

/// The epochs as of the offset on.
fn behind(epochs: &[(usize, u32)], from: usize) -> Vec<(usize, u32)> {
    epochs.iter().map(|&(offset, epoch)| (offset.saturating_sub(from), epoch)).collect()
}

/// Where libipt goes on next.
fn next_sync(mut lines: &mut dyn Iterator<Item = String>) -> Option<usize> {
    Iterator::find_map(&mut lines, |line| usize::from_str_radix(line.strip_prefix("sync ")?, 16).ok())
}
