//! Which function an address belongs to, and what to call it.

use super::{Content, Image, Section, Space, UNMAPPED};
use crate::{Binary, Place, Role, Symbols};
use pt_flow::CodeMemory;
use std::ops::Range;

/// What can be said of a function to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    /// What the binary was mapped as.
    pub binary: String,
    /// In the binary's own address space.
    pub address: u64,
    pub size: u64,
    /// From which table the name is, or `none: ` and why there is none.
    pub symbol_status: String,
}

/// RSEQ_SIG of x86, in the order of its bytes (glibc, sysdeps/unix/sysv/linux/x86/bits/rseq.h): the kernel goes on nowhere else
/// (Linux, kernel/rseq.c, rseq_get_rseq_cs).
const RSEQ_SIGNATURE: [u8; 4] = 0x5305_3053_u32.to_le_bytes();

impl Symbols for Image {
    fn place(&self, epoch: u32, address: u64) -> Place {
        let bare =
            |space, start, end| Place { space, function: None, start, end, bias: 0, entry: false, role: Role::Plain };
        let Some((section, start, end)) = self.section_at(epoch, address) else {
            return bare(UNMAPPED, 0, u64::MAX);
        };
        let is_generated = self.is_generated(section);
        let begin = if is_generated { self.run_begin(address) } else { start };
        let Section { space, content } = &self.sections[section as usize];
        let (delta, binary) = match (content, self.binary(*space)) {
            (Content::File { delta } | Content::Code { delta: Some(delta), .. }, Some(binary)) => (*delta, binary),
            _ => return bare(*space, begin, end),
        };
        let Some(own) = binary.address_of(address.wrapping_sub(delta)) else {
            return bare(*space, begin, end);
        };
        let bias = address.wrapping_sub(own);
        let found = binary.find(own);
        let function = found.function.map(|number| binary.function(number));
        // Behind its mapping other code may stand than the file's.
        let (first, last) = (found.start.wrapping_add(bias), found.end.wrapping_add(bias).min(end));
        // Names of generated code say nothing of what else stands around it.
        let is_bare = is_generated && function.is_none();
        Place {
            space: *space,
            function: found.function,
            start: if is_bare { first.max(begin) } else { first },
            end: last,
            bias,
            entry: function.is_some_and(|function| function.address == own),
            role: function.map_or_else(|| binary.bare_role(own), |function| function.role),
        }
    }

    fn caught_at(&self, epoch: u32, pad: u64) -> Option<Vec<Range<u64>>> {
        let (section, ..) = self.section_at(epoch, pad)?;
        let (_, binary, bias) = self.file_of(section, pad)?;
        let mapped = |returns: Range<u64>| returns.start.wrapping_add(bias)..returns.end.wrapping_add(bias);
        Some(binary.caught_at(pad.wrapping_sub(bias))?.into_iter().map(mapped).collect())
    }

    fn restarts_at(&self, epoch: u32, address: u64) -> bool {
        self.read(epoch, address.wrapping_sub(4)).is_some_and(|slice| slice.bytes.starts_with(&RSEQ_SIGNATURE))
    }
}

impl Image {
    /// Where a function of this name, as the files spell it, stands in any epoch: the first one.
    pub fn address_of(&self, name: &[u8]) -> Option<u64> {
        let own: Vec<_> = (0..self.spaces.len() as u32).map(|space| self.binary(space)?.function_named(name)).collect();
        if own.iter().all(Option::is_none) {
            return None;
        }
        let stands = |section: u32, start: u64| {
            let (space, _, bias) = self.file_of(section, start)?;
            Some(own[space as usize]?.wrapping_add(bias))
        };
        self.pieces.iter().find_map(|(&start, piece)| {
            let mut addresses = piece.history.iter().filter_map(|&(_, section)| stands(section, start));
            addresses.find(|address| (start..piece.end).contains(address))
        })
    }

    /// The file that stands at the address: its space, and what is subtracted for its own addresses.
    fn file_of(&self, section: u32, address: u64) -> Option<(u32, &Binary, u64)> {
        let Section { space, content } = &self.sections[section as usize];
        let (Content::File { delta } | Content::Code { delta: Some(delta), .. }) = content else { return None };
        let binary = self.binary(*space)?;
        let own = binary.address_of(address.wrapping_sub(*delta))?;
        Some((*space, binary, address.wrapping_sub(own)))
    }

    /// What to call the function in `space`, or the code from `address` on (the space's own) that no function covers.
    pub fn describe(&self, space: u32, function: Option<u32>, address: u64) -> Description {
        let at = |binary: &str, address: u64| format!("{}+{address:#x}", binary.rsplit('/').next().unwrap_or(binary));
        let anonymous = |binary: &str, status: String| Description {
            name: at(binary, address),
            binary: binary.to_owned(),
            address,
            size: 0,
            symbol_status: status,
        };
        match &self.spaces[space as usize] {
            Space::Unmapped => anonymous("[unmapped]", "none: nothing was mapped there".to_owned()),
            Space::Code => anonymous("[generated]", "none: code written at run time".to_owned()),
            Space::Missing { name, reason } => {
                anonymous(if name.is_empty() { "[anonymous]" } else { name }, format!("none: {reason}"))
            }
            Space::Binary { name, binary } => {
                let Some(function) = function.map(|number| binary.function(number)) else {
                    let status = binary.symbol_status();
                    let reason = if status.starts_with("none") { status } else { "none: no symbol covers it" };
                    return anonymous(name, reason.to_owned());
                };
                let bare = anonymous(name, function.source.name().to_owned());
                let known = Description { address: function.address, size: function.size, ..bare };
                match binary.name(function) {
                    Some(name) => Description { name, ..known },
                    None => Description { name: at(name, function.address), ..known },
                }
            }
        }
    }
}
