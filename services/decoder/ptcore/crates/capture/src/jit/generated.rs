//! What a recorded process told of the code that it wrote at run time, and what of it holds when.

use super::{parse, Dump};
use crate::perf_map::last_functions;
use crate::spaces::{Content, Mapping, Stretches};
use crate::{elf, Conversion};
use pt_image::{Binary, Image, ImageError};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

/// What generated code without a jitdump is called, with its names or without.
const GENERATED: &str = "[generated]";

/// Functions of the jitdumps of a process are taken up to this many, the first ones.
const MAX_LOADS: usize = 1 << 20;

/// The perf map and the jitdumps of one process.
#[derive(Default)]
pub struct Generated {
    names: Option<Arc<Binary>>,
    /// By time.
    loads: Vec<(u64, Mapping)>,
    /// What of the files cannot be used.
    pub notes: Vec<String>,
}

/// A change of the process's image as the recorder told it.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    pub epoch: u32,
    /// 0: it holds from the beginning on, or nobody knows.
    pub tsc: u64,
    pub address: u64,
    pub size: u64,
    /// Memory that no file backs, with the bytes that stood there at the end or without.
    pub code: bool,
}

/// A part of a change, or a function that was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Change { number: usize, address: u64, size: u64 },
    Load { number: usize },
}

/// What is to be told to an image, by epoch; and from which TSC on which epoch holds, where times tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    pub steps: Vec<(u32, What)>,
    pub epochs: Vec<(u64, u32)>,
}

impl Generated {
    /// `conversion`: between the TSC and CLOCK_MONOTONIC, in which programs stamp what they load. Files are called as
    /// they were found.
    pub fn read(map: &[u8], dumps: &[(&str, &[u8])], conversion: Option<Conversion>) -> Generated {
        let mut generated = Generated::default();
        let functions = last_functions(map);
        if !functions.is_empty() {
            generated.names = elf::names(GENERATED, &functions).ok();
        }
        for (name, bytes) in dumps {
            match parse(bytes, conversion) {
                Ok(Dump { code, damage, .. }) => {
                    generated.loads.extend(code);
                    generated.notes.extend(damage.map(|damage| format!("{name}: {damage}")));
                }
                Err(reason) => generated.notes.push(format!("{name}: {reason}")),
            }
        }
        generated.loads.sort_by_key(|&(tsc, _)| tsc);
        if generated.loads.len() > MAX_LOADS {
            let more = generated.loads.len() - MAX_LOADS;
            generated.notes.push(format!("{more} functions of its jitdump behind the first {MAX_LOADS} are left out"));
            generated.loads.truncate(MAX_LOADS);
        }
        generated
    }

    /// To be told to an image before anything else.
    pub fn name(&self, image: &mut Image) {
        if let Some(names) = &self.names {
            image.name_generated(names, GENERATED);
        }
    }

    /// `exact`: the image tells all code that ran, and this only what it is called.
    pub fn load(&self, image: &mut Image, epoch: u32, number: usize, exact: bool) -> Result<(), ImageError> {
        let Some((_, Mapping { address, size, name, content })) = self.loads.get(number) else { return Ok(()) };
        match content {
            Content::File { binary, offset } if exact => image.claim(epoch, *address, *size, *offset, binary, name),
            Content::File { binary, offset } => image.map(epoch, *address, *size, *offset, binary, name),
            // Without a name: that of what it is written over is not its own.
            _ if exact => image.disown(epoch, *address, *size),
            Content::Code(bytes) => {
                image.unmap(epoch, *address, *size)?;
                image.code(epoch, *address, bytes.to_vec())
            }
            Content::Missing { reason } | Content::Unread { reason } => {
                image.missing(epoch, *address, *size, name, reason)
            }
            // Of a perf map alone.
            Content::Unnamed { .. } => Ok(()),
        }
    }

    /// Of a recorder that tells by epochs which code ran: a load is known from the next change on, since new code is a
    /// change when it runs first.
    pub fn by_epochs(&self, changes: &[Told]) -> Timeline {
        let mut by_time: Vec<_> = changes.iter().map(|change| (change.tsc, change.epoch)).collect();
        by_time.sort_unstable();
        let mut steps = Vec::with_capacity(changes.len() + self.loads.len());
        let mut latest = 0;
        let mut times = by_time.into_iter().peekable();
        for (number, (tsc, _)) in self.loads.iter().enumerate() {
            while let Some((_, epoch)) = times.next_if(|(time, _)| time <= tsc) {
                latest = latest.max(epoch);
            }
            steps.push((latest + 1, What::Load { number }));
        }
        steps.extend(changes.iter().enumerate().map(|(number, change)| (change.epoch, whole(number, change))));
        // Loads come first in their epoch.
        steps.sort_by_key(|&(epoch, _)| epoch);
        Timeline { steps, epochs: Vec::new() }
    }

    /// Of a recorder that looked now and then: what nothing was in the place of before is as if it had always been there,
    /// and what a jitdump tells is truer than what stood in memory, unless that is the same with patches. `code`: what stood
    /// there, of a change by its number.
    pub fn by_time<B: Deref<Target = [u8]>>(&self, changes: &[Told], code: impl Fn(usize) -> Option<B>) -> Timeline {
        let mut placing = Placing::default();
        let mut all: Vec<_> =
            changes.iter().enumerate().map(|(number, told)| (told.tsc, whole(number, told))).collect();
        let mut taken = Stretches::default();
        for change in changes.iter().filter(|change| !change.code) {
            taken.add(change.address, change.address.saturating_add(change.size));
        }
        for (number, (tsc, mapping)) in self.loads.iter().enumerate() {
            let end = mapping.address.saturating_add(mapping.size);
            let from = if taken.overlap(mapping.address, end) { *tsc } else { 0 };
            taken.add(mapping.address, end);
            all.push((from, What::Load { number }));
        }
        all.sort_by_key(|&(tsc, _)| tsc);
        // What stood in memory at first, by address.
        let mut first = BTreeMap::new();
        for (tsc, what) in all {
            match what {
                What::Load { number } => {
                    let loaded = &self.loads[number].1;
                    placing.load(loaded.address, loaded.address.saturating_add(loaded.size), number);
                    placing.step(tsc, what);
                    if let Some((_, &change)) = first.range(..=loaded.address).next_back() {
                        placing.patch(tsc, &changes[change], change, loaded, &code);
                    }
                }
                What::Change { number, address, size } if changes[number].code => {
                    let end = address.saturating_add(size);
                    for (start, end) in placing.loaded.holes(address, end) {
                        placing.step(tsc, What::Change { number, address: start, size: end - start });
                    }
                    let loads: Vec<_> = placing.loads.range(address..end).map(|(_, &(_, load))| load).collect();
                    for load in loads {
                        placing.patch(tsc, &changes[number], number, &self.loads[load].1, &code);
                    }
                    if tsc == 0 {
                        first.insert(address, number);
                    }
                }
                What::Change { address, size, .. } => {
                    placing.remove(address, address.saturating_add(size));
                    placing.step(tsc, what);
                }
            }
        }
        placing.timeline
    }
}

fn whole(number: usize, told: &Told) -> What {
    What::Change { number, address: told.address, size: told.size }
}

#[derive(Default)]
struct Placing {
    timeline: Timeline,
    loaded: Stretches,
    /// The last load at each place: start to end and number.
    loads: BTreeMap<u64, (u64, usize)>,
}

impl Placing {
    fn step(&mut self, tsc: u64, what: What) {
        let Timeline { steps, epochs } = &mut self.timeline;
        let last = epochs.last().copied().unwrap_or_default();
        if tsc > last.0 {
            epochs.push((tsc, last.1 + 1));
        }
        steps.push((epochs.last().map_or(0, |&(_, epoch)| epoch), what));
    }

    fn load(&mut self, start: u64, end: u64, number: usize) {
        self.remove(start, end);
        self.loaded.add(start, end);
        self.loads.insert(start, (end, number));
    }

    fn remove(&mut self, start: u64, end: u64) {
        self.loaded.remove(start, end);
        while let Some((&from, _)) = self.loads.range(..end).next_back().filter(|(_, (to, _))| *to > start) {
            self.loads.remove(&from);
        }
    }

    /// Takes what stood in memory where a function was loaded, if it is that function: its calls were patched.
    fn patch<B: Deref<Target = [u8]>>(
        &mut self,
        tsc: u64,
        change: &Told,
        number: usize,
        load: &Mapping,
        code: &impl Fn(usize) -> Option<B>,
    ) {
        let &Mapping { address, size, .. } = load;
        let Some(from) = address.checked_sub(change.address) else { return };
        let Some(memory) = code(number) else { return };
        let Some(memory) = memory.get(from as usize..).and_then(|rest| rest.get(..size as usize)) else { return };
        if is_patched(load.content.code().get(..size as usize).unwrap_or_default(), memory) {
            self.step(tsc, What::Change { number, address, size });
        }
    }
}

/// Whether code is other code's with changes: three bytes of four.
fn is_patched(loaded: &[u8], memory: &[u8]) -> bool {
    let alike = loaded.iter().zip(memory).filter(|(loaded, memory)| loaded == memory).count();
    loaded.len() == memory.len() && alike < memory.len() && 4 * alike >= 3 * memory.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_flow::CodeMemory;
    use pt_image::{Change, Standing, Symbols};

    const OLD: [u8; 4] = [0x90, 0x90, 0x90, 0xc3];
    const NEW: [u8; 4] = [0xcc, 0xcc, 0xcc, 0xc3];

    /// A jitdump whose times are ticks (flag 1) of functions of four bytes: (ticks, address, name, code).
    fn dump(functions: &[(u64, u64, &str, [u8; 4])]) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [super::super::MAGIC, 1, 40, 62, 0, 7, 0, 0, 1, 0] {
            file.extend(word.to_le_bytes());
        }
        for (index, (ticks, address, name, code)) in functions.iter().enumerate() {
            file.extend(0u32.to_le_bytes());
            file.extend((16 + 40 + name.len() as u32 + 1 + 4).to_le_bytes());
            file.extend(ticks.to_le_bytes());
            file.extend([7u32.to_le_bytes(), 7u32.to_le_bytes()].concat());
            for number in [*address, *address, 4, index as u64] {
                file.extend(number.to_le_bytes());
            }
            file.extend([name.as_bytes(), &[0], code].concat());
        }
        file
    }

    fn generated(map: &str, functions: &[(u64, u64, &str, [u8; 4])]) -> Generated {
        Generated::read(map.as_bytes(), &[("jit-7.dump", &dump(functions))], None)
    }

    fn code(epoch: u32, tsc: u64, address: u64) -> Told {
        Told { epoch, tsc, address, size: 4, code: true }
    }

    fn by_time(generated: &Generated, told: &[Told], bytes: &[&[u8]]) -> Timeline {
        generated.by_time(told, |number| bytes.get(number).copied())
    }

    /// The image that a reader of the archive makes; the code of a change has its own bytes.
    fn image(generated: &Generated, timeline: &Timeline, bytes: &[&[u8]], exact: bool) -> Image {
        let mut image = Image::new();
        generated.name(&mut image);
        for &(epoch, what) in &timeline.steps {
            match what {
                What::Change { number, address, size } => {
                    image.code(epoch, address, bytes[number][..size as usize].to_vec()).unwrap();
                }
                What::Load { number } => generated.load(&mut image, epoch, number, exact).unwrap(),
            }
        }
        image
    }

    fn at(image: &Image, epoch: u32, address: u64) -> (String, u8) {
        let place = image.place(epoch, address);
        let name = image.describe(place.space, place.function, address.wrapping_sub(place.bias)).name;
        (name, image.read(epoch, address).map_or(0, |code| code.bytes[0]))
    }

    fn named(name: &str, byte: u8) -> (String, u8) {
        (name.to_owned(), byte)
    }

    #[test]
    fn a_perf_map_names_code_that_was_recorded_and_the_last_line_counts() {
        let map = "5000 4 gone\nnonsense\n5002 8 alpha\n0x6000 4 beta with blanks\n7000 0 empty\n5000 zz bad\n";
        let generated = generated(map, &[]);
        let told = [code(1, 10, 0x5002), code(2, 20, 0x6000), code(3, 30, 0x8000), code(4, 40, 0x5006)];
        let image = image(&generated, &generated.by_epochs(&told), &[&OLD, &OLD, &OLD, &NEW], true);
        assert_eq!(at(&image, 1, 0x5003), named("alpha", 0x90));
        assert_eq!(at(&image, 4, 0x5007), named("alpha", 0xcc));
        assert_eq!(at(&image, 2, 0x6000), named("beta with blanks", 0x90));
        assert_eq!(at(&image, 3, 0x8000), named("[generated]+0x8000", 0x90));
        // It has no code of its own.
        assert_eq!(image.read(4, 0x500a).map(|code| code.bytes.len()), None);
        let mut again = Image::new();
        for Change { epoch, address, size, what } in image.changes() {
            match what {
                Standing::Nothing => again.unmap(epoch, address, size),
                Standing::Code(bytes) => again.code(epoch, address, bytes.to_vec()),
                Standing::Missing { name, reason } => again.missing(epoch, address, size, name, reason),
                Standing::File { binary, offset, name } => again.map(epoch, address, size, offset, binary, name),
            }
            .unwrap();
        }
        for (epoch, address) in [(1, 0x5003), (4, 0x5007), (2, 0x6000), (3, 0x8000)] {
            assert_eq!(at(&image, epoch, address), at(&again, epoch, address));
        }
    }

    #[test]
    fn of_code_that_is_known_exactly_a_jitdump_tells_the_names_by_their_times() {
        let loads = [(5, 0x5000, "first", OLD), (25, 0x5000, "second", NEW), (5, 0x9000, "idle", OLD)];
        let generated = generated("", &loads);
        let patched = [0x66, 0x90, 0x90, 0xc3];
        let told = [code(1, 10, 0x5000), code(2, 20, 0x7000), code(3, 30, 0x5000)];
        let image = image(&generated, &generated.by_epochs(&told), &[&patched, &OLD, &NEW], true);
        assert_eq!(at(&image, 1, 0x5000), named("first", 0x66));
        assert_eq!(at(&image, 2, 0x5000), named("first", 0x66));
        assert_eq!(at(&image, 3, 0x5000), named("second", 0xcc));
    }

    #[test]
    fn code_without_a_name_has_not_that_of_the_code_before() {
        let mut generated = generated("", &[(15, 0x5000, "first", OLD)]);
        let mapping =
            Mapping { address: 0x5000, size: 4, name: "[jit]".to_owned(), content: Content::Code(NEW.into()) };
        generated.loads.push((25, mapping));
        let told = [code(1, 10, 0x5000), code(2, 20, 0x5000), code(3, 30, 0x5000)];
        let exact = image(&generated, &generated.by_epochs(&told), &[&OLD, &OLD, &NEW], true);
        assert_eq!(at(&exact, 2, 0x5000), named("first", 0x90));
        assert_eq!(at(&exact, 3, 0x5000), named("[generated]+0x5000", 0xcc));
        let timeline = by_time(&generated, &[], &[]);
        let timed = image(&generated, &timeline, &[], false);
        assert_eq!(at(&timed, 0, 0x5000), named("first", 0x90));
        assert_eq!(at(&timed, 1, 0x5000), named("[generated]+0x5000", 0xcc));
    }

    #[test]
    fn a_load_that_is_told_late_leaves_the_code_that_ran_already() {
        let generated = generated("", &[(15, 0x5000, "late", NEW)]);
        let told = [code(1, 10, 0x5000), code(2, 20, 0x7000)];
        let image = image(&generated, &generated.by_epochs(&told), &[&OLD, &OLD], true);
        assert_eq!(at(&image, 1, 0x5000), named("[generated]+0x5000", 0x90));
        assert_eq!(at(&image, 2, 0x5000), named("late", 0x90));
    }

    #[test]
    fn where_memory_was_read_at_the_end_a_jitdump_tells_which_code_was_there_when() {
        let loads = [(15, 0x5000, "first", OLD), (25, 0x5000, "second", NEW)];
        let generated = generated("5008 4 mapped\n", &loads);
        // The region was looked at twice: its protection had changed meanwhile.
        let region = |epoch, tsc| Told { epoch, tsc, address: 0x4ffc, size: 16, code: true };
        let timeline = by_time(&generated, &[region(0, 0), region(1, 20)], &[]);
        assert_eq!(timeline.epochs, [(20, 1), (25, 2)]);
        let end = [0xc3, 0xc3, 0xc3, 0xc3, 0x66, 0x66, 0x66, 0x66, 0x90, 0x90, 0x90, 0x90, 0x91, 0x91, 0x91, 0x91];
        let image = image(&generated, &timeline, &[&end, &end], false);
        for (epoch, wanted) in [(0, named("first", 0x90)), (1, named("first", 0x90)), (2, named("second", 0xcc))] {
            assert_eq!(at(&image, epoch, 0x5000), wanted, "{epoch}");
            assert_eq!(at(&image, epoch, 0x5008).0, "mapped");
            assert_eq!(at(&image, epoch, 0x4ffc), named("[generated]+0x4ffc", 0xc3));
        }
    }

    #[test]
    fn memory_that_could_not_be_read_hides_nothing() {
        let generated = generated("", &[(15, 0x5000, "first", OLD)]);
        let region = |epoch, tsc| Told { epoch, tsc, address: 0x4000, size: 0x2000, code: true };
        let timeline = by_time(&generated, &[region(0, 0), region(1, 20)], &[]);
        let part = |number, address, size| What::Change { number, address, size };
        let steps = [
            (0, part(0, 0x4000, 0x2000)),
            (0, What::Load { number: 0 }),
            (1, part(1, 0x4000, 0x1000)),
            (1, part(1, 0x5004, 0xffc)),
        ];
        assert_eq!(timeline, Timeline { steps: steps.to_vec(), epochs: vec![(20, 1)] });
    }

    #[test]
    fn a_function_whose_calls_were_patched_is_what_stood_in_memory_and_keeps_its_name() {
        const PATCHED: [u8; 4] = [0x90, 0x90, 0xcc, 0xc3];
        const AGAIN: [u8; 4] = [0x90, 0xcc, 0x90, 0xc3];
        let generated = generated("", &[(15, 0x5000, "first", OLD), (35, 0x5000, "second", NEW)]);
        let told = [code(0, 0, 0x5000), code(1, 25, 0x5000), code(2, 45, 0x5000)];
        let bytes: [&[u8]; 3] = [&PATCHED, &AGAIN, &NEW];
        let timeline = by_time(&generated, &told, &bytes);
        assert_eq!(timeline.epochs, [(25, 1), (35, 2)]);
        let image = image(&generated, &timeline, &bytes, false);
        let seen = |epoch| (at(&image, epoch, 0x5000).0, image.read(epoch, 0x5000).unwrap().bytes[..4].to_vec());
        assert_eq!(seen(0), ("first".to_owned(), PATCHED.to_vec()));
        assert_eq!(seen(1), ("first".to_owned(), AGAIN.to_vec()));
        // What stood there was other code.
        assert_eq!(seen(2), ("second".to_owned(), NEW.to_vec()));
    }

    #[test]
    fn a_library_takes_the_place_of_generated_code() {
        let generated = generated("", &[(15, 0x5000, "first", OLD), (40, 0x5000, "again", NEW)]);
        let library = Told { code: false, ..code(1, 30, 0x5000) };
        let timeline = by_time(&generated, &[library], &[]);
        assert_eq!(timeline.epochs, [(15, 1), (30, 2), (40, 3)]);
        let numbers: Vec<_> =
            timeline.steps.iter().map(|(epoch, what)| (*epoch, matches!(what, What::Load { .. }))).collect();
        assert_eq!(numbers, [(1, true), (2, false), (3, true)]);
    }

    #[test]
    fn files_that_are_none_are_told_and_cost_nothing_else() {
        let generated = Generated::read(&[0xff; 4096], &[("jit-7.dump", &[7; 64])], None);
        assert_eq!(generated.notes, ["jit-7.dump: it begins with 0x7070707, a jitdump begins with 0x4a695444"]);
        assert_eq!(generated.by_epochs(&[code(1, 10, 0x5000)]).steps.len(), 1);
        let mut image = Image::new();
        generated.name(&mut image);
        generated.load(&mut image, 1, 7, true).unwrap();
    }
}
