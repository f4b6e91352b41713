//! Where the stubs stand in a file whose own section headers do not tell.

use super::{jump_at, Callee, Machine, ENDBR, PUSH_IMMEDIATE};
use crate::elf_file::File;
use object::{Object, ObjectSection, SectionKind};
use std::collections::HashSet;
use std::ops::Range;

/// How linkers fill stubs of 8 and of 16 bytes that do nothing but jump.
const FILLED: [&[u8]; 2] = [b"\x66\x90", b"\x66\x0f\x1f\x44\0\0"];
/// `push` of a slot, with which the code in front of the stubs begins: in 64-bit code and at an address, and by EBX.
const PUSH_SLOT: [[u8; 2]; 2] = [[0xff, 0x35], [0xff, 0xb3]];
const JUMP_NEAR: u8 = 0xe9;
const LAZY_SIZE: u64 = 16;

/// Stubs in a row, by what linkers call their section.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// They push the number of their relocation, `.plt`.
    Lazy,
    /// `.plt.sec`.
    Second,
    /// Of slots that are filled when the file is loaded, `.plt.got`.
    Bound,
}

struct Run {
    kind: Kind,
    size: u64,
    addresses: Range<u64>,
}

/// The sections of stubs that are found in the code of an x86 file, by name.
pub fn unlisted(file: &File<'_>) -> Vec<(&'static str, Range<u64>)> {
    let Some(machine) = Machine::of(file) else { return Vec::new() };
    let order = machine.relocations(file, "plt");
    let finder = Finder {
        own: order.iter().map(|&(slot, _)| slot).collect(),
        bound: machine.relocations(file, "dyn").into_iter().map(|(slot, _)| slot).collect(),
        machine,
        order,
    };
    let mut runs = Vec::new();
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        finder.add_runs(section.data().unwrap_or_default(), section.address(), &mut runs);
    }
    let kinds = [(Kind::Lazy, ".plt"), (Kind::Second, ".plt.sec"), (Kind::Bound, ".plt.got")];
    // Of two of one length the first: linkers put stubs in front of other code.
    let of = |kind| runs.iter().rev().filter(move |run: &&Run| run.kind == kind);
    let longest = |kind| of(kind).max_by_key(|run| run.addresses.end - run.addresses.start);
    kinds.into_iter().filter_map(|(kind, name)| Some((name, longest(kind)?.addresses.clone()))).collect()
}

struct Finder<'d> {
    machine: Machine<'d>,
    order: Vec<(u64, Callee)>,
    own: HashSet<u64>,
    bound: HashSet<u64>,
}

impl Finder<'_> {
    fn add_runs(&self, code: &[u8], address: u64, runs: &mut Vec<Run>) {
        let mut at = (address.wrapping_neg() % 8) as usize;
        while let Some(entry) = code.get(at..).filter(|rest| !rest.is_empty()) {
            let Some((kind, size)) = self.stub(entry, address.wrapping_add(at as u64)) else {
                at += 8;
                continue;
            };
            let start = address.saturating_add(at as u64);
            let end = start.saturating_add(size);
            // Linkers leave an entry empty here and there.
            let gap = if kind == Kind::Lazy { LAZY_SIZE } else { 0 };
            let goes_on = |run: &&mut Run| {
                (run.kind, run.size) == (kind, size)
                    && start.checked_sub(run.addresses.end).is_some_and(|between| between <= gap)
            };
            match runs.last_mut().filter(goes_on) {
                Some(run) => run.addresses.end = end,
                // A jump among other instructions.
                None if start % LAZY_SIZE != 0 => {}
                None => {
                    let before = at.checked_sub(LAZY_SIZE as usize).map(|at| &code[at..]).unwrap_or_default();
                    let leads = kind == Kind::Lazy && PUSH_SLOT.iter().any(|push| before.starts_with(push));
                    let start = if leads { start - LAZY_SIZE } else { start };
                    runs.push(Run { kind, size, addresses: start..end });
                }
            }
            at += size as usize;
        }
    }

    /// Kind and size of the stub that begins here.
    fn stub(&self, entry: &[u8], start: u64) -> Option<(Kind, u64)> {
        let entry = &entry[..entry.len().min(LAZY_SIZE as usize)];
        if !matches!(entry[0], 0x41 | 0xff | 0xf2 | 0xf3) {
            return None;
        }
        if self.machine.lazy(entry, &self.order).is_some() {
            return Some((Kind::Lazy, LAZY_SIZE));
        }
        let slot = self.machine.slot(entry, start)?;
        let rest = entry.get(jump_at(entry) + 6..)?;
        let short = rest.get(..2) == Some(FILLED[0]) && !ENDBR.iter().any(|endbr| entry.starts_with(endbr));
        let size = if short { 8 } else { LAZY_SIZE };
        // Also where nothing fills the slot.
        if rest.first() == Some(&PUSH_IMMEDIATE) && rest.get(5) == Some(&JUMP_NEAR) {
            return Some((Kind::Lazy, LAZY_SIZE));
        }
        if self.own.contains(&slot) {
            return Some((Kind::Second, size));
        }
        // Programs jump by such slots, too.
        let filled = short || rest == FILLED[1] || (jump_at(entry) == 5 && rest == &FILLED[1][1..]);
        (self.bound.contains(&slot) && filled).then_some((Kind::Bound, size))
    }
}
