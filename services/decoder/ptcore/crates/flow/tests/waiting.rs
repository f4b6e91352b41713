//! What waits for its address or its branch, and what comes instead: the end of a filtered range, a FUP for several, an overflow.

use crate::flow::{full, psb_plus, stream};
use crate::support::Sections;
use pt_flow::{Block, Config, DisableKind, Errata, Flow, Loss, Notice, NoticeKind, Reason, Sink};
use pt_packet::{Ip, Packet};

const CODE: u64 = 0x1000;
const OFF: Packet = Packet::TipPgd(Ip::SUPPRESSED);

#[derive(Clone, Debug, PartialEq)]
enum Word {
    Goes(u64),
    Ran(u64, u64),
    Stops(Option<u64>),
    Interrupts(u64, u64),
    Says(NoticeKind, Option<u64>),
    Overflows(Option<u64>),
    Lost(Reason),
}
use Word::{Goes, Interrupts, Lost, Overflows, Ran, Says, Stops};

#[derive(Default)]
struct Words(Vec<Word>);

impl Sink for Words {
    fn block(&mut self, block: &Block<'_>, _: u64) {
        self.0.push(Ran(block.start, block.last));
    }
    fn enabled(&mut self, ip: u64, _: bool, _: u64) {
        self.0.push(Goes(ip));
    }
    fn disabled(&mut self, _: DisableKind, _: u64, target: Option<u64>, _: u64) {
        self.0.push(Stops(target));
    }
    fn interrupt(&mut self, from: u64, to: u64, _: u64) {
        self.0.push(Interrupts(from, to));
    }
    fn loss(&mut self, loss: &Loss) {
        self.0.push(Lost(loss.reason));
    }
    fn overflow(&mut self, _: usize, ip: Option<u64>, _: u64) {
        self.0.push(Overflows(ip));
    }
    fn notice(&mut self, notice: &Notice, _: u64) {
        use NoticeKind::{ExecutionMode, InterruptFlag, Standing};
        if !matches!(notice.kind, ExecutionMode(_) | InterruptFlag(_) | Standing) {
            self.0.push(Says(notice.kind, notice.ip));
        }
    }
}

/// What is told of packets behind a PSB+ with the address of the code.
fn told(code: &[u8], behind: &[Packet], errata: Errata) -> Vec<Word> {
    let memory = Sections([(CODE, code.to_vec())].into());
    let mut words = Words::default();
    let data = stream(&[&psb_plus(Some(CODE)), behind].concat());
    Flow::new(&memory).decode(&data, &Config { errata, ..Config::default() }, &[], &mut words);
    words.0
}

#[test]
fn nothing_runs_behind_the_direct_branch_that_leaves_the_filtered_range_whatever_is_told_there() {
    // 0: nop; 1: jmp 16, out of the range; 16: nop; 17: jmp rax
    let mut code = vec![0x90; 0x13];
    code[1..3].copy_from_slice(&[0xeb, 0x0d]);
    code[0x11..].copy_from_slice(&[0xff, 0xe0]);
    let out = CODE + 0x10;
    let power = Packet::Pwre { state: 1, sub_state: 1, hardware: true };
    let trigger = Packet::Trig { number: 1, instructions: Some(2), multiple: false, fup: false };
    for waits in [
        vec![],
        vec![power],
        vec![Packet::Mwait { hints: 1, extensions: 0 }],
        vec![Packet::Cfe { kind: 2, vector: 0, fup: false }],
        vec![Packet::Pip { cr3: 0x1000, non_root: false }],
        vec![Packet::Ptw { payload: 1, size: 8, fup: false }],
        vec![trigger],
        vec![Packet::Mnt(1), trigger, power],
    ] {
        let behind = [&waits[..], &[Packet::TipPgd(full(out))]].concat();
        let (said, ran): (Vec<_>, Vec<_>) =
            told(&code, &behind, Errata::default()).into_iter().partition(|word| matches!(word, Says(..)));
        assert_eq!(ran, [Goes(CODE), Ran(CODE, CODE + 1), Stops(Some(out))], "{waits:?}");
        assert_eq!(said.len(), waits.len(), "{waits:?}");
    }
}

#[test]
fn one_fup_says_where_all_of_it_was_that_waited_for_one() {
    let trigger = Packet::Trig { number: 1, instructions: None, multiple: false, fup: true };
    let interrupt = Packet::Cfe { kind: 1, vector: 3, fup: true };
    let at = [Packet::Fup(full(CODE + 1)), Packet::Tip(full(CODE + 3)), Packet::Fup(full(CODE + 4)), OFF];
    let expected = [
        Goes(CODE),
        Ran(CODE, CODE),
        Says(NoticeKind::Trigger { number: 1, multiple: false }, Some(CODE + 1)),
        Says(NoticeKind::Interrupt { vector: 3, address: None }, Some(CODE + 1)),
        Interrupts(CODE + 1, CODE + 3),
        Ran(CODE + 3, CODE + 3),
        Stops(None),
    ];
    assert_eq!(told(&JUMPS, &[&[trigger, interrupt], &at[..]].concat(), Errata::default()), expected);
}

/// 0: nop; 1: jmp rax; 3: nop; 4: jmp rax
const JUMPS: [u8; 6] = [0x90, 0xff, 0xe0, 0x90, 0xff, 0xe0];

#[test]
fn a_needless_fup_behind_an_overflow_may_have_what_comes_while_tracing_is_disabled_behind_it() {
    let errata = Errata { apl12: true, ..Errata::default() };
    let write = |fup| Packet::Ptw { payload: 1, size: 8, fup };
    for between in [
        vec![],
        vec![Packet::TraceStop],
        vec![Packet::Exstop { fup: false }],
        vec![write(false)],
        vec![write(true), Packet::Fup(full(CODE + 3))],
        vec![Packet::Cfe { kind: 3, vector: 0, fup: true }, Packet::Fup(full(CODE + 3))],
    ] {
        let overflow = [Packet::Fup(full(CODE + 1)), OFF, Packet::Ovf, Packet::Fup(full(CODE + 4))];
        let on = [Packet::TipPge(full(CODE + 3)), Packet::Fup(full(CODE + 4)), OFF];
        let words = told(&JUMPS, &[&overflow[..], &between, &on].concat(), errata);
        let ran: Vec<_> = words.into_iter().filter(|word| !matches!(word, Says(..))).collect();
        let expected = [
            Goes(CODE),
            Ran(CODE, CODE),
            Stops(None),
            Overflows(None),
            Goes(CODE + 3),
            Ran(CODE + 3, CODE + 3),
            Stops(None),
        ];
        assert_eq!(ran, expected, "{between:?}");
    }
}

#[test]
fn a_tip_in_place_of_an_overflows_fup_may_have_events_in_front_of_it() {
    let errata = Errata { skd010: true, ..Errata::default() };
    for between in [
        vec![],
        vec![Packet::Exstop { fup: false }],
        vec![Packet::Ptw { payload: 1, size: 8, fup: false }],
        vec![Packet::Cfe { kind: 2, vector: 0, fup: false }],
    ] {
        let behind =
            [&[Packet::Ovf][..], &between, &[Packet::Tip(full(CODE + 3)), Packet::Fup(full(CODE + 4)), OFF]].concat();
        let words = told(&JUMPS, &behind, errata);
        let ran: Vec<_> = words.into_iter().filter(|word| !matches!(word, Says(..))).collect();
        let expected = [Goes(CODE), Overflows(Some(CODE)), Goes(CODE + 3), Ran(CODE + 3, CODE + 3), Stops(None)];
        assert_eq!(ran, expected, "{between:?}");
    }
}

#[test]
fn the_fup_of_an_abort_in_place_of_an_overflows_has_its_tip() {
    let errata = Errata { skd010: true, ..Errata::default() };
    let aborts = Packet::ModeTsx { in_transaction: false, aborted: true };
    let behind =
        [Packet::Ovf, aborts, Packet::Fup(full(CODE)), Packet::Tip(full(CODE + 3)), Packet::Fup(full(CODE + 4)), OFF];
    let words = told(&JUMPS, &behind, errata);
    let aborted = Says(NoticeKind::Transaction { active: false, aborted: true }, Some(CODE));
    let expected = [
        Goes(CODE),
        Overflows(Some(CODE)),
        Goes(CODE),
        aborted,
        Interrupts(CODE, CODE + 3),
        Ran(CODE + 3, CODE + 3),
        Stops(None),
    ];
    assert_eq!(words, expected);
}
