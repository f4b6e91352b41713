//! A block that ran, as sinks are told.

/// How a block was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum BlockKind {
    /// Ran into the next block: the block was long, its section ended, or something is told between two of its instructions.
    Linear,
    CondTaken,
    CondNotTaken,
    Jump,
    IndirectJump,
    Call,
    IndirectCall,
    Return,
    /// System call, software interrupt, far jump, far return.
    Far,
    /// A far CALL, which a far return is to end.
    FarCall,
    /// Left between two instructions by an interrupt or a disable; `last` is the last instruction that ran.
    Interrupted,
}

/// Instructions that ran one after another without a branch before the last of them.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Dense number of the cached block this one is (a prefix of): one number, one content and start, for the life of
    /// the `Flow`. Sinks may count in arrays by it. `u32::MAX` for a block that is not kept.
    pub id: u32,
    /// Address of the first instruction.
    pub start: u64,
    /// Address of the last instruction.
    pub last: u64,
    /// Address behind the last instruction (a call's return address).
    pub end: u64,
    pub instructions: u32,
    pub kind: BlockKind,
    /// The code image it was found in.
    pub epoch: u32,
    /// Where execution went; 0 when tracing was disabled without saying.
    pub target: u64,
    /// Bytes of every instruction, in order; sums to `end - start`.
    pub lengths: &'a [u8],
}

impl Block<'_> {
    /// Addresses of the instructions, in order.
    pub fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.lengths.iter().scan(self.start, |next, &length| {
            let address = *next;
            *next += u64::from(length);
            Some(address)
        })
    }
}
