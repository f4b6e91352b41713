//! What packets say besides the flow, where the flow is lost.

use crate::flow::{full, psb_plus, stream};
use crate::mutations::CODE;
use crate::support::Sections;
use pt_flow::{Block, Config, DisableKind, Flow, Loss, Notice, NoticeKind, Reason, Sink};
use pt_packet::{Ip, Packet};

/// Where no code is known.
const UNKNOWN: u64 = 0x1234_5678;

#[derive(Debug, PartialEq)]
enum Word {
    Ran(u64),
    Goes(u64),
    Stops,
    Lost(Reason),
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
    fn overflow(&mut self, _: usize, _: Option<u64>, _: u64) {}
    fn notice(&mut self, notice: &Notice, tsc: u64) {
        let of_mode = matches!(notice.kind, NoticeKind::ExecutionMode(_) | NoticeKind::InterruptFlag(_));
        if notice.kind != NoticeKind::Standing && !of_mode {
            self.0.push(Word::Says(notice.kind, notice.ip, tsc));
        }
    }
}

/// Runs up to `jmp rax` to where no code is known, where packets say something.
fn told(behind: &[Packet], config: &Config) -> Vec<Word> {
    let memory = Sections([(CODE, vec![0xff, 0xe0])].into());
    let says = [
        Packet::Tsc(100),
        Packet::Ptw { payload: 7, size: 8, fup: true },
        Packet::Fup(full(UNKNOWN + 4)),
        Packet::Tsc(200),
        Packet::ModeTsx { in_transaction: true, aborted: false },
        Packet::Fup(full(UNKNOWN + 8)),
        Packet::Pwrx { last: 1, deepest: 2, wake: 1 },
        Packet::Ptw { payload: 8, size: 4, fup: false },
        Packet::Tsc(300),
    ];
    let packets = [&psb_plus(Some(CODE))[..], &[Packet::Tip(full(UNKNOWN))], &says, behind].concat();
    let mut words = Words::default();
    Flow::new(&memory).decode(&stream(&packets), config, &[], &mut words);
    words.0
}

fn lost() -> Vec<Word> {
    vec![
        Word::Goes(CODE),
        Word::Ran(CODE),
        Word::Lost(Reason::NoCode),
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

#[test]
fn up_to_the_next_psb_it_is_told_and_what_that_says_is_told_once() {
    let mut psb = psb_plus(Some(CODE));
    psb.insert(1, Packet::Mnt(9));
    let goes_on = [Word::Says(NoticeKind::Maintenance(9), None, 300), Word::Goes(CODE), Word::Stops];
    let words = told(&[psb, stops().to_vec()].concat(), &Config::default());
    assert_eq!(words, lost().into_iter().chain(goes_on).collect::<Vec<_>>());
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
