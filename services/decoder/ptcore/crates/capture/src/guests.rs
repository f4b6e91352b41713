//! Where a stream is of a virtual machine's guest: the processor traces into it unless its host conceals that, and PIP packets
//! say whether what follows runs in VMX non-root operation (SDM, section "Paging Information (PIP) Packet").

use pt_packet::{Packet, Reader};

/// In place of the epoch of the kernel's image: neither the kernel nor the process is the host's.
pub const GUEST: u32 = u32::MAX;

const PIP: [u8; 2] = [0x02, 0x43];

/// From which offsets on a guest runs, and from which the host does again; begins with the host.
pub fn guests(data: &[u8]) -> Vec<(usize, bool)> {
    let non_root = |&at: &usize| data.get(at + PIP.len()).is_some_and(|byte| byte & 1 != 0);
    if memchr::memmem::find_iter(data, &PIP).find(non_root).is_none() {
        return Vec::new();
    }
    let (mut turns, mut inside) = (Vec::new(), false);
    let mut reader = Reader::new(data);
    reader.synchronize();
    loop {
        let offset = reader.offset();
        match reader.read() {
            Ok(Some(Packet::Pip { non_root, .. })) if non_root != inside => {
                inside = non_root;
                turns.push((offset, inside));
            }
            Ok(Some(Packet::Pad)) => drop(reader.skip_pads(usize::MAX)),
            Ok(Some(_)) => {}
            Ok(None) => return turns,
            Err(_) => drop(reader.resynchronize()),
        }
    }
}

/// Views of the host with `guest` wherever one runs.
pub fn with_guests(host: &[(usize, u32)], guests: &[(usize, bool)], guest: u32) -> Vec<(usize, u32)> {
    let mut views: Vec<(usize, u32)> = Vec::new();
    let (mut host, mut guests) = (host.iter().peekable(), guests.iter().peekable());
    let (mut view, mut inside) = (guest, false);
    while let Some(at) = host.peek().map(|one| one.0).into_iter().chain(guests.peek().map(|one| one.0)).min() {
        while let Some(&(_, next)) = host.next_if(|one| one.0 == at) {
            view = next;
        }
        while let Some(&(_, next)) = guests.next_if(|one| one.0 == at) {
            inside = next;
        }
        let holds = if inside { guest } else { view };
        if views.last().is_none_or(|last| last.1 != holds) {
            views.push((at, holds));
        }
    }
    views
}

#[cfg(test)]
mod tests {
    use super::*;
    use pt_packet::writer;

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
        assert_eq!(guests(&data), [(at[3], true), (at[6], false), (at[7], true)]);
        assert_eq!(guests(&data[..at[3]]), []);
    }

    #[test]
    fn a_guest_runs_whoever_of_the_host_did() {
        let guests = [(10, true), (20, false), (30, true), (40, false)];
        let views = with_guests(&[(0, 1), (15, 2), (20, 3), (25, 4), (30, 5)], &guests, 9);
        assert_eq!(views, [(0, 1), (10, 9), (20, 3), (25, 4), (30, 9), (40, 5)]);
        assert_eq!(with_guests(&[(0, 1)], &[], 9), [(0, 1)]);
    }
}
