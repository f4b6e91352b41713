//! What really ran, as a plugin of QEMU logged it (layout: `services/controller/vpt/include/permille/vpt.h`).

use std::path::Path;

const TRIM: u32 = u32::MAX;
const GAP: u32 = u32::MAX - 1;
const REPEATS: u32 = 1 << 31;

pub enum Truth {
    Instruction(u64),
    Gap,
    End,
}

/// The truth log, instruction by instruction: the rules stand in vpt.h.
pub struct Log {
    /// The stack pointer as the last instruction that was told began, where a block of the log begins with it.
    #[allow(dead_code)]
    pub stack_pointer: Option<u64>,
    entries: Vec<u8>,
    at: usize,
    /// By block that ran; none where the log is without them.
    stack_pointers: std::vec::IntoIter<u64>,
    /// That of `now`, until its first instruction is told.
    beginning: Option<u64>,
    blocks: Vec<(Vec<u64>, bool)>,
    now: std::vec::IntoIter<u64>,
    /// A repeating instruction is held back until it is known whether it retired.
    held: Option<u64>,
    behind: Option<Truth>,
}

impl Log {
    pub fn open(folder: &Path, stream: u32) -> Self {
        let defined = std::fs::read(folder.join("truth-blocks.bin")).expect("truth-blocks.bin");
        let entries = std::fs::read(folder.join(format!("truth-{stream}.bin"))).expect("the stream's truth");
        let (mut blocks, mut at) = (Vec::new(), 0);
        while at + 8 <= defined.len() {
            let count = u32_at(&defined, at + 4);
            let addresses =
                (0..(count & !REPEATS) as usize).map(|i| u64_at(&defined, at + 8 + 8 * i)).collect::<Vec<_>>();
            at += 8 + 8 * addresses.len();
            blocks.push((addresses, count & REPEATS != 0));
        }
        let stacks = std::fs::read(folder.join(format!("truth-stack-{stream}.bin"))).unwrap_or_default();
        let stack_pointers = stacks.chunks_exact(8).map(|bytes| u64_at(bytes, 0)).collect::<Vec<_>>().into_iter();
        let now = Vec::new().into_iter();
        let (stack_pointer, beginning, held, behind) = (None, None, None, None);
        Log { stack_pointer, entries, at: 0, stack_pointers, beginning, blocks, now, held, behind }
    }

    fn entry(&self) -> Option<u32> {
        (self.at + 4 <= self.entries.len()).then(|| u32_at(&self.entries, self.at))
    }

    fn before(&mut self, what: Truth) -> Truth {
        match self.held.take() {
            Some(held) => {
                self.behind = Some(what);
                Truth::Instruction(held)
            }
            None => what,
        }
    }

    pub fn next(&mut self) -> Truth {
        self.stack_pointer = None;
        loop {
            if let Some(address) = self.now.next() {
                self.stack_pointer = self.beginning.take();
                return Truth::Instruction(address);
            }
            if let Some(behind) = self.behind.take() {
                return behind;
            }
            let Some(entry) = self.entry() else { return self.before(Truth::End) };
            self.at += 4;
            if entry == GAP {
                return self.before(Truth::Gap);
            }
            let (mut addresses, mut repeats) = self.blocks[entry as usize].clone();
            let first = addresses[0];
            if self.entry() == Some(TRIM) {
                let from = u64_at(&self.entries, self.at + 4);
                self.at += 12;
                while addresses.last().is_some_and(|last| *last >= from) {
                    addresses.pop();
                    repeats = false;
                }
            }
            self.beginning = self.stack_pointers.next();
            let goes_on = self.held == Some(first);
            let held = self.held.take();
            if repeats {
                self.held = addresses.pop();
            }
            if goes_on {
                self.beginning = None;
                addresses.drain(..addresses.len().min(1));
            }
            self.now = addresses.into_iter();
            if let Some(held) = held.filter(|_| !goes_on) {
                return Truth::Instruction(held);
            }
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
