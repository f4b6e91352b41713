//! What happens besides branches, and what is told of it: far transfers, interrupts, transactions, power, filters, overflows.

use super::program::{KERNEL, REGIONS};
use super::{Machine, Transaction};
use pt_packet::{Compression, Ip, Packet};

impl Machine {
    pub(super) fn region_of(&self, address: u64) -> usize {
        (0..REGIONS.len()).find(|&region| address.wrapping_sub(REGIONS[region].0) < 1 << 16).expect("in a region")
    }

    /// Where execution may go on by a far transfer.
    pub(super) fn elsewhere(&mut self) -> u64 {
        let region = if self.random.below(2) == 0 { self.region } else { self.random.below(REGIONS.len()) };
        self.program.anywhere(region, &mut self.random)
    }

    pub(super) fn far(&mut self, next: u64, comes_back: bool) {
        self.flush();
        if self.habits.user {
            self.retire(next);
            self.packet(Packet::TipPgd(Ip::SUPPRESSED));
            return self.outside(comes_back);
        }
        let to = if comes_back { self.program.anywhere(KERNEL, &mut self.random) } else { self.elsewhere() };
        self.retire(to);
        if self.random.once_in(2) {
            self.load_space();
        }
        self.arrive();
    }

    /// Execution goes on where the packets in front of this one lead.
    pub(super) fn arrive(&mut self) {
        if !self.is_traced(self.ip) {
            return self.leave();
        }
        self.tell_mode();
        let ip = self.compressed(self.ip);
        self.packet(Packet::Tip(ip));
    }

    pub(super) fn load_space(&mut self) {
        self.cr3 = self.random.0 & 0xf_ffff_f000;
        if self.habits.paging {
            self.pip();
        }
    }

    pub(super) fn pip(&mut self) {
        self.packet(Packet::Pip { cr3: self.cr3, non_root: self.non_root });
    }

    pub(super) fn tell_mode(&mut self) {
        self.region = self.region_of(self.ip);
        let mode = REGIONS[self.region].1;
        if mode != self.mode {
            self.mode = mode;
            self.packet(Packet::ModeExec { mode, interrupt_flag: self.interrupt_flag });
        }
    }

    /// A guest is entered, or left where it tried to enter one.
    pub(super) fn enter(&mut self) {
        let to = self.elsewhere();
        if !self.habits.guests {
            // It is not allowed there.
            return self.interrupt(to);
        }
        if self.non_root {
            self.non_root = false;
            self.clock.guest = false;
            return self.interrupt(to);
        }
        self.flush();
        self.control_flow_event(7);
        self.non_root = true;
        self.clock.guest = true;
        self.retire(to);
        self.load_space();
        self.packet(Packet::Vmcs(self.vmcs));
        self.arrive();
    }

    pub(super) fn interrupt(&mut self, to: u64) {
        self.flush();
        match self.habits.event_trace {
            true => self.control_flow_event(1),
            false => self.fup(),
        }
        self.stack.push(self.ip);
        self.ip = to;
        if self.habits.guests || self.random.once_in(2) {
            self.load_space();
        }
        self.arrive();
    }

    /// SDM table "CFE Packet Type and Vector Fields": 1 an interrupt, 2 a return from one, 7 a guest entered.
    pub(super) fn control_flow_event(&mut self, kind: u8) {
        if self.habits.event_trace {
            self.packet(Packet::Cfe { kind, vector: 3, fup: true });
            self.fup();
        }
    }

    pub(super) fn fup(&mut self) {
        self.told_at = self.ip;
        let ip = self.compressed(self.ip);
        self.packet(Packet::Fup(ip));
    }

    pub(super) fn pt_write(&mut self, next: u64) {
        if self.habits.writes {
            self.flush();
            let (fup, size) = (self.random.once_in(2), [4, 8][self.random.below(2)]);
            let payload = self.random.0 & 0xffff_ffff;
            self.packet(Packet::Ptw { payload, size, fup });
            if fup {
                self.fup();
            }
        }
        self.retire(next);
    }

    pub(super) fn begin(&mut self, next: u64, fallback: u64) {
        if !self.habits.transactions {
            return self.retire(next);
        }
        if let Some(transaction) = &mut self.transaction {
            transaction.depth += 1;
            return self.retire(next);
        }
        self.tell_transaction(true, false);
        self.transaction = Some(Transaction { depth: 1, fallback, stack: self.stack.clone() });
        self.retire(next);
    }

    pub(super) fn commit(&mut self, next: u64) {
        match &mut self.transaction {
            Some(transaction) if transaction.depth > 1 => transaction.depth -= 1,
            Some(_) => {
                self.transaction = None;
                self.tell_transaction(false, false);
            }
            None => {}
        }
        self.retire(next);
    }

    pub(super) fn abort_if_any(&mut self) {
        let Some(Transaction { fallback, stack, .. }) = self.transaction.take() else { return };
        self.tell_transaction(false, true);
        (self.ip, self.stack) = (fallback, stack);
        self.arrive();
    }

    pub(super) fn tell_transaction(&mut self, in_transaction: bool, aborted: bool) {
        self.flush();
        self.packet(Packet::ModeTsx { in_transaction, aborted });
        self.fup();
    }

    pub(super) fn wait(&mut self, next: u64) {
        if self.habits.power {
            self.flush();
            let some = self.random.0;
            self.packet(Packet::Mwait { hints: some as u32 & 0xff, extensions: (some >> 8) as u32 & 1 });
            self.packet(Packet::Pwre {
                state: (some >> 9) as u8 & 7,
                sub_state: (some >> 12) as u8 & 7,
                hardware: false,
            });
            self.packet(Packet::Exstop { fup: true });
            self.fup();
            self.sleep();
            self.packet(Packet::Pwrx { last: 2, deepest: (some >> 15) as u8 & 15, wake: 1 });
        } else if self.habits.clocks.varies {
            self.flush();
            self.sleep();
        }
        self.retire(next);
    }

    pub(super) fn execution_stops(&mut self) {
        let fup = self.random.once_in(2);
        self.packet(Packet::Exstop { fup });
        if fup {
            self.fup();
        }
    }

    /// What is bound to no instruction.
    pub(super) fn event(&mut self) {
        self.flush();
        match self.random.below(4) {
            0 if self.habits.power => self.execution_stops(),
            1 if self.habits.power => self.packet(Packet::Pwrx { last: 1, deepest: 1, wake: 4 }),
            2 if self.habits.event_trace => {
                self.interrupt_flag ^= true;
                self.packet(Packet::ModeExec { mode: self.mode, interrupt_flag: self.interrupt_flag });
                self.fup();
            }
            2 => self.packet(Packet::Pad),
            _ => self.change_clock(),
        }
    }

    /// Tracing ends in front of the instruction ahead.
    pub(super) fn stop(&mut self) {
        self.abort_if_any();
        self.flush();
        self.fup();
        self.packet(Packet::TipPgd(Ip::SUPPRESSED));
        if self.random.once_in(4) {
            self.packet(Packet::TraceStop);
        }
        self.outside(true);
    }

    /// What is told while nothing is traced. Whatever ran may come back to where it was left.
    pub(super) fn outside(&mut self, comes_back: bool) {
        if self.habits.paging && self.random.once_in(4) {
            self.load_space();
        }
        if self.random.once_in(8) {
            self.psb(false);
        }
        if self.random.once_in(8) {
            self.packet(self.clock.cbr());
        }
        match self.random.below(8) {
            0 if self.habits.clocks.varies => self.off(),
            1..=3 => {
                let cycles = self.clock.any_cycles(&mut self.random) << self.random.below(8);
                self.pass(cycles);
            }
            _ => {}
        }
        if self.transaction.take().is_some() {
            let aborted = self.random.once_in(2);
            self.packet(Packet::ModeTsx { in_transaction: false, aborted });
        }
        // Nothing but what comes back goes on where it was left.
        let left = [self.ran.last().copied().unwrap_or_default(), self.told_at].map(|address| address >> 8);
        while !comes_back || self.random.once_in(2) {
            let region = self.random.below(REGIONS.len());
            self.ip = self.anywhere(region);
            if !left.contains(&(self.ip >> 8)) {
                break;
            }
        }
        self.enable();
    }

    pub(super) fn enable(&mut self) {
        self.tell_mode();
        let ip = self.compressed(self.ip);
        self.packet(Packet::TipPge(ip));
    }

    /// Packets are lost, and execution went on meanwhile.
    pub(super) fn overflow(&mut self) {
        self.count = 0;
        self.targets.clear();
        let mut cycles = self.clock.any_cycles(&mut self.random) << self.random.below(6);
        while self.clock.pass(&mut cycles) {}
        if self.habits.cut_psbs && self.random.once_in(2) {
            self.cut_psb();
        } else {
            self.packet(Packet::Ovf);
        }
        self.transaction = None;
        self.compressible.clear();
        self.ip = self.anywhere(self.region);
        let ip = Ip { compression: Compression::Full, payload: self.ip };
        self.last_ip = self.ip;
        let packet = if self.random.once_in(3) { Packet::TipPge(ip) } else { Packet::Fup(ip) };
        self.packet(packet);
    }
}
