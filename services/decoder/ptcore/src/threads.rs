//! `decode_threads`: the packets of a core to what each thread did. `divide`: which packets are whose.

use crate::counted::Counted;
use crate::decode::{bytes, Decoded, Outcome, PtConfig};
use crate::delivery::{caught, Delivery};
use crate::image::Image;
use pt_calls::Calls;
use pt_capture::{Epochs, Memory, SwitchRecords, Threads, View, Views, KERNEL};
use pt_flow::Flow;
use pt_packet::{find_psb, PSB};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Offset, process, thread, epoch of the process's image, epoch of the kernel's, how often the thread had come from another core.
type Turn = (usize, u32, u32, u32, u32, u32);

/// The turns, how many changes there were, and for how many several places fit or only clock packets tell.
type Division = (Vec<Turn>, usize, usize, usize);

#[pyfunction]
pub fn divide(
    py: Python<'_>,
    data: PyBuffer<u8>,
    config: &PtConfig,
    core: u32,
    switches: PyBuffer<u8>,
    epochs: Epochs,
) -> PyResult<Division> {
    let (stream, records) = (bytes(&data)?, bytes(&switches)?);
    let divided = py.detach(|| pt_capture::divide(stream, &config.0, &SwitchRecords::read(records), core, &epochs));
    let turn = |(offset, view): (usize, View)| (offset, view.pid, view.tid, view.epoch, view.kernel, view.stay);
    Ok((divided.turns.into_iter().map(turn).collect(), divided.total, divided.ambiguous, divided.coarse))
}

#[pyfunction]
#[pyo3(signature = (data, images, config, turns, takes=None, *, inlined=false, timeless=false))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn decode_threads(
    py: Python<'_>,
    data: PyBuffer<u8>,
    images: HashMap<u32, Py<Image>>,
    config: &PtConfig,
    turns: Vec<Turn>,
    takes: Option<HashMap<u32, Py<PyAny>>>,
    inlined: bool,
    timeless: bool,
) -> PyResult<BTreeMap<u32, Decoded>> {
    let stream = bytes(&data)?;
    let (pids, images): (Vec<_>, Vec<_>) = images.into_iter().unzip();
    let image_of: HashMap<_, _> = pids.iter().enumerate().map(|(number, &pid)| (pid, number)).collect();
    let (mut views, mut epochs) = (Views::default(), Vec::with_capacity(turns.len()));
    for &(offset, pid, tid, epoch, kernel, stay) in &turns {
        let Some(&image) = image_of.get(&pid) else {
            return Err(PyValueError::new_err(format!("no image of process {pid} is given, which runs in the stream")));
        };
        epochs.push((offset, views.number(View { pid, tid, image, epoch, kernel, stay })));
    }
    let found = py.detach(|| {
        caught(|| {
            let shared: Vec<_> = images.iter().map(|image| image.get().share()).collect();
            let images: Vec<&pt_image::Image> = shared.iter().map(|image| &*image.0).collect();
            let memory = Memory::of(&images, &views, image_of.get(&KERNEL).copied());
            let mut takes = takes.unwrap_or_default();
            let threads = turns.iter().map(|turn| turn.2).collect::<HashSet<_>>().len();
            let stays = turns.iter().map(|turn| (turn.2, turn.5)).collect::<HashSet<_>>().len();
            let mut make = |view: &View| {
                let delivery = Delivery::of_many(memory, takes.remove(&view.tid), threads);
                Counted::new(Calls::handing_out(memory, delivery), timeless)
            };
            let mut flow = Flow::new(memory);
            let lone = views.first().filter(|_| stays == 1 && !timeless);
            if let Some(view) = lone {
                let mut calls = make(view).sink;
                let counts = flow.decode(stream, &config.0, &epochs, &mut calls);
                return vec![(view.tid, Outcome::of(&memory, &mut flow, &mut calls, &mut [], counts, inlined))];
            }
            let mut threads = Threads::new(&views, make);
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
            let mut done = |Counted { mut sink, counts, .. }: Counted<Calls<_, _>>| {
                Outcome::of(&memory, &mut flow, &mut sink, &mut [], counts, inlined)
            };
            sinks.into_iter().map(|(tid, sink)| (tid, done(sink))).collect()
        })
    })?;
    found.into_iter().map(|(tid, outcome)| Ok((tid, outcome.into_python(py)?))).collect()
}
