//! A stream by turns has what it has alone.

use crate::flow::{full, psb_plus, stream};
use crate::support::{Recorder, Sections};
use pt_flow::{Config, Flow, InTurn, InTurns, Turns};
use pt_packet::Packet;

impl InTurns for Recorder {
    type Common = ();

    fn exchange(&mut self, (): &mut ()) {}
    fn begins(&mut self, _: u32) {}
    fn pauses(&mut self) {}
    fn over(&mut self) {}
}

/// Whether the only one is not over.
struct OfOne(bool);

impl Turns for OfOne {
    fn stands(&mut self, _: usize, _: u32, _: u64) {}

    fn over(&mut self, _: usize) {
        self.0 = false;
    }

    fn next(&mut self) -> Option<usize> {
        self.0.then_some(0)
    }
}

#[test]
fn nothing_goes_on_behind_the_last_loss() {
    // NOP, JMP RAX.
    let memory = Sections([(0x1000, vec![0x90, 0xff, 0xe0])].into());
    let target = |address| Packet::Tip(full(address));
    let mut packets = psb_plus(Some(0x1000));
    packets.extend([target(0x1000), target(0x1000), target(0x9000)]);
    let epochs = [(0, 0), (stream(&packets).len(), 1)];
    // Nothing is known where it goes, in either epoch.
    packets.push(target(0xa000));
    for behind in [&[][..], &[0x05; 2]] {
        let data = [&stream(&packets), behind].concat();
        let (mut alone, mut by_turns) = (Recorder::default(), Recorder::default());
        let counts = Flow::new(&memory).decode(&data, &Config::default(), &epochs, &mut alone);
        let mut epochs = epochs.into_iter();
        let streams = vec![InTurn { data: &data, missing: &[], epochs: &mut epochs, sink: &mut by_turns }];
        let told = Flow::new(&memory).decode_in_turns(&Config::default(), streams, &mut (), &mut OfOne(true));
        assert_eq!((&by_turns.told, told), (&alone.told, vec![counts]));
    }
}
