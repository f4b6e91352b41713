//! The calls of a stream as a tree, and its functions as a table.

use crate::{Code, Form, Inlined, Lines, Row, Value};
use pt_calls::{Records, Trace, ASYNCHRONOUS, BEGIN_TRUNCATED, END_TRUNCATED, NO_PARENT, TAIL_CALL, UNWOUND};
use pt_image::{Categories, Description};
use std::fmt::Write;

const FLAGS: [(u8, &str, &str); 5] = [
    (BEGIN_TRUNCATED, "begin_truncated", "began before"),
    (END_TRUNCATED, "end_truncated", "not over"),
    (TAIL_CALL, "tail_call", "tail call"),
    (ASYNCHRONOUS, "asynchronous", "signal"),
    (UNWOUND, "unwound", "unwound"),
];

/// Writes the calls in the order in which they began, each deeper than its caller; those deeper than `max_depth` callers
/// are left out (0: none). With `inlined` each says in which inlined functions of its caller the call stands.
pub fn calls(
    trace: &Trace,
    code: &impl Code,
    inlined: Option<&Inlined>,
    stream: &str,
    thread: (u32, u32),
    max_depth: u32,
    lines: &mut Lines<'_>,
) {
    let described = describe(trace, code);
    if lines.form == Form::Text {
        let line = lines.begin();
        let _ = write!(line, "{:>16}  {:>12}  {:>14}  {:>14}  call", "tsc", "ticks", "instructions", "with callees");
        lines.end();
    }
    let records = &trace.records;
    for row in 0..records.len() {
        let depth = records.depth[row];
        if max_depth != 0 && depth >= max_depth {
            continue;
        }
        let known = &described[records.function[row] as usize];
        let (start, end) = (records.start_tsc[row], records.end_tsc[row]);
        let (own, all) = (records.instructions[row], records.instructions_total[row]);
        let parent = records.parent[row];
        let site = inlined.zip(trace.functions.get(parent_function(records, row)));
        let site = site.map_or(&[][..], |(inlined, caller)| inlined.at(caller.space, records.call_address[row]));
        let form = lines.form;
        let line = lines.begin();
        if form == Form::Text {
            let _ = write!(line, "{start:>16}  {:>12}  {own:>14}  {all:>14}  ", end.saturating_sub(start));
            let _ = write!(line, "{:1$}{2}", "", 2 * depth as usize, known.name);
            let mut open = " (";
            for (_, _, shown) in FLAGS.iter().filter(|(bit, _, _)| records.flags[row] & bit != 0) {
                let _ = write!(line, "{open}{shown}");
                open = ", ";
            }
            if open == ", " {
                line.push(')');
            }
            if !site.is_empty() {
                let _ = write!(line, "  inlined: {}", site.join(" > "));
            }
        } else {
            let mut one = Row::new(form, line);
            who(&mut one, stream, thread);
            one.more("call", Value::Number(row as u64));
            one.more("parent", if parent == NO_PARENT { Value::Unknown } else { Value::Number(parent.into()) });
            one.more("depth", Value::Number(depth.into())).more("start_tsc", Value::Number(start));
            one.more("end_tsc", Value::Number(end)).more("function", Value::Word(&known.name));
            one.more("module", Value::Word(&known.binary)).more("call_address", Value::Hex(records.call_address[row]));
            one.more("target", Value::Hex(records.target[row])).more("self_instructions", Value::Number(own));
            one.more("total_instructions", Value::Number(all));
            for (bit, name, _) in FLAGS {
                one.more(name, Value::Flag(records.flags[row] & bit != 0));
            }
            if inlined.is_some() {
                one.more("inlined", Value::Words(site));
            }
            one.end();
        }
        lines.end();
    }
}

/// The function that made the call; one that cannot be where nobody is known.
fn parent_function(records: &Records, row: usize) -> usize {
    match records.parent[row] {
        NO_PARENT => usize::MAX,
        parent => records.function[parent as usize] as usize,
    }
}

/// Writes the functions, those with the most instructions of their own first. With `inlined` what was inlined into each
/// stands below it; their instructions are among its own.
pub fn functions(
    trace: &Trace,
    code: &impl Code,
    categories: &Categories,
    inlined: Option<&Inlined>,
    stream: &str,
    thread: (u32, u32),
    lines: &mut Lines<'_>,
) {
    let described = describe(trace, code);
    let mut order: Vec<_> = (0..trace.functions.len()).collect();
    order.sort_by_key(|&number| std::cmp::Reverse(trace.functions[number].self_instructions));
    if lines.form == Form::Text {
        let line = lines.begin();
        let _ = write!(line, "{:>12}  {:>14}  {:>14}  {:>12}  ", "calls", "instructions", "with callees", "ticks");
        let _ = write!(line, "{:>12}  {:<15}  function", "with callees", "category");
        lines.end();
    }
    for number in order {
        let (function, known) = (&trace.functions[number], &described[number]);
        let (own, all) = (function.self_instructions, function.total_instructions);
        let category = categories.of(&known.name, &known.binary);
        let form = lines.form;
        let line = lines.begin();
        if form == Form::Text {
            let module = known.binary.rsplit('/').next().unwrap_or_default();
            let _ = write!(line, "{:>12}  {own:>14}  {all:>14}  {:>12}  ", function.calls, function.self_ticks);
            let _ = write!(line, "{:>12}  {category:<15}  {} [{module}]", function.total_ticks, known.name);
        } else {
            let mut one = Row::new(form, line);
            who(&mut one, stream, thread);
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
                let _ = write!(line, "{:>12}  {instructions:>14}  {:65}inlined: {}", "", "", chain.join(" > "));
            } else {
                let mut one = Row::new(form, line);
                who(&mut one, stream, thread);
                one.more("function", Value::Word(&known.name)).more("module", Value::Word(&known.binary));
                one.more("inlined", Value::Words(chain)).more("self_instructions", Value::Number(instructions));
                one.end();
            }
            lines.end();
        }
    }
}

fn who(row: &mut Row<'_>, stream: &str, (pid, tid): (u32, u32)) {
    row.more("stream", Value::Word(stream)).more("pid", Value::Number(pid.into()));
    row.more("tid", Value::Number(tid.into()));
}

fn describe(trace: &Trace, code: &impl Code) -> Vec<Description> {
    let known =
        |function: &pt_calls::FunctionTotals| code.describe(function.space, function.function, function.address);
    trace.functions.iter().map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_calls::Calls;
    use pt_flow::{Config, Flow};
    use pt_image::Image;
    use pt_packet::writer::write;
    use pt_packet::{Compression, Execution, Ip, Packet};

    /// call +1; ret; nop; ret: the call's target is the nop.
    const CODE: [u8; 8] = [0xe8, 1, 0, 0, 0, 0xc3, 0x90, 0xc3];

    fn listed(form: Form, list: impl Fn(&Trace, &Image, &mut Lines<'_>)) -> Vec<String> {
        let mut image = Image::new();
        image.code(0, 0x1000, CODE.to_vec()).unwrap();
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
        let mut sink = Calls::new(&image);
        Flow::new(&image).decode(&data, &Config::default(), &[], &mut sink);
        let trace = sink.finish();
        let mut told = String::new();
        let mut lines = Lines::new(form, |batch| {
            told.push_str(&batch);
            true
        });
        list(&trace, &image, &mut lines);
        lines.flush();
        drop(lines);
        told.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_call_stands_under_its_caller() {
        let told = listed(Form::Text, |trace, image, lines| calls(trace, image, None, "7", (1, 2), 0, lines));
        assert_eq!(told.len(), 3);
        assert!(told[1].ends_with("4  [generated]+0x1000 (began before, not over)"), "{told:?}");
        assert!(told[2].ends_with("2    [generated]+0x1006"), "{told:?}");
        let shallow = listed(Form::Json, |trace, image, lines| calls(trace, image, None, "7", (1, 2), 1, lines));
        assert_eq!(shallow.len(), 1);
        let start = r#"{"stream":"7","pid":1,"tid":2,"call":0,"parent":null,"depth":0,"#;
        assert!(shallow[0].starts_with(start), "{shallow:?}");
    }

    #[test]
    fn functions_come_with_their_totals() {
        let told = listed(Form::Text, |trace, image, lines| {
            functions(trace, image, &Categories::new(), None, "7", (1, 2), lines)
        });
        assert_eq!(told.len(), 3);
        assert!(told[1..].iter().any(|line| line.ends_with("[generated]+0x1006 [[generated]]")), "{told:?}");
        let json = listed(Form::Json, |trace, image, lines| {
            functions(trace, image, &Categories::new(), None, "7", (1, 2), lines)
        });
        assert!(json.iter().any(|row| row.contains(r#""calls":1,"self_instructions":2,"total_instructions":4"#)));
        assert!(json.iter().all(|row| row.contains(r#""category":"other""#)), "{json:?}");
    }
}
