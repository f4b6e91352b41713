//! `decode_threads`: the packets of a core to what each thread did.

use crate::decode::{bytes, Decoded, Outcome, PtConfig};
use crate::image::Image;
use pt_calls::Calls;
use pt_capture::{Memory, Threads, View, KERNEL};
use pt_flow::{Block, BlockKind, DisableKind, Flow, Loss, Notice, Path, Sink, Statistics};
use pt_packet::{find_psb, PSB};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Offset, process, thread, epoch of the process's image, epoch of the kernel's.
type Turn = (usize, u32, u32, u32, u32);

#[pyfunction]
#[pyo3(signature = (data, images, config, turns, *, inlined=false))]
pub fn decode_threads(
    py: Python<'_>,
    data: PyBuffer<u8>,
    images: HashMap<u32, Py<Image>>,
    config: &PtConfig,
    turns: Vec<Turn>,
    inlined: bool,
) -> PyResult<BTreeMap<u32, Decoded>> {
    let stream = bytes(&data)?;
    let (pids, images): (Vec<_>, Vec<_>) = images.into_iter().unzip();
    let image_of: HashMap<_, _> = pids.iter().enumerate().map(|(number, &pid)| (pid, number)).collect();
    let mut views = Vec::with_capacity(turns.len());
    for &(_, pid, tid, epoch, kernel) in &turns {
        let Some(&image) = image_of.get(&pid) else {
            return Err(PyValueError::new_err(format!("no image of process {pid} is given, which runs in the stream")));
        };
        views.push(View { pid, tid, image, epoch, kernel });
    }
    let epochs: Vec<_> = turns.iter().enumerate().map(|(number, turn)| (turn.0, number as u32)).collect();
    let found = py.detach(|| {
        let guards: Vec<_> = images.iter().map(|image| image.get().read()).collect();
        let images: Vec<&pt_image::Image> = guards.iter().map(|guard| &**guard).collect();
        let memory = Memory::of(&images, &views, image_of.get(&KERNEL).copied());
        let mut flow = Flow::new(memory);
        let lone = views.iter().all(|view| view.tid == views[0].tid).then(|| views.first()).flatten();
        if let Some(view) = lone {
            let mut calls = Calls::new(memory);
            let counts = flow.decode(stream, &config.0, &epochs, &mut calls);
            return vec![(view.tid, Outcome::of(&memory, &mut flow, &mut calls, counts, inlined))];
        }
        let mut threads = Threads::new(&views, |_: &View| Counted::new(Calls::new(memory)));
        flow.decode(stream, &config.0, &epochs, &mut threads);
        let mut sinks = threads.finish();
        let mut psb = find_psb(stream, 0);
        while let Some(offset) = psb {
            let turn = turns.partition_point(|turn| turn.0 <= offset).saturating_sub(1);
            if let Some(sink) = turns.get(turn).and_then(|turn| sinks.get_mut(&turn.2)) {
                sink.counts.psb += 1;
            }
            psb = find_psb(stream, offset + PSB.len());
        }
        let mut done =
            |mut sink: Counted<Calls<_>>| Outcome::of(&memory, &mut flow, &mut sink.sink, sink.counts, inlined);
        sinks.into_iter().map(|(tid, sink)| (tid, done(sink))).collect()
    });
    found.into_iter().map(|(tid, outcome)| Ok((tid, outcome.into_python(py)?))).collect()
}

/// The share of one thread in the statistics of a stream.
struct Counted<S> {
    sink: S,
    counts: Statistics,
}

impl<S> Counted<S> {
    fn new(sink: S) -> Self {
        Counted { sink, counts: Statistics::default() }
    }
}

impl<S: Sink> Sink for Counted<S> {
    #[inline]
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.counts.instructions += u64::from(block.instructions);
        match block.kind {
            BlockKind::CondTaken | BlockKind::CondNotTaken => self.counts.conditional_branches += 1,
            BlockKind::Return => self.counts.returns += 1,
            BlockKind::Call | BlockKind::IndirectCall => self.counts.calls += 1,
            _ => {}
        }
        self.sink.block(block, tsc);
    }

    fn path(&mut self, path: &Path<'_>, tsc: u64) {
        for block in path.blocks() {
            self.block(&block, tsc);
        }
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.sink.enabled(ip, resumed, tsc);
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.sink.disabled(kind, at, target, tsc);
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.sink.interrupt(from, to, tsc);
    }

    fn loss(&mut self, loss: &Loss) {
        self.counts.errors += 1;
        self.counts.lost_bytes += loss.size as u64;
        self.sink.loss(loss);
    }

    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.counts.ovf += 1;
        self.sink.overflow(offset, from, tsc);
    }

    fn notice(&mut self, notice: &Notice, tsc: u64) {
        self.sink.notice(notice, tsc);
    }
}
