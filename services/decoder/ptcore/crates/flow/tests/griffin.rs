//! Real traces of Intel processors, against counts that libipt gives.

use crate::support::{self, Addresses};
use pt_flow::{Config, Flow, Statistics};

struct Counts {
    bytes: usize,
    instructions: u64,
    conditional_branches: u64,
    returns: u64,
    tnt_bits: u64,
}

fn decode(name: &str) -> Option<(Statistics, usize, Addresses)> {
    let griffin = support::griffin(name)?;
    assert_eq!(griffin.streams.len(), 1, "{name} has one thread");
    let stream = griffin.streams.values().next()?;
    let mut sink = Addresses::default();
    let statistics = Flow::new(&griffin.memory).decode(stream, &Config::default(), &[], &mut sink);
    println!("{name}: {statistics:?}");
    assert_eq!(sink.addresses.len() as u64, statistics.instructions);
    Some((statistics, stream.len(), sink))
}

fn check(name: &str, counts: Counts) {
    let Some((statistics, bytes, sink)) = decode(name) else { return };
    assert_eq!(sink.losses, [], "{name}");
    assert_eq!(bytes, counts.bytes, "{name}: bytes");
    assert_eq!(statistics.instructions, counts.instructions, "{name}: instructions");
    assert_eq!(statistics.conditional_branches, counts.conditional_branches, "{name}: conditional branches");
    assert_eq!(statistics.returns, counts.returns, "{name}: returns");
    assert_eq!(statistics.tnt_bits, counts.tnt_bits, "{name}: TNT bits");
    assert_eq!(statistics.tnt_bits, statistics.conditional_branches + statistics.compressed_returns);
}

#[test]
fn last() {
    check(
        "last",
        Counts {
            bytes: 171_568,
            instructions: 1_873_231,
            conditional_branches: 314_466,
            returns: 28_638,
            tnt_bits: 341_137,
        },
    );
}

#[test]
fn ovf_01_ben() {
    check(
        "ovf-01-ben",
        Counts { bytes: 9_024, instructions: 176_141, conditional_branches: 33_970, returns: 827, tnt_bits: 34_713 },
    );
}

#[test]
fn cve_2004_0597_poc() {
    check(
        "cve-2004-0597-poc",
        Counts { bytes: 24_416, instructions: 472_852, conditional_branches: 76_082, returns: 3_490, tnt_bits: 79_302 },
    );
}

#[test]
fn cve_2005_0105_poc() {
    check(
        "cve-2005-0105-poc",
        Counts {
            bytes: 31_600,
            instructions: 671_163,
            conditional_branches: 106_853,
            returns: 5_982,
            tnt_bits: 112_666,
        },
    );
}

#[test]
fn the_others_decode_without_loss() {
    for name in ["hello", "uaf-04-ben"] {
        let Some((statistics, _, sink)) = decode(name) else { return };
        assert_eq!(sink.losses, [], "{name}");
        assert_eq!(statistics.tnt_bits, statistics.conditional_branches + statistics.compressed_returns);
    }
}

#[test]
fn a_damaged_trace_loses_what_is_damaged_and_goes_on() {
    let Some(griffin) = support::griffin("last") else { return };
    let stream = griffin.streams.values().next().unwrap();
    let mut flow = Flow::new(&griffin.memory);
    let whole = flow.decode(stream, &Config::default(), &[], &mut Addresses::default()).instructions;
    for round in 0..40 {
        let mut damaged = stream.clone();
        let at = round * damaged.len() / 40;
        damaged[at] ^= 1 << (round % 8);
        let mut sink = Addresses::default();
        let statistics = flow.decode(&damaged, &Config::default(), &[], &mut sink);
        let lost: usize = sink.losses.iter().map(|loss| loss.size).sum();
        assert_eq!(statistics.lost_bytes, lost as u64);
        assert!(sink.losses.iter().all(|loss| loss.offset + loss.size <= damaged.len()));
        // At most the stretch between two PSBs (every tenth of this trace or so) may go with one damaged byte.
        assert!(statistics.instructions > whole / 2, "round {round}: {statistics:?}");
    }
}
