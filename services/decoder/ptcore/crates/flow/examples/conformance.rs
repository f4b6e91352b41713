//! The table of `docs/pt-conformance.md`, which says how it is made.

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/vectors/mod.rs"]
mod vectors;

use vectors::{Case, Verdict};

fn main() {
    let Some(cases) = vectors::cases(support::reference_data()) else { std::process::exit(1) };
    let rows: Vec<_> = cases.iter().map(|case| (case, case.run())).collect();
    let packets = rows.iter().filter(|(_, outcome)| outcome.packets.is_ok()).count();
    let listed = rows.iter().filter(|(_, outcome)| outcome.flow.is_some()).count();
    let timed = rows.iter().filter(|(_, outcome)| outcome.times.is_some()).count();
    let times = rows.iter().filter(|(_, outcome)| matches!(outcome.times, Some(Ok(())))).count();
    let flow = rows.iter().filter(|(_, outcome)| matches!(outcome.flow, Some(Ok(())))).count();
    println!("{}", HEAD.trim_end());
    println!("\nPackets: {packets} of {} cases. Flow: {flow} of {listed} that have a flow listing. Times: {times} of {timed}.\n", rows.len());
    println!("| case | processors | packets | flow | times |\n| --- | ---: | --- | --- | --- |");
    for (case, outcome) in &rows {
        println!(
            "| `{}` | {} | {} | {} | {} |",
            case.name,
            case.processors(),
            told(case, &outcome.packets),
            outcome.flow.as_ref().map_or("not listed".to_owned(), |verdict| told(case, verdict)),
            outcome.times.as_ref().map_or("not listed".to_owned(), |verdict| told(case, verdict))
        );
    }
    print!("{TAIL}");
}

/// Written by hand: what needs libipt or a recorder to be found out.
const TAIL: &str = include_str!("conformance.md");

fn told(case: &Case, verdict: &Verdict) -> String {
    match (verdict, case.otherwise()) {
        (Ok(()), _) => "same".to_owned(),
        (Err(_), Some(why)) => format!("otherwise: {why}"),
        (Err(why), None) => format!("DIFFERENT: {}", why.replace('|', "/")),
    }
}

const HEAD: &str = r"# Conformance of the Processor Trace decoder

libipt comes with hand-made packet streams and what its tools list for them: one line a packet, and one line an
instruction or event. `services/decoder/ptcore/crates/flow/tests/conformance.rs` decodes each and compares line for line,
for each processor that has a listing of its own (errata). This table is made, from `services/decoder/ptcore`, by

    cargo run --example conformance -p pt-flow > ../../../docs/pt-conformance.md

Compared are offsets, packets and payloads with completed addresses, and at the flow level every instruction, whether it
ran in a transaction, and every event with its data, in order. Lines of perf's records are inputs to the flow (they say
where the code is). Not compared are the places of `[block]` and `[end of trace]`, which are choices of the tool, the
offsets of errors in the flow, and the instruction that libipt lists although the packets do not tell where it went.
Times are those beside the packets; the clock ratios a listing was made with are not in it, so that setting is looked for
under which each of its times comes out.
";
