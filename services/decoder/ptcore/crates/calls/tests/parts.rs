//! A stream that several threads decode is the same as one that one thread decodes, however it is divided.

use crate::support;
use pt_calls::Coverage;
use pt_flow::{decode_in_parts, Config, Flow, Statistics, Stream, Workers};

const TRACES: [&str; 6] = ["last", "ovf-01-ben", "hello", "uaf-04-ben", "cve-2004-0597-poc", "cve-2005-0105-poc"];

type Edges = std::collections::BTreeMap<pt_calls::Edge, u64>;

fn in_parts(memory: &support::Sections, stream: Stream<'_>, workers: Workers) -> (Statistics, Edges, usize) {
    let (mut edges, mut parts) = (Edges::new(), 0);
    let fold = |part: Vec<(pt_calls::Edge, u64)>| {
        parts += 1;
        part.into_iter().for_each(|(edge, count)| *edges.entry(edge).or_default() += count);
    };
    let statistics = decode_in_parts(memory, stream, workers, Coverage::default, |_, coverage| coverage.finish(), fold);
    (statistics, edges, parts)
}

fn compare(name: &str, memory: &support::Sections, data: &[u8], sizes: &[usize]) -> usize {
    let mut most = 0;
    for resume_at_address in [false, true] {
        let config = Config { resume_at_address, ..Config::default() };
        for epochs in [&[][..], &[(data.len() / 5, 1), (data.len() / 2, 2)]] {
            let mut coverage = Coverage::default();
            let statistics = Flow::new(memory).decode(data, &config, epochs, &mut coverage);
            let edges: Edges = coverage.finish().into_iter().collect();
            for &part_bytes in sizes {
                for threads in [1, 3] {
                    let stream = Stream { data, config: &config, epochs, missing: &[] };
                    let (counts, found, parts) = in_parts(memory, stream, Workers { threads, part_bytes });
                    let what = format!("{name}: {threads} threads, parts of {part_bytes} bytes");
                    assert_eq!(counts, statistics, "{what}");
                    assert!(found == edges, "{what}: edges");
                    most = most.max(parts);
                }
            }
        }
    }
    most
}

#[test]
fn real_traces_are_the_same_by_several_threads() {
    let mut parts = 0;
    for name in TRACES {
        let Some(griffin) = support::griffin(name) else { return };
        for stream in griffin.streams.values() {
            parts += compare(name, &griffin.memory, stream, &[1, 1000, 20_000]);
        }
    }
    assert!(parts > 20, "{parts} parts");
}

#[test]
fn damaged_traces_are_the_same_by_several_threads() {
    for name in TRACES {
        let Some(griffin) = support::griffin(name) else { return };
        let stream = griffin.streams.values().next().unwrap();
        for round in 0..12 {
            let mut damaged = stream.clone();
            for place in 0..=round {
                let at = (place * 2 + 1 + round) * damaged.len() / 50;
                damaged[at] ^= 1 << ((round + place) % 8);
            }
            compare(&format!("{name}, round {round}"), &griffin.memory, &damaged, &[1, 5000]);
        }
    }
}
