//! The instruction and the block layer.

use super::packets::mode_number;
use super::returns::Returns;
use super::{Equal, Layer};
use pt_flow::{Block, BlockKind, DisableKind, Loss, Notice, NoticeKind, Reason, Sink};
use pt_packet::Packet;
use std::fmt::Write;
use std::ops::Range;

/// What one transfer may change.
const CHANGES: [&str; 3] = ["paging ", "vmcs ", "mode "];
/// Events that libipt never gives a time.
const TIMELESS: [&str; 5] = ["ptwrite ", "exstop ", "mwait ", "pwre ", "pwrx "];

/// An event's two times: libipt's, and the one told here (0 for none).
pub type Times = (Option<u64>, u64);

/// What is left when the instructions and events were found equal.
pub struct Compared {
    pub equal: Equal,
    pub times: Vec<Times>,
    /// Stretches of the stream that yielded no flow.
    pub lost: Vec<Range<usize>>,
}

/// A sink that holds the flow against libipt's lines and remembers the first difference.
///
/// libipt's two layers differ where a TIP.PGD has no address and no far transfer follows, as when the kernel clears
/// TraceEn: the instruction layer gives up at the next branch that needs a packet, the block layer takes that branch
/// for what disabled tracing, and goes on. So does the flow: what follows is complete in itself, as a TIP.PGE has to come
/// first (SDM section "Packet Generation Enable (TIP.PGE)"). There the comparison of the instruction layer is `over`
/// until the next PSB.
pub struct Against<'l> {
    layer: Layer,
    lines: &'l mut dyn Iterator<Item = String>,
    /// Where the stream begins that is decoded, in the one that libipt has.
    from: usize,
    /// Where decoding goes on next, of which libipt has a line.
    sync: Option<usize>,
    peeked: Option<String>,
    /// Lines of what was not told yet.
    early: Vec<String>,
    /// What is left of libipt's present block: its instructions, and the last of them.
    left: u64,
    last: u64,
    /// Where execution goes on.
    next: u64,
    speculative: bool,
    standing: bool,
    /// An overflow whose address is not known yet, with its time.
    overflow: Option<u64>,
    /// The instruction that libipt gave up at.
    given_up: Option<u64>,
    over: bool,
    /// Execution is not known to go on since the last loss, and the events since.
    lost: bool,
    waiting: Vec<(String, u64)>,
    returns: Returns<'l>,
    /// What the flow told last, where that is a return that libipt takes elsewhere, or a loss.
    behind: String,
    compared: Compared,
    difference: Option<String>,
}

impl<'l> Against<'l> {
    pub fn new(layer: Layer, stream: &'l [u8], from: usize, lines: &'l mut dyn Iterator<Item = String>) -> Self {
        let compared = Compared { equal: Equal::default(), times: Vec::new(), lost: Vec::new() };
        Against {
            layer,
            lines,
            from,
            sync: Some(0).filter(|&offset| offset == from),
            peeked: None,
            early: Vec::new(),
            left: 0,
            last: 0,
            next: 0,
            speculative: false,
            standing: false,
            overflow: None,
            given_up: None,
            over: false,
            lost: false,
            waiting: Vec::new(),
            returns: Returns::new(stream),
            behind: String::new(),
            compared,
            difference: None,
        }
    }

    /// At the end of the flow; the first difference as an error.
    pub fn finish(mut self) -> Result<Compared, String> {
        self.goes_on();
        self.overflowed(None);
        self.reached(self.next);
        if !self.ended() {
            if let Some(more) = self.early.pop().or_else(|| self.line()) {
                self.differ(&more, "the end");
            }
        }
        match self.difference {
            Some(difference) => Err(difference),
            None => Ok(self.compared),
        }
    }

    fn line(&mut self) -> Option<String> {
        let line = self.peeked.take().or_else(|| self.lines.next())?;
        let (Some(expected), Some(offset)) = (self.sync, line.strip_prefix("sync ")) else { return Some(line) };
        self.sync = None;
        if u64::from_str_radix(offset, 16) != Ok(expected as u64) {
            self.differ(&line, &format!("sync {expected:x}"));
        }
        self.lines.next()
    }

    fn ended(&self) -> bool {
        self.over || self.difference.is_some()
    }

    fn differ(&mut self, libipt: &str, here: &str) {
        if self.difference.is_some() {
            return;
        }
        let Equal { instructions, events, .. } = self.compared.equal;
        let behind = &self.behind;
        // Behind what it runs on.
        let next = Iterator::find(&mut self.lines, |line| line.starts_with(['e', '[', 's']))
            .filter(|line| line.starts_with("error "));
        let next = next.map_or(String::new(), |error| format!(", then {error:?}"));
        self.difference = Some(format!(
            "behind {instructions} instructions and {events} events{behind}: libipt {libipt:?}{next}, here {here:?}"
        ));
    }

    fn instruction(&mut self, address: u64) {
        if self.ended() {
            return;
        }
        if self.left == 0 {
            let line = self.line_for(None);
            let reached = line.strip_prefix("reached ").filter(|_| self.given_up.is_none());
            self.given_up = reached.map(|_| address);
            if !self.begins(reached.unwrap_or(&line), address) {
                let here = format!("{address:x}{}", if self.speculative { " ?" } else { "" });
                return self.differ(&line, &here);
            }
        }
        self.left -= 1;
        if self.left == 0 && self.last != address {
            self.differ(&format!("a block that ends at {:x}", self.last), &format!("{address:x}"));
        }
        self.compared.equal.instructions += 1;
    }

    /// Whether the line is that of the instruction at `address`, or of the block that begins with it.
    fn begins(&mut self, line: &str, address: u64) -> bool {
        let (line, speculative) = line.strip_suffix(" ?").map_or((line, false), |line| (line, true));
        let mut numbers = line.split(' ').map(|number| u64::from_str_radix(number, 16));
        let found = match (self.layer, numbers.next(), numbers.next(), numbers.next()) {
            (Layer::Instructions, Some(Ok(first)), None, None) => (first, first, 1),
            (Layer::Blocks, Some(Ok(first)), Some(Ok(last)), Some(Ok(number))) => (first, last, number),
            _ => return false,
        };
        (self.last, self.left) = (found.1, found.2);
        found.0 == address && speculative == self.speculative
    }

    /// In front of an error or the end libipt gives one instruction more: the one that needs what is missing.
    fn reached(&mut self, address: u64) {
        if self.ended() {
            return;
        }
        if self.left == 0 {
            let Some(line) = self.line() else { return };
            let rest = if self.layer == Layer::Instructions { line.strip_prefix("reached ") } else { Some(&*line) };
            if !rest.is_some_and(|rest| !rest.starts_with(['[', 'e']) && self.begins(rest, address)) {
                self.peeked = Some(line);
                return;
            }
        }
        if (self.left, self.last) != (1, address) {
            let (left, last) = (self.left, self.last);
            return self.differ(&format!("{left} more instructions, to {last:x}"), &format!("an end at {address:x}"));
        }
        self.left = 0;
        self.compared.equal.reached += 1;
    }

    fn event(&mut self, told: &str, tsc: u64) {
        if self.lost {
            return self.waiting.push((told.to_owned(), tsc));
        }
        self.overflowed(None);
        self.told(told, tsc);
    }

    fn told(&mut self, told: &str, tsc: u64) {
        if self.ended() {
            return;
        }
        if self.left != 0 {
            let (left, last) = (self.left, self.last);
            return self.differ(&format!("{left} more instructions, to {last:x}"), told);
        }
        let line = self.line_for(Some(told));
        if let Some(at) = self.given_up {
            if told != "disabled -" || !line.starts_with("error ") {
                return self.differ(&format!("reached {at:x}, {line}"), told);
            }
            self.over = true;
            self.compared.equal.stricter += 1;
            return;
        }
        self.compare(&line, told, tsc);
    }

    /// The next line where that was told, or an instruction ran. libipt lists a power entry where it reads of it, and what one transfer
    /// changes in the order of the packets: those lines wait for what is told.
    fn line_for(&mut self, told: Option<&str>) -> String {
        let waits = |line: &str| match told {
            Some(told) => is_one_of(line, &CHANGES) && CHANGES.iter().any(|event| told.starts_with(event)),
            None => false,
        };
        let early = |line: &String| told.map_or(!is_one_of(line, &["pwre "]), |told| lists(line, told));
        if let Some(at) = self.early.iter().position(early) {
            return self.early.remove(at);
        }
        loop {
            let line = self.line().unwrap_or_default();
            let told_here = told.is_some_and(|told| lists(&line, told));
            if told_here || !waits(&line) && !is_one_of(&line, &["pwre "]) {
                return line;
            }
            self.early.push(line);
        }
    }

    fn compare(&mut self, line: &str, told: &str, tsc: u64) {
        let Some((_, time)) = line.split_once(" @").filter(|_| lists(line, told)) else {
            return self.differ(line, told);
        };
        let time = u64::from_str_radix(time.trim_end_matches(']'), 16).ok();
        if time.is_some() || !is_one_of(line, &TIMELESS) {
            self.compared.times.push((time, tsc));
        }
        self.compared.equal.events += 1;
        self.compared.equal.timed += u64::from(tsc != 0);
    }

    /// Among the events since the loss are those that libipt lists: it passes over what packets say where code is not known.
    fn goes_on(&mut self) {
        if !std::mem::take(&mut self.lost) {
            return;
        }
        let mut lines = Vec::new();
        let goes_on = ["[enabled ", "[resumed ", "[overflow ", "[stopped "];
        while let Some(line) = self.line() {
            if !line.starts_with('[') || goes_on.iter().any(|event| line.starts_with(event)) {
                self.peeked = Some(line);
                break;
            }
            lines.push(line);
        }
        // The last ones, where several are alike.
        let mut waiting = std::mem::take(&mut self.waiting).into_iter();
        let mut alike = Vec::new();
        for line in lines.into_iter().rev() {
            let listed = line.split_once(" @").map_or(&*line, |(listed, _)| listed);
            match waiting.rfind(|(told, _)| listed.strip_prefix('[') == Some(told)) {
                Some(event) => alike.push((line, event)),
                None => return self.differ(&line, "nothing"),
            }
        }
        for (line, (told, tsc)) in alike.into_iter().rev() {
            if !self.ended() {
                self.compare(&line, &told, tsc);
            }
        }
    }

    fn overflowed(&mut self, ip: Option<u64>) {
        if let Some(tsc) = self.overflow.take() {
            self.told(&with(String::from("overflow"), ip), tsc);
        }
    }
}

/// Whether libipt's line is of what was told.
fn lists(line: &str, told: &str) -> bool {
    let listed = line.split_once(" @").map_or(line, |(listed, _)| listed);
    listed.strip_prefix('[') == Some(told)
}

fn is_one_of(line: &str, events: &[&str]) -> bool {
    line.strip_prefix('[').is_some_and(|listed| events.iter().any(|event| listed.starts_with(event)))
}

/// An event with an address, if it has one.
fn with(mut event: String, ip: Option<u64>) -> String {
    let written = match ip {
        Some(ip) => write!(event, " {ip:x}"),
        None => write!(event, " -"),
    };
    written.expect("a string takes everything");
    event
}

impl Sink for Against<'_> {
    fn block(&mut self, block: &Block<'_>, _: u64) {
        self.overflowed(None);
        for address in block.addresses() {
            self.instruction(address);
        }
        self.behind.clear();
        match block.kind {
            BlockKind::Call if block.target != block.end => self.returns.call(block.end),
            BlockKind::IndirectCall => self.returns.call(block.end),
            BlockKind::Return => self.behind.push_str(", a return"),
            _ => {}
        }
        if let Some(elsewhere) = self.returns.branch(block.kind, block.target) {
            self.behind = format!(", a return to {elsewhere:x} for libipt");
        }
        self.next = if block.target == 0 { block.end } else { block.target };
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.goes_on();
        self.next = ip;
        if !std::mem::take(&mut self.standing) {
            self.returns.take_up_to(|packet| matches!(packet, Packet::TipPge(_)));
            self.event(&format!("{} {ip:x}", if resumed { "resumed" } else { "enabled" }), tsc);
        }
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.returns.take_up_to(|packet| matches!(packet, Packet::TipPgd(_)));
        let event = match kind {
            DisableKind::Synchronous => String::from("disabled"),
            DisableKind::Asynchronous => format!("stopped {at:x}"),
        };
        self.event(&with(event, target), tsc);
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.next = to;
        self.returns.take_up_to(|packet| matches!(packet, Packet::Tip(_)));
        self.event(&format!("interrupt {from:x} {to:x}"), tsc);
    }

    fn loss(&mut self, loss: &Loss) {
        self.compared.lost.push(loss.offset..loss.offset + loss.size);
        if self.ended() {
            return;
        }
        self.goes_on();
        self.overflowed(None);
        self.lost = true;
        let Loss { offset, size, address, reason, .. } = loss;
        self.behind = format!(", a loss at {:x} of {size:x} at {address:x}: {reason}", self.from + offset);
        let returns_to = self.returns.behind_psb(*offset).filter(|_| *reason == Reason::EmptyReturnStack);
        if let Some(elsewhere) = returns_to {
            self.behind.push_str(&format!(", a return to {elsewhere:x} for libipt"));
        }
        self.returns.loss(offset + size);
        self.speculative = false;
        if loss.reason != Reason::BeforeFirstPsb {
            self.reached(loss.address);
            let mut line = self.line().unwrap_or_default();
            if returns_to.is_some() && self.layer == Layer::Instructions && self.begins(&line, loss.address) {
                line = self.line().unwrap_or_default();
            }
            if !line.starts_with("error ") {
                return self.differ(&line, &format!("{loss:x?}"));
            }
            self.compared.equal.errors += 1;
            self.given_up = None;
        }
        self.sync = Some(self.from + loss.offset + loss.size);
    }

    fn overflow(&mut self, offset: usize, _: Option<u64>, tsc: u64) {
        self.overflowed(None);
        self.speculative = false;
        self.returns.overflow(offset);
        self.goes_on();
        self.overflow = Some(tsc);
    }

    fn notice(&mut self, notice: &Notice, tsc: u64) {
        if notice.kind == NoticeKind::Standing {
            self.standing = true;
            self.overflowed(notice.ip);
        }
        if let NoticeKind::Transaction { active, .. } = notice.kind {
            self.speculative = active;
        }
        if notice.status {
            return;
        }
        let event = match notice.kind {
            NoticeKind::Paging { cr3, non_root } => format!("paging {cr3:x} {}", u8::from(non_root)),
            NoticeKind::ExecutionMode(mode) => format!("mode {}", mode_number(mode)),
            NoticeKind::Transaction { active, aborted } => {
                format!("transaction {} {}", u8::from(active), u8::from(aborted))
            }
            NoticeKind::TraceStop => String::from("stop"),
            NoticeKind::Vmcs { base } => format!("vmcs {base:x}"),
            NoticeKind::ExecutionStop => with(String::from("exstop"), notice.ip),
            NoticeKind::Mwait { hints, extensions } => with(format!("mwait {hints:x} {extensions:x}"), notice.ip),
            NoticeKind::PowerEntry { state, sub_state, hardware } => {
                format!("pwre {state:x} {sub_state:x} {}", u8::from(hardware))
            }
            NoticeKind::PowerExit { last, deepest, wake } => {
                format!("pwrx {last:x} {deepest:x} {} {} {}", wake & 1, wake >> 2 & 1, wake >> 3 & 1)
            }
            NoticeKind::PtWrite { payload, size } => with(format!("ptwrite {size:x} {payload:x}"), notice.ip),
            NoticeKind::CoreBusRatio(ratio) => format!("cbr {ratio:x}"),
            NoticeKind::Maintenance(payload) => format!("mnt {payload:x}"),
            // libipt 2.0 has no such event.
            NoticeKind::InterruptFlag(_) | NoticeKind::Standing | NoticeKind::Uncertainty(_) => return,
            other => format!("{other:x?}"),
        };
        self.event(&event, tsc);
    }
}
