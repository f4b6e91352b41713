//! Hosts' TSCs and guests'.
//!
//! In VMX non-root operation TSC packets have the guest's TSC, offset and scaled as its host wants it (SDM section "System-Wide
//! Tracing"), which no packet tells. PIP packets say which of the two runs; MTC and CYC packets are the same for both. So times are
//! those of the host: as soon as one was told, the TSCs of guests are passed over.

use super::uncertainty::Calm;
use super::Time;
use pt_packet::Packet;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct World {
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

    /// A guest runs before the host's time is known.
    pub fn guest_alone(&self) -> bool {
        self.non_root && !self.hosts
    }

    /// Whose TSCs the packet's time is held against: whether the guest's.
    pub fn of(&self, packet: &Packet) -> bool {
        if matches!(packet, Packet::Tsc(_)) {
            self.non_root
        } else {
            self.guests && !self.hosts
        }
    }

    pub fn guests(&self) -> bool {
        self.guests
    }
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
