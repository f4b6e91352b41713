//! A stream as of a processor that had nowhere to put its packets now and then.

use crate::input::Input;
use pt_packet::{find_psb, Packet, Reader, OVF};

/// FUP with an address of eight bytes.
const FUP: u8 = 0xdd;

/// Puts an overflow in front of a PSB every so many bytes; execution goes on where that PSB says.
pub fn put_into(input: &mut Input, every: usize) {
    let (mut stream, mut places) = (Vec::new(), Vec::new());
    let mut copied = 0;
    while let Some(psb) = find_psb(&input.stream, copied + every) {
        stream.extend_from_slice(&input.stream[copied..psb]);
        copied = psb;
        let Some(address) = address(&input.stream[psb..]) else { continue };
        stream.extend_from_slice(&OVF);
        stream.push(FUP);
        stream.extend_from_slice(&address.to_le_bytes());
        places.push(psb);
    }
    stream.extend_from_slice(&input.stream[copied..]);
    let size = (stream.len() - input.stream.len()) / places.len().max(1);
    for (offset, _) in &mut input.epochs {
        *offset += size * places.partition_point(|place| place < offset);
    }
    input.stream = stream;
}

/// Where the PSB in front says that execution is.
fn address(data: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(data);
    reader.synchronize()?;
    loop {
        match reader.read() {
            Ok(Some(Packet::Fup(ip))) => return ip.resolve(0),
            Ok(Some(Packet::Psbend)) | Ok(None) | Err(_) => return None,
            Ok(Some(_)) => {}
        }
    }
}
