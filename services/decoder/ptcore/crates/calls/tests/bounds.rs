//! Nothing that is kept of a stream grows without end, whatever the stream does.

use pt_calls::{Batch, Callers, Calls, Found, Output, Records, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT};
use pt_flow::{Block, BlockKind, Loss, Reason, Sink};
use pt_image::{Place, Role, Symbols};
use std::collections::HashSet;

const MILLION: usize = 1 << 20;
const ROWS: usize = 1 << 14;

/// Functions of 256 bytes.
struct Functions;

impl Symbols for Functions {
    fn place(&self, _epoch: u32, address: u64) -> Place {
        let start = address & !0xff;
        Place {
            space: 0,
            function: Some((address >> 8) as u32),
            start,
            end: start + 0x100,
            bias: 0,
            entry: address == start,
            role: Role::Plain,
        }
    }
}

#[derive(Default)]
struct Taken {
    batches: usize,
    records: Records,
    found: Vec<Found>,
    losses: Vec<usize>,
}

impl Output for Taken {
    fn rows(&self) -> usize {
        ROWS
    }

    fn take(&mut self, batch: Batch<'_>) {
        self.batches += 1;
        self.records.append(batch.calls);
        self.found.extend(batch.found);
        self.losses.push(batch.losses.len());
    }
}

fn calls() -> Calls<Functions, Taken> {
    Calls::handing_out(Functions, Taken::default())
}

/// Two instructions from `start` on.
fn block(start: u64, kind: BlockKind, target: u64) -> Block<'static> {
    let (last, end) = (start + 4, start + 9);
    Block { id: u32::MAX, start, last, end, instructions: 2, kind, epoch: 0, target, lengths: &[4, 5] }
}

#[test]
fn a_stretch_ends_when_too_many_calls_are_open() {
    let mut calls = calls();
    let count = 3 * MILLION / 2;
    for number in 0..count {
        calls.block(&block(0x1000, BlockKind::Call, 0x1000), number as u64 + 1);
    }
    let totals = calls.end_stream();
    let Taken { records, .. } = std::mem::take(calls.output());
    assert_eq!((totals.calls, records.call.len()), (count as u64, count));
    let deepest = *records.depth.iter().max().unwrap() as usize;
    assert!((MILLION..MILLION + MILLION / 2).contains(&deepest), "{deepest} calls were open");
    assert_eq!(records.depth.iter().filter(|&&depth| depth == 0).count(), 2, "stretches");
    assert!(records.flags.iter().all(|flags| flags & END_TRUNCATED != 0));
    assert_eq!(totals.functions[0].self_instructions, 2 * count as u64);
    assert!(records.parent.iter().filter(|&&parent| parent == NO_PARENT).count() == 2);
}

#[test]
fn calls_that_stay_are_looked_at_once_for_as_many_new_ones() {
    let mut calls = calls();
    let open = MILLION / 2;
    for _ in 0..open {
        calls.block(&block(0x1000, BlockKind::Call, 0x1000), 0);
    }
    for _ in 0..MILLION {
        calls.block(&block(0x1000, BlockKind::Call, 0x2000), 0);
        calls.block(&block(0x2000, BlockKind::Return, 0x1009), 0);
        calls.block(&block(0x1009, BlockKind::Jump, 0x1000), 0);
    }
    // Each batch leaves the window with a look at all that are open.
    let batches = calls.output().batches;
    assert!(batches <= MILLION / open, "{batches} batches");
    assert_eq!(calls.end_stream().calls as usize, 1 + open + MILLION);
}

#[test]
fn begins_and_ends_do_not_wait_for_ever_for_a_time() {
    let mut calls = calls();
    calls.enabled(0x1000, false, 1000);
    let count = 2 * MILLION;
    let mut told = 0;
    for _ in 0..count {
        calls.block(&block(0x1000, BlockKind::Call, 0x2000), 1_001_000);
        calls.block(&block(0x2000, BlockKind::Return, 0x1009), 1_001_000);
        calls.block(&block(0x1009, BlockKind::Jump, 0x1000), 1_001_000);
        told = calls.output().records.call.len();
    }
    assert!(told > count - MILLION, "{told} calls were handed out while no time came by");
    let totals = calls.end_stream();
    let Taken { records, .. } = std::mem::take(calls.output());
    assert_eq!(totals.calls, count as u64 + 1);
    let inner: Vec<_> = (0..records.call.len()).filter(|&row| records.depth[row] == 1).collect();
    assert_eq!(inner.len(), count);
    let mut last = 1000;
    for row in inner {
        assert!(last <= records.start_tsc[row] && records.start_tsc[row] <= records.end_tsc[row]);
        last = records.end_tsc[row];
    }
    assert!(last <= 1_001_000);
    // Those that had to be told early share half of the time.
    assert!(last > 501_000);
}

#[test]
fn a_stretch_has_only_so_many_callers_that_are_found_late() {
    let mut calls = calls();
    let count = MILLION + MILLION / 4;
    let address = |number: usize| 0x1000 + 0x100 * (number as u64 % 1000) + 0x10;
    for number in 0..count {
        calls.block(&block(address(number), BlockKind::Return, address(number + 1)), number as u64 + 1);
    }
    let totals = calls.end_stream();
    let Taken { mut records, found, .. } = std::mem::take(calls.output());
    assert_eq!(totals.calls as usize, records.call.len());
    assert!(records.call.len() >= count);
    assert_eq!(records.call.iter().collect::<HashSet<_>>().len(), records.call.len(), "numbers are used once");
    assert!(found.len() > MILLION, "{} callers were found behind their calls", found.len());
    let told = records.call.clone();
    Callers::new(found).place(&told, &mut records.parent, &mut records.columns.depth);
    assert_eq!(records.parent.iter().filter(|&&parent| parent == NO_PARENT).count(), 2, "stretches");
    let deepest = *records.depth.iter().max().unwrap() as usize;
    assert!((MILLION - 2..=MILLION).contains(&deepest), "{deepest}");
    let begun = records.flags.iter().filter(|&&flags| flags & BEGIN_TRUNCATED != 0).count();
    assert!(begun >= count);
}

#[test]
fn losses_are_handed_out_as_well() {
    let mut calls = calls();
    let loss = |offset| Loss { offset, size: 1, reason: Reason::NoCode, address: 0, epoch: 0, tsc0: 1, tsc1: 2 };
    (0..10_000).for_each(|offset| calls.loss(&loss(offset)));
    calls.end_stream();
    let Taken { losses, batches, .. } = std::mem::take(calls.output());
    assert_eq!(losses.iter().sum::<usize>(), 10_000);
    assert!(batches >= 3 && losses.iter().all(|&count| count <= 4096), "{losses:?}");
}
