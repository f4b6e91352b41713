//! Blocks of decoded code, linked to those that follow.

use crate::view::View;
use pt_packet::Execution;

/// How a block of code ends, before it is known where execution went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Linear,
    Cond,
    Jump,
    Call,
    IndirectJump,
    IndirectCall,
    Return,
    Far,
    FarCall,
}

impl Exit {
    pub fn is_far(self) -> bool {
        matches!(self, Exit::Far | Exit::FarCall)
    }
}

/// Instructions that packets other than those of branches refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mark {
    PtWrite = 1,
    Cr3 = 2,
    Vmcs = 4,
    VmEntry = 8,
}

/// The block that is not kept: one instruction over the border of two sections.
pub const SCRATCH: u32 = 0;

/// Instructions up to and with the first branch. One line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct CodeBlock {
    pub start: u64,
    pub last: u64,
    pub end: u64,
    /// Of a direct branch.
    pub target: u64,
    /// The blocks at `end` and at `target`.
    pub links: [Link; 2],
    pub lengths: u32,
    /// Its number; `u32::MAX` for the scratch block.
    pub id: u32,
    pub instructions: u16,
    pub exit: Exit,
    /// The kinds of [`Mark`] among its instructions.
    pub marks: u8,
    pub mode: Execution,
}

/// A following block, in the view it was found in.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub number: u32,
    pub view: View,
}

const UNLINKED: Link = Link { number: SCRATCH, view: View::NONE };

impl CodeBlock {
    /// The block that follows on `way`, when it was linked in this view.
    #[inline(always)]
    pub fn linked(&self, way: Way, view: View) -> Option<u32> {
        let link = self.links[way as usize];
        (link.view == view).then_some(link.number)
    }

    /// The block that follows its conditional branch; `None` where it has none, or none was linked in this view: those that are
    /// linked are kept.
    #[inline(always)]
    pub fn behind_condition(&self, way: usize, view: View) -> Option<u32> {
        // By index: to choose a way would be a branch that is seldom foretold.
        let link = self.links[way];
        (self.exit == Exit::Cond && link.view == view).then_some(link.number)
    }

    /// Whether any of its instructions is one of `mark`.
    pub fn has(&self, mark: Mark) -> bool {
        self.marks & mark as u8 != 0
    }

    /// The first `count` instructions, which end with the one from `last` to `end`.
    pub fn prefix(&self, count: u16, last: u64, end: u64) -> CodeBlock {
        CodeBlock { instructions: count, last, end, ..*self }
    }
}

/// One instruction that nobody knows, which leads nowhere.
pub const fn unknown(address: u64) -> CodeBlock {
    CodeBlock {
        start: address,
        last: address,
        end: address,
        target: 0,
        links: [UNLINKED; 2],
        lengths: 0,
        id: u32::MAX,
        instructions: 1,
        exit: Exit::Far,
        marks: 0,
        mode: Execution::Bits64,
    }
}

/// Which way out of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Way {
    Next = 0,
    Target = 1,
}
