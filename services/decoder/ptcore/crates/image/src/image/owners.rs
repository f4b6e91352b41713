//! Which file a stretch of addresses is of, also where other bytes were written over it: a function that was patched is
//! the function that it was.

use super::{Content, Image, Section, CODE, NOTHING};

/// A file's space, and by how much its addresses are off; none of it for code of no file that nothing names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub space: u32,
    pub delta: Option<u64>,
}

pub const NOBODY: Owner = Owner { space: CODE, delta: None };

/// Addresses of one owner.
pub struct Stretch {
    pub start: u64,
    pub end: u64,
    pub owner: Owner,
}

impl Image {
    /// The addresses from `start` to `end` by whose they are now.
    pub(super) fn owners(&self, start: u64, end: u64) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut tell = |start: u64, end: u64, owner: Owner| match stretches.last_mut() {
            _ if start >= end => {}
            Some(last) if last.owner == owner => last.end = end,
            _ => stretches.push(Stretch { start, end, owner }),
        };
        let first = self.pieces.range(..=start).next_back().map_or(start, |(&first, _)| first);
        let mut at = start;
        for (&from, piece) in self.pieces.range(first..end) {
            let section = piece.history.last().map_or(NOTHING, |&(_, section)| section);
            let (from, to) = (from.max(at), piece.end.min(end));
            tell(at, from, self.owner(NOTHING));
            tell(from, to, self.owner(section));
            at = to.max(at);
        }
        tell(at, end, self.owner(NOTHING));
        stretches
    }

    /// Whose code is that is written there.
    pub(super) fn owner(&self, section: u32) -> Owner {
        match self.mapped_owner(section) {
            NOBODY => self.generated,
            owner => owner,
        }
    }

    /// As what was mapped alone says it.
    pub(super) fn mapped_owner(&self, section: u32) -> Owner {
        match self.sections[section as usize] {
            Section { space, content: Content::File { delta } } => Owner { space, delta: Some(delta) },
            Section { space, content: Content::Code { delta, .. } } => Owner { space, delta },
            _ => NOBODY,
        }
    }
}
