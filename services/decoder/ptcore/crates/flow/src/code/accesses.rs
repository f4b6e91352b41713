//! What the instructions of a block read and write.

use super::CodeCache;
use crate::access::{Access, InstructionClass};
use crate::memory::CodeMemory;
use crate::view::View;
use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess};

/// They write lines of the cache back, or watch one: what the operand names is checked like a byte that is read, but no data is
/// (Intel SDM, volume 2). iced takes it for one, unlike with those that prefetch or demote a line.
const NO_DATA: [Mnemonic; 4] = [Mnemonic::Clflush, Mnemonic::Clflushopt, Mnemonic::Clwb, Mnemonic::Umonitor];

impl CodeCache {
    /// What the first `instructions` of the block read and write, by class and width. Accesses that depend on a mask or
    /// a condition are counted.
    pub(crate) fn accesses<M: CodeMemory>(&mut self, memory: &M, epoch: u32, id: u32, instructions: u32) -> &[Access] {
        if !self.accesses.contains_key(&(id, instructions)) {
            let found = self.look_for_accesses(memory, epoch, id, instructions);
            self.accesses.insert((id, instructions), found.into());
        }
        &self.accesses[&(id, instructions)]
    }

    fn look_for_accesses<M: CodeMemory>(&self, memory: &M, epoch: u32, id: u32, instructions: u32) -> Vec<Access> {
        let mut found: Vec<Access> = Vec::new();
        let Some(block) = self.kept(id) else { return found };
        let view = View::new(epoch, block.mode);
        let mut factory = InstructionInfoFactory::new();
        let mut at = block.start;
        for &length in self.lengths(block).iter().take(instructions as usize) {
            let Some(bytes) = memory.read(epoch, at).and_then(|slice| slice.bytes.get(..length.into())) else { break };
            let instruction = Decoder::with_ip(view.bitness(), bytes, at, DecoderOptions::NONE).decode();
            at = at.wrapping_add(length.into());
            let used = factory.info(&instruction).used_memory();
            if used.is_empty() || NO_DATA.contains(&instruction.mnemonic()) {
                continue;
            }
            let class = InstructionClass::of(&instruction);
            for one in used {
                let (reads, writes) = match one.access() {
                    OpAccess::Read | OpAccess::CondRead => (1, 0),
                    OpAccess::Write | OpAccess::CondWrite => (0, 1),
                    OpAccess::ReadWrite | OpAccess::ReadCondWrite => (1, 1),
                    OpAccess::None | OpAccess::NoMemAccess => continue,
                };
                let width = match (one.memory_size().size(), class) {
                    // Of a repeated one the whole has no width that is known.
                    (0, InstructionClass::String) => instruction.memory_size().size(),
                    (width, _) => width,
                } as u16;
                match found.iter_mut().find(|known| known.class == class && known.width == width) {
                    Some(known) => (known.reads, known.writes) = (known.reads + reads, known.writes + writes),
                    None => found.push(Access { class, width, reads, writes }),
                }
            }
        }
        found
    }
}
