//! The flow of a stream: blocks or instructions, and what interrupts them.

use crate::escape::into_escaped;
use crate::notice::{bits, name, put};
use crate::{Code, Form, Lines, Row, Value, Who};
use iced_x86::{Decoder, DecoderOptions, FastFormatter, Instruction};
use pt_flow::{Block, BlockKind, DisableKind, Loss, Notice, NoticeKind, Sink};
use std::fmt::Write;

/// What has a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Instructions,
    Blocks,
}

/// The [`Sink`] that writes a line for each instruction or block, and for each event between them.
pub struct FlowListing<'a, 'o, M> {
    image: M,
    who: Who<'a>,
    thread: (u32, u32),
    stream: &'a str,
    detail: Detail,
    lines: &'a mut Lines<'o>,
    here: Here,
    code: Vec<u8>,
    /// Operand and address size, as the last notice said.
    bits: u32,
    formatter: FastFormatter,
    text: String,
}

/// The function that was named last, and where it stands.
#[derive(Default)]
struct Here {
    epoch: u32,
    start: u64,
    end: u64,
    /// Where the name's offsets count from.
    base: u64,
    name: String,
    module: String,
}

impl<'a, 'o, M: Code> FlowListing<'a, 'o, M> {
    pub fn new(image: M, who: Who<'a>, stream: &'a str, detail: Detail, lines: &'a mut Lines<'o>) -> Self {
        if detail == Detail::Blocks && lines.form == Form::Text {
            let line = lines.begin();
            let _ = write!(line, "{:>16}  {:>16}  {:>16}  insn  how it was left", "tsc", "first", "last");
            lines.end();
        }
        let mut formatter = FastFormatter::new();
        formatter.options_mut().set_space_after_operand_separator(true);
        formatter.options_mut().set_use_hex_prefix(true);
        formatter.options_mut().set_uppercase_hex(false);
        FlowListing {
            image,
            who,
            thread: (0, 0),
            stream,
            detail,
            lines,
            here: Here::default(),
            code: Vec::new(),
            bits: 64,
            formatter,
            text: String::new(),
        }
    }

    fn one_block(&mut self, block: &Block<'_>, tsc: u64) {
        self.look_up(block.epoch, block.start);
        let kind = kind_name(block.kind);
        let form = self.lines.form;
        let line = self.lines.begin();
        if form == Form::Text {
            let Block { start, last, instructions, target, .. } = *block;
            let _ = write!(line, "{tsc:>16}  {start:>16x}  {last:>16x}  {instructions:>4}  {kind:<14}");
            if target != 0 && block.kind != BlockKind::Linear {
                let _ = write!(line, " {target:>16x}");
            } else {
                let _ = write!(line, " {:16}", "");
            }
            let _ = write!(line, "  {}+{:#x}", self.here.name, start.wrapping_sub(self.here.base));
        } else {
            let mut row = Row::new(Form::Json, line);
            row.more("stream", Value::Word(self.stream)).more("event", Value::Word("block"));
            row.more("tid", Value::Number(self.thread.1.into()));
            row.more("tsc", Value::time(tsc)).more("first", Value::Hex(block.start));
            row.more("last", Value::Hex(block.last)).more("instructions", Value::Number(block.instructions.into()));
            row.more("kind", Value::Word(kind)).more("target", Value::address(block.target));
            place(&mut row, &self.here, block.start);
            row.end();
        }
        self.lines.end();
    }

    fn all_instructions(&mut self, block: &Block<'_>, tsc: u64) {
        self.read_code(block);
        let mut at = 0;
        for (address, &length) in block.addresses().zip(block.lengths) {
            self.look_up(block.epoch, address);
            let bytes = self.code.get(at..at + usize::from(length)).unwrap_or_default();
            disassemble(&mut self.formatter, self.bits, bytes, address, &mut self.text);
            at += usize::from(length);
            let form = self.lines.form;
            let line = self.lines.begin();
            if form == Form::Text {
                let (text, name) = (&self.text, &self.here.name);
                let offset = address.wrapping_sub(self.here.base);
                let _ = write!(line, "{address:>16x}  {text:<44}  {name}+{offset:#x}");
            } else {
                let mut row = Row::new(Form::Json, line);
                row.more("stream", Value::Word(self.stream)).more("event", Value::Word("instruction"));
                row.more("tid", Value::Number(self.thread.1.into()));
                row.more("tsc", Value::time(tsc)).more("address", Value::Hex(address));
                row.more("size_bytes", Value::Number(length.into())).more("text", Value::Word(&self.text));
                place(&mut row, &self.here, address);
                row.end();
            }
            self.lines.end();
        }
    }

    /// The bytes of a block; they may stand in several sections.
    fn read_code(&mut self, block: &Block<'_>) {
        self.code.clear();
        let size = block.end.wrapping_sub(block.start) as usize;
        while self.code.len() < size {
            let next = block.start.wrapping_add(self.code.len() as u64);
            let Some(slice) = self.image.read(block.epoch, next).filter(|slice| !slice.bytes.is_empty()) else {
                return;
            };
            let missing = size - self.code.len();
            self.code.extend_from_slice(&slice.bytes[..slice.bytes.len().min(missing)]);
        }
    }

    /// Makes `here` the function around the address.
    fn look_up(&mut self, epoch: u32, address: u64) {
        let here = &self.here;
        if here.epoch == epoch && here.start <= address && address < here.end {
            return;
        }
        let place = self.image.place(epoch, address);
        let own = address.wrapping_sub(place.bias);
        let known = self.image.describe(place.space, place.function, own);
        // Code without a function is named by its module: offsets count from where that begins.
        let (base, name) = match place.function {
            Some(_) => (known.address.wrapping_add(place.bias), known.name),
            None => (place.bias, known.binary.rsplit('/').next().unwrap_or_default().to_owned()),
        };
        let name = if self.lines.form == Form::Text { into_escaped(name) } else { name };
        // In front of code that nothing divides other code may stand.
        let start = place.function.map_or(address, |_| place.start.min(address));
        let end = place.end.max(address.wrapping_add(1));
        self.here = Here { epoch, start, end, base, name, module: known.binary };
    }

    fn event(&mut self, name: &str, tsc: u64, say: impl FnOnce(&mut Row<'_>)) {
        let form = self.lines.form;
        let line = self.lines.begin();
        if form == Form::Text {
            line.push('[');
        }
        let mut row = Row::new(form, line);
        row.more("stream", Value::Word(self.stream));
        row.put("event", "", Value::Word(name)).more("tsc", Value::time(tsc));
        say(&mut row);
        row.end();
        if form == Form::Text {
            line.push(']');
        }
        self.lines.end();
    }
}

fn place(row: &mut Row<'_>, here: &Here, address: u64) {
    row.more("function", Value::Word(&here.name)).more("module", Value::Word(&here.module));
    row.more("offset", Value::Hex(address.wrapping_sub(here.base)));
}

/// The instruction at the address: in the mode that was told, or the one that fits its length.
fn disassemble(formatter: &mut FastFormatter, told: u32, bytes: &[u8], address: u64, text: &mut String) {
    text.clear();
    for bits in [told, 64, 32, 16] {
        let mut decoder = Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE);
        let instruction: Instruction = decoder.decode();
        if !instruction.is_invalid() && instruction.len() == bytes.len() {
            return formatter.format(&instruction, text);
        }
    }
    text.push_str("(unknown)");
}

fn kind_name(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Linear => "linear",
        BlockKind::CondTaken => "taken",
        BlockKind::CondNotTaken => "not taken",
        BlockKind::Jump => "jump",
        BlockKind::IndirectJump => "indirect jump",
        BlockKind::Call => "call",
        BlockKind::IndirectCall => "indirect call",
        BlockKind::Return => "return",
        BlockKind::Far | BlockKind::FarCall => "far",
        BlockKind::Interrupted => "interrupted",
    }
}

impl<M: Code> Sink for FlowListing<'_, '_, M> {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        let thread = self.who.at(block.epoch);
        if thread != self.thread {
            self.thread = thread;
            self.event("thread", tsc, |row| {
                row.put("tid", "", Value::Number(thread.1.into())).put(
                    "pid",
                    "of process",
                    Value::Number(thread.0.into()),
                );
            });
        }
        match self.detail {
            Detail::Instructions => self.all_instructions(block, tsc),
            Detail::Blocks => self.one_block(block, tsc),
        }
    }

    fn enabled(&mut self, ip: u64, resumed: bool, tsc: u64) {
        self.event(if resumed { "resumed" } else { "enabled" }, tsc, |row| {
            row.put("address", "at", Value::Hex(ip));
        });
    }

    fn disabled(&mut self, kind: DisableKind, at: u64, target: Option<u64>, tsc: u64) {
        self.event("disabled", tsc, |row| {
            row.put("address", "at", Value::Hex(at)).put("target", "to", target.map_or(Value::Unknown, Value::Hex));
            row.put("asynchronous", "asynchronously", Value::Flag(kind == DisableKind::Asynchronous));
        });
    }

    fn interrupt(&mut self, from: u64, to: u64, tsc: u64) {
        self.event("interrupt", tsc, |row| {
            row.put("address", "at", Value::Hex(from)).put("target", "to", Value::Hex(to));
        });
    }

    fn notice(&mut self, notice: &Notice, tsc: u64) {
        if let NoticeKind::ExecutionMode(mode) = notice.kind {
            self.bits = bits(mode);
        }
        // How things stand at a PSB is news to programs only.
        if notice.status && self.lines.form == Form::Text {
            return;
        }
        let Some(name) = name(&notice.kind) else { return };
        self.event(name, tsc, |row| {
            put(row, &notice.kind);
            row.put("address", "at", notice.ip.map_or(Value::Unknown, Value::Hex))
                .more("status", Value::Flag(notice.status));
        });
    }

    fn loss(&mut self, loss: &Loss) {
        let reason = self.image.why(loss.reason, loss.epoch, loss.address);
        self.event("loss", loss.tsc0, |row| {
            row.put_offset(loss.offset);
            row.put("size_bytes", "bytes", Value::Number(loss.size as u64));
            row.more("address", Value::address(loss.address)).more("end_tsc", Value::time(loss.tsc1));
            row.put("reason", "because", Value::Word(&reason));
        });
    }

    fn overflow(&mut self, offset: usize, from: Option<u64>, tsc: u64) {
        self.event("overflow", tsc, |row| {
            row.put_offset(offset);
            row.put("address", "behind", from.map_or(Value::Unknown, Value::Hex));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_flow::{Config, Flow, Reason};
    use pt_image::Image;
    use pt_packet::writer::write;
    use pt_packet::{Compression, Execution, Ip, Packet};
    use std::sync::Arc;

    /// nop; jne +2; two nops; ret.
    const CODE: [u8; 6] = [0x90, 0x75, 0x02, 0x90, 0x90, 0xc3];

    fn listed(form: Form, detail: Detail) -> Vec<String> {
        let mut image = Image::new();
        image.code(0, 0x40_1000, CODE.to_vec()).unwrap();
        let image = Arc::new(image);
        let mut data = Vec::new();
        let at = |payload| Ip { compression: Compression::SignExtend48, payload };
        for packet in [
            Packet::Psb,
            Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false },
            Packet::Psbend,
            Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false },
            Packet::TipPge(at(0x40_1000)),
            Packet::Tnt { bits: 1, count: 1 },
            Packet::TipPgd(at(0x50_0000)),
        ] {
            write(&mut data, packet);
        }
        let mut told = String::new();
        let mut lines = Lines::new(form, |batch| {
            told.push_str(&batch);
            true
        });
        let mut sink = FlowListing::new(Arc::clone(&image), Who(&[]), "7", detail, &mut lines);
        Flow::new(&image).decode(&data, &Config::default(), &[], &mut sink);
        lines.flush();
        drop(lines);
        told.lines().map(str::to_owned).collect()
    }

    #[test]
    fn instructions_stand_one_a_line_with_the_events_between_them() {
        let told = listed(Form::Text, Detail::Instructions);
        assert_eq!(
            told,
            [
                "[enabled at 0x401000]",
                "          401000  nop                                           [generated]+0x401000",
                "          401001  jne 0x401005                                  [generated]+0x401001",
                "          401005  ret                                           [generated]+0x401005",
                "[disabled at 0x401005 to 0x500000]",
            ]
        );
    }

    #[test]
    fn blocks_say_how_they_were_left() {
        let told = listed(Form::Text, Detail::Blocks);
        assert!(told[0].ends_with("how it was left"), "{told:?}");
        assert!(told[2].contains("401000            401001     2  taken                    401005"), "{told:?}");
        assert!(told[3].contains("401005            401005     1  return                   500000"), "{told:?}");
    }

    #[test]
    fn programs_get_an_object_a_line() {
        let told = listed(Form::Json, Detail::Instructions);
        assert!(told[0].starts_with(r#"{"stream":"7","event":"mode","tsc":null,"bits":64,"#), "{told:?}");
        let enabled = told.iter().position(|row| row.contains(r#""event":"enabled""#)).unwrap();
        assert_eq!(told[enabled], r#"{"stream":"7","event":"enabled","tsc":null,"address":"0x401000"}"#);
        assert!(told[enabled + 1].starts_with(
            r#"{"stream":"7","event":"instruction","tid":0,"tsc":null,"address":"0x401000","size_bytes":1,"#
        ));
        let blocks = listed(Form::Json, Detail::Blocks);
        let first = r#""first":"0x401000","last":"0x401001","instructions":2,"kind":"taken""#;
        assert!(blocks.iter().any(|row| row.contains(first)), "{blocks:?}");
    }

    #[test]
    fn a_loss_has_the_numbers_of_other_lists_and_nothing_that_is_not_known() {
        let told = |tsc0, address| {
            let loss = Loss { offset: 16, size: 3, reason: Reason::NoCode, address, epoch: 0, tsc0, tsc1: 2 * tsc0 };
            let mut told = String::new();
            let mut lines = Lines::new(Form::Json, |batch| {
                told.push_str(&batch);
                true
            });
            let mut sink = FlowListing::new(Arc::new(Image::new()), Who(&[]), "7", Detail::Blocks, &mut lines);
            sink.loss(&loss);
            sink.overflow(32, None, tsc0);
            lines.flush();
            drop(lines);
            told
        };
        let unknown = told(0, 0);
        let loss = r#""event":"loss","tsc":null,"offset":16,"size_bytes":3,"address":null,"end_tsc":null,"reason""#;
        assert!(unknown.contains(loss), "{unknown}");
        assert!(unknown.contains(r#""event":"overflow","tsc":null,"offset":32,"address":null}"#), "{unknown}");
        let known = told(5, 0x1000);
        assert!(known.contains(r#""tsc":5,"offset":16,"size_bytes":3,"address":"0x1000","end_tsc":10,"#), "{known}");
    }
}
