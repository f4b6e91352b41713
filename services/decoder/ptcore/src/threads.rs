//! `decode_threads`: the packets of cores to what each thread did. `divide`: which packets are whose.

use crate::counted::Counted;
use crate::decode::{by_one, by_threads, bytes, PtConfig};
use crate::delivery::{caught, Delivery};
use crate::image::Image;
use crate::outcome::{Decoded, Outcome};
use pt_calls::Calls;
use pt_capture::{
    decode_side_by_side, CoreStream, Epochs, Memory, Stays, SwitchRecords, Threads, Travelled, View, Views, KERNEL,
};
use pt_flow::{CodeMemory, Config, Flow, Sink, Statistics, Stream};
use pt_image::Symbols;
use pt_listing::Code;
use pt_packet::psbs;
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
pub fn switch_warnings(py: Python<'_>, switches: PyBuffer<u8>) -> PyResult<Vec<String>> {
    let records = bytes(&switches)?;
    Ok(py.detach(|| SwitchRecords::read(records).warnings().collect()))
}

/// Packets, number, turns, and whether none of its packets are missing.
type Given = (PyBuffer<u8>, u32, Vec<Turn>, bool);

#[pyfunction]
#[pyo3(signature = (cores, images, config, takes=None, *, switches=None, inlined=false, timeless=false, threads=1,
                    appended=0, missing=None))]
#[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
pub fn decode_threads(
    py: Python<'_>,
    cores: Vec<Given>,
    images: HashMap<u32, Py<Image>>,
    config: &PtConfig,
    takes: Option<HashMap<Ran, Py<PyAny>>>,
    switches: Option<PyBuffer<u8>>,
    inlined: bool,
    timeless: bool,
    threads: usize,
    appended: usize,
    missing: Option<HashMap<u32, Vec<usize>>>,
) -> PyResult<BTreeMap<Ran, Decoded>> {
    let (pids, images): (Vec<_>, Vec<_>) = images.into_iter().unzip();
    let image_of: HashMap<_, _> = pids.iter().enumerate().map(|(number, &pid)| (pid, number)).collect();
    let mut views = Views::default();
    let missing = missing.unwrap_or_default();
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
        let missing = missing.get(core).map_or(&[][..], |offsets| offsets);
        streams.push(CoreStream { core: *core, data: bytes(data)?, missing, epochs, is_whole: *is_whole });
    }
    let mut numbers = HashSet::new();
    if let Some((_, core, ..)) = cores.iter().find(|&&(_, core, ..)| !numbers.insert(core)) {
        return Err(PyValueError::new_err(format!("core {core} is given twice")));
    }
    let switches = switches.as_ref().map(bytes).transpose()?;
    let found = py.detach(|| {
        caught(|| {
            let images: Vec<_> = images.iter().map(|image| image.get().share()).collect();
            let memory = Memory::of(&images, &views, image_of.get(&KERNEL).copied());
            let mut takes = takes.unwrap_or_default();
            let traced = views.iter().map(|view| (view.pid, view.tid)).collect::<HashSet<_>>().len();
            let calls = |view: &View, core: u32| {
                Calls::handing_out(memory, Delivery::of_many(memory, takes.remove(&(core, view.pid, view.tid)), traced))
            };
            let config = &Config { appended, thread_switch: memory.thread_switch(), ..config.0 };
            let work = Work { memory, streams: &streams, views: &views, config, timeless, inlined };
            match &streams[..] {
                [only] if !timeless && has_one_stay(&views) => work.alone(only, threads, calls),
                [only] => work.one_core(only, calls),
                _ => {
                    let stays = switches.map_or_else(Stays::default, |records| SwitchRecords::read(records).stays());
                    work.side_by_side(&stays, threads, calls)
                }
            }
        })
    })?;
    let decoded = |(thread, outcome, cores): (_, Outcome, _)| Ok((thread, outcome.on_cores(py, cores)?));
    found.into_iter().map(decoded).collect()
}

/// The stream of a core, with the views that its epochs name.
type Core<'d> = CoreStream<'d, Vec<(usize, u32)>>;

/// Where threads come from other cores more often than after so many bytes, flows wait for each other longer than they work: with
/// 3 KiB two are slower than one, with 30 KiB they are 1.6 times as fast (redis, its threads changing cores at the same time).
const LEAST_BYTES_A_STAY: usize = 8 << 10;

/// What is to be decoded.
struct Work<'w, C> {
    memory: C,
    streams: &'w [Core<'w>],
    views: &'w [View],
    config: &'w Config,
    timeless: bool,
    inlined: bool,
}

/// A thread by the core where it first ran, its process and its tid.
type Ran = (u32, u32, u32);

/// What a thread did in all and on each core.
type Told = (Ran, Outcome, BTreeMap<u32, Statistics>);

fn who(view: &View) -> (u32, u32, u32) {
    (view.pid, view.tid, view.stay)
}

fn has_one_stay(views: &[View]) -> bool {
    views.first().is_some_and(|first| views.iter().all(|view| who(view) == who(first)))
}

impl<C: CodeMemory + Code + Symbols + Copy + Send + Sync> Work<'_, C> {
    /// Nobody else ran on the core.
    fn alone(
        &self,
        stream: &Core<'_>,
        threads: usize,
        mut calls: impl FnMut(&View, u32) -> Calls<C, Delivery<C>>,
    ) -> Vec<Told> {
        let (view, mut flow, mut helpers) = (&self.views[0], Flow::new(self.memory), Vec::new());
        let mut calls = calls(view, stream.core);
        calls.on_core(stream.core);
        let counts = by_threads(&self.memory, &mut flow, &mut calls, &mut helpers, self.packets(stream), threads);
        let outcome = Outcome::of(&self.memory, &mut flow, &mut calls, &mut helpers, counts, self.inlined);
        vec![((stream.core, view.pid, view.tid), outcome, BTreeMap::from([(stream.core, counts)]))]
    }

    /// Several threads ran on it.
    fn one_core(&self, stream: &Core<'_>, mut calls: impl FnMut(&View, u32) -> Calls<C, Delivery<C>>) -> Vec<Told> {
        let mut flow = Flow::new(self.memory);
        let make = |view: &View| Counted::new(calls(view, stream.core), self.timeless);
        let mut threads = Threads::of_core(self.views, stream.core, make).switching_at(self.config.thread_switch);
        by_one(&mut flow, self.packets(stream), &mut threads);
        let mut psbs = self.psbs();
        let told = |((pid, tid), sink): ((u32, u32), Counted<_>)| {
            let (mut calls, counts) = sink.finish();
            let thread = (stream.core, pid, tid);
            let mut counts = sum(counts.values());
            counts.psb = psbs.remove(&thread).unwrap_or(0);
            let outcome = Outcome::of(&self.memory, &mut flow, &mut calls, &mut [], counts, self.inlined);
            (thread, outcome, BTreeMap::from([(stream.core, counts)]))
        };
        threads.finish().into_iter().map(told).collect()
    }

    fn packets<'s>(&'s self, core: &'s Core<'_>) -> Stream<'s> {
        Stream { data: core.data, config: self.config, epochs: &core.epochs, missing: core.missing }
    }

    /// By up to so many flows at once.
    fn side_by_side(
        &self,
        stays: &Stays,
        most: usize,
        mut calls: impl FnMut(&View, u32) -> Calls<C, Delivery<C>> + Send,
    ) -> Vec<Told> {
        let flows = if self.has_long_stays() { most.min(self.streams.len()).max(1) } else { 1 };
        let mut flows: Vec<_> = (0..flows).map(|_| Flow::new(self.memory)).collect();
        let mut first_on = HashMap::new();
        let make = |view: &View, core: u32| {
            first_on.entry((view.pid, view.tid)).or_insert(core);
            Counted::new(calls(view, core), self.timeless)
        };
        let found = decode_side_by_side(&mut flows, self.config, self.streams, self.views, stays, make);
        let mut psbs = self.psbs();
        let told = |((pid, tid, core), Travelled { sink, learned }): (_, Travelled<Counted<_>>)| {
            let (mut calls, mut counts) = sink.finish();
            for (&core, counts) in &mut counts {
                counts.psb = psbs.remove(&(core, pid, tid)).unwrap_or(0);
            }
            let sum = sum(counts.values());
            let outcome = Outcome::of_flows(&self.memory, &mut flows, learned, &mut calls, sum, self.inlined);
            let first = if tid == 0 { core } else { first_on[&(pid, tid)] };
            ((first, pid, tid), outcome, counts)
        };
        found.into_iter().map(told).collect()
    }

    fn has_long_stays(&self) -> bool {
        let stays: HashSet<_> = self.views.iter().map(who).collect();
        self.streams.iter().map(|stream| stream.data.len()).sum::<usize>() >= stays.len() * LEAST_BYTES_A_STAY
    }

    /// How many PSBs stand in what each thread ran, by core.
    fn psbs(&self) -> HashMap<Ran, u64> {
        let mut found = HashMap::new();
        for CoreStream { core, data, epochs, .. } in self.streams {
            for offset in psbs(data, 0) {
                let turn = epochs.partition_point(|&(from, _)| from <= offset).saturating_sub(1);
                if let Some(&(_, view)) = epochs.get(turn) {
                    let View { pid, tid, .. } = self.views[view as usize];
                    *found.entry((*core, pid, tid)).or_default() += 1;
                }
            }
        }
        found
    }
}

fn sum<'s>(counts: impl Iterator<Item = &'s Statistics>) -> Statistics {
    let mut sum = Statistics::default();
    counts.for_each(|&counts| sum += counts);
    sum
}
