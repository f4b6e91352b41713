//! Calls in the words of the table, column by column as they come; a row group of a Parquet file when there are enough.

use pt_calls::{ASYNCHRONOUS, BEGIN_TRUNCATED, END_TRUNCATED, TAIL_CALL, UNWOUND};
use pt_parquet::{flags, indices, Chunk, Column, Deltas, Dictionary, Kind, Numbers, Packer, Runs};
use std::collections::HashMap;
use std::io;

/// The columns in the files; day and session are in their path.
pub const COLUMNS: [Column<'static>; 19] = [
    ("segment", Kind::Int32),
    ("pid", Kind::Int32),
    ("tid", Kind::Int32),
    ("call", Kind::Int64),
    ("parent", Kind::Int64),
    ("start_ns", Kind::Int64),
    ("end_ns", Kind::Int64),
    ("depth", Kind::Int32),
    ("core", Kind::Int32),
    ("function", Kind::Int32),
    ("name", Kind::Text),
    ("file", Kind::Text),
    ("line", Kind::Int32),
    ("self_instructions", Kind::Int64),
    ("total_instructions", Kind::Int64),
    ("begin_truncated", Kind::Boolean),
    ("end_truncated", Kind::Boolean),
    ("tail_call", Kind::Boolean),
    ("asynchronous", Kind::Boolean),
];
const FLAGS: [u8; 4] = [BEGIN_TRUNCATED, END_TRUNCATED | UNWOUND, TAIL_CALL, ASYNCHRONOUS];
/// Columns are converted in pieces that stay in the nearest cache.
const PIECE: usize = 1 << 10;
const UNKNOWN: u32 = u32::MAX;

/// Calls of one segment.
pub struct Calls<'c> {
    pub call: &'c [u64],
    pub parent: &'c [u64],
    pub start_tsc: &'c [u64],
    pub end_tsc: &'c [u64],
    pub depth: &'c [u32],
    pub function: &'c [u32],
    pub instructions: &'c [u64],
    pub instructions_total: &'c [u64],
    pub flags: &'c [u8],
}

/// Whose calls they are.
#[derive(Clone, Copy)]
pub struct Origin {
    pub segment: i32,
    pub pid: i32,
    pub tid: i32,
}

/// From TSC ticks to unix nanoseconds. `first_tsc`: in place of a time that is not known, 0.
#[derive(Clone, Copy)]
pub struct Clock {
    pub first_tsc: u64,
    pub tsc0: u64,
    pub ns0: i64,
    pub ns_per_tick: f64,
}

/// `cores[n]` holds from `times[n]` on; the first time is 0.
pub struct Timeline<'c> {
    pub times: &'c [u64],
    pub cores: &'c [i32],
}

/// What each function is called.
pub struct Functions<'c> {
    pub numbers: &'c [i32],
    pub names: &'c [&'c str],
    pub files: &'c [&'c str],
    pub lines: &'c [i32],
}

/// The first and last times at which calls begin, and at which they end.
pub type Ranges = [(i64, i64); 2];

/// Rows of one row group.
#[derive(Default)]
pub struct CallRows {
    segment: Runs,
    pid: Runs,
    tid: Runs,
    core: Runs,
    call: Deltas,
    parent: Deltas,
    start: Times,
    end: Times,
    depth: Numbers,
    own: Numbers,
    total: Numbers,
    flags: Vec<u8>,
    /// The function of each row, as a place in `used`.
    functions: Vec<u32>,
    /// The functions of the part that the group names, and by function of the part where that is.
    used: Vec<u32>,
    place: Vec<u32>,
}

/// Times on their way, and the first and last of all.
struct Times {
    deltas: Deltas,
    range: (i64, i64),
}

/// The range of no times.
const NEVER: (i64, i64) = (i64::MAX, i64::MIN);

impl Default for Times {
    fn default() -> Self {
        Times { deltas: Deltas::both_ways(), range: NEVER }
    }
}

impl CallRows {
    /// `functions`: by a segment's function that of the part. Each function of the calls must be among them.
    pub fn add(
        &mut self,
        calls: &Calls<'_>,
        functions: &[u32],
        origin: Origin,
        clock: Clock,
        timeline: &Timeline<'_>,
        packer: &mut Packer,
    ) -> io::Result<()> {
        let rows = calls.call.len();
        self.segment.push(origin.segment, rows);
        self.pid.push(origin.pid, rows);
        self.tid.push(origin.tid, rows);
        self.add_cores(calls.start_tsc, timeline);
        self.call.extend(calls.call);
        self.parent.extend(calls.parent);
        self.start.extend(calls.start_tsc, clock, packer)?;
        self.end.extend(calls.end_tsc, clock, packer)?;
        let mut depths = [0; PIECE];
        for piece in calls.depth.chunks(PIECE) {
            depths.iter_mut().zip(piece).for_each(|(wide, &depth)| *wide = depth.into());
            self.depth.extend(&depths[..piece.len()]);
        }
        self.own.extend(calls.instructions);
        self.total.extend(calls.instructions_total);
        self.flags.extend_from_slice(calls.flags);
        self.add_functions(calls.function, functions);
        Ok(())
    }

    pub fn rows(&self) -> usize {
        self.flags.len()
    }

    /// Which functions of the part the rows name.
    pub fn used(&self) -> &[u32] {
        &self.used
    }

    /// The row group; begins anew. `functions`: those in use.
    pub fn group(&mut self, functions: &Functions<'_>, packer: &mut Packer) -> io::Result<(Vec<Chunk>, Ranges)> {
        let rows = self.rows();
        let same = |runs: &mut Runs, packer: &mut Packer| {
            let mut places = Vec::new();
            let numbers = runs.finish(&mut places);
            packer.places(rows, &Dictionary::Int32(&numbers), |out| out.append(&mut places))
        };
        let segment = same(&mut self.segment, packer)?;
        let pid = same(&mut self.pid, packer)?;
        let tid = same(&mut self.tid, packer)?;
        let core = same(&mut self.core, packer)?;
        let call = packer.deltas(rows, |out| self.call.finish(out))?;
        let parent = packer.deltas(rows, |out| self.parent.finish(out))?;
        let start = packer.shorter_deltas(rows, &mut self.start.deltas)?;
        let end = packer.shorter_deltas(rows, &mut self.end.deltas)?;
        let depth = packer.numbers(rows, &mut self.depth, Kind::Int32)?;
        let own = packer.numbers(rows, &mut self.own, Kind::Int64)?;
        let total = packer.numbers(rows, &mut self.total, Kind::Int64)?;
        let [function, name, file, line] = self.functions(functions, packer)?;
        let mut chunks =
            vec![segment, pid, tid, call, parent, start, end, depth, core, function, name, file, line, own, total];
        for mask in FLAGS {
            chunks.push(packer.plain(rows, |out| flags(&self.flags, mask, out))?);
        }
        let ranges = [&mut self.start, &mut self.end].map(|times| std::mem::replace(&mut times.range, NEVER));
        self.flags.clear();
        self.functions.clear();
        self.used.drain(..).for_each(|function| self.place[function as usize] = UNKNOWN);
        Ok((chunks, ranges))
    }

    fn add_cores(&mut self, starts: &[u64], timeline: &Timeline<'_>) {
        if let [core] = timeline.cores {
            return self.core.push(*core, starts.len());
        }
        let (mut since, mut until, mut core) = (1, 0, timeline.cores[0]);
        let mut rows = 0;
        for &start in starts {
            if !(since..until).contains(&start) {
                self.core.push(core, rows);
                rows = 0;
                let next = timeline.times.partition_point(|&time| time <= start);
                core = timeline.cores[next - 1];
                since = timeline.times[next - 1];
                // The very last tick is looked up each time.
                until = timeline.times.get(next).copied().unwrap_or(u64::MAX);
            }
            rows += 1;
        }
        self.core.push(core, rows);
    }

    fn add_functions(&mut self, of_calls: &[u32], functions: &[u32]) {
        let most = functions.iter().max().map_or(0, |&most| most as usize + 1);
        if self.place.len() < most {
            self.place.resize(most, UNKNOWN);
        }
        let mut known: Vec<_> = functions.iter().map(|&function| self.place[function as usize]).collect();
        let (place, used) = (&mut self.place, &mut self.used);
        self.functions.extend(of_calls.iter().map(|&function| {
            let known = &mut known[function as usize];
            if *known == UNKNOWN {
                let function = functions[function as usize];
                // Several of a segment may be one of the part.
                if place[function as usize] == UNKNOWN {
                    place[function as usize] = used.len() as u32;
                    used.push(function);
                }
                *known = place[function as usize];
            }
            *known
        }));
    }

    /// What is told of the function: mostly the same places, in other words.
    fn functions(&self, told: &Functions<'_>, packer: &mut Packer) -> io::Result<[Chunk; 4]> {
        let rows = self.rows();
        let most = self.used.len().saturating_sub(1) as u32;
        let function =
            packer.places(rows, &Dictionary::Int32(told.numbers), |out| indices(&self.functions, most, out))?;
        let name = self.texts(told.names, &function, packer)?;
        let file = self.texts(told.files, &function, packer)?;
        let line = match told.lines {
            [line, others @ ..] if others.iter().all(|other| other == line) => {
                packer.places(rows, &Dictionary::Int32(&[*line]), |out| run(rows, out))?
            }
            lines => packer.same_places(&function, &Dictionary::Int32(lines))?,
        };
        Ok([function, name, file, line])
    }

    /// A text of the function. Readers that keep dictionaries of texts want each text in them once.
    fn texts(&self, told: &[&str], function: &Chunk, packer: &mut Packer) -> io::Result<Chunk> {
        let (mut known, mut texts) = (HashMap::new(), Vec::new());
        let place = |text| {
            *known.entry(text).or_insert_with(|| {
                texts.push(text);
                texts.len() as u32 - 1
            })
        };
        let places: Vec<u32> = told.iter().copied().map(place).collect();
        if texts.len() == told.len() {
            return packer.same_places(function, &Dictionary::Text(&texts));
        }
        let rows = self.rows();
        packer.places(rows, &Dictionary::Text(&texts), |out| {
            if texts.len() == 1 {
                return run(rows, out);
            }
            let places: Vec<_> = self.functions.iter().map(|&function| places[function as usize]).collect();
            indices(&places, texts.len() as u32 - 1, out);
        })
    }
}

impl Times {
    fn extend(&mut self, ticks: &[u64], clock: Clock, packer: &mut Packer) -> io::Result<()> {
        let mut times = [0; PIECE];
        for ticks in ticks.chunks(PIECE) {
            let times = &mut times[..ticks.len()];
            let (least, most) = clock.convert(ticks, times);
            self.range = (self.range.0.min(least), self.range.1.max(most));
            self.deltas.extend(times);
            packer.choose_early(&mut self.deltas)?;
        }
        Ok(())
    }
}

impl Clock {
    /// Fills `times`; the first and the last of them. Halves are rounded to even numbers, as Arrow and Python do.
    fn convert(&self, ticks: &[u64], times: &mut [u64]) -> (i64, i64) {
        // Added to this, whole numbers of less than 51 bits are the lowest bits of a double, and fractions are rounded.
        // So numbers become doubles and back with additions alone, several at once.
        const WHOLE: f64 = (3_u64 << 51) as f64;
        const MOST: u64 = 1 << 50;
        let (mut widest, mut unknown) = (0, 0);
        for (time, &tsc) in times.iter_mut().zip(ticks) {
            unknown |= tsc.wrapping_sub(1);
            let elapsed = tsc.wrapping_sub(self.tsc0);
            widest |= elapsed.wrapping_add(MOST);
            let elapsed = (f64::from_bits(elapsed.wrapping_add(WHOLE.to_bits())) - WHOLE) * self.ns_per_tick;
            // What a double is too small for has other bits above.
            let ns = (elapsed + WHOLE).to_bits().wrapping_sub(WHOLE.to_bits());
            widest |= ns.wrapping_add(MOST);
            *time = ns.wrapping_add(self.ns0 as u64);
        }
        if unknown >> 63 == 0 && widest < 2 * MOST {
            let times = times.iter().map(|&time| time as i64);
            return times.fold(NEVER, |(least, most), time| (least.min(time), most.max(time)));
        }
        let (mut least, mut most) = (i64::MAX, i64::MIN);
        for (time, &tsc) in times.iter_mut().zip(ticks) {
            let known = if tsc == 0 { self.first_tsc } else { tsc };
            let ns = self.at(known.wrapping_sub(self.tsc0) as i64 as f64 * self.ns_per_tick);
            (least, most) = (least.min(ns), most.max(ns));
            *time = ns as u64;
        }
        (least, most)
    }

    fn at(&self, elapsed: f64) -> i64 {
        self.ns0.wrapping_add(elapsed.round_ties_even() as i64)
    }
}

/// The one place that there is.
fn run(rows: usize, out: &mut Vec<u8>) {
    let mut runs = Runs::default();
    runs.push(0, rows);
    runs.finish(out);
}
