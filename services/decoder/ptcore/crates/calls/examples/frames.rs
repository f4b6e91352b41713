//! The calls of one stream against what its stack pointer tells: `cargo run --release --example frames -- FOLDER STREAM`.
//!
//! FOLDER is a process's folder of a session in truth mode (layout: `services/controller/vpt/include/permille/vpt.h`). A call
//! lives for as long as the return address that it pushed is not below the stack pointer, whether it returns, is unwound by an
//! exception or left by `longjmp`. Tail calls are in its frame.
//!
//! Prints "equal N cut N unclear N": frames with the same call instruction, caller and instructions; those of which the decoder
//! says that it does not know the end; those of which the stack pointer does not. Exit code 1 at a difference.

#[path = "../../bench/src/input.rs"]
#[allow(dead_code)]
mod input;
#[path = "../../flow/tests/support/truth_log.rs"]
mod truth_log;

use pt_calls::{Calls, Records, ASYNCHRONOUS, BEGIN_TRUNCATED, END_TRUNCATED, TAIL_CALL};
use pt_flow::{Block, BlockKind, DisableKind, Flow, Loss, Sink};
use pt_image::{Image, Role, Symbols};
use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use truth_log::{Log, Truth};

/// A stack pointer that is further from where it was last is on another stack.
const REACH: u64 = 1 << 18;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instructions {
    /// Of the frame and of all that it called.
    Total(u64),
    /// It did not end, as far as the decoder knows or before the log does.
    Open,
    /// It ended while the thread was on another stack or in a signal handler.
    Unclear,
}

/// Frames stand in the order in which they began.
#[derive(Debug)]
struct Frame {
    call_address: u64,
    caller: Option<usize>,
    instructions: Instructions,
}

#[derive(Clone, Copy)]
struct Live {
    /// Where the return address is. Not known while a handler runs in front of the first instruction: above this then.
    at: u64,
    is_known: bool,
    /// A signal may have come right behind the end.
    is_clear: bool,
    /// How many instructions ran before.
    begin: u64,
    number: usize,
}

struct Stack {
    pointer: u64,
    live: Vec<Live>,
    /// So many of them were there as the thread came from another stack or a signal came: they need not have called what follows.
    before: usize,
}

/// What the stack pointer tells.
struct Told<'i> {
    image: &'i Image,
    log: Log,
    /// Of the block that runs.
    epoch: u32,
    ran: u64,
    before: Option<(BlockKind, u64, u64)>,
    /// A signal came behind it.
    interrupted: bool,
    stacks: Vec<Stack>,
    /// The stack that the thread is on.
    now: usize,
    frames: Vec<Frame>,
    different: bool,
}

impl Told<'_> {
    /// A block of the log begins, at `start`, behind a block of the flow that may have ended there.
    fn begins(&mut self, start: u64, pointer: u64, before: Option<(BlockKind, u64, u64)>) {
        let near = |stack: &&(usize, &Stack)| stack.1.pointer.abs_diff(pointer) < REACH;
        let known = self.stacks.iter().enumerate().find(|stack| near(&stack)).map(|(number, _)| number);
        let here = known.unwrap_or(self.stacks.len());
        if known.is_none() {
            self.stacks.push(Stack { pointer, live: Vec::new(), before: 0 });
        }
        let interrupted = std::mem::take(&mut self.interrupted);
        let kind = before.map(|(kind, ..)| kind);
        let far = kind == Some(BlockKind::Far);
        let is_call = matches!(kind, Some(BlockKind::Call | BlockKind::IndirectCall));
        let call = before.filter(|&(_, last, end)| is_call && (start != end || self.is_other_function(last, start)));
        let is_clear = here == self.now && call.is_none() && !far;
        let Stack { pointer: last, live, before } = &mut self.stacks[here];
        if here != self.now || interrupted {
            *before = live.len();
        }
        if interrupted && matches!(kind, Some(BlockKind::Return | BlockKind::IndirectJump)) {
            live.iter_mut().for_each(|one| one.is_clear = false);
        }
        (self.now, *last) = (here, pointer);
        while let Some(over) = live.last_mut().filter(|one| one.at < pointer || call.is_some() && one.at == pointer) {
            if far && !over.is_known {
                // Back from the handler, or from one that interrupted it.
                over.at = pointer;
                break;
            }
            let total = Instructions::Total(self.ran - over.begin);
            self.frames[over.number].instructions =
                if is_clear && over.is_clear { total } else { Instructions::Unclear };
            live.pop();
            *before = live.len().min(*before);
        }
        if let Some((_, call_address, _)) = call {
            let caller = live[*before..].last().map(|caller| caller.number);
            let (is_known, number) = (!interrupted, self.frames.len());
            live.push(Live { at: pointer, is_known, is_clear: is_known, begin: self.ran, number });
            self.frames.push(Frame { call_address, caller, instructions: Instructions::Open });
        }
    }

    /// Whether another function than that of the call begins right behind it: else the call reads its own address.
    fn is_other_function(&self, call: u64, behind: u64) -> bool {
        let [from, to] = [call, behind].map(|address| self.image.place(self.epoch, address));
        to.entry && (to.space, to.function) != (from.space, from.function)
    }

    /// A call of which nothing ran, but for a stub, is none yet.
    fn leave_out_unbegun(&mut self) {
        let last = self.stacks.get(self.now).and_then(|stack| stack.live.last());
        if last.is_some_and(|last| last.begin == self.ran) {
            self.frames.pop();
        }
    }

    /// Instructions of stubs are the caller's.
    fn pass_stub(&mut self, block: &Block<'_>) {
        let began = self.ran - u64::from(block.instructions);
        let live = self.stacks.get_mut(self.now).and_then(|stack| stack.live.last_mut());
        if let Some(callee) = live.filter(|callee| callee.begin == began) {
            if self.image.place(block.epoch, block.start).role == Role::Stub {
                callee.begin = self.ran;
            }
        }
    }
}

impl Sink for Told<'_> {
    fn block(&mut self, block: &Block<'_>, _tsc: u64) {
        let mut before = self.before.take();
        self.epoch = block.epoch;
        self.interrupted &= before.is_some();
        for address in block.addresses() {
            match self.log.next() {
                Truth::Instruction(ran) if ran == address => {}
                Truth::Instruction(ran) => {
                    println!("instruction {}: {ran:x}, decoded as {address:x}", self.ran);
                    self.different = true;
                }
                Truth::Gap => self.different = true,
                // Up to the first instruction that the log has not the flow may go on.
                Truth::End => return,
            }
            if let Some(pointer) = self.log.stack_pointer {
                self.begins(address, pointer, before.take());
            }
            self.ran += 1;
        }
        self.pass_stub(block);
        self.before = Some((block.kind, block.last, block.end));
    }
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {
        self.interrupted = true;
    }
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, loss: &Loss) {
        println!("{loss:?}");
        self.different = true;
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {
        self.different = true;
    }
}

/// Calls that an instruction made, each with the tail calls behind it.
fn decoded(records: &Records) -> Vec<Frame> {
    let mut rows = (0..records.len()).collect::<Vec<_>>();
    rows.sort_by_key(|&row| records.call[row]);
    let mut frames: Vec<Frame> = Vec::new();
    // By call: the caller of what it calls, and of the last one that it called the same and whether that is a frame.
    let (mut caller_of, mut last_of) = (HashMap::new(), HashMap::new());
    for row in rows {
        let (flags, parent) = (records.flags[row], records.parent[row]);
        let caller = caller_of.get(&parent).copied().flatten();
        let (frame, is_frame) = if flags & TAIL_CALL != 0 {
            last_of.get(&parent).copied().unwrap_or_default()
        } else if flags & BEGIN_TRUNCATED != 0 {
            (None, false)
        } else if flags & ASYNCHRONOUS != 0 {
            (caller, false)
        } else {
            let instructions = Instructions::Total(0);
            frames.push(Frame { call_address: records.call_address[row], caller, instructions });
            (Some(frames.len() - 1), true)
        };
        caller_of.insert(records.call[row], frame);
        last_of.insert(parent, (frame, is_frame));
        if let Some(frame) = frame.filter(|_| is_frame).map(|frame| &mut frames[frame]) {
            frame.instructions = match frame.instructions {
                Instructions::Total(sum) if flags & END_TRUNCATED == 0 => {
                    Instructions::Total(sum + records.instructions_total[row])
                }
                _ => Instructions::Open,
            };
        }
    }
    frames
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [folder, stream] = &arguments[..] else { panic!("usage: frames FOLDER STREAM") };
    let (folder, stream) = (Path::new(folder), stream.parse().expect("a stream's number"));
    let input = input::recording("", folder, stream);
    let mut told = Told {
        image: &input.image,
        log: Log::open(folder, stream),
        epoch: 0,
        ran: 0,
        before: None,
        interrupted: false,
        stacks: Vec::new(),
        now: 0,
        frames: Vec::new(),
        different: false,
    };
    let mut calls = Calls::new(&input.image);
    let mut flow = Flow::new(&input.image);
    flow.decode(&input.stream, &input.config, &input.epochs, &mut told);
    told.leave_out_unbegun();
    flow.decode(&input.stream, &input.config, &input.epochs, &mut calls);
    let found = decoded(&calls.finish().records);
    let (mut equal, mut cut, mut unclear, mut different) = (0, 0, 0, 0);
    for (number, (truth, frame)) in told.frames.iter().zip(&found).enumerate() {
        let caller_is_cut = truth.caller.is_some_and(|caller| found[caller].instructions == Instructions::Open);
        let caller = truth.caller.is_none() || truth.caller == frame.caller || frame.caller.is_none() && caller_is_cut;
        let counter = match (truth.instructions, frame.instructions) {
            (_, Instructions::Open) => &mut cut,
            (Instructions::Open | Instructions::Unclear, _) => &mut unclear,
            (truth, frame) if truth == frame => &mut equal,
            _ => &mut different,
        };
        let same = caller && truth.call_address == frame.call_address;
        *if same { counter } else { &mut different } += 1;
        if different > 0 {
            println!("frame {number}: told {truth:x?} decoded {frame:x?}");
            break;
        }
    }
    println!("equal {equal} cut {cut} unclear {unclear} of {} told and {} decoded", told.frames.len(), found.len());
    different += usize::from(told.different || told.frames.len() > found.len());
    ExitCode::from(u8::from(different > 0))
}
