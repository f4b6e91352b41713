//! Programs that take turns on cores.

use super::{Call, Frame, Habits, Nested, END, ENTRIES, FUNCTIONS, KERNEL, SIZE, SLOT, SLOTS};
use crate::support::kernel::ip;
use pt_packet::writer::write;
use pt_packet::{Ip, Packet};

/// The kernel's function in which one thread goes over into another, and where that goes on.
pub const SCHEDULER: u64 = KERNEL + SIZE * (FUNCTIONS as u64 - 1);
const SWITCHED: u64 = SCHEDULER + 3;

/// From where on the program runs on one core, without a stay on the other, as far as the packets tell.
#[derive(Clone, Debug)]
pub struct Stay {
    pub core: usize,
    /// It went on since it was traced, and nothing tells how.
    pub anew: bool,
    /// Instructions that had run.
    pub began: u64,
    /// The calls that were open, the outermost one first.
    pub open: Vec<usize>,
    /// How many of them it did not return from, and the one around those.
    pub least: usize,
}

/// How a thread comes to run.
pub enum Begins {
    /// Tracing begins. `anew`: it went on since it was traced, and nothing tells how.
    Traced { anew: bool },
    /// Another thread ran, and its address space was written to CR3.
    Behind(u64),
    /// It goes on.
    Still,
}

impl Nested {
    /// A thread of the kernel that is about to go on where one thread goes over into another.
    pub fn of_kernel(seed: u64, habits: Habits) -> Nested {
        let mut thread = Nested::new(seed, Habits { kernel: true, ..habits });
        let code = thread.code.0.get_mut(&KERNEL).expect("code");
        for slot in
            (0..FUNCTIONS as u64 - 1).flat_map(|function| (0..SLOTS).map(move |slot| function * SIZE + slot * SLOT))
        {
            let place = slot as usize + 2;
            if code[place] == 0x90 {
                let distance = SCHEDULER.wrapping_sub(KERNEL + slot + 7) as u32;
                code[place] = 0xe8;
                code[place + 1..place + 5].copy_from_slice(&distance.to_le_bytes());
            }
        }
        let at = (SCHEDULER - KERNEL) as usize;
        code[at..at + END as usize].fill(0x90);
        // mov cr3, rax
        code[at..at + 3].copy_from_slice(&[0x0f, 0x22, 0xd8]);
        let root = KERNEL + SIZE * ENTRIES as u64;
        let call = |function, parent| Call { function, parent, inside: None, began: 0, ended: 0, flags: 0 };
        thread.calls = vec![call(root, None), call(SCHEDULER, Some(0))];
        let called = root + 7;
        thread.frames = vec![Frame { call: 0, resumes: 0 }, Frame { call: 1, resumes: called }];
        (thread.root, thread.ip) = (root, SWITCHED);
        thread
    }

    /// Runs on a core, which writes to the stream, until another thread is to go on there.
    pub fn turn_of_kernel(&mut self, core: usize, stream: &mut Vec<u8>, begins: Begins) {
        self.begin_turn(core, stream);
        match begins {
            Begins::Traced { anew } => {
                if anew {
                    self.begin_anew(core);
                }
                if self.stream.is_empty() {
                    self.psb(false);
                }
                self.packet(Packet::TipPge(ip(self.ip)));
            }
            Begins::Behind(space) => self.packet(Packet::Pip { cr3: space << 13, non_root: false }),
            Begins::Still => {}
        }
        self.switched = false;
        while !self.switched {
            self.step(false);
            self.is_as_deep();
        }
        self.flush();
        std::mem::swap(&mut self.stream, stream);
    }

    /// The packets of a core end while it runs.
    pub fn stop(&mut self, stream: &mut Vec<u8>) {
        write(stream, Packet::Fup(ip(self.ip)));
        write(stream, Packet::TipPgd(Ip::SUPPRESSED));
    }

    pub fn ran(&self) -> u64 {
        self.ran
    }

    /// The calls that are open, the outermost one first.
    pub fn open(&self) -> impl Iterator<Item = usize> + '_ {
        self.frames.iter().map(|frame| frame.call)
    }

    /// Runs on a core, which writes to the stream, until it leaves for the kernel or, where it `ends`, the outermost call is
    /// about to return: then it is true.
    pub fn turn(&mut self, core: usize, stream: &mut Vec<u8>, ends: bool) -> bool {
        self.begin_turn(core, stream);
        if self.stream.is_empty() {
            self.psb(false);
        }
        let resumes = self.waits.take().unwrap_or(self.ip);
        self.go_on(resumes);
        let mut is_over = false;
        while self.waits.is_none() && !is_over {
            is_over = ends && self.frames.len() == 1;
            if is_over {
                self.end_run();
            } else {
                self.step(ends);
            }
            self.is_as_deep();
        }
        std::mem::swap(&mut self.stream, stream);
        is_over
    }

    fn begin_turn(&mut self, core: usize, stream: &mut Vec<u8>) {
        std::mem::swap(&mut self.stream, stream);
        // Others may have made calls there meanwhile.
        self.compressible.clear();
        let psb = [0x02, 0x82].repeat(8);
        self.last_psb = self.stream.windows(psb.len()).rposition(|bytes| bytes == psb).unwrap_or(0);
        if self.stays.last().is_none_or(|stay| stay.core != core) {
            self.begin_stay(core);
        }
    }

    fn begin_stay(&mut self, core: usize) {
        let (open, least) = (self.open().collect(), self.frames.len());
        self.stays.push(Stay { core, anew: false, began: self.ran, open, least });
    }

    fn begin_anew(&mut self, core: usize) {
        // Unless it has just come to the core.
        if self.stays.last().is_some_and(|stay| stay.began != self.ran) {
            self.begin_stay(core);
        }
        self.stays.last_mut().expect("a stay").anew = true;
    }

    /// How often it came from the other core.
    pub fn moves(&self) -> u32 {
        self.stays.windows(2).filter(|pair| pair[0].core != pair[1].core).count() as u32
    }

    fn is_as_deep(&mut self) {
        if let Some(stay) = self.stays.last_mut() {
            stay.least = stay.least.min(self.frames.len());
        }
    }
}
