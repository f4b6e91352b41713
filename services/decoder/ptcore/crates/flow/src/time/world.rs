//! Hosts' TSCs and guests'.
//!
//! In VMX non-root operation TSC packets have the guest's TSC, offset and scaled as its host wants it (SDM section "System-Wide
//! Tracing"), which no packet tells. PIP packets say which of the two runs; MTC and CYC packets are the same for both. So times are
//! those of the host: as soon as one was told, the TSCs of guests are passed over.

use super::uncertainty::Calm;
use super::Time;
use pt_packet::{Errata, Packet, Reader};

/// Whether TSC packets are the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct World {
    /// In VMX non-root operation.
    non_root: bool,
    /// A guest ran.
    guests: bool,
    /// A TSC of the host was taken in.
    hosts: bool,
}

impl World {
    pub fn enter(&mut self, non_root: bool) {
        self.non_root = non_root;
        self.guests |= non_root;
    }

    /// A PSB was read: its TSC comes before its PIP, which may be the first to tell that a guest runs.
    pub fn at_psb(&mut self, data: &[u8], behind_psb: usize, errata: Errata) {
        let told = psb_plus(data, behind_psb, errata).find_map(|packet| match packet {
            Packet::Pip { non_root, .. } => Some(non_root),
            _ => None,
        });
        if let Some(non_root) = told {
            self.enter(non_root);
        }
    }

    /// A guest runs, as far as packets tell.
    pub fn is_guest(&self) -> bool {
        self.non_root
    }

    /// A guest runs before the host's time is known.
    pub(super) fn guest_alone(&self) -> bool {
        self.non_root && !self.hosts
    }

    /// Whose TSCs the packet's time is held against: whether the guest's.
    pub(super) fn of(&self, packet: &Packet) -> bool {
        if matches!(packet, Packet::Tsc(_)) {
            self.non_root
        } else {
            self.guests && !self.hosts
        }
    }

    pub(super) fn guests(&self) -> bool {
        self.guests
    }
}

/// Packets of a PSB+ that are looked at.
const MOST_PACKETS: usize = 16;

/// The first packets of a PSB+.
pub(super) fn psb_plus(data: &[u8], behind_psb: usize, errata: Errata) -> impl Iterator<Item = Packet> + '_ {
    let mut reader = Reader::with_errata(data, errata);
    reader.seek(behind_psb);
    let packets = std::iter::from_fn(move || reader.read_behind_pads().ok().flatten().map(|(_, packet)| packet));
    packets.take(MOST_PACKETS).take_while(|packet| !matches!(packet, Packet::Psbend | Packet::Psb | Packet::Ovf))
}

impl Time {
    /// The TSCs that packets have are not those of the time that is told.
    pub(super) fn is_foreign(&self) -> bool {
        self.world.non_root && self.world.hosts && !self.of_libipt
    }

    /// A TSC of the host: no rate is measured from a guest's on.
    #[cold]
    pub(super) fn hosts_first(&mut self) {
        self.world.hosts = true;
        if self.world.guests {
            self.calibration.overflow(false);
        }
    }

    pub(super) fn wants_host(&self) -> bool {
        !self.world.hosts && !self.world.non_root
    }

    /// Outside of a PSB+ it says that MTC packets may be missing in front of it.
    #[cold]
    pub(super) fn tsc_of_guest(&mut self) {
        if !self.in_psb {
            (self.doubtful, self.calm) = (true, Calm::default());
            self.calibration.overflow(false);
        }
    }
}
