//! Where a stream is of a virtual machine's guest: the processor traces into it unless its host conceals that, and PIP packets
//! say whether what follows runs in VMX non-root operation (SDM, section "Paging Information (PIP) Packet").

use crate::attribute::AHEAD;
use pt_packet::{Errata, Packet, Reader, PSB};

/// In place of the epoch of the kernel's image: neither the kernel nor the process is the host's.
pub const GUEST: u32 = u32::MAX;

const PIP: [u8; 2] = [0x02, 0x43];

/// From which offset on a guest runs or the host does, the latter at first; now and then what still holds, as
/// [`Placing`](crate::attribute::Placing).
///
/// Where the host runs, streams are searched for what may say that a guest does, and read from the PSB in front of that on.
pub struct Guests<'d> {
    data: &'d [u8],
    errata: Errata,
    /// Reads where a guest may run.
    reader: Option<Reader<'d>>,
    /// What was searched, or what may have said that a guest runs.
    searched: usize,
    /// The last PSB known, and up to where one was looked for.
    psb: Option<usize>,
    looked: usize,
    inside: bool,
    /// How often guests ran so far.
    pub ran: usize,
}

impl<'d> Guests<'d> {
    pub fn new(data: &'d [u8], errata: Errata) -> Self {
        Guests { data, errata, reader: None, searched: 0, psb: None, looked: 0, inside: false, ran: 0 }
    }

    /// Searches on, up to where it may be that a guest runs.
    fn search(&mut self) {
        let end = self.searched.saturating_add(AHEAD).min(self.data.len());
        let window = &self.data[self.searched..end.saturating_add(PIP.len()).min(self.data.len())];
        let non_root = |&at: &usize| window.get(at + PIP.len()).is_some_and(|byte| byte & 1 != 0);
        let Some(found) = memchr::memmem::find_iter(window, &PIP).find(non_root).map(|at| self.searched + at) else {
            self.searched = end;
            return;
        };
        self.searched = found + 1;
        let psb = memchr::memmem::rfind(&self.data[self.looked..found], &PSB).map(|psb| self.looked + psb);
        self.psb = psb.or(self.psb);
        self.looked = self.looked.max(found.saturating_sub(PSB.len() - 1));
        self.reader = self.psb.map(|psb| {
            let mut reader = Reader::with_errata(self.data, self.errata);
            reader.seek(psb);
            reader
        });
    }
}

impl Iterator for Guests<'_> {
    type Item = (usize, bool);

    fn next(&mut self) -> Option<(usize, bool)> {
        let Some(reader) = &mut self.reader else {
            let from = self.searched;
            if from >= self.data.len() {
                return None;
            }
            self.search();
            return Some((from, false));
        };
        let until = reader.offset().saturating_add(AHEAD);
        while reader.offset() < until {
            match reader.read_behind_pads() {
                Ok(Some((offset, Packet::Pip { non_root, .. }))) if non_root != self.inside => {
                    self.inside = non_root;
                    self.ran += usize::from(non_root);
                    return Some((offset, non_root));
                }
                Ok(Some((offset, Packet::Psb))) if !self.inside && offset >= self.searched => {
                    (self.reader, self.searched, self.looked, self.psb) = (None, offset, offset, Some(offset));
                    return Some((offset, false));
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    (self.reader, self.searched) = (None, self.data.len());
                    return None;
                }
                Err(_) => drop(reader.resynchronize()),
            }
        }
        Some((reader.offset(), self.inside))
    }
}

/// Views of the host with `guest` wherever one runs.
pub struct BesideGuests<H: Iterator, G: Iterator> {
    pub host: H,
    pub guests: G,
    next_host: Option<H::Item>,
    next_guest: Option<G::Item>,
    view: u32,
    inside: bool,
    guest: u32,
}

impl<H: Iterator<Item = (usize, u32)>, G: Iterator<Item = (usize, bool)>> BesideGuests<H, G> {
    pub fn new(mut host: H, mut guests: G, guest: u32) -> Self {
        let (next_host, next_guest) = (host.next(), guests.next());
        BesideGuests { host, guests, next_host, next_guest, view: guest, inside: false, guest }
    }
}

impl<H: Iterator<Item = (usize, u32)>, G: Iterator<Item = (usize, bool)>> Iterator for BesideGuests<H, G> {
    type Item = (usize, u32);

    fn next(&mut self) -> Option<(usize, u32)> {
        let (host, guest) = (self.next_host.map(|one| one.0), self.next_guest.map(|one| one.0));
        let at = host.into_iter().chain(guest).min()?;
        while let Some((_, next)) = self.next_host.filter(|one| one.0 == at) {
            (self.view, self.next_host) = (next, self.host.next());
        }
        while let Some((_, next)) = self.next_guest.filter(|one| one.0 == at) {
            (self.inside, self.next_guest) = (next, self.guests.next());
        }
        Some((at, if self.inside { self.guest } else { self.view }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_packet::writer;

    /// Where it changes.
    fn guests(data: &[u8]) -> Vec<(usize, bool)> {
        let mut all: Vec<_> = Guests::new(data, Errata::default()).collect();
        assert!(all.is_sorted());
        all.dedup_by_key(|&mut (_, inside)| inside);
        all
    }

    fn with_guests(host: &[(usize, u32)], guests: &[(usize, bool)], guest: u32) -> Vec<(usize, u32)> {
        let mut views: Vec<_> = BesideGuests::new(host.iter().copied(), guests.iter().copied(), guest).collect();
        views.dedup_by_key(|&mut (_, view)| view);
        views
    }

    #[test]
    fn pips_say_where_a_guest_runs() {
        let pip = |non_root| Packet::Pip { cr3: 0x5000, non_root };
        let mut data = Vec::new();
        let mut at = Vec::new();
        for packet in
            [Packet::Psb, Packet::Psbend, pip(false), pip(true), Packet::Pad, pip(true), pip(false), pip(true)]
        {
            at.push(data.len());
            writer::write(&mut data, packet);
        }
        assert_eq!(guests(&data), [(0, false), (at[3], true), (at[6], false), (at[7], true)]);
        assert_eq!(guests(&data[..at[3]]), [(0, false)]);
    }

    #[test]
    fn a_packet_that_an_erratum_spoiled_hides_no_guest() {
        let mut data = Vec::new();
        [Packet::Psb, Packet::Psbend].into_iter().for_each(|packet| writer::write(&mut data, packet));
        data.extend([0x02, 0x73, 1, 2, 0xff, 4, 0]);
        let at = data.len();
        writer::write(&mut data, Packet::Pip { cr3: 0x5000, non_root: true });
        let guests = |errata| Guests::new(&data, errata).find(|&(_, inside)| inside);
        assert_eq!(guests(Errata { skz84: true, ..Errata::default() }), Some((at, true)));
        assert_eq!(guests(Errata::default()), None);
    }

    #[test]
    fn a_guest_runs_whoever_of_the_host_did() {
        let guests = [(10, true), (20, false), (30, true), (40, false)];
        let views = with_guests(&[(0, 1), (15, 2), (20, 3), (25, 4), (30, 5)], &guests, 9);
        assert_eq!(views, [(0, 1), (10, 9), (20, 3), (25, 4), (30, 9), (40, 5)]);
        assert_eq!(with_guests(&[(0, 1)], &[], 9), [(0, 1)]);
    }
}
