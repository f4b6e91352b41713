//! What `stat` counts in a stream.

use crate::accesses::{accesses, add, rows as accesses_of, Accesses};
use pt_capture::Threads;
use pt_flow::{decode_in_parts, CodeMemory, Flow, Stream, Workers};
use pt_listing::{stop, Branches, Code as _, Counts, Gap, MAX_GAPS};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::collections::BTreeMap;

/// What `stat` tells of a stream.
pub struct Stat {
    counts: Counts,
    flow: Option<FlowStat>,
}

/// Of the flow of a stream, or of a part of it.
#[derive(Default)]
struct FlowStat {
    numbers: Vec<(&'static str, u64)>,
    /// Offset, size, address, reason.
    errors: Vec<(u64, u64, u64, String)>,
    last_tsc: u64,
    accesses: Accesses<()>,
    /// Instructions of every thread, by process and tid.
    threads: BTreeMap<(u32, u32), u64>,
}

/// `workers`: who shares the work.
pub fn count(
    capture: &pt_capture::Capture,
    number: usize,
    flow: bool,
    workers: Workers,
    go_on: &(dyn Fn() -> bool + Sync),
) -> Stat {
    let data = &capture.streams[number].data;
    // Who waits gives pages back as well, but may come late where the machine is busy.
    let go_on = &|| {
        data.release();
        go_on()
    };
    let counts = Counts::of(data, &capture.config, workers, go_on);
    if !go_on() {
        stop();
    }
    Stat { counts, flow: flow.then(|| count_flow(capture, number, workers, go_on)) }
}

fn count_flow(
    capture: &pt_capture::Capture,
    number: usize,
    workers: Workers,
    go_on: &(dyn Fn() -> bool + Sync),
) -> FlowStat {
    let (stream, memory) = (&capture.streams[number], capture.memory());
    let of_thread =
        |_: &pt_capture::View| Branches::new(|loss| memory.why(loss.reason, loss.epoch, loss.address), go_on);
    let make = || Threads::new(&capture.views, of_thread);
    let mut all = FlowStat::default();
    let stream = Stream { data: &stream.data, config: &capture.config, epochs: &stream.epochs, missing: &stream.lost };
    let statistics = decode_in_parts(
        &memory,
        stream,
        workers,
        make,
        |flow, threads| {
            if !go_on() {
                stop();
            }
            FlowStat::of(flow, std::mem::replace(threads, make()).finish())
        },
        |part| all.add(part),
    );
    let compressed = all.numbers.iter_mut().filter(|(name, _)| *name == "compressed_returns");
    compressed.for_each(|(_, count)| *count = statistics.compressed_returns);
    all
}

impl FlowStat {
    fn of<M: CodeMemory>(flow: &mut Flow<M>, mut threads: BTreeMap<(u32, u32), Branches<'_>>) -> FlowStat {
        let ran: Vec<_> = threads.values_mut().flat_map(|thread| thread.ran.take()).collect();
        let accesses = accesses(flow, ran.iter().map(|block| (block, ())));
        let sum = |one: fn(&Branches<'_>) -> u64| threads.values().map(one).sum::<u64>();
        let gaps = threads.values().flat_map(|thread| &thread.gaps);
        let row = |gap: &Gap| (gap.loss.offset as u64, gap.loss.size as u64, gap.loss.address, gap.told.clone());
        let mut errors: Vec<_> = gaps.map(row).collect();
        errors.sort();
        FlowStat {
            numbers: vec![
                ("instructions", sum(|thread| thread.instructions)),
                ("blocks", sum(|thread| thread.blocks())),
                ("conditional_branches", sum(|thread| thread.taken + thread.not_taken)),
                ("taken", sum(|thread| thread.taken)),
                ("not_taken", sum(|thread| thread.not_taken)),
                ("jumps", sum(|thread| thread.jumps)),
                ("indirect", sum(|thread| thread.indirect_jumps + thread.indirect_calls)),
                ("indirect_jumps", sum(|thread| thread.indirect_jumps)),
                ("indirect_calls", sum(|thread| thread.indirect_calls)),
                ("calls", sum(|thread| thread.direct_calls + thread.indirect_calls)),
                ("returns", sum(|thread| thread.returns)),
                ("compressed_returns", 0),
                ("far_transfers", sum(|thread| thread.far)),
                ("interrupts", sum(|thread| thread.interrupts)),
                ("overflows", sum(|thread| thread.overflows)),
                ("error_count", sum(|thread| thread.gap_count)),
                ("lost_bytes", sum(|thread| thread.lost_bytes)),
            ],
            errors,
            accesses,
            last_tsc: threads.values().map(|thread| thread.last_tsc).max().unwrap_or(0),
            threads: threads.iter().map(|(&thread, told)| (thread, told.instructions)).collect(),
        }
    }

    /// Adds a part that comes behind.
    fn add(&mut self, part: FlowStat) {
        if self.numbers.is_empty() {
            self.numbers = part.numbers.iter().map(|&(name, _)| (name, 0)).collect();
        }
        for ((_, sum), (_, count)) in self.numbers.iter_mut().zip(part.numbers) {
            *sum += count;
        }
        let room = MAX_GAPS.saturating_sub(self.errors.len());
        self.errors.extend(part.errors.into_iter().take(room));
        self.last_tsc = self.last_tsc.max(part.last_tsc);
        add(&mut self.accesses, part.accesses);
        for (thread, instructions) in part.threads {
            *self.threads.entry(thread).or_default() += instructions;
        }
    }
}

impl Stat {
    pub fn into_dict(self, py: Python<'_>) -> PyResult<Py<PyDict>> {
        let Stat { counts, flow } = self;
        let told = PyDict::new(py);
        told.set_item("bytes", counts.bytes)?;
        told.set_item("packet_count", counts.packets.values().sum::<u64>())?;
        told.set_item("packets", counts.packets)?;
        told.set_item("tnt_bits", counts.tnt_bits)?;
        told.set_item("bad_packets", counts.bad_count)?;
        told.set_item("bad_packet_bytes", counts.bad_bytes)?;
        let last_tsc = flow.as_ref().map_or(0, |flow| flow.last_tsc);
        let times = counts.times.range();
        told.set_item("first_tsc", times.map(|(first, _)| first))?;
        told.set_item("last_tsc", times.map(|(_, last)| last.max(last_tsc)))?;
        let numbers = PyDict::new(py);
        let bad = counts.bad.into_iter().map(|(offset, size, what)| (offset, size, 0, what)).collect();
        let list = match flow {
            Some(flow) => {
                for (name, count) in flow.numbers {
                    numbers.set_item(name, count)?;
                }
                numbers.set_item("instructions_by_thread", flow.threads)?;
                numbers.set_item("accesses", accesses_of(py, &flow.accesses)?)?;
                flow.errors
            }
            None => bad,
        };
        told.set_item("flow", if numbers.is_empty() { None } else { Some(numbers) })?;
        let mut rows = Vec::new();
        for (offset, size, address, reason) in list {
            let row = PyDict::new(py);
            row.set_item("offset", offset)?;
            row.set_item("size_bytes", size)?;
            row.set_item("address", (address != 0).then(|| format!("{address:#x}")))?;
            row.set_item("reason", reason)?;
            rows.push(row);
        }
        told.set_item("errors", rows)?;
        Ok(told.unbind())
    }
}
