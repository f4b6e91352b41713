//! Functions that compilers put into others, and how much of what ran is theirs.

use crate::Code;
use pt_calls::{BlockCount, FunctionKey};
use pt_flow::{CodeMemory, Flow};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Inlined functions, each inside the one before; empty where the code is the function's own.
pub type Chain = Rc<[String]>;

/// What the debug information says about the code that ran.
#[derive(Default)]
pub struct Inlined {
    /// By space and address.
    chains: HashMap<(u32, u64), Chain>,
    /// Instructions by function and chain.
    ran: BTreeMap<(FunctionKey, Chain), u64>,
}

impl Inlined {
    /// Of the blocks of one thread, each in its function, from the flow that told them.
    pub fn of<M: CodeMemory>(flow: &Flow<M>, code: &impl Code, ran: &[(BlockCount, FunctionKey)]) -> Inlined {
        let mut inlined = Inlined::default();
        inlined.add(flow, code, ran);
        inlined
    }

    /// Adds other blocks, from the flow that told those.
    pub fn add<M: CodeMemory>(&mut self, flow: &Flow<M>, code: &impl Code, ran: &[(BlockCount, FunctionKey)]) {
        for (block, function) in ran {
            for address in flow.instructions(block.id, block.instructions) {
                let chain = self.chains.entry((function.space, address));
                let chain = chain.or_insert_with(|| chain_at(code, block.epoch, address));
                if !chain.is_empty() {
                    *self.ran.entry((*function, Rc::clone(chain))).or_default() += block.count;
                }
            }
        }
    }

    /// Everything that was inlined, by function, with its instructions.
    pub fn all(&self) -> impl Iterator<Item = (FunctionKey, &[String], u64)> {
        self.ran.iter().map(|((function, chain), &count)| (*function, &**chain, count))
    }

    /// The chains in a function with their instructions, most first. An instruction counts for its own chain alone, not
    /// for the shorter ones that it begins with.
    pub fn inside(&self, function: FunctionKey) -> Vec<(&[String], u64)> {
        let first: Chain = Rc::new([]);
        let of_function = self.ran.range((function, first)..).take_while(|((key, _), _)| *key == function);
        let mut found: Vec<_> = of_function.map(|((_, chain), &count)| (&**chain, count)).collect();
        found.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
        found
    }
}

/// Most of the chains that are remembered.
const MOST_CHAINS: usize = 1 << 18;

/// The chains of addresses, each looked up once.
#[derive(Default)]
pub struct Chains(HashMap<(u32, u64), Chain>);

impl Chains {
    /// The chain at an instruction.
    pub fn at(&mut self, code: &impl Code, epoch: u32, address: u64) -> &[String] {
        if self.0.len() == MOST_CHAINS {
            self.0.clear();
        }
        self.0.entry((epoch, address)).or_insert_with(|| chain_at(code, epoch, address))
    }
}

fn chain_at(code: &impl Code, epoch: u32, address: u64) -> Chain {
    let mut frames = code.frames(epoch, address);
    // The last one is the function itself.
    frames.pop();
    frames.into_iter().rev().map(|frame| frame.function.unwrap_or_else(|| "?".to_owned())).collect()
}
