//! The times of events.
//!
//! libipt's time of an event is its estimate as of the event's first packet, which a later packet may correct backwards;
//! here the time told is the latest estimate so far, as of the event's last packet. So each event's two times have to be
//! those that stand behind one packet of the stream, or behind a FUP and the TIP or TIP.PGD that belongs to it, and these
//! packets have to follow one another.

use super::flow::{Compared, Times};
use pt_flow::{Config, Time};
use pt_packet::{Packet, Reader};

/// The number of events where libipt's time is behind one it had before.
pub fn compare(compared: &Compared, stream: &[u8], config: &Config) -> Result<u64, String> {
    let Compared { times, lost, .. } = compared;
    let mut time = Time::new(*config);
    let mut reader = Reader::with_errata(stream, config.errata);
    let losses = lost.len();
    let (mut lost, mut behind) = (lost.iter().peekable(), 0);
    let mut event = times.iter().enumerate().peekable();
    let mut at_fup = None;
    loop {
        if let Some(range) = lost.next_if(|range| range.start <= reader.offset()) {
            reader.seek(range.end);
        }
        let offset = reader.offset();
        let Ok(Some(packet)) = reader.read() else {
            // A bad packet begins a loss.
            match lost.peek() {
                Some(range) if range.start >= offset && range.end > offset => continue,
                _ => break,
            }
        };
        time.take(&packet);
        let now = match time.now() {
            0 => (None, 0),
            now => (Some(time.estimate()), now),
        };
        let (pair, fup) = match packet {
            Packet::Fup(_) => (None, Some(now.0)),
            Packet::Tip(_) | Packet::TipPgd(_) => (at_fup, None),
            Packet::Cyc(_) | Packet::Mtc(_) | Packet::Tsc(_) | Packet::Tma { .. } | Packet::Pad => (None, at_fup),
            Packet::ModeExec { .. } | Packet::Pip { .. } | Packet::Vmcs(_) | Packet::Cbr { .. } => (None, at_fup),
            _ => (None, None),
        };
        at_fup = fup;
        let fits = |times: &Times| *times == now || pair.is_some_and(|estimate| *times == (estimate, now.1));
        while let Some((_, (libipt, here))) = event.next_if(|(_, times)| fits(times)) {
            behind += u64::from(libipt.is_some_and(|estimate| estimate < *here) && pair.is_none());
        }
    }
    match event.next() {
        Some((number, (libipt, here))) => Err(format!(
            "the time of event {number}, {losses} losses: libipt {libipt:x?}, here {here:x}: behind no packet from its own on"
        )),
        None => Ok(behind),
    }
}
