//! The reference streams through libipt: the same packets, instructions, blocks, events and times.
//!
//! Without a C compiler or libipt's headers the tests say so and pass.

use crate::differential::packets::mode_number;
use crate::differential::{as_libipt, compare, oracle, Equal, Layer};
use crate::evidence;
use crate::flow::{full, psb_plus, stream};
use crate::mutations::Random;
use crate::support::{self, Sections};
use crate::vectors;
use pt_flow::{CodeMemory, Config, Cpu, Errata};
use pt_packet::{Execution, Ip, Packet, PSB};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

pub const SKYLAKE: Cpu = Cpu { family: 6, model: 94, stepping: 3 };

/// A stream with its code, as both decoders want it.
pub struct Input<'a> {
    pub name: &'a str,
    pub stream: &'a [u8],
    pub cpu: Cpu,
    pub config: Config,
    pub memory: &'a Sections,
}

impl Input<'_> {
    pub fn compare(&self, layer: Layer) -> Result<Equal, String> {
        let folder = format!("oracle-{}-{}-{}", std::process::id(), self.name, layer.name());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("stream.pt");
        std::fs::write(&file, self.stream).unwrap();
        let mut command = Command::new(oracle().unwrap().join("pt_oracle"));
        let Cpu { family, model, stepping } = self.cpu;
        let (ebx, eax) = self.config.tsc_ctc_ratio;
        command.arg("--cpu").arg(format!("{family}/{model}/{stepping}"));
        command.arg("--clocks").arg(format!("{}/{ebx}/{eax}/{}", self.config.mtc_freq, self.config.nominal_ratio));
        command.arg(layer.name()).arg(&file);
        for (address, bytes) in &self.memory.0 {
            let file = folder.join(format!("{address:x}.bin"));
            std::fs::write(&file, bytes).unwrap();
            command.arg(format!("{}:0:{}:{address:#x}", file.display(), bytes.len()));
        }
        let config = Config { errata: Errata::of(self.cpu).unwrap(), ..as_libipt(&self.config) };
        let compared = compare(layer, command, self.stream, &config, self.memory, &[]);
        std::fs::remove_dir_all(&folder).unwrap();
        compared
    }

    /// All three layers: `wanted` tells of the flow what is not the same in every case.
    fn agrees(&self, wanted: Wanted) {
        let [packets, instructions, blocks] = Layer::ALL.map(|layer| {
            let equal = self.compare(layer).unwrap_or_else(|why| panic!("{} {}: {why}", self.name, layer.name()));
            println!("{} {}: {equal}", self.name, layer.name());
            equal
        });
        assert_eq!((packets.packets, packets.errors), (wanted.packets, 0), "{}", self.name);
        assert_eq!(blocks.instructions, wanted.instructions, "{}", self.name);
        for equal in [instructions, blocks] {
            assert_eq!((equal.errors, equal.reached, equal.behind), (wanted.errors, 0, 0), "{}", self.name);
        }
        assert_eq!((instructions.stricter, blocks.stricter), (wanted.stricter, 0), "{}", self.name);
        if wanted.stricter == 0 {
            assert_eq!(instructions, blocks, "{}", self.name);
        }
    }
}

/// Packets and instructions, errors that both decoders find, and how often libipt's instruction layer alone gives up.
struct Wanted {
    packets: u64,
    instructions: u64,
    errors: u64,
    stricter: u64,
}

fn griffin(name: &str, packets: u64, instructions: u64, stricter: u64) {
    let (Some(_), Some(griffin)) = (oracle(), support::griffin(name)) else { return };
    let stream = griffin.streams.values().next().unwrap();
    let input = Input { name, stream, cpu: SKYLAKE, config: Config::default(), memory: &griffin.memory };
    input.agrees(Wanted { packets, instructions, errors: 0, stricter });
}

/// A stream in a file of its own, with the ELF files that ran and where they were.
fn file(name: &str, stream: &str, cpu: Cpu, config: Config, code: &[(&str, u64)], wanted: Wanted) {
    let (Some(_), Some(data)) = (oracle(), support::reference_data()) else { return };
    let folder = data.join("pt");
    let mut memory = Sections::default();
    for (file, bias) in code {
        memory.load(&std::fs::read(folder.join(file)).unwrap(), *bias);
    }
    let stream = std::fs::read(folder.join(stream)).unwrap();
    let input = Input { name, stream: &stream, cpu, config, memory: &memory };
    input.agrees(wanted);
}

#[test]
fn lldb_one_thread() {
    let code = [("lldb/intelpt-trace/a.out", 0)];
    let cpu = Cpu { family: 6, model: 79, stepping: 1 };
    let wanted = Wanted { packets: 84, instructions: 21, errors: 0, stricter: 0 };
    file("lldb-one", "lldb/intelpt-trace/3842849.trace", cpu, Config::default(), &code, wanted);
}

#[test]
fn lldb_several_files() {
    let folder = "lldb/intelpt-trace-multi-file";
    let code = [("a.out", 0), ("libfoo.so", 140737349783552), ("libbar.so", 140737347678208)];
    let code = code.map(|(name, bias)| (format!("{folder}/{name}"), bias));
    let code: Vec<_> = code.iter().map(|(name, bias)| (name.as_str(), *bias)).collect();
    let cpu = Cpu { family: 6, model: 79, stepping: 1 };
    let wanted = Wanted { packets: 258, instructions: 45, errors: 1, stricter: 0 };
    file("lldb-several", &format!("{folder}/multi-file.trace"), cpu, Config::default(), &code, wanted);
}

#[test]
fn lldb_two_cores() {
    let folder = "lldb/intelpt-multi-core-trace";
    let module = format!("{folder}/modules/m.out");
    let cpu = Cpu { family: 6, model: 85, stepping: 4 };
    for (core, packets, instructions, errors) in [(45, 0x84d, 0xf181, 1), (51, 0xbb0, 0x4c41, 3)] {
        let stream = format!("{folder}/cores/{core}.intelpt_trace");
        let wanted = Wanted { packets, instructions, errors, stricter: 0 };
        file(&format!("lldb-core-{core}"), &stream, cpu, Config::default(), &[(&module, 0)], wanted);
    }
}

#[test]
fn dynamorio_hello() {
    // Not told by the recording, and the same for both decoders: MTC every 2^3 ticks of a crystal clock of 24 MHz.
    let config = Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() };
    let wanted = Wanted { packets: 0x475, instructions: 8, errors: 0, stricter: 0 };
    file("dynamorio", "dynamorio/pt.bin", SKYLAKE, config, &[("dynamorio/hello", 0)], wanted);
}

#[test]
fn griffins_traces() {
    griffin("last", 113_397, 1_873_231, 0);
    griffin("ovf-01-ben", 7_384, 176_141, 1);
    griffin("cve-2004-0597-poc", 18_440, 472_852, 1);
    griffin("cve-2005-0105-poc", 24_577, 671_163, 1);
    griffin("hello", 5_856, 147_458, 0);
    griffin("uaf-04-ben", 7_945, 183_115, 1);
}

/// A number from the environment.
pub fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// How many damaged copies there are of each trace.
fn rounds() -> u64 {
    setting("PERMILLE_MUTATIONS").unwrap_or(6)
}

/// What chooses them.
fn choice(name: &str) -> Random {
    Random((name.len() as u64 * 77 + 5).wrapping_add(setting("PERMILLE_SEED").unwrap_or(0) << 32))
}

/// One byte changed, or some bytes cut out, doubled or overwritten.
fn damage(stream: &[u8], random: &mut Random) -> Vec<u8> {
    let at = random.below(stream.len());
    let end = (at + 1 + random.below(24)).min(stream.len());
    let (before, bytes, behind) = (&stream[..at], &stream[at..end], &stream[end..]);
    match random.below(6) {
        0 => [before, &[bytes[0] ^ 1 << random.below(8)], &stream[at + 1..]].concat(),
        1 => [before, behind].concat(),
        2 => [before, bytes, bytes, behind].concat(),
        3 => [before, &vec![0; bytes.len()], behind].concat(),
        4 => [before, &bytes.iter().map(|_| random.below(256) as u8).collect::<Vec<_>>(), behind].concat(),
        _ => before.to_vec(),
    }
}

/// A return of which a TIP says that it went to its call, which no processor sends: the next one goes to the call before that here,
/// and libipt goes to the same one again.
#[test]
fn a_return_with_a_tip_takes_its_call_too() {
    let Some(_) = oracle() else { return };
    // 00: call 07; 05: jmp rax; 07: call 0d; 0c: ret; 0d: ret
    let code = vec![0xe8, 2, 0, 0, 0, 0xff, 0xe0, 0xe8, 1, 0, 0, 0, 0xc3, 0xc3];
    let memory = &Sections([(0x1000, code)].into());
    let mut packets = psb_plus(Some(0x1000));
    let one_return = Packet::Tnt { bits: 1, count: 1 };
    packets.extend([Packet::Tip(full(0x100c)), one_return, Packet::Tip(full(0x1000))]);
    let stream = &stream(&packets);
    let input = Input { name: "returns", stream, cpu: SKYLAKE, config: Config::default(), memory };
    for layer in [Layer::Instructions, Layer::Blocks] {
        let why = input.compare(layer).unwrap_err();
        assert_eq!(allowed(layer, &input, &why), Some("each return takes its call from the stack"), "{why}");
    }
}

/// A return that is compressed, which no processor does over a PSB: here it finds no call, and libipt goes back to it.
#[test]
fn a_psb_empties_the_stack_of_returns() {
    let Some(_) = oracle() else { return };
    // 00: call 07; 05: jmp rax; 07: je 09; 09: ret
    let memory = &Sections([(0x1000, vec![0xe8, 2, 0, 0, 0, 0xff, 0xe0, 0x74, 0, 0xc3])].into());
    let [branch, one_return] = [Packet::Tnt { bits: 0, count: 1 }, Packet::Tnt { bits: 1, count: 1 }];
    let packets =
        [psb_plus(Some(0x1000)), vec![branch], psb_plus(Some(0x1009)), vec![one_return, Packet::Tip(full(0x1000))]];
    let stream = &stream(&packets.concat());
    let input = Input { name: "psb-returns", stream, cpu: SKYLAKE, config: Config::default(), memory };
    for layer in [Layer::Instructions, Layer::Blocks] {
        let why = input.compare(layer).unwrap_err();
        assert_eq!(allowed(layer, &input, &why), Some("no return takes a call from before a PSB"), "{why}");
    }
}

/// Packets in no order that a processor sends them in, and why the two differ there.
#[test]
fn what_differs_on_damaged_packets_has_its_reason() {
    let Some(_) = oracle() else { return };
    // 00: je 02; 02: jmp rax
    let memory = &Sections([(0x1000, vec![0x74, 0x00, 0xff, 0xe0])].into());
    let mode = Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false };
    let [branch, cbr] = [Packet::Tnt { bits: 1, count: 1 }, Packet::Cbr { ratio: 9 }];
    let [there, fup] = [Packet::Tip, Packet::Fup].map(|packet| packet(full(0x1000)));
    let [begins, ends] = [Packet::TipPge(full(0x1000)), Packet::TipPgd(Ip::SUPPRESSED)];
    let mwait = Packet::Mwait { hints: 1, extensions: 0 };
    let trig = Packet::Trig { number: 1, instructions: None, multiple: false, fup: false };
    let event = Packet::Evd { kind: 0, payload: 1 };
    let other_mode = Packet::ModeExec { mode: Execution::Bits32, interrupt_flag: false };
    let again = [begins, Packet::Psb, Packet::Psbend, mode, begins, branch, there];
    for (first, packets, reason) in [
        (
            Some(0x1000),
            vec![branch, there, mwait, branch, there],
            "an MWAIT or a mode says nothing of the branches behind it",
        ),
        (Some(0x1000), vec![branch, there, Packet::Psbend, branch, there], "a PSBEND without its PSB ends the flow"),
        (Some(0x1000), vec![branch, there, trig, branch, there], "libipt does not know the packet"),
        (
            Some(0x1000),
            [&[branch, there, fup, cbr][..], &again].concat(),
            "what is between a FUP and what is not its TIP is told behind the loss",
        ),
        (
            Some(0x1000),
            [&[branch, there, mode][..], &again].concat(),
            "a mode is told once, also where the flow is lost",
        ),
        (None, vec![Packet::TipPge(full(0x9000)), ends], "code that is not known ran up to a TIP.PGD"),
        (
            Some(0x1000),
            vec![branch, there, fup, ends, cbr, Packet::Psb, branch],
            "what is in front of a bad packet happened",
        ),
        (Some(0x1000), vec![branch, there, fup, ends, cbr, cbr, event], "what is in front of a bad packet happened"),
        (
            Some(0x1000),
            vec![branch, there, mode, branch, there],
            "an MWAIT or a mode says nothing of the branches behind it",
        ),
        (None, vec![other_mode, mode, begins, branch, there], "a mode is told once, also where the flow is lost"),
        (Some(0x1000), vec![branch, there, fup, Packet::Tip(full(!0xfff))], "a kernel without code is not traced"),
        (
            None,
            [&[Packet::TipPge(full(0x9000)), cbr][..], &psb_plus(None), &again].concat(),
            "what is behind a TIP.PGE to no code is told behind the loss",
        ),
        (None, vec![Packet::TipPge(full(0)), ends], "nothing resumes before anything ran"),
    ] {
        let stream = &stream(&[psb_plus(first), packets].concat());
        let input = Input { name: "damaged-packets", stream, cpu: SKYLAKE, config: Config::default(), memory };
        for layer in [Layer::Instructions, Layer::Blocks] {
            let why = input.compare(layer).map_or_else(|why| why, |equal| format!("none: {equal}"));
            assert_eq!(allowed(layer, &input, &why), Some(reason), "{layer:?}: {why}");
        }
    }
}

/// Both read the same packets, whatever the opcode and the bytes behind it, see docs/pt-conformance.md.
#[test]
fn packets_of_every_opcode() {
    let Some(_) = oracle() else { return };
    let memory = &Sections::default();
    for filling in [0x00, 0x28, 0x55, 0x81, 0xff] {
        let two = (0..=u16::MAX).map(u16::to_le_bytes).map(|[first, second]| [first, second, filling]);
        let extended = (0..=u16::MAX).map(u16::to_le_bytes).map(|[second, third]| [2, second, third]);
        let mut all = Vec::new();
        for begin in two.chain(extended) {
            // Zeros: none of the last one's bytes is of the next PSB.
            let bytes = [&begin[..], &[filling; 13], &[0; 16]].concat();
            let packets = evidence::Packets(&bytes);
            if !(0..bytes.len()).any(|offset| packets.are_others_at(offset)) {
                all.extend([stream(&[Packet::Psb, Packet::Psbend]), bytes].concat());
            }
        }
        let input = Input { name: "every-opcode", stream: &all, cpu: SKYLAKE, config: Config::default(), memory };
        let equal = input.compare(Layer::Packets).unwrap_or_else(|why| panic!("{filling:x}: {why}"));
        assert!(equal.errors > 10_000, "{equal}");
    }
}

#[test]
fn packets_of_damaged_traces() {
    for name in ["ovf-01-ben", "cve-2004-0597-poc", "cve-2005-0105-poc", "hello", "uaf-04-ben", "last"] {
        let (Some(_), Some(griffin)) = (oracle(), support::griffin(name)) else { return };
        let stream = griffin.streams.values().next().unwrap();
        let (name, memory) = (&format!("damaged-{name}"), &griffin.memory);
        let mut random = choice(name);
        for round in 0..rounds() {
            let stream = &damage(stream, &mut random);
            let input = Input { name, stream, cpu: SKYLAKE, config: Config::default(), memory };
            if let Err(why) = input.compare(Layer::Packets) {
                let packets = evidence::Packets(stream);
                let at = ["here \"", "libipt \""].map(|word| number(&why, word).expect("an offset"));
                let may_differ = packets.are_others_at(at[0]) || packets.have_psbs_in_one_another(at);
                assert!(may_differ, "{name} {round}: {why}");
            }
        }
    }
}

/// Why the flow of a damaged stream is not libipt's, see docs/pt-conformance.md; `None` when it ought to be. What the stream and
/// the code are has to bear it out.
fn allowed(layer: Layer, Input { stream, memory, .. }: &Input<'_>, difference: &str) -> Option<&'static str> {
    let libipt = |text: &str| difference.contains(&format!("libipt \"{text}"));
    let here = |text: &str| difference.contains(&format!("here \"{text}"));
    let loss = lost(difference);
    let told = |text: &str| loss.as_ref().is_some_and(|loss| loss.reason.starts_with(text));
    let packets = evidence::Packets(stream);
    let given_up = number(difference, "\"error ");
    let stops_twice = given_up.is_some_and(|offset| packets.stop_twice_before(offset));
    if difference.contains("the time of event") {
        let counts = packets.have_cycles_behind_an_mtc_alone().then_some("cycles behind an MTC without TMA count");
        let loses = !difference.contains(", 0 losses: ");
        return if loses { Some("packets where code is not known tell times") } else { counts };
    }
    let unknown = number(difference, "error ").filter(|_| difference.contains("unknown opcode"));
    if unknown.is_some_and(|offset| packets.are_newer_at(offset)) {
        return Some("libipt does not know the packet");
    }
    if let [Some(here), Some(libipt)] = ["here \"sync ", "libipt \"sync "].map(|word| number(difference, word)) {
        if packets.have_psbs_in_one_another([here, libipt]) {
            return Some("of two PSBs in one another the first is tried first");
        }
    }
    if let Some(Lost { offset, size, address, .. }) = loss {
        let elsewhere = libipt("sync ") || libipt("\"") || libipt("[cbr ") || here("enabled ");
        let end = offset + size;
        if told("no code is known at the address") && elsewhere && packets.go_on(offset, end) {
            return Some("code that is not known is gone around");
        } else if told("no code is known at the address") && (libipt("\"") || libipt("[cbr ")) && end == stream.len() {
            let ran = packets.stop_from(offset) || packets.begin_at(offset);
            return ran.then_some("code that is not known ran up to a TIP.PGD");
        } else if told("no code is known at the address") && libipt("[cbr ") && stream[end..].starts_with(&PSB) {
            return packets.begin_at(offset).then_some("what is behind a TIP.PGE to no code is told behind the loss");
        } else if told("TIP.PGE does") && (libipt("sync ") || libipt("\"")) {
            return stream[end..].starts_with(&PSB).then_some("a PSB that was read is gone on from");
        } else if told("TIP.PGE does") && libipt("[cbr ") {
            let why = "what is between a FUP and what is not its TIP is told behind the loss";
            return packets.are_behind_fup(offset).then_some(why);
        } else if told("a compressed return without its call") && goes_elsewhere(difference) {
            return Some("no return takes a call from before a PSB");
        } else if told("PSBEND does") {
            return packets.have_a_psbend_alone_at(offset).then_some("a PSBEND without its PSB ends the flow");
        } else if !here("mode ")
            && packets.mode_lost(offset, end).is_some_and(|mode| libipt(&format!("[mode {} ", mode_number(mode))))
        {
            return Some("a mode is told once, also where the flow is lost");
        } else if told("a PSB says that execution is elsewhere") && stream[offset..].starts_with(&PSB) {
            return given_up.is_some().then_some("where a PSB does not fit the flow ends");
        } else if told("the bytes at the address are no instruction") {
            return evidence::is_undefined(memory, address).then_some("undefined instructions do not run");
        } else if ["the stream ends inside a packet", "no packet begins with"].into_iter().any(told) {
            let why = "nothing says that what follows the last whole packet ran";
            return packets.are_bad_at(offset).then_some(why);
        } else if told("a branch target is suppressed")
            && libipt(&format!("{address:x} {address:x} 1\", then \"error "))
        {
            return Some("a branch whose target is suppressed is there once");
        } else if (told("TNT does") || told("TIP does") && address == 0) && layer == Layer::Blocks && stops_twice {
            return Some("a TIP.PGD while tracing is disabled changes nothing");
        } else if ["TNT does", "FUP does", "FUP with TIP does", "FUP with TIP.PGD does"].into_iter().any(told) {
            return packets.are_behind_fup(offset).then_some("a FUP is with the packet behind it, which is no TNT");
        }
    }
    let is_passive = here("cbr ") || here("mode ");
    if let (Some(offset), true) = (given_up, ["unknown ", "suppressed"].iter().any(|why| difference.contains(why))) {
        packets.go_bad_from(offset).then_some("what is in front of a bad packet happened")
    } else if libipt("reached ") && difference.contains("unknown ")
        || libipt("\"") && packets.end_within_one()
        || difference.contains("unexpected packet context")
            && given_up.is_some_and(|offset| packets.are_bad_at(offset) || packets.are_bad_behind(offset))
        || is_passive && given_up.is_some_and(|offset| packets.have_a_mode_alone_at(offset))
        || is_passive && libipt("\"") && packets.end_with_a_mode()
    {
        Some("what is in front of a bad packet happened")
    } else if here("stopped ") && packets.are_behind_fup(stream.len()) {
        Some("nothing says that what follows the last whole packet ran")
    } else if here("enabled 0") && libipt("[resumed 0 ") && difference.contains("behind 0 instructions") {
        Some("nothing resumes before anything ran")
    } else if goes_elsewhere(difference) {
        Some("each return takes its call from the stack")
    } else if (difference.contains("expected tracing enabled event") || layer == Layer::Blocks)
        && ["resumed ", "enabled ", "cbr ", "the end", "an end at "].into_iter().any(here)
    {
        stops_twice.then_some("a TIP.PGD while tracing is disabled changes nothing")
    } else if difference.contains("does not match query")
        && given_up.is_some_and(|offset| packets.are_behind_mwait_or_mode(offset))
    {
        Some("an MWAIT or a mode says nothing of the branches behind it")
    } else if here("stopped ") && libipt("[interrupt ") {
        enters_unknown_kernel(difference, memory).then_some("a kernel without code is not traced")
    } else if libipt("[mode ") && packets.have_two_modes_in_a_row() {
        Some("a mode is told once, also where the flow is lost")
    } else if layer == Layer::Instructions
        && here("disabled -")
        && (libipt("reached ") && difference.contains(", \", here")
            || !["error ", "reached ", "[", "\""].into_iter().any(libipt))
    {
        Some("a TIP.PGD without address is of the next branch")
    } else {
        None
    }
}

#[test]
fn cycles_that_libipt_does_not_count_have_their_reason() {
    let Some(_) = oracle() else { return };
    // je 2; jmp rax
    let memory = &Sections([(0x1000, vec![0x74, 0x00, 0xff, 0xe0])].into());
    let [tsc, cycles] = [Packet::Tsc(1 << 20), Packet::Cyc(0xeae)];
    let branches = [Packet::Tnt { bits: 1, count: 1 }, Packet::Tip(full(0x1000))];
    let ends = [Packet::Fup(full(0x1000)), Packet::TipPgd(Ip::SUPPRESSED)];
    let mut begin = psb_plus(Some(0x1000));
    begin.insert(1, Packet::Cbr { ratio: 20 });
    let stream = &stream(&[&begin[..], &[Packet::Mtc(5), tsc, cycles], &branches, &ends].concat());
    let config = Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() };
    let input = Input { name: "cycles", stream, cpu: SKYLAKE, config, memory };
    for layer in [Layer::Instructions, Layer::Blocks] {
        let why = input.compare(layer).map_or_else(|why| why, |equal| format!("none: {equal}"));
        assert_eq!(allowed(layer, &input, &why), Some("cycles behind an MTC without TMA count"), "{layer:?}: {why}");
    }
}

struct Lost<'d> {
    offset: usize,
    size: usize,
    address: u64,
    reason: &'d str,
}

/// The loss in front of the difference.
fn lost(difference: &str) -> Option<Lost<'_>> {
    let at = ", a loss at ";
    let rest = &difference[difference.find(at)?..];
    let [offset, size] = [at, " of "].map(|word| number(rest, word));
    let (head, reason) = rest.split_once(": ")?;
    let address = u64::from_str_radix(head.rsplit_once(" at ")?.1, 16).ok()?;
    Some(Lost { offset: offset?, size: size?, address, reason })
}

/// The hexadecimal number behind the first `word`.
fn number(text: &str, word: &str) -> Option<usize> {
    let (_, rest) = text.split_once(word)?;
    usize::from_str_radix(rest.split(|letter: char| !letter.is_ascii_hexdigit()).next()?, 16).ok()
}

/// Whether libipt goes where the return in front leads by its own stack (`differential/returns.rs`).
fn goes_elsewhere(difference: &str) -> bool {
    let behind =
        difference.split_once(", a return to ").and_then(|(_, rest)| rest.split_once(" for libipt: libipt \""));
    behind.is_some_and(|(elsewhere, libipt)| libipt.split([' ', '"']).next() == Some(elsewhere))
}

/// Whether libipt's interrupt leads where tracing stops here, into a kernel of which no code is known.
fn enters_unknown_kernel(difference: &str, memory: &Sections) -> bool {
    let words = |before: &str| {
        let (_, rest) = difference.split_once(before)?;
        let mut words = rest.split([' ', '"']);
        Some((words.next()?, words.next()?))
    };
    let (Some(interrupt), Some(stop)) = (words("libipt \"[interrupt "), words("here \"stopped ")) else { return false };
    let Ok(to) = u64::from_str_radix(stop.1, 16) else { return false };
    interrupt == stop && to >> 63 == 1 && memory.read(0, to).is_none()
}

struct Trace {
    name: String,
    stream: Vec<u8>,
    cpu: Cpu,
    config: Config,
    memory: Sections,
}

/// Griffin's, and others with times.
fn traces() -> Option<Vec<Trace>> {
    let mut traces = Vec::new();
    for name in ["ovf-01-ben", "cve-2004-0597-poc", "cve-2005-0105-poc", "hello", "uaf-04-ben", "last"] {
        let support::Griffin { streams, memory } = support::griffin(name)?;
        let (name, stream) = (format!("flow-{name}"), streams.into_values().next()?);
        traces.push(Trace { name, stream, cpu: SKYLAKE, config: Config::default(), memory });
    }
    let folder = support::reference_data()?.join("pt");
    let timed = Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() };
    let server = Cpu { family: 6, model: 85, stepping: 4 };
    let cores = "lldb/intelpt-multi-core-trace";
    for (name, stream, code, cpu, config) in [
        ("flow-core-45", format!("{cores}/cores/45.intelpt_trace"), format!("{cores}/modules/m.out"), server, timed),
        ("flow-core-51", format!("{cores}/cores/51.intelpt_trace"), format!("{cores}/modules/m.out"), server, timed),
        ("flow-dynamorio", "dynamorio/pt.bin".to_owned(), "dynamorio/hello".to_owned(), SKYLAKE, timed),
    ] {
        let mut memory = Sections::default();
        memory.load(&std::fs::read(folder.join(code)).unwrap(), 0);
        let (name, stream) = (name.to_owned(), std::fs::read(folder.join(stream)).unwrap());
        traces.push(Trace { name, stream, cpu, config, memory });
    }
    Some(traces)
}

#[test]
fn flows_of_damaged_traces() {
    let (Some(_), Some(traces)) = (oracle(), traces()) else { return };
    let (mut same, mut other, mut wrong) = (0, BTreeMap::new(), 0);
    for Trace { name, stream, cpu, config, memory } in &traces {
        let mut random = choice(name);
        for round in 0..rounds() {
            let stream = &damage(stream, &mut random);
            let input = Input { name, stream, cpu: *cpu, config: *config, memory };
            for layer in [Layer::Instructions, Layer::Blocks] {
                match input.compare(layer) {
                    Ok(_) => same += 1,
                    Err(why) => match allowed(layer, &input, &why) {
                        Some(reason) => *other.entry(reason).or_insert(0) += 1,
                        None => {
                            println!("{name} {round} {layer:?}: {why}");
                            wrong += 1;
                        }
                    },
                }
            }
        }
    }
    println!("{same} flows the same; {other:#?}");
    assert_eq!(wrong, 0);
}

/// Why a vector's packets are not those of Debian's libipt 2.0.
fn because(name: &str, why: &str) -> Option<&'static str> {
    let newer = ["trig", "cfe", "evd"].iter().any(|packet| why.ends_with(&format!(" {packet}\"")));
    if why.ends_with("exit status: 2") {
        Some("it does not know the processor")
    } else if newer && why.contains("error unknown opcode") {
        Some("it does not know the packet")
    } else if ["skd007", "skz84"].contains(&name) {
        Some("its packet layer does not allow for the erratum")
    } else {
        None
    }
}

#[test]
fn packets_of_the_vectors() {
    let (Some(oracle), Some(cases)) = (oracle(), vectors::cases(support::reference_data())) else { return };
    let (mut same, mut other) = (0, BTreeMap::new());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("oracle-vectors");
    std::fs::create_dir_all(&folder).unwrap();
    for case in cases {
        let file = folder.join(&case.name);
        std::fs::write(&file, &case.stream).unwrap();
        for listing in &case.packets {
            let mut command = Command::new(oracle.join("pt_oracle"));
            if let Some(Cpu { family, model, stepping }) = listing.cpu {
                command.arg("--cpu").arg(format!("{family}/{model}/{stepping}"));
            }
            command.arg("packets").arg(&file).stderr(Stdio::null());
            let config = Config { errata: listing.errata(), ..Config::default() };
            match compare(Layer::Packets, command, &case.stream, &config, Sections::default(), &[]) {
                Ok(_) => same += 1,
                Err(why) => {
                    let reason = because(&case.name, &why).unwrap_or_else(|| panic!("{}: {why}", case.name));
                    *other.entry(reason).or_insert(0) += 1;
                }
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    println!("{same} listings the same; {other:?}");
    assert!(same >= 380, "{same} {other:?}");
}
