//! Packets are within the bytes, one behind the other, and what is none is skipped to a PSB.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pt_packet::Reader;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = Reader::new(bytes);
    let mut before = 0;
    loop {
        match reader.read() {
            Ok(None) => break,
            Ok(Some(packet)) => {
                assert!(reader.offset() > before && reader.offset() <= bytes.len(), "{packet:?}");
                before = reader.offset();
            }
            Err(error) => {
                assert!(error.offset >= before && error.offset < bytes.len(), "{error:?}");
                reader.seek(error.offset + 1);
                let Some(psb) = reader.synchronize() else { break };
                assert!(psb > error.offset);
                before = psb;
            }
        }
    }
});
