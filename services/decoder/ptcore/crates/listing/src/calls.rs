//! The calls of a stream as they end, and its functions as a table.

use crate::inlined::Chains;
use crate::{escaped, Code, Form, Inlined, Lines, Page, Row, Thread, Value};
use pt_calls::{Batch, FunctionKey, FunctionTotals, Output, Records};
use pt_calls::{ASYNCHRONOUS, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT, TAIL_CALL, UNWOUND};
use pt_image::{Categories, Description};
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::{Arc, PoisonError, RwLock};

const FLAGS: [(u8, &str, &str); 5] = [
    (BEGIN_TRUNCATED, "begin_truncated", "began before"),
    (END_TRUNCATED, "end_truncated", "not over"),
    (TAIL_CALL, "tail_call", "tail call"),
    (ASYNCHRONOUS, "asynchronous", "signal"),
    (UNWOUND, "unwound", "unwound"),
];

/// Calls that are gathered before they are listed.
const BATCH: usize = 1 << 12;

/// Hands the calls to those who write them as they end, each behind the calls that it made and as deep as callers were
/// known by then.
pub struct CallListing<'p, C> {
    code: C,
    thread: Arc<Thread>,
    page: &'p Page,
    described: Arc<RwLock<Vec<Described>>>,
}

impl<'p, C: Code> CallListing<'p, C> {
    pub fn new(code: C, thread: Thread, page: &'p Page) -> Self {
        CallListing { code, thread: Arc::new(thread), page, described: Arc::default() }
    }
}

impl<C: Code> Output for CallListing<'_, C> {
    fn rows(&self) -> usize {
        BATCH
    }

    fn take(&mut self, batch: Batch<'_>) {
        if !batch.functions.is_empty() {
            let describe = |one: &FunctionKey| Described::new(self.code.describe(one.space, one.function, one.address));
            let new: Vec<_> = batch.functions.iter().map(describe).collect();
            self.described.write().unwrap_or_else(PoisonError::into_inner).extend(new);
        }
        if batch.calls.is_empty() {
            return;
        }
        let before = self.page.thread.replace(Some(Arc::clone(&self.thread)));
        let is_other = before.is_none_or(|before| !Arc::ptr_eq(&before, &self.thread));
        let (thread, described) = (Arc::clone(&self.thread), Arc::clone(&self.described));
        let calls = std::mem::take(batch.calls);
        self.page.write(Ended { calls, epoch: batch.epoch, thread, is_other, described });
    }
}

/// A function, and its name as text shows it.
struct Described {
    known: Description,
    shown: Option<String>,
}

impl Described {
    fn new(known: Description) -> Self {
        let shown = match escaped(&known.name) {
            Cow::Borrowed(_) => None,
            Cow::Owned(told) => Some(told),
        };
        Described { known, shown }
    }
}

/// Calls that ended, of one thread.
pub struct Ended {
    calls: Records,
    epoch: u32,
    thread: Arc<Thread>,
    /// The calls written before are of another thread.
    is_other: bool,
    /// By the numbers that the calls name functions by.
    described: Arc<RwLock<Vec<Described>>>,
}

/// Writes calls; those deeper than `max_depth` callers are left out (0: none).
pub struct CallWriter<C> {
    pub code: C,
    pub max_depth: u32,
    /// In which inlined functions of its caller each call stands, when that is wanted.
    pub chains: Option<Chains>,
}

/// Levels that are indented; deeper calls stand below one another and say how deep they are.
const MOST_INDENTED: u32 = 256;

impl<C: Code> CallWriter<C> {
    pub fn write(&mut self, ended: &Ended, lines: &mut Lines<'_>) {
        let described = &ended.described.read().unwrap_or_else(PoisonError::into_inner);
        if ended.is_other {
            head(ended.thread.title.as_deref(), lines);
        }
        let depth = &ended.calls.depth;
        // Whatever is as deep or deeper was over when a call began.
        let mut before: Vec<usize> = Vec::new();
        for row in 0..ended.calls.len() {
            while let Some(&over) = before.last().filter(|&&before| depth[before] >= depth[row]) {
                before.pop();
                self.call(ended, over, described, lines);
            }
            before.push(row);
        }
        while let Some(over) = before.pop() {
            self.call(ended, over, described, lines);
        }
    }

    fn call(&mut self, ended: &Ended, row: usize, described: &[Described], lines: &mut Lines<'_>) {
        let records = &ended.calls;
        let depth = records.depth[row];
        if self.max_depth != 0 && depth >= self.max_depth {
            return;
        }
        let Described { known, shown: name } = &described[records.function[row] as usize];
        let (start, end) = (records.start_tsc[row], records.end_tsc[row]);
        let (own, all) = (records.instructions[row], records.instructions_total[row]);
        let (parent, at) = (records.parent[row], records.call_address[row]);
        let inlined = self.chains.is_some();
        let site: &[String] = match &mut self.chains {
            Some(chains) if parent != NO_PARENT && at != 0 => chains.at(&self.code, ended.epoch, at),
            _ => &[],
        };
        let form = lines.form;
        let line = lines.begin();
        if form == Form::Text {
            let _ = write!(line, "{start:>16}  {:>12}  {own:>14}  {all:>14}  ", end.saturating_sub(start));
            let _ = write!(line, "{:1$}", "", 2 * depth.min(MOST_INDENTED) as usize);
            if depth > MOST_INDENTED {
                let _ = write!(line, "[depth {depth}] ");
            }
            line.push_str(name.as_ref().unwrap_or(&known.name));
            let mut open = " (";
            for (_, _, shown) in FLAGS.iter().filter(|(bit, _, _)| records.flags[row] & bit != 0) {
                let _ = write!(line, "{open}{shown}");
                open = ", ";
            }
            if open == ", " {
                line.push(')');
            }
            if !site.is_empty() {
                let _ = write!(line, "  inlined: {}", escaped(&site.join(" > ")));
            }
        } else {
            let mut one = Row::new(form, line);
            who(&mut one, ended.thread.stream_at(end), &ended.thread);
            one.more("call", Value::Number(records.call[row]));
            one.more("parent", if parent == NO_PARENT { Value::Unknown } else { Value::Number(parent) });
            one.more("depth", Value::Number(depth.into())).more("start_tsc", Value::time(start));
            one.more("end_tsc", Value::time(end)).more("function", Value::Word(&known.name));
            one.more("module", Value::Word(&known.binary)).more("call_address", Value::address(at));
            one.more("target", Value::address(records.target[row])).more("self_instructions", Value::Number(own));
            one.more("total_instructions", Value::Number(all));
            for (bit, name, _) in FLAGS {
                one.more(name, Value::Flag(records.flags[row] & bit != 0));
            }
            if inlined {
                one.more("inlined", Value::Words(site));
            }
            one.end();
        }
        lines.end();
    }
}

fn head(title: Option<&str>, lines: &mut Lines<'_>) {
    if let Some(title) = title {
        lines.title(title);
    }
    if lines.form == Form::Text {
        let line = lines.begin();
        let _ = write!(line, "{:>16}  {:>12}  {:>14}  {:>14}  call", "tsc", "ticks", "instructions", "with callees");
        lines.end();
    }
}

/// Takes calls and keeps none: for those who want the functions alone.
pub struct Dropped;

impl Output for Dropped {
    fn rows(&self) -> usize {
        BATCH
    }

    fn take(&mut self, _batch: Batch<'_>) {}
}

/// Writes the functions, those with the most instructions of their own first. With `inlined` what was inlined into each
/// stands below it; their instructions are among its own.
pub fn functions(
    totals: &[FunctionTotals],
    code: &impl Code,
    categories: &Categories,
    inlined: Option<&Inlined>,
    thread: &Thread,
    lines: &mut Lines<'_>,
) {
    let streams = thread.all_streams();
    let mut order: Vec<_> = totals.iter().collect();
    order.sort_by_key(|one| (std::cmp::Reverse(one.self_instructions), one.space, one.function, one.address));
    if lines.form == Form::Text {
        let line = lines.begin();
        let _ = write!(line, "{:>12}  {:>14}  {:>14}  {:>12}  ", "calls", "instructions", "with callees", "ticks");
        let _ = write!(line, "{:>12}  {:<15}  function", "with callees", "category");
        lines.end();
    }
    for function in order {
        let known = &code.describe(function.space, function.function, function.address);
        let (own, all) = (function.self_instructions, function.total_instructions);
        let category = categories.of(&known.name, &known.binary);
        let form = lines.form;
        let line = lines.begin();
        if form == Form::Text {
            let module = escaped(known.binary.rsplit('/').next().unwrap_or_default());
            let _ = write!(line, "{:>12}  {own:>14}  {all:>14}  {:>12}  ", function.calls, function.self_ticks);
            let _ = write!(line, "{:>12}  {category:<15}  {} [{module}]", function.total_ticks, escaped(&known.name));
        } else {
            let mut one = Row::new(form, line);
            who(&mut one, &streams, thread);
            one.more("function", Value::Word(&known.name));
            one.more("module", Value::Word(&known.binary)).more("category", Value::Word(category));
            one.more("address", Value::Hex(known.address));
            one.more("size_bytes", Value::Number(known.size)).more("symbols", Value::Word(&known.symbol_status));
            one.more("calls", Value::Number(function.calls)).more("self_instructions", Value::Number(own));
            one.more("total_instructions", Value::Number(all)).more("self_ticks", Value::Number(function.self_ticks));
            one.more("total_ticks", Value::Number(function.total_ticks));
            one.end();
        }
        lines.end();
        let inside = inlined.map_or(Vec::new(), |inlined| inlined.inside(function.key()));
        for (chain, instructions) in inside {
            let line = lines.begin();
            if form == Form::Text {
                let _ =
                    write!(line, "{:>12}  {instructions:>14}  {:65}inlined: {}", "", "", escaped(&chain.join(" > ")));
            } else {
                let mut one = Row::new(form, line);
                who(&mut one, &streams, thread);
                one.more("function", Value::Word(&known.name)).more("module", Value::Word(&known.binary));
                one.more("inlined", Value::Words(chain)).more("self_instructions", Value::Number(instructions));
                one.end();
            }
            lines.end();
        }
    }
}

fn who(row: &mut Row<'_>, stream: &str, thread: &Thread) {
    row.more("stream", Value::Word(stream)).more("pid", Value::Number(thread.pid.into()));
    row.more("tid", Value::Number(thread.tid.into()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::write_calls;
    use pt_calls::Calls;
    use pt_flow::{Config, Flow};
    use pt_image::Image;
    use pt_packet::writer::write;
    use pt_packet::{Compression, Execution, Ip, Packet};

    /// call +1; ret; nop; ret: the call's target is the nop.
    const CODE: [u8; 8] = [0xe8, 1, 0, 0, 0, 0xc3, 0x90, 0xc3];

    fn thread() -> Thread {
        Thread { pid: 1, tid: 2, title: None, streams: vec![(0, "7".to_owned())] }
    }

    fn stream() -> Vec<u8> {
        let mut data = Vec::new();
        let at = |payload| Ip { compression: Compression::SignExtend48, payload };
        for packet in [
            Packet::Psb,
            Packet::Psbend,
            Packet::ModeExec { mode: Execution::Bits64, interrupt_flag: false },
            Packet::TipPge(at(0x1000)),
            Packet::Tnt { bits: 1, count: 1 },
            Packet::TipPgd(at(0x5000)),
        ] {
            write(&mut data, packet);
        }
        data
    }

    fn listed(form: Form, list: impl Fn(&Arc<Image>, &mut Lines<'_>)) -> Vec<String> {
        let mut image = Image::new();
        image.code(0, 0x1000, CODE.to_vec()).unwrap();
        let mut told = String::new();
        let mut lines = Lines::new(form, |batch| {
            told.push_str(&batch);
            true
        });
        list(&Arc::new(image), &mut lines);
        lines.flush();
        drop(lines);
        told.lines().map(str::to_owned).collect()
    }

    fn list_calls(image: &Arc<Image>, max_depth: u32, lines: &mut Lines<'_>) {
        let writer = || CallWriter { code: Arc::clone(image), max_depth, chains: None };
        write_calls(2, lines, writer, |page| {
            let mut calls = Calls::handing_out(image, CallListing::new(Arc::clone(image), thread(), page));
            Flow::new(image).decode(&stream(), &Config::default(), &[], &mut calls);
            calls.end_stream();
        });
    }

    fn list_functions(image: &Arc<Image>, lines: &mut Lines<'_>) {
        let mut calls = Calls::handing_out(image, Dropped);
        Flow::new(image).decode(&stream(), &Config::default(), &[], &mut calls);
        let totals = calls.end_stream();
        functions(&totals.functions, image, &Categories::new(), None, &thread(), lines);
    }

    #[test]
    fn a_call_stands_behind_those_that_it_made() {
        let told = listed(Form::Text, |image, lines| list_calls(image, 0, lines));
        assert_eq!(told.len(), 3);
        assert!(told[1].ends_with("2    [generated]+0x1006"), "{told:?}");
        assert!(told[2].ends_with("4  [generated]+0x1000 (began before)"), "{told:?}");
        let shallow = listed(Form::Json, |image, lines| list_calls(image, 1, lines));
        assert_eq!(shallow.len(), 1);
        let start = r#"{"stream":"7","pid":1,"tid":2,"call":"#;
        assert!(shallow[0].starts_with(start) && shallow[0].contains(r#","parent":null,"depth":0,"#), "{shallow:?}");
        let unknown = [r#""start_tsc":null,"end_tsc":null,"#, r#""call_address":null,"#];
        assert!(unknown.iter().all(|part| shallow[0].contains(part)), "{shallow:?}");
    }

    #[test]
    fn functions_come_with_their_totals() {
        let told = listed(Form::Text, list_functions);
        assert_eq!(told.len(), 3);
        assert!(told[1..].iter().any(|line| line.ends_with("[generated]+0x1006 [[generated]]")), "{told:?}");
        let json = listed(Form::Json, list_functions);
        assert!(json.iter().any(|row| row.contains(r#""calls":1,"self_instructions":2,"total_instructions":4"#)));
        assert!(json.iter().all(|row| row.contains(r#""category":"other""#)), "{json:?}");
    }
}
