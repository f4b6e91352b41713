//! Finding paths: along the blocks that given branches lead to.

use super::CodeCache;
use crate::block::BlockKind;
use crate::code_block::{Exit, Way, SCRATCH};
use crate::lead::{Key, Lead, Mixed};
use crate::memory::CodeMemory;
use crate::paths::{Entry, Rest, Step, Stop, MOST_PUSHES, RETURNED, VACANT};
use crate::tally::{Tally, MOST_STEPS};
use crate::view::View;

/// A path that is being found.
#[derive(Default)]
struct Finder {
    /// Blocks of the calls that are open.
    open: [u32; MOST_PUSHES],
    depth: usize,
    high: usize,
    instructions: u32,
    conditional: u32,
    compressed: u32,
    calls: u32,
    returns: u32,
}

impl Finder {
    /// A call out of the block that may be returned from.
    fn call(&mut self, block: u32) {
        self.calls += 1;
        self.open[self.depth] = block;
        self.depth += 1;
        self.high = self.high.max(self.depth);
    }

    fn is_full(&self) -> bool {
        self.depth == MOST_PUSHES
    }
}

impl CodeCache {
    /// Finds and keeps the path. `None` when code on the way cannot be read: the walk will tell why.
    #[cold]
    pub fn find_path<M: CodeMemory>(&mut self, memory: &M, view: View, block: u32, lead: Lead) -> Option<Entry> {
        if block == SCRATCH {
            return None;
        }
        let known = self.paths.slots[self.paths.place(Key::new(Mixed::of(block), lead))];
        let first = self.paths.steps.len();
        let Some((mut entry, rest)) = self.trace(memory, view, block, lead) else {
            self.paths.steps.truncate(first);
            return None;
        };
        // Of a view before: the same as long as every block on the way is.
        if known.key == entry.key && self.same(&known, &entry, &rest) {
            self.paths.steps.truncate(first);
            entry = Entry { view, ..known };
        } else {
            entry.id = self.paths.rests.len() as u32;
            self.paths.rests.push(rest);
        }
        self.paths.insert(entry);
        Some(entry)
    }

    /// Whether the path whose steps stand behind all others is the one that is known.
    fn same(&self, known: &Entry, other: &Entry, rest: &Rest) -> bool {
        let steps = &self.paths.steps[rest.first as usize..];
        known.end == other.end && known.stop == other.stop && self.paths.steps(known) == steps
    }

    /// The path, its steps behind those of all others; `None` in the middle of them.
    fn trace<M: CodeMemory>(&mut self, memory: &M, view: View, first: u32, lead: Lead) -> Option<(Entry, Rest)> {
        let count = lead.count();
        let mut left = count;
        let from_step = self.paths.steps.len();
        let mut path = Finder::default();
        let mut at = first;
        let mut end = None;
        let stop = loop {
            (at, left) = self.along_conditions(at, lead, left, from_step + MOST_STEPS, view, &mut path);
            // Without any branch it leads up to where one is needed.
            if left == 0 && count != 0 {
                break Stop::Used;
            }
            let block = *self.block(at);
            if self.paths.steps.len() - from_step == MOST_STEPS {
                return self.trace_shorter(memory, view, first, lead, left, from_step);
            }
            if at == SCRATCH {
                break Stop::Other;
            }
            let indirect = match block.exit {
                Exit::IndirectJump => Some(BlockKind::IndirectJump),
                Exit::IndirectCall if !path.is_full() => Some(BlockKind::IndirectCall),
                Exit::Return => Some(BlockKind::Return),
                _ => None,
            };
            if let (Some(kind), Some(target)) = (indirect, lead.told_target()) {
                self.paths.steps.push(Step { block: at, kind });
                path.instructions += u32::from(block.instructions);
                end = Some(target);
                match kind {
                    BlockKind::IndirectCall => path.call(at),
                    BlockKind::Return => {
                        path.returns += 1;
                        match path.depth.checked_sub(1) {
                            Some(depth) => path.depth = depth,
                            None => path.high |= usize::from(RETURNED),
                        }
                    }
                    _ => {}
                }
                break Stop::Used;
            }
            let (kind, way, from) = match block.exit {
                Exit::Cond if left != 0 && lead.taken(left) => (BlockKind::CondTaken, Way::Target, at),
                Exit::Cond if left != 0 => (BlockKind::CondNotTaken, Way::Next, at),
                Exit::Linear => (BlockKind::Linear, Way::Next, at),
                Exit::Jump => (BlockKind::Jump, Way::Target, at),
                Exit::Call if !path.is_full() || block.target == block.end => (BlockKind::Call, Way::Target, at),
                Exit::Return if left != 0 && lead.taken(left) => match path.open[..path.depth].last() {
                    Some(&call) => (BlockKind::Return, Way::Next, call),
                    None => {
                        self.paths.steps.push(Step { block: at, kind: BlockKind::Return });
                        path.instructions += u32::from(block.instructions);
                        (left, path.compressed) = (left - 1, path.compressed + 1);
                        end = Some(SCRATCH);
                        break Stop::Return;
                    }
                },
                _ => break Stop::Other,
            };
            let next = self.step(memory, view, from, way)?;
            if next == SCRATCH {
                break Stop::Other;
            }
            self.paths.steps.push(Step { block: at, kind });
            path.instructions += u32::from(block.instructions);
            match kind {
                BlockKind::CondTaken | BlockKind::CondNotTaken => {
                    (left, path.conditional) = (left - 1, path.conditional + 1)
                }
                BlockKind::Return => {
                    path.depth -= 1;
                    (left, path.compressed) = (left - 1, path.compressed + 1);
                }
                BlockKind::Call if block.target == block.end => path.calls += 1,
                BlockKind::Call => path.call(at),
                _ => {}
            }
            at = next;
        };
        let end = end.unwrap_or(at);
        let mut pushes = [SCRATCH; MOST_PUSHES];
        pushes[..path.depth].copy_from_slice(&path.open[..path.depth]);
        let entry = Entry {
            key: Key::new(Mixed::of(first), lead),
            tally: Tally::of([path.conditional, path.compressed, path.calls, path.returns, path.instructions]),
            end: Mixed::of(end),
            id: u32::MAX,
            view,
            left: left as u8,
            stop,
            high: path.high as u8,
            pushed: path.depth as u8,
        };
        let steps = (self.paths.steps.len() - from_step) as u8;
        Some((entry, Rest { first: from_step as u32, steps, pushes }))
    }

    /// The path up to the last of the branches that it uses, as what follows is longer than a path: nobody knows whether it has an end.
    fn trace_shorter<M: CodeMemory>(
        &mut self,
        memory: &M,
        view: View,
        first: u32,
        lead: Lead,
        left: u32,
        from_step: usize,
    ) -> Option<(Entry, Rest)> {
        self.paths.steps.truncate(from_step);
        let used = if lead.told_target().is_some() { 0 } else { lead.count() - left };
        let (entry, rest) = if used == 0 {
            let nothing = Entry { end: Mixed::of(first), view, ..VACANT };
            (nothing, Rest { first: from_step as u32, steps: 0, pushes: [SCRATCH; MOST_PUSHES] })
        } else {
            self.trace(memory, view, first, Lead::branches((lead.0 >> left).into(), used))?
        };
        let key = Key::new(Mixed::of(first), lead);
        Some((Entry { key, left: left as u8, stop: Stop::Other, ..entry }, rest))
    }

    /// Goes on over conditional branches, which most are, as long as the next blocks are linked.
    #[inline(always)]
    fn along_conditions(
        &mut self,
        mut at: u32,
        lead: Lead,
        branches: u32,
        most: usize,
        view: View,
        path: &mut Finder,
    ) -> (u32, u32) {
        const KINDS: [BlockKind; 2] = [BlockKind::CondNotTaken, BlockKind::CondTaken];
        let Self { blocks, paths, .. } = self;
        let (mut left, mut instructions) = (branches, 0);
        while left != 0 && paths.steps.len() < most {
            let block = &blocks[at as usize];
            let way = lead.way(left);
            let Some(next) = block.behind_condition(way, view) else { break };
            paths.steps.push(Step { block: at, kind: KINDS[way] });
            instructions += u32::from(block.instructions);
            (at, left) = (next, left - 1);
        }
        path.conditional += branches - left;
        path.instructions += instructions;
        (at, left)
    }

    /// The block that follows on `way`; `None` when it cannot be read.
    pub fn step<M: CodeMemory>(&mut self, memory: &M, view: View, from: u32, way: Way) -> Option<u32> {
        let block = self.block(from);
        match block.linked(way, view) {
            Some(number) => Some(number),
            None => {
                let address = if way == Way::Target { block.target } else { block.end };
                self.link(memory, view, from, way, address).ok()
            }
        }
    }
}
