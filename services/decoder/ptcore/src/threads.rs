//! `decode_threads`: the packets of cores to what each thread did. `divide`: which packets are whose.

use crate::counted::Counted;
use crate::decode::{bytes, Decoded, Outcome, PtConfig};
use crate::delivery::{caught, Delivery};
use crate::image::Image;
use pt_calls::{Calls, Output};
use pt_capture::{decode_cores, CoreStream, Epochs, Memory, Stays, SwitchRecords, View, Views, KERNEL};
use pt_flow::{CodeMemory, Config, Flow, Sink, Statistics};
use pt_image::Symbols;
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

/// Packets, number, turns, and whether none of its packets are missing.
type Given = (PyBuffer<u8>, u32, Vec<Turn>, bool);

#[pyfunction]
#[pyo3(signature = (cores, images, config, takes=None, *, switches=None, inlined=false, timeless=false))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn decode_threads(
    py: Python<'_>,
    cores: Vec<Given>,
    images: HashMap<u32, Py<Image>>,
    config: &PtConfig,
    takes: Option<HashMap<(u32, u32), Py<PyAny>>>,
    switches: Option<PyBuffer<u8>>,
    inlined: bool,
    timeless: bool,
) -> PyResult<BTreeMap<(u32, u32), Decoded>> {
    let (pids, images): (Vec<_>, Vec<_>) = images.into_iter().unzip();
    let image_of: HashMap<_, _> = pids.iter().enumerate().map(|(number, &pid)| (pid, number)).collect();
    let mut views = Views::default();
    let mut streams = Vec::with_capacity(cores.len());
    for (data, core, turns, is_whole) in &cores {
        let mut epochs = Vec::with_capacity(turns.len());
        for &(offset, pid, tid, epoch, kernel, stay) in turns {
            let Some(&image) = image_of.get(&pid) else {
                return Err(PyValueError::new_err(format!(
                    "no image of process {pid} is given, which runs in the stream"
                )));
            };
            epochs.push((offset, views.number(View { pid, tid, image, epoch, kernel, stay })));
        }
        streams.push(Core { core: *core, data: bytes(data)?, epochs, is_whole: *is_whole });
    }
    let switches = switches.as_ref().map(bytes).transpose()?;
    let found = py.detach(|| {
        caught(|| {
            let shared: Vec<_> = images.iter().map(|image| image.get().share()).collect();
            let images: Vec<&pt_image::Image> = shared.iter().map(|image| &*image.0).collect();
            let memory = Memory::of(&images, &views, image_of.get(&KERNEL).copied());
            let mut takes = takes.unwrap_or_default();
            let threads = views.iter().map(|view| view.tid).collect::<HashSet<_>>().len();
            let calls = |view: &View, core: u32| {
                Calls::handing_out(memory, Delivery::of_many(memory, takes.remove(&(core, view.tid)), threads))
            };
            let stays = switches.map(|records| SwitchRecords::read(records).stays());
            let mut flow = Flow::new(memory);
            let sinks = match &streams[..] {
                [only] if !timeless && has_one_stay(&views) => alone(only, &views, &mut flow, &config.0, calls),
                _ => in_turns(&streams, &views, stays.as_ref(), &mut flow, &config.0, timeless, calls),
            };
            let done = |(thread, mut calls, counts): Told<_>| {
                let mut sum = Statistics::default();
                counts.values().for_each(|&of_core| sum += of_core);
                (thread, Outcome::of(&memory, &mut flow, &mut calls, &mut [], sum, inlined), counts)
            };
            sinks.into_iter().map(done).collect::<Vec<_>>()
        })
    })?;
    let decoded = |(thread, outcome, cores): (_, Outcome, _)| Ok((thread, outcome.on_cores(py, cores)?));
    found.into_iter().map(decoded).collect()
}

/// The stream of a core, with the views that its epochs name.
struct Core<'d> {
    core: u32,
    data: &'d [u8],
    epochs: Vec<(usize, u32)>,
    is_whole: bool,
}

/// A thread by the core where it first ran and its tid, its calls, and what it did on each core.
type Told<C> = ((u32, u32), C, BTreeMap<u32, Statistics>);

fn has_one_stay(views: &[View]) -> bool {
    views.first().is_some_and(|first| views.iter().all(|view| (view.tid, view.stay) == (first.tid, first.stay)))
}

/// Nobody else ran on the core.
fn alone<C: CodeMemory, S: Symbols, O: Output>(
    stream: &Core<'_>,
    views: &[View],
    flow: &mut Flow<C>,
    config: &Config,
    mut calls: impl FnMut(&View, u32) -> Calls<S, O>,
) -> Vec<Told<Calls<S, O>>> {
    let mut calls = calls(&views[0], stream.core);
    calls.on_core(stream.core);
    let counts = flow.decode(stream.data, config, &stream.epochs, &mut calls);
    vec![((stream.core, views[0].tid), calls, BTreeMap::from([(stream.core, counts)]))]
}

fn in_turns<C: CodeMemory, S: Symbols, O: Output>(
    streams: &[Core<'_>],
    views: &[View],
    stays: Option<&Stays>,
    flow: &mut Flow<C>,
    config: &Config,
    timeless: bool,
    mut calls: impl FnMut(&View, u32) -> Calls<S, O>,
) -> Vec<Told<Calls<S, O>>> {
    let mut first_on = HashMap::new();
    let make = |view: &View, core: u32| {
        first_on.entry(view.tid).or_insert(core);
        Counted::new(calls(view, core), timeless)
    };
    let mut epochs: Vec<_> = streams.iter().map(|stream| stream.epochs.iter().copied()).collect();
    let core = |(stream, epochs)| {
        let &Core { core, data, is_whole, .. } = stream;
        CoreStream { core, data, epochs, is_whole }
    };
    let cores = streams.iter().zip(&mut epochs).map(core).collect();
    let sinks = decode_cores(flow, config, cores, views, stays, make, |_| {});
    let sinks: Vec<_> = sinks.finish().collect();
    let mut psbs = psbs(streams, views);
    let told = |((tid, core), sink): ((u32, u32), Counted<Calls<S, O>>)| {
        let (calls, mut counts) = sink.finish();
        for (&core, counts) in &mut counts {
            counts.psb = psbs.remove(&(core, tid)).unwrap_or(0);
        }
        let core = if tid == 0 { core } else { first_on[&tid] };
        ((core, tid), calls, counts)
    };
    sinks.into_iter().map(told).collect()
}

/// How many PSBs stand in what each thread ran, by core and tid.
fn psbs(streams: &[Core<'_>], views: &[View]) -> HashMap<(u32, u32), u64> {
    let mut found = HashMap::new();
    for Core { core, data, epochs, .. } in streams {
        let mut psb = find_psb(data, 0);
        while let Some(offset) = psb {
            let turn = epochs.partition_point(|&(from, _)| from <= offset).saturating_sub(1);
            if let Some(&(_, view)) = epochs.get(turn) {
                *found.entry((*core, views[view as usize].tid)).or_default() += 1;
            }
            psb = find_psb(data, offset + PSB.len());
        }
    }
    found
}
