//! What packets say besides the flow, where the flow is lost.

use crate::flow::{full, psb_plus, stream};
use crate::mutations::{Random, CODE, PROGRAM};
use crate::support::Sections;
use pt_flow::{Block, Clock, Config, DisableKind, Errata, Flow, Loss, Notice, NoticeKind, Part, Reason, Sink};
use pt_packet::{writer, Execution, Ip, Packet};

/// Where no code is known.
const UNKNOWN: u64 = 0x1234_5678;

#[derive(Debug, PartialEq)]
enum Word {
    Ran(u64),
    Goes(u64),
    Stops,
    Lost(Reason),
    Overflows,
    Says(NoticeKind, Option<u64>, u64),
}

#[derive(Default)]
struct Words(Vec<Word>);

impl Sink for Words {
    fn block(&mut self, block: &Block<'_>, _: u64) {
        self.0.push(Word::Ran(block.start));
    }
    fn enabled(&mut self, ip: u64, _: bool, _: u64) {
        self.0.push(Word::Goes(ip));
    }
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {
        self.0.push(Word::Stops);
    }
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, loss: &Loss) {
        self.0.push(Word::Lost(loss.reason));
    }
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {
        self.0.push(Word::Overflows);
    }
    fn notice(&mut self, notice: &Notice, tsc: u64) {
        let of_mode = matches!(notice.kind, NoticeKind::ExecutionMode(_) | NoticeKind::InterruptFlag(_));
        if notice.kind != NoticeKind::Standing && !of_mode {
            self.0.push(Word::Says(notice.kind, notice.ip, tsc));
        }
    }
}

/// What is told of packets behind a PSB+, from `jmp rax` on.
fn words(behind: &[u8], config: &Config) -> Vec<Word> {
    let memory = Sections([(CODE, vec![0xff, 0xe0])].into());
    let mut words = Words::default();
    Flow::new(&memory).decode(&[&stream(&psb_plus(Some(CODE)))[..], behind].concat(), config, &[], &mut words);
    words.0
}

fn says() -> [Packet; 9] {
    [
        Packet::Tsc(100),
        Packet::Ptw { payload: 7, size: 8, fup: true },
        Packet::Fup(full(UNKNOWN + 4)),
        Packet::Tsc(200),
        Packet::ModeTsx { in_transaction: true, aborted: false },
        Packet::Fup(full(UNKNOWN + 8)),
        Packet::Pwrx { last: 1, deepest: 2, wake: 1 },
        Packet::Ptw { payload: 8, size: 4, fup: false },
        Packet::Tsc(300),
    ]
}

/// Runs up to `jmp rax` to where no code is known, where packets say something.
fn told(behind: &[Packet], config: &Config) -> Vec<Word> {
    words(&stream(&[&[Packet::Tip(full(UNKNOWN))], &says()[..], behind].concat()), config)
}

fn lost() -> Vec<Word> {
    let ran = [Word::Goes(CODE), Word::Ran(CODE), Word::Lost(Reason::NoCode)];
    ran.into_iter().chain(said()).collect()
}

fn said() -> [Word; 4] {
    [
        Word::Says(NoticeKind::PtWrite { payload: 7, size: 8 }, Some(UNKNOWN + 4), 100),
        Word::Says(NoticeKind::Transaction { active: true, aborted: false }, Some(UNKNOWN + 8), 200),
        Word::Says(NoticeKind::PowerExit { last: 1, deepest: 2, wake: 1 }, None, 200),
        Word::Says(NoticeKind::PtWrite { payload: 8, size: 4 }, None, 200),
    ]
}

fn stops() -> [Packet; 2] {
    [Packet::Fup(full(CODE)), Packet::TipPgd(Ip::SUPPRESSED)]
}

#[test]
fn where_code_is_gone_around_it_is_told_behind_the_loss_with_its_times() {
    let behind = [&[Packet::TipPgd(Ip::SUPPRESSED), Packet::TipPge(full(CODE))], &stops()[..]].concat();
    let goes_on = [Word::Goes(CODE), Word::Stops];
    assert_eq!(told(&behind, &Config::default()), lost().into_iter().chain(goes_on).collect::<Vec<_>>());
}

/// What is told of packets behind a PSB+ with the address of the code.
fn words_of(code: &[u8], behind: &[Packet]) -> Vec<Word> {
    let memory = Sections([(CODE, code.to_vec())].into());
    let mut words = Words::default();
    let data = stream(&[&psb_plus(Some(CODE)), behind].concat());
    Flow::new(&memory).decode(&data, &Config { stop_at_last_packet: true, ..Config::default() }, &[], &mut words);
    words.0
}

#[test]
fn a_write_of_which_no_packet_says_where_is_of_the_next_ptwrite() {
    // 0: nop; 1: ptwrite eax; 5: jmp rax
    let code = [0x90, 0xf3, 0x0f, 0xae, 0xe0, 0xff, 0xe0];
    let words = words_of(&code, &[Packet::Ptw { payload: 7, size: 4, fup: false }]);
    let says = Word::Says(NoticeKind::PtWrite { payload: 7, size: 4 }, Some(CODE + 1), 0);
    assert_eq!(words, [Word::Goes(CODE), Word::Ran(CODE), says]);
}

#[test]
fn what_is_told_behind_a_psb_is_behind_what_that_says_has_run() {
    // 0: nop; 1: nop; 2: jmp rax
    let behind = [&psb_plus(Some(CODE + 1))[..], &[Packet::Cbr { ratio: 9 }, Packet::Tip(full(CODE))]].concat();
    let words = words_of(&[0x90, 0x90, 0xff, 0xe0], &behind);
    let says = Word::Says(NoticeKind::CoreBusRatio(9), None, 0);
    assert_eq!(words, [Word::Goes(CODE), Word::Ran(CODE), says, Word::Ran(CODE + 1)]);
    // Where an interrupt leads back in front of it, it has not.
    let back =
        [Packet::Fup(full(CODE + 1)), Packet::Tip(full(CODE)), Packet::Cbr { ratio: 9 }, Packet::Tip(full(CODE))];
    let words = words_of(
        &[0x90, 0x90, 0xff, 0xe0],
        &[&[Packet::Tip(full(CODE + 1))], &psb_plus(Some(CODE + 1))[..], &back].concat(),
    );
    let says = Word::Says(NoticeKind::CoreBusRatio(9), None, 0);
    assert_eq!(words, [Word::Goes(CODE), Word::Ran(CODE), says, Word::Ran(CODE)]);
}

#[test]
fn an_interrupt_that_is_cut_off_behind_what_it_changed_stops_the_flow() {
    // 0: nop; 1: mov cr3, rax; 4: jmp rax
    let interrupt = [Packet::Cfe { kind: 1, vector: 14, fup: true }, Packet::Fup(full(CODE + 1))];
    let words = words_of(
        &[0x90, 0x0f, 0x22, 0xd8, 0xff, 0xe0],
        &[&interrupt[..], &[Packet::Pip { cr3: 0x1000, non_root: false }]].concat(),
    );
    let says = Word::Says(NoticeKind::Interrupt { vector: 14, address: None }, Some(CODE + 1), 0);
    let paging = Word::Says(NoticeKind::Paging { cr3: 0x1000, non_root: false }, None, 0);
    assert_eq!(words, [Word::Goes(CODE), Word::Ran(CODE), says, Word::Stops, paging]);
}

#[test]
fn up_to_the_next_psb_it_is_told_and_what_that_says_is_told_once() {
    let mut psb = psb_plus(Some(CODE));
    psb.insert(1, Packet::Mnt(9));
    let goes_on = [Word::Says(NoticeKind::Maintenance(9), None, 300), Word::Goes(CODE), Word::Stops];
    let words = told(&[psb, stops().to_vec()].concat(), &Config::default());
    assert_eq!(words, lost().into_iter().chain(goes_on).collect::<Vec<_>>());
}

#[test]
fn what_a_psb_says_that_does_not_fit_is_told_once() {
    let mut psb = psb_plus(Some(CODE + 0x100));
    psb.splice(1..1, [Packet::Mnt(9), Packet::Mnt(9)]);
    let words = words(&stream(&[&psb[..], &[WRONG], &psb_plus(None)].concat()), &Config::default());
    let told = words.iter().filter(|word| matches!(word, Word::Says(NoticeKind::Maintenance(9), ..))).count();
    assert_eq!(told, 2, "{words:?}");
}

#[test]
fn what_a_psb_says_is_told_once_where_the_stream_is_divided_there() {
    let memory = Sections([(CODE, vec![0xff, 0xe0])].into());
    let mut psb = psb_plus(Some(CODE));
    psb.insert(1, Packet::Mnt(9));
    // Where the flow was lost in front of it as well.
    for front in [&[Packet::Tip(full(CODE))][..], &[WRONG]] {
        let front = [&psb_plus(Some(CODE))[..], front].concat();
        let data = stream(&[&front[..], &psb, &[Packet::Tip(full(CODE))], &stops()].concat());
        let (mut flow, mut words, config) = (Flow::new(&memory), Words::default(), Config::default());
        let first = Part { stops: &[stream(&front).len()], ..Part::default() };
        let stopped = flow.decode_part(&data, &config, &[], &first, &mut words).stopped.expect("a part behind it");
        let clock = Clock::Known(stopped.before);
        let second = Part { from: stopped.psb, joins: stopped.fits, clock, ..Part::default() };
        flow.decode_part(&data, &config, &[], &second, &mut words);
        let told = words.0.iter().filter(|word| matches!(word, Word::Says(NoticeKind::Maintenance(9), ..))).count();
        assert_eq!((told, words.0.last()), (1, Some(&Word::Stops)), "{:?}", words.0);
    }
}

#[test]
fn up_to_damage_and_up_to_the_end_it_is_told() {
    assert_eq!(told(&[], &Config::default()), lost());
    assert_eq!(told(&[Packet::Psbend], &Config::default()), lost());
}

#[test]
fn of_more_than_there_is_room_for_the_first_ones_are_told() {
    let says = vec![Packet::Ptw { payload: 9, size: 4, fup: false }; 1 << 17];
    let words = told(&says, &Config::default());
    let said = words.iter().filter(|word| matches!(word, Word::Says(..))).count();
    assert_eq!((said, words.len() - said), (1 << 16, 3));
}

/// Of which there is none while tracing is enabled.
const WRONG: Packet = Packet::TipPge(Ip::SUPPRESSED);

#[test]
fn where_code_does_not_fit_the_packets_it_is_told_up_to_the_next_psb() {
    let branch = Packet::Tnt { bits: 1, count: 1 };
    let behind = [&[WRONG], &says()[..], &[branch], &psb_plus(Some(CODE)), &stops()].concat();
    let ran = [Word::Goes(CODE), Word::Lost(Reason::UnexpectedPacket("TIP.PGE"))];
    let goes_on = [Word::Goes(CODE), Word::Stops];
    let expected: Vec<_> = ran.into_iter().chain(said()).chain(goes_on).collect();
    assert_eq!(words(&stream(&behind), &Config::default()), expected);
}

#[test]
fn an_overflow_on_that_way_ends_no_loss_and_is_none_of_the_words() {
    let overflow = [WRONG, Packet::Ovf, Packet::Fup(full(CODE))];
    let behind = [&overflow[..], &says()[..], &psb_plus(Some(CODE)), &stops()].concat();
    let ran = [Word::Goes(CODE), Word::Lost(Reason::UnexpectedPacket("TIP.PGE"))];
    let goes_on = [Word::Goes(CODE), Word::Stops];
    let expected: Vec<_> = ran.into_iter().chain(said()).chain(goes_on).collect();
    assert_eq!(words(&stream(&behind), &Config::default()), expected);
}

const BAD: [u8; 2] = [0x02, 0xff];

#[test]
fn what_waits_for_its_address_where_a_packet_is_damaged_is_told() {
    let waits = [Packet::Mwait { hints: 1, extensions: 0 }, Packet::Ptw { payload: 7, size: 8, fup: true }];
    let behind = [&stream(&waits)[..], &BAD, &stream(&psb_plus(None))].concat();
    let words = words(&behind, &Config::default());
    let expected = [
        Word::Goes(CODE),
        Word::Lost(Reason::UnknownPacket([0x02, 0xff, 0x02, 0x82])),
        Word::Says(NoticeKind::Mwait { hints: 1, extensions: 0 }, None, 0),
        Word::Says(NoticeKind::PtWrite { payload: 7, size: 8 }, None, 0),
    ];
    assert_eq!(words, expected);
}

#[test]
fn no_branch_stands_in_front_of_the_fup_that_something_waits_for() {
    let branch = Packet::Tnt { bits: 1, count: 1 };
    let aborted = NoticeKind::Transaction { active: false, aborted: true };
    for (waits, kind) in [
        (Packet::ModeTsx { in_transaction: false, aborted: true }, aborted),
        (
            Packet::ModeTsx { in_transaction: true, aborted: false },
            NoticeKind::Transaction { active: true, aborted: false },
        ),
        (Packet::Ptw { payload: 7, size: 8, fup: true }, NoticeKind::PtWrite { payload: 7, size: 8 }),
        (Packet::Exstop { fup: true }, NoticeKind::ExecutionStop),
        (Packet::Cfe { kind: 2, vector: 0, fup: true }, NoticeKind::Iret),
    ] {
        let words = words(&stream(&[&[waits, branch], &psb_plus(None)[..]].concat()), &Config::default());
        let lost = Word::Lost(Reason::UnexpectedPacket("TNT"));
        assert_eq!(words, [Word::Goes(CODE), lost, Word::Says(kind, None, 0)], "{waits:?}");
    }
}

#[test]
fn a_mode_in_front_of_a_fup_does_not_take_it_from_what_waits_for_one() {
    let waits = [
        Packet::ModeTsx { in_transaction: true, aborted: false },
        Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false },
        Packet::Fup(full(CODE)),
        Packet::Cbr { ratio: 9 },
    ];
    let words = words(&stream(&[&waits, &stops()[..]].concat()), &Config::default());
    let told = NoticeKind::Transaction { active: true, aborted: false };
    assert_eq!(words[..2], [Word::Goes(CODE), Word::Says(told, Some(CODE), 0)], "{words:?}");
}

#[test]
fn what_is_between_a_fup_and_a_tip_that_is_damaged_is_told() {
    let waits = [
        Packet::Tip(full(CODE)),
        Packet::Fup(full(CODE)),
        Packet::Cbr { ratio: 9 },
        Packet::Pip { cr3: 0x1000, non_root: false },
        Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false },
        Packet::Exstop { fup: false },
    ];
    let words = words(&stream(&[&waits[..], &psb_plus(None)].concat()), &Config::default());
    let expected = [
        Word::Goes(CODE),
        Word::Ran(CODE),
        Word::Lost(Reason::UnexpectedPacket("EXSTOP")),
        Word::Says(NoticeKind::CoreBusRatio(9), None, 0),
        Word::Says(NoticeKind::Paging { cr3: 0x1000, non_root: false }, None, 0),
        Word::Says(NoticeKind::ExecutionStop, None, 0),
    ];
    assert_eq!(words, expected);
}

#[test]
fn what_a_psb_that_is_damaged_says_is_told() {
    let mut psb = psb_plus(None);
    psb.insert(1, Packet::Pip { cr3: 0x1000, non_root: false });
    let behind = [&stream(&psb[..2])[..], &BAD, &stream(&psb_plus(None))].concat();
    let paging = Word::Says(NoticeKind::Paging { cr3: 0x1000, non_root: false }, None, 0);
    assert_eq!(words(&behind, &Config::default()).last(), Some(&paging));
}

#[test]
fn what_happened_with_a_branch_that_is_lost_is_told() {
    let aborts = [Packet::ModeTsx { in_transaction: false, aborted: true }, Packet::Tip(Ip::SUPPRESSED)];
    let words = words(&stream(&[&aborts[..], &psb_plus(None)].concat()), &Config::default());
    let expected = [
        Word::Goes(CODE),
        Word::Lost(Reason::SuppressedTarget),
        Word::Says(NoticeKind::Transaction { active: false, aborted: true }, None, 0),
    ];
    assert_eq!(words, expected);
}

#[test]
fn what_is_between_an_overflow_and_the_packets_of_its_erratum_is_told() {
    let errata = Errata { apl11: true, ..Errata::default() };
    let behind = [Packet::Ovf, Packet::Cbr { ratio: 9 }, Packet::Pip { cr3: 0x1000, non_root: false }];
    let behind = [&behind[..], &[Packet::TipPgd(full(CODE))]].concat();
    let words = words(&stream(&behind), &Config { errata, ..Config::default() });
    let expected = [
        Word::Goes(CODE),
        Word::Says(NoticeKind::CoreBusRatio(9), None, 0),
        Word::Says(NoticeKind::Paging { cr3: 0x1000, non_root: false }, None, 0),
        Word::Overflows,
    ];
    assert_eq!(words, expected);
}

/// What programs wrote, by the numbers in a stream.
#[derive(Default)]
struct Written(Vec<u64>);

impl Sink for Written {
    fn block(&mut self, _: &Block<'_>, _: u64) {}
    fn enabled(&mut self, _: u64, _: bool, _: u64) {}
    fn disabled(&mut self, _: DisableKind, _: u64, _: Option<u64>, _: u64) {}
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, _: &Loss) {}
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
    fn notice(&mut self, notice: &Notice, _: u64) {
        if let NoticeKind::PtWrite { payload, .. } = notice.kind {
            self.0.push(payload);
        }
    }
}

/// Packets in any order, one in `damaged` cut short, and how many PTWRITEs are between them.
fn numbered(random: &mut Random, damaged: usize, wanted: impl Fn(&Packet) -> bool) -> (Vec<u8>, u64) {
    let (mut bytes, mut number) = (Vec::new(), 0);
    let packets: Vec<_> = (0..100).map(|_| random.packet()).filter(wanted).collect();
    for packet in packets {
        if number == 0 || random.below(16) == 0 {
            bytes.extend(stream(&psb_plus(Some(CODE + random.below(PROGRAM.len()) as u64))));
        }
        number += 1;
        writer::write(&mut bytes, Packet::Ptw { payload: number, size: 8, fup: random.below(4) == 0 });
        let packet = stream(&[packet]);
        let cut = random.below(damaged) == 1;
        bytes.extend(&packet[..if cut { random.below(packet.len()) } else { packet.len() }]);
    }
    (bytes, number)
}

fn written(bytes: &[u8], config: &Config) -> Vec<u64> {
    let memory = Sections([(CODE, PROGRAM.to_vec())].into());
    let mut written = Written::default();
    Flow::new(&memory).decode(bytes, config, &[], &mut written);
    written.0
}

#[test]
fn whatever_is_damaged_nothing_is_told_twice() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    for _ in 0..4000 {
        let (bytes, _) = numbered(&mut random, 20, |packet| !matches!(packet, Packet::Ptw { .. }));
        let config = random.config();
        // Where an address that one has does not come by, the next may be told before.
        let mut told = written(&bytes, &config);
        told.sort_unstable();
        assert!(told.is_sorted_by(|one, next| one < next), "{told:?} of {config:?} {bytes:x?}");
    }
}

#[test]
fn however_the_code_does_not_fit_everything_is_told() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let branches = |packet: &Packet| {
        matches!(packet, Packet::Tnt { .. } | Packet::Tip(_) | Packet::TipPgd(_) | Packet::TipPge(_) | Packet::Ovf)
    };
    for _ in 0..4000 {
        let (bytes, number) = numbered(&mut random, 0, branches);
        let config = Config { stop_at_last_packet: false, ..random.config() };
        assert_eq!(written(&bytes, &config), (1..=number).collect::<Vec<_>>(), "{config:?} {bytes:x?}");
    }
}

#[test]
fn what_follows_a_psb_is_told_once_where_its_code_is_bad() {
    // A nop, and what is no instruction in 64-bit code.
    let memory = Sections([(CODE, [&[0x90, 0x06][..], &[0; 14]].concat())].into());
    let write = Packet::Ptw { payload: 7, size: 8, fup: false };
    let packets = [&psb_plus(None)[..], &psb_plus(Some(CODE)), &[write], &psb_plus(None)].concat();
    let mut words = Words::default();
    Flow::new(&memory).decode(&stream(&packets), &Config::default(), &[], &mut words);
    let expected = [
        Word::Goes(CODE),
        Word::Ran(CODE),
        Word::Lost(Reason::BadInstruction),
        Word::Says(NoticeKind::PtWrite { payload: 7, size: 8 }, None, 0),
    ];
    assert_eq!(words.0, expected);
}

/// The modes of execution that are told, and from where on.
#[derive(Default)]
struct Modes(Words, Vec<(Execution, Option<u64>)>);

impl Sink for Modes {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.0.block(block, tsc);
    }
    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.0.enabled(ip, resumed, tsc);
    }
    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.0.disabled(kind, at, target, tsc);
    }
    fn interrupt(&mut self, _: u64, _: u64, _: u64) {}
    fn loss(&mut self, loss: &Loss) {
        self.0.loss(loss);
    }
    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.0.overflow(offset, from, tsc);
    }
    fn notice(&mut self, notice: &Notice, _: u64) {
        if let NoticeKind::ExecutionMode(mode) = notice.kind {
            self.1.push((mode, notice.ip));
        }
    }
}

/// Where `push es` stands, which 64-bit code has not.
const PUSH: u64 = CODE + 0x1000;

const FAR: Packet = Packet::ModeExec { mode: Execution::Bits32, interrupt_flag: false };

fn modes(behind: &[u8]) -> (Vec<Word>, Vec<(Execution, Option<u64>)>) {
    let memory = Sections([(CODE, vec![0x90, 0xff, 0xe0]), (PUSH, vec![0x06, 0xff, 0xe0])].into());
    let data = [&stream(&psb_plus(Some(CODE))), behind].concat();
    let mut modes = Modes::default();
    Flow::new(&memory).decode(&data, &Config::default(), &[], &mut modes);
    (modes.0 .0, modes.1)
}

#[test]
fn a_mode_whose_packet_is_lost_in_an_overflow_holds_behind_it() {
    let stops = [Packet::Fup(full(PUSH + 1)), Packet::TipPgd(Ip::SUPPRESSED)];
    let (words, modes) = modes(&stream(&[&[FAR, Packet::Ovf, Packet::Fup(full(PUSH))], &stops[..]].concat()));
    assert_eq!(words, [Word::Goes(CODE), Word::Overflows, Word::Goes(PUSH), Word::Ran(PUSH), Word::Stops]);
    assert_eq!(modes, [(Execution::Bits64, Some(CODE)), (Execution::Bits32, None)]);
}

#[test]
fn a_mode_whose_packet_is_damaged_is_told_behind_the_loss() {
    for waits in [&[FAR][..], &[Packet::Fup(full(CODE)), FAR]] {
        let (words, modes) = modes(&[&stream(waits), &BAD[..], &stream(&psb_plus(None))].concat());
        assert_eq!(words, [Word::Goes(CODE), Word::Lost(Reason::UnknownPacket([0x02, 0xff, 0x02, 0x82]))]);
        assert_eq!(modes[..2], [(Execution::Bits64, Some(CODE)), (Execution::Bits32, None)]);
    }
}

#[test]
fn a_mode_that_waits_is_told_where_a_psb_says_the_same() {
    for (mode, told) in [(Execution::Bits32, true), (Execution::Bits64, false)] {
        let mode = Packet::ModeExec { mode, interrupt_flag: false };
        let psb = [FAR, Packet::Psb, mode, Packet::Fup(full(CODE + 1)), Packet::Psbend];
        let (words, modes) = modes(&stream(&psb));
        assert_eq!(words, [Word::Goes(CODE), Word::Ran(CODE)]);
        let begin = (Execution::Bits64, Some(CODE));
        assert_eq!(modes, if told { vec![begin, (Execution::Bits32, Some(CODE + 1))] } else { vec![begin] });
    }
}

#[test]
fn a_mode_that_waits_where_the_stream_ends_is_told_there() {
    let begin = (Execution::Bits64, Some(CODE));
    assert_eq!(
        modes(&stream(&[FAR])),
        (vec![Word::Goes(CODE), Word::Ran(CODE)], vec![begin, (Execution::Bits32, None)])
    );
    let stops = [Packet::Fup(full(CODE + 1)), Packet::TipPgd(Ip::SUPPRESSED)];
    let (words, modes) = modes(&stream(&[&stops[..], &[FAR]].concat()));
    assert_eq!(words, [Word::Goes(CODE), Word::Ran(CODE), Word::Stops]);
    assert_eq!(modes, [begin, (Execution::Bits32, None)], "while tracing is disabled");
}

#[test]
fn a_mode_whose_tip_pge_does_not_fit_is_told_behind_the_loss() {
    // Tracing is enabled already.
    let (words, modes) = modes(&stream(&[&[FAR, Packet::TipPge(full(CODE))][..], &psb_plus(None)].concat()));
    assert_eq!(words, [Word::Goes(CODE), Word::Lost(Reason::UnexpectedPacket("TIP.PGE"))]);
    assert_eq!(modes[..2], [(Execution::Bits64, Some(CODE)), (Execution::Bits32, None)]);
}
