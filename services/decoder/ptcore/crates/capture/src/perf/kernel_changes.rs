//! What changed of the kernel's code while it ran: programs and trampolines came and went, and it patched itself.
//! Copies of the code may be of any time: what a change replaced says what had stood there since the code came.

use super::bpf::Programs;
use crate::elf::Function;
use crate::spaces::{Content, Mapping, Stretches};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What all of it belongs to.
const OWNER: &str = "[kernel]";
/// Bytes of code that get names, each as a file of its own, which has some more.
const MAX_NAMED: usize = 1 << 28;
const BESIDE: usize = 1 << 11;

/// What a record says of an address.
enum Told {
    /// A function came, or went: it has nothing of what was there. One that is out of line may get its code later.
    Function {
        function: Function,
        out_of_line: bool,
        gone: bool,
    },
    Poke {
        old: Vec<u8>,
        new: Vec<u8>,
    },
}

/// Such records, in the order of the file: TSC ticks, address, what is told.
#[derive(Default)]
pub struct KernelChanges(Vec<(u64, u64, Told)>);

impl KernelChanges {
    pub fn function(&mut self, tsc: u64, function: Function, out_of_line: bool, gone: bool) {
        self.0.push((tsc, function.address, Told::Function { function, out_of_line, gone }));
    }

    pub fn poke(&mut self, tsc: u64, address: u64, old: Vec<u8>, new: Vec<u8>) {
        self.0.push((tsc, address, Told::Poke { old, new }));
    }

    pub fn finish(mut self, programs: &Programs) -> Changed {
        // Records of several cores are not in the order of time.
        self.0.sort_by_key(|&(tsc, ..)| tsc);
        let mut walk = Walk { room: MAX_NAMED, ..Walk::default() };
        for (tsc, address, told) in self.0 {
            match told {
                Told::Function { function, gone: true, .. } => walk.gone(tsc, function),
                Told::Function { function, out_of_line, .. } => {
                    let code = programs.code(address, &function.name).filter(|code| !code.is_empty());
                    walk.came(tsc, function, out_of_line, code);
                }
                Told::Poke { old, new } => walk.poke(tsc, address, &old, &new),
            }
        }
        walk.changed
    }
}

/// What stood where.
#[derive(Default)]
pub struct Changed {
    /// Since when.
    pub code: Vec<(u64, Mapping)>,
    /// Functions that were there before the recording began, without their code: a copy of the kernel may have it.
    pub symbols: Vec<Mapping>,
}

/// Goes through the records by time.
#[derive(Default)]
struct Walk {
    changed: Changed,
    /// Where it is known what stood there before.
    replaced: Stretches,
    /// By address.
    came: BTreeMap<u64, Came>,
    room: usize,
}

struct Came {
    tsc: u64,
    end: u64,
    /// It came without its code, which may be told later.
    waits: Option<Function>,
}

impl Walk {
    fn came(&mut self, tsc: u64, function: Function, out_of_line: bool, code: Option<&Arc<[u8]>>) {
        let waits = (code.is_none() && tsc != 0).then(|| function.clone());
        self.begins(tsc, &function, waits);
        if let Some(code) = code {
            let mapping = self.named(function.address, Arc::clone(code), function);
            return self.changed.code.push((tsc, mapping));
        }
        let reason = "the code of BPF programs and trampolines is not in the recording".to_owned();
        let content = if out_of_line { Content::Missing { reason } } else { Content::Unread { reason } };
        self.without_code(tsc, function, content);
    }

    fn gone(&mut self, tsc: u64, function: Function) {
        self.begins(tsc, &function, None);
        self.without_code(tsc, function, Content::Missing { reason: "it was removed before".to_owned() });
    }

    fn begins(&mut self, tsc: u64, function: &Function, waits: Option<Function>) {
        let end = function.address.saturating_add(function.size);
        self.replaced.remove(function.address, end);
        self.came.insert(function.address, Came { tsc, end, waits });
    }

    fn without_code(&mut self, tsc: u64, function: Function, content: Content) {
        let mapping = Mapping { address: function.address, size: function.size, name: function.name, content };
        if tsc == 0 {
            self.changed.symbols.push(mapping);
        } else {
            self.changed.code.push((tsc, mapping));
        }
    }

    fn poke(&mut self, tsc: u64, address: u64, old: &[u8], new: &[u8]) {
        let came = self.came.range(..=address).next_back().filter(|(_, came)| came.end > address);
        let (since, waits) = came.map_or((0, None), |(_, came)| (came.tsc, came.waits.clone()));
        let end = address.saturating_add(old.len() as u64);
        for (from, to) in self.replaced.holes(address, end) {
            let part = &old[(from - address) as usize..(to - address) as usize];
            self.changed.code.push((since, written(from, part.into())));
        }
        self.replaced.add(address, end);
        if new.is_empty() {
            return;
        }
        let mapping = match waits.filter(|_| old.is_empty()) {
            Some(function) => self.named(address, new.into(), function),
            None => written(address, new.into()),
        };
        self.changed.code.push((tsc, mapping));
    }

    fn named(&mut self, address: u64, code: Arc<[u8]>, function: Function) -> Mapping {
        let room = self.room.checked_sub(BESIDE + code.len() + function.name.len());
        self.room = room.unwrap_or(self.room);
        let named = room.and_then(|_| Mapping::of_code(OWNER, address, &code, &[&function]).ok());
        named.unwrap_or_else(|| written(address, code))
    }
}

/// Code that the kernel wrote there.
fn written(address: u64, code: Arc<[u8]>) -> Mapping {
    Mapping { address, size: code.len() as u64, name: OWNER.to_owned(), content: Content::Code(code) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time, address and code.
    fn told(changes: KernelChanges) -> Vec<(u64, u64, Vec<u8>)> {
        let code = changes.finish(&Programs::default()).code.into_iter();
        let told = code.map(|(tsc, mapping)| (tsc, mapping.address, mapping.content.code().to_vec()));
        told.filter(|(.., code)| !code.is_empty()).collect()
    }

    #[test]
    fn the_first_change_of_each_byte_says_what_was_there() {
        let mut changes = KernelChanges::default();
        changes.poke(200, 0x1000, vec![2, 2], vec![]);
        changes.poke(100, 0x1001, vec![1, 1], vec![]);
        changes.poke(300, 0x1000, vec![3, 3, 3, 3], vec![]);
        assert_eq!(told(changes), [(0, 0x1001, vec![1, 1]), (0, 0x1000, vec![2]), (0, 0x1003, vec![3])]);
    }

    #[test]
    fn what_was_there_came_with_its_function() {
        let mut changes = KernelChanges::default();
        changes.poke(100, 0x1010, vec![1], vec![2]);
        changes.function(
            200,
            Function { address: 0x1000, size: 0x20, name: "made".to_owned(), ..Function::default() },
            true,
            false,
        );
        changes.poke(300, 0x1010, vec![3], vec![4]);
        changes.poke(400, 0x1010, vec![4], vec![5]);
        let wanted = [(0, vec![1]), (100, vec![2]), (200, vec![3]), (300, vec![4]), (400, vec![5])];
        assert_eq!(told(changes), wanted.map(|(tsc, code)| (tsc, 0x1010, code)));
    }

    #[test]
    fn code_has_the_name_of_its_function_as_long_as_there_is_room() {
        let mut walk = Walk { room: 2 * (BESIDE + 8), ..Walk::default() };
        for tsc in 1..4 {
            let function = Function { address: 0x1000, size: 4, name: "made".to_owned(), ..Function::default() };
            walk.came(tsc, function, false, Some(&[0x90; 4].into()));
        }
        let is_named = |mapping: &Mapping| matches!(mapping.content, Content::File { .. });
        let named: Vec<_> = walk.changed.code.iter().map(|(_, mapping)| is_named(mapping)).collect();
        assert_eq!(named, [true, true, false]);
        assert!(walk.changed.code.iter().all(|(_, mapping)| mapping.name == OWNER));
    }
}
