//! Threads of a traced kernel change where it switches them, wherever near it their epochs begin.

use crate::machine::Random;
use crate::side_by_side::{self, assert_same_traces};
use crate::truth::{decode_cores, Divided};
use crate::turns::{programs, Turns};
use pt_calls::Trace;
use pt_flow::Flow;
use pt_packet::{Packet, Reader};
use std::collections::BTreeMap;

/// Where packets begin between which nothing but branches is told, in stretches.
fn branches(stream: &[u8]) -> Vec<Vec<usize>> {
    let (mut reader, mut stretches) = (Reader::new(stream), vec![Vec::new()]);
    loop {
        let offset = reader.offset();
        match reader.read().expect("a packet") {
            Some(Packet::Tnt { .. } | Packet::Tip(_) | Packet::Pip { .. }) => {
                stretches.last_mut().expect("a stretch").push(offset);
            }
            Some(_) => stretches.push(Vec::new()),
            None => return stretches,
        }
    }
}

/// Epochs that begin some packets early or late; how many do.
fn moved(turns: &Turns, core: usize, random: &mut Random) -> (Vec<(usize, u32)>, usize) {
    let (epochs, mut moved, mut last, mut count) = (&turns.epochs[core], Vec::new(), 0, 0);
    let stretches = branches(&turns.cores[core]);
    for (number, &(offset, view)) in epochs.iter().enumerate() {
        // Behind the first branch of the one before, and in front of the last packet before the next one.
        let first_behind = |at: usize| stretches.iter().flatten().find(|&&branch| branch > at).map_or(at, |&at| at + 1);
        let from = number.checked_sub(1).map_or(0, |before| first_behind(epochs[before].0)).max(last + 1);
        let to = epochs.get(number + 1).map_or(turns.cores[core].len(), |next| next.0);
        let around = stretches.iter().find(|stretch| stretch.contains(&offset)).map_or(&[][..], Vec::as_slice);
        let near: Vec<_> = around.iter().copied().filter(|at| (from..to).contains(at)).collect();
        last = match near.len() {
            0 => offset,
            many => near[random.below(many)],
        };
        count += usize::from(last != offset);
        moved.push((last, view));
    }
    (moved, count)
}

#[test]
fn threads_change_where_the_kernel_switches_wherever_near_it_their_epochs_begin() {
    let mut count = 0;
    for seed in 1..=programs() {
        let mut turns = Turns::of_others(seed);
        let exact = {
            let codes = turns.codes();
            decode_cores(&mut Flow::new(&codes), &turns).0
        };
        let mut random = Random(seed | 1 << 42);
        for core in 0..2 {
            let (epochs, some) = moved(&turns, core, &mut random);
            (turns.epochs[core], count) = (epochs, count + some);
        }
        let (codes, what) = (turns.codes(), format!("{seed}: {:?}", turns.habits));
        let mut flow = Flow::new(&codes);
        for pass in 0..2 {
            let (traces, errors) = decode_cores(&mut flow, &turns);
            assert_eq!(errors, 0, "{what}");
            assert_same_traces(&traces, &exact, &format!("pass {pass}, {what}"));
        }
        let by_two = side_by_side::decode(&codes, &turns, 2, Divided);
        assert_same_traces(&by_two, &exact, &format!("by two flows, {what}"));
    }
    assert!(count as u64 > 20 * programs(), "{count}");
}

/// Where epochs begin far from where the kernel switches, flows wait for one another again and again.
#[test]
fn nothing_that_ran_is_nobodys_wherever_epochs_begin() {
    let ran =
        |traces: &BTreeMap<u32, Trace>| -> u64 { traces.values().flat_map(|trace| &trace.records.instructions).sum() };
    for seed in 1..=4 * programs() {
        let mut turns = Turns::of_others(seed);
        let mut random = Random(seed | 1 << 43);
        for (stream, epochs) in turns.cores.iter().zip(&mut turns.epochs) {
            for number in 1..epochs.len() {
                let end = epochs.get(number + 1).map_or(stream.len(), |next| next.0);
                let from = epochs[number - 1].0 + 1;
                epochs[number].0 = from + random.below(end.max(from + 1) - from);
            }
        }
        let (codes, what) = (turns.codes(), format!("{seed}: {:?}", turns.habits));
        let (in_turns, _) = decode_cores(&mut Flow::new(&codes), &turns);
        let by_two = side_by_side::decode(&codes, &turns, 2, Divided);
        assert_eq!(ran(&by_two), ran(&in_turns), "{what}");
    }
}
