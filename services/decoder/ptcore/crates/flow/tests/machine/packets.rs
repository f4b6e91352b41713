//! Packets: how they are held back, with their addresses and their times.

use super::{Clocks, Machine, LONG};
use pt_packet::writer::write;
use pt_packet::{Compression, Ip, Packet};

impl Machine {
    pub(super) fn bit(&mut self, taken: bool) {
        if self.habits.without_tnt {
            return;
        }
        if self.count == 0 {
            self.first = self.clock.cycles();
        }
        self.bits = self.bits << 1 | u64::from(taken);
        self.count += 1;
        if self.count == if self.habits.long { LONG } else { 6 } {
            self.flush();
        }
    }

    /// Tells what is held back.
    pub(super) fn flush(&mut self) {
        if self.count != 0 {
            let (bits, count) = (self.bits & ((1 << self.count) - 1), self.count);
            (self.bits, self.count) = (0, 0);
            // SDM section "Cycle Packet Semantics": its CYC is that of its first branch.
            self.clock.cyc(self.first, &mut self.stream);
            write(&mut self.stream, Packet::Tnt { bits, count });
        }
        for target in std::mem::take(&mut self.targets) {
            let ip = self.compressed(target);
            self.packet(Packet::Tip(ip));
        }
    }

    /// Any way that says the address behind the last one.
    pub(super) fn compressed(&mut self, address: u64) -> Ip {
        let last = std::mem::replace(&mut self.last_ip, address);
        let ways = [
            (Compression::Update16, 0xffff),
            (Compression::Update32, 0xffff_ffff),
            (Compression::SignExtend48, 0xffff_ffff_ffff),
            (Compression::Update48, 0xffff_ffff_ffff),
            (Compression::Full, u64::MAX),
        ];
        loop {
            let (compression, mask) = ways[self.random.below(ways.len())];
            let ip = Ip { compression, payload: address & mask };
            if ip.resolve(last) == Some(address) {
                return ip;
            }
        }
    }

    pub(super) fn packet(&mut self, packet: Packet) {
        self.clock.cyc(self.clock.cycles(), &mut self.stream);
        write(&mut self.stream, packet);
    }

    /// Time passes. What stands in front of an MTC was before that.
    pub(super) fn pass(&mut self, mut cycles: u64) {
        while self.clock.pass(&mut cycles) {
            if self.habits.clocks.mtc {
                self.flush();
            }
            self.clock.mtc(&mut self.stream);
        }
    }

    /// Behind a time during which clocks stood still.
    pub(super) fn tell_time(&mut self) {
        let packets = self.clock.tsc();
        packets.into_iter().for_each(|packet| write(&mut self.stream, packet));
    }

    pub(super) fn sleep(&mut self) {
        if self.habits.clocks.varies {
            self.clock.sleep(&mut self.random);
            self.tell_time();
        }
    }

    /// Tracing is off for a while (IA32_RTIT_CTL.TraceEn).
    pub(super) fn off(&mut self) {
        self.clock.sleep(&mut self.random);
        self.clock.reset();
        self.tell_time();
        self.packet(self.clock.cbr());
    }

    pub(super) fn change_clock(&mut self) {
        let Clocks { varies, stops, .. } = self.habits.clocks;
        self.clock.cyc(self.clock.cycles(), &mut self.stream);
        if varies {
            self.clock.change(&mut self.random);
        }
        if varies && stops {
            self.tell_time();
        }
        self.packet(self.clock.cbr());
    }

    pub(super) fn psb(&mut self, enabled: bool) {
        self.flush();
        self.clock.cyc(self.clock.cycles(), &mut self.stream);
        self.last_psb = self.stream.len();
        self.compressible.clear();
        let packets = self.psb_plus(enabled);
        packets.into_iter().for_each(|packet| write(&mut self.stream, packet));
        self.psbs.push((self.last_psb..self.stream.len(), self.ran.len()));
    }

    /// A PSB+ up to an overflow, which may leave its end.
    pub(super) fn cut_psb(&mut self) {
        let packets = self.psb_plus(true);
        let left = 1 + self.random.below(packets.len() - 1);
        packets.into_iter().take(left).for_each(|packet| write(&mut self.stream, packet));
        self.packet(Packet::Ovf);
        if self.random.once_in(2) {
            self.packet(Packet::Psbend);
        }
    }

    fn psb_plus(&mut self, enabled: bool) -> Vec<Packet> {
        self.last_ip = 0;
        let habits = self.habits;
        let mut packets = vec![Packet::Psb];
        packets.extend(self.clock.tsc());
        // The order is not fixed.
        let at = if self.random.once_in(4) { 1 } else { packets.len() };
        packets.insert(at, self.clock.cbr());
        if habits.transactions {
            packets.push(Packet::ModeTsx { in_transaction: self.transaction.is_some(), aborted: false });
        }
        packets.push(Packet::ModeExec { mode: self.mode, interrupt_flag: self.interrupt_flag });
        if habits.paging {
            packets.push(Packet::Pip { cr3: self.cr3, non_root: self.non_root });
        }
        if habits.guests {
            packets.push(Packet::Vmcs(self.vmcs));
        }
        if enabled {
            packets.push(Packet::Fup(self.compressed(self.ip)));
        }
        packets.push(Packet::Psbend);
        packets
    }
}
