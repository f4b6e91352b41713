//! The flow of any packets through any code ends; its time never goes back, its blocks and losses are within their bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pt_flow::{Block, CodeMemory, CodeSlice, Config, DisableKind, Flow, Loss, Sink};
use pt_fuzz::{code_and_stream, CODE};

struct Code<'c>(&'c [u8]);

impl CodeMemory for Code<'_> {
    fn read(&self, _epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        let bytes = self.0.get(usize::try_from(address.checked_sub(CODE)?).ok()?..)?;
        (!bytes.is_empty()).then_some(CodeSlice { bytes, generation: 1 })
    }
}

struct Bounds<'c> {
    code: &'c [u8],
    stream: usize,
    tsc: u64,
    lost: usize,
}

impl Bounds<'_> {
    fn at(&mut self, tsc: u64) {
        assert!(tsc >= self.tsc, "time goes back from {} to {tsc}", self.tsc);
        self.tsc = tsc;
    }
}

impl Sink for Bounds<'_> {
    fn block(&mut self, block: &Block<'_>, tsc: u64) {
        self.at(tsc);
        assert!(block.start >= CODE && block.end <= CODE + self.code.len() as u64, "{block:x?}");
        assert_eq!(block.lengths.len(), block.instructions as usize);
        assert_eq!(block.lengths.iter().map(|&length| u64::from(length)).sum::<u64>(), block.end - block.start);
    }

    fn enabled(&mut self, _ip: u64, _resumed: bool, tsc: u64) {
        self.at(tsc);
    }

    fn disabled(&mut self, _kind: DisableKind, _at: u64, _target: Option<u64>, tsc: u64) {
        self.at(tsc);
    }

    fn interrupt(&mut self, _from: u64, _to: u64, tsc: u64) {
        self.at(tsc);
    }

    fn loss(&mut self, loss: &Loss) {
        assert!(loss.offset + loss.size <= self.stream && loss.tsc0 <= loss.tsc1, "{loss:?}");
        self.lost += loss.size;
    }

    fn overflow(&mut self, offset: usize, _from: Option<u64>, tsc: u64) {
        assert!(offset < self.stream);
        self.at(tsc);
    }
}

fuzz_target!(|input: &[u8]| {
    let (code, stream) = code_and_stream(input);
    let config = Config { mtc_freq: 3, tsc_ctc_ratio: (168, 2), nominal_ratio: 20, ..Config::default() };
    let mut bounds = Bounds { code, stream: stream.len(), tsc: 0, lost: 0 };
    let statistics = Flow::new(Code(code)).decode(stream, &config, &[], &mut bounds);
    assert!(bounds.lost <= stream.len());
    assert_eq!(statistics.lost_bytes, bounds.lost as u64);
});
