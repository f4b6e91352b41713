//! The times of events.
//!
//! libipt's time of an event is its estimate as of the event's packets, which a later packet may correct backwards; here
//! the time told is the latest estimate so far. So each event's two times have to be those that stand behind one packet
//! of the stream, and those packets have to follow one another.

use super::flow::Compared;
use pt_flow::{Config, Time};
use pt_packet::Reader;

/// The number of events where libipt's time is behind one it had before.
pub fn compare(compared: &Compared, stream: &[u8], config: &Config) -> Result<u64, String> {
    let Compared { times, lost, .. } = compared;
    let mut time = Time::new(*config);
    let mut reader = Reader::with_errata(stream, config.errata);
    let (mut lost, mut behind) = (lost.iter().peekable(), 0);
    let mut event = times.iter().enumerate().peekable();
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
        while event.next_if(|(_, times)| **times == now).is_some() {
            behind += u64::from(now.0.is_some_and(|estimate| estimate < now.1));
        }
    }
    match event.next() {
        Some((number, (libipt, here))) => {
            Err(format!("the time of event {number}: libipt {libipt:x?}, here {here:x}: behind no packet from its own on"))
        }
        None => Ok(behind),
    }
}
