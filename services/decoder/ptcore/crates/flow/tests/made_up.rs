//! Programs made up at random: what a processor tells of them leads to what ran, here and with libipt.
//!
//! `PERMILLE_SEED` chooses other ones than usual, `PERMILLE_MUTATIONS` how many.

use crate::differential::{oracle, Layer};
use crate::machine::{Clocks, Habits, Machine, KERNEL, REGIONS};
use crate::mutations::Random;
use crate::oracle::{setting, Input, SKYLAKE};
use crate::support::{blocks_of_parts, Addresses, Runs, Sections};
use pt_flow::{find_psb, Config, Flow, Loss, Reason};

const INSTRUCTIONS: usize = 600;

fn config() -> Config {
    Clocks::USUAL.config()
}

pub fn any_habits(random: &mut Random) -> Habits {
    let [interrupts, stops, events] = [40, 60, 30].map(|times| [0, times][random.below(2)]);
    let psb_bytes = [60, 400, usize::MAX][random.below(3)];
    let mut does = || random.below(2) == 0;
    Habits {
        user: does(),
        filtered: does(),
        interrupts,
        stops,
        events,
        overflows: 0,
        cut_psbs: false,
        transactions: does(),
        paging: does(),
        guests: does(),
        power: does(),
        writes: does(),
        event_trace: does(),
        compressed: does(),
        forgetful: does(),
        deferred: does(),
        long: does(),
        without_tnt: false,
        clocks: Clocks { tsc: does(), mtc: does(), cyc: does(), varies: does(), stops: does(), ..Clocks::USUAL },
        psb_bytes,
    }
}

/// The seeds of so many programs, or of as many as are asked for, and what chooses all that is not the program.
pub fn seeds(programs: u64) -> impl Iterator<Item = (u64, Random)> {
    let first = setting("PERMILLE_SEED").unwrap_or(1);
    let seeds = first..first + setting("PERMILLE_MUTATIONS").unwrap_or(programs);
    seeds.map(|seed| (seed, Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)))
}

/// What runs, and what else is chosen at random.
fn each(mut run: impl FnMut(u64, Habits, &mut Random)) {
    for (seed, mut random) in seeds(200) {
        run(seed, any_habits(&mut random), &mut random);
    }
}

fn ran(seed: u64, habits: Habits) -> Machine {
    let mut machine = Machine::new(seed, habits);
    machine.run(INSTRUCTIONS);
    machine
}

fn told(machine: &Machine, stream: &[u8], config: &Config) -> Addresses {
    let mut told = Addresses::default();
    Flow::new(&machine.program.code).decode(stream, config, &[], &mut told);
    told
}

/// How many are the same in front of the first that is not.
fn same<'a>(told: impl Iterator<Item = &'a u64>, ran: impl Iterator<Item = &'a u64>) -> usize {
    told.zip(ran).take_while(|(told, ran)| told == ran).count()
}

#[test]
fn what_ran_is_told() {
    each(|seed, habits, _| {
        let machine = ran(seed, habits);
        let mut flow = Flow::new(&machine.program.code);
        // Later passes go along the paths that the first ones found.
        for pass in 0..4 {
            let mut told = Addresses::default();
            flow.decode(&machine.stream, &config(), &[], &mut told);
            assert_eq!(told.losses, [], "{seed}, pass {pass}: {habits:?}");
            let same = same(told.addresses.iter(), machine.ran.iter());
            let sizes = (told.addresses.len(), machine.ran.len());
            assert_eq!((same, same), sizes, "{seed}, pass {pass}: {habits:?}");
        }
    });
}

#[test]
fn what_is_told_of_a_stream_that_ends_early_ran() {
    let config = Config { stop_at_last_packet: true, ..config() };
    each(|seed, habits, random| {
        let machine = ran(seed, habits);
        for _ in 0..10 {
            let end = random.below(machine.stream.len());
            let told = told(&machine, &machine.stream[..end], &config).addresses;
            assert_eq!(same(told.iter(), machine.ran.iter()), told.len(), "{seed}, {end:x}: {habits:?}");
        }
    });
}

#[test]
fn damage_costs_what_ran_between_two_psbs() {
    each(|seed, habits, random| {
        let machine = ran(seed, habits);
        for _ in 0..10 {
            let at = random.below(machine.stream.len());
            let end = (at + 1 + random.below(24)).min(machine.stream.len());
            let mut stream = machine.stream.clone();
            stream[at..end].fill_with(|| random.below(256) as u8);
            let told = told(&machine, &stream, &config()).addresses;
            let before = machine.psbs.iter().rfind(|(psb, _)| psb.end <= at).map_or(0, |&(_, ran)| ran);
            let behind = machine.psbs.iter().find(|(psb, _)| psb.start >= end);
            let behind = behind.map_or(0, |&(_, ran)| machine.ran.len() - ran);
            let first = same(told.iter(), machine.ran.iter());
            let last = same(told.iter().rev(), machine.ran.iter().rev());
            assert!(first >= before, "{seed}, {at:x} to {end:x}: {first} of {before}, {habits:?}");
            assert!(last >= behind, "{seed}, {at:x} to {end:x}: the last {last} of {behind}, {habits:?}");
        }
    });
}

/// libipt's two layers take returns otherwise where the processor remembers calls over returns that go elsewhere, see
/// docs/pt-conformance.md, and it knows no event trace.
#[test]
fn libipt_tells_the_same() {
    let Some(_) = oracle() else { return };
    each(|seed, habits, random| {
        let overflows = [0, 200][random.below(2)];
        let habits = Habits { overflows, forgetful: true, event_trace: false, ..habits };
        let machine = ran(seed, habits);
        let (stream, memory) = (&machine.stream, &machine.program.code);
        let input = Input { name: "made-up", stream, cpu: SKYLAKE, config: config(), memory };
        for layer in Layer::ALL {
            input.compare(layer).unwrap_or_else(|why| panic!("{seed} {layer:?}: {why}, {habits:?}"));
        }
    });
}

#[test]
fn parts_tell_what_the_whole_does() {
    each(|seed, habits, random| {
        let machine = ran(seed, Habits { overflows: [0, 200][random.below(2)], cut_psbs: true, ..habits });
        let (memory, stream) = (&machine.program.code, &machine.stream);
        let (whole, _) = blocks_of_parts(memory, stream, &config(), 1, usize::MAX);
        let (parts, _) = blocks_of_parts(memory, stream, &config(), 2, 100 + random.below(1000));
        assert_eq!(whole, parts, "{seed}: {habits:?}");
    });
}

fn runs(code: &Sections, machine: &Machine, config: &Config) -> Runs {
    let mut told = Runs::default();
    Flow::new(code).decode(&machine.stream, config, &[], &mut told);
    told
}

#[test]
fn what_is_told_around_overflows_ran() {
    let (mut all, mut some) = (0, 0);
    each(|seed, habits, _| {
        let machine = ran(seed, Habits { overflows: 200, cut_psbs: true, ..habits });
        let told = runs(&machine.program.code, &machine, &config());
        assert_eq!(told.losses, [], "{seed}: {habits:?}");
        some += told.are_in(&machine.ran);
        all += machine.ran.len();
    });
    assert!(some * 10 > all * 9, "{some} of {all}");
}

#[test]
fn what_is_told_around_missing_packets_ran() {
    // Where packets are missing, it ends with the last one anyway.
    let (config, stopped) = (config(), Config { stop_at_last_packet: true, ..config() });
    let (mut all, mut some) = (0, 0);
    each(|seed, habits, random| {
        let machine = ran(seed, habits);
        let code = &machine.program.code;
        for _ in 0..4 {
            let begin = random.below(machine.stream.len());
            let end = begin + random.below(machine.stream.len() - begin);
            let [before, behind] = [&machine.stream[..begin], &machine.stream[end..]];
            let stream = [before, behind].concat();
            let mut told = Runs { runs: vec![Vec::new()], ..Runs::default() };
            Flow::new(code).decode_as_found(&stream, &config, &[begin], &mut std::iter::empty(), &mut told);
            some += told.are_in(&machine.ran);
            all += machine.ran.len();
            let size = find_psb(behind, 0).unwrap_or(behind.len());
            let missing = told.losses.iter().filter(|loss| loss.reason == Reason::MissingPackets);
            let places: Vec<_> = missing.map(|loss| (loss.offset, loss.size)).collect();
            assert_eq!(places, [(begin, size)], "{seed}: {habits:?}");
            let parts = [(before, &stopped), (behind, &config)];
            let alone = parts.map(|(part, config)| self::told(&machine, part, config).addresses).concat();
            assert!(told.runs.concat() == alone, "{seed}, {begin} to {end}: {habits:?}");
        }
    });
    assert!(some * 3 > all, "{some} of {all}");
}

#[test]
fn what_is_told_where_branches_are_not_traced_ran() {
    let config = Config { without_tnt: true, ..config() };
    let (mut all, mut some) = (0, 0);
    each(|seed, habits, _| {
        let machine = ran(seed, Habits { without_tnt: true, ..habits });
        let told = runs(&machine.program.code, &machine, &config);
        let other = told.losses.iter().find(|loss| loss.reason != Reason::NotTraced || loss.size != 0);
        assert_eq!(other, None, "{seed}: {habits:?}");
        all += machine.ran.len();
        some += told.are_in(&machine.ran);
    });
    assert!(some * 2 > all, "{some} of {all}");
}

#[test]
fn what_is_told_around_code_that_is_not_known_ran() {
    each(|seed, habits, random| {
        let number = random.below(REGIONS.len());
        // Calls and returns of this kernel do not belong together, and returns of programs are to take none of its calls.
        let machine = ran(seed, Habits { compressed: habits.compressed && number != KERNEL, ..habits });
        let mut code = Sections(machine.program.code.0.clone());
        let region = REGIONS[number].0;
        let all = code.0.remove(&region).expect("its code");
        // The whole of it, or functions in the middle.
        if random.below(2) == 0 {
            code.0.insert(region, all[..0x700].to_vec());
            code.0.insert(region + 0xd00, all[0xd00..].to_vec());
        }
        let told = runs(&code, &machine, &config());
        told.are_in(&machine.ran);
        let expected =
            |loss: &&Loss| matches!(loss.reason, Reason::NoCode | Reason::NoKernelCode | Reason::EmptyReturnStack);
        assert_eq!(told.losses.iter().find(|loss| !expected(loss)), None, "{seed}: {habits:?}");
    });
}
