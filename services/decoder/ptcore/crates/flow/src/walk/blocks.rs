//! From block to block, while tracing is enabled.

use super::{Ahead, Walk};
use crate::code_block::{CodeBlock, Exit, Way};
use crate::event::{Event, Fault};
use crate::returns::Open;
use crate::{BlockKind, CodeMemory, Reason, Sink};

impl<M: CodeMemory, S: Sink> Walk<'_, '_, M, S> {
    /// While tracing is enabled. False at the end of the stream.
    pub(super) fn walk(&mut self) -> Result<bool, Fault> {
        loop {
            if self.pauses {
                return Ok(true);
            }
            if self.events.count != 0 {
                self.branches()?;
            }
            if self.events.count == 0 {
                match self.ahead()? {
                    Ahead::Run => {}
                    Ahead::Moved => continue,
                    Ahead::Stopped => return Ok(self.pending != Some(Event::End)),
                }
            }
            let number = self.at;
            let block = *self.code.block(number);
            match block.exit {
                Exit::Cond if self.events.count != 0 => {
                    self.events.count -= 1;
                    self.hare.rest();
                    if self.events.bits >> self.events.count & 1 != 0 {
                        self.tell(&block, BlockKind::CondTaken, block.target);
                        self.follow(number, Way::Target, block.target)?;
                    } else {
                        self.tell(&block, BlockKind::CondNotTaken, block.end);
                        self.follow(number, Way::Next, block.end)?;
                    }
                }
                Exit::Linear => {
                    self.watch()?;
                    self.tell(&block, BlockKind::Linear, block.end);
                    self.follow(number, Way::Next, block.end)?;
                }
                Exit::Jump | Exit::Call => {
                    if self.disables(&block) {
                        return Ok(true);
                    }
                    self.watch()?;
                    let call = block.exit == Exit::Call;
                    self.tell(&block, if call { BlockKind::Call } else { BlockKind::Jump }, block.target);
                    // A call of the next instruction only asks where it is; the processor does not compress its return.
                    if call && block.target != block.end {
                        self.returns.push(block.end, number);
                    }
                    self.follow(number, Way::Target, block.target)?;
                }
                Exit::Return if self.events.count != 0 => {
                    self.events.count -= 1;
                    self.hare.rest();
                    self.compressed_return(&block)?;
                }
                _ => match self.transfer(number, &block)? {
                    Ahead::Stopped if self.pending == Some(Event::End) => return Ok(false),
                    Ahead::Stopped => return Ok(true),
                    _ => {}
                },
            }
        }
    }

    #[inline(always)]
    fn compressed_return(&mut self, block: &CodeBlock) -> Result<(), Fault> {
        if self.events.bits >> self.events.count & 1 == 0 {
            self.tell_before_last(block);
            return Err(self.fault(Reason::BadReturn));
        }
        let Some(open) = self.returns.pop() else {
            self.tell_before_last(block);
            return Err(self.fault(Reason::EmptyReturnStack));
        };
        self.statistics.compressed_returns += 1;
        match open {
            Open::Block(call) => {
                let target = self.code.block(call).end;
                self.tell(block, BlockKind::Return, target);
                self.follow(call, Way::Next, target)
            }
            // The scratch block of a call over a section border may be another by now.
            Open::Address(address) => {
                let target = self.view.popped(address);
                self.tell(block, BlockKind::Return, target);
                self.go(target)
            }
        }
    }

    #[inline(always)]
    fn watch(&mut self) -> Result<(), Fault> {
        if self.hare.steps_on(self.ip) {
            return Err(self.fault(Reason::EndlessLoop));
        }
        Ok(())
    }

    /// Goes on at `address`, which is on `way` out of block `from`.
    #[inline(always)]
    fn follow(&mut self, from: u32, way: Way, address: u64) -> Result<(), Fault> {
        self.ip = address;
        self.at = match self.code.block(from).linked(way, self.view) {
            Some(number) => number,
            None => match self.code.link(self.memory, self.view, from, way, address) {
                Ok(number) => number,
                Err(reason) => return self.end_before(address, reason),
            },
        };
        Ok(())
    }

    pub(super) fn go(&mut self, address: u64) -> Result<(), Fault> {
        self.ip = address;
        match self.code.find(self.memory, self.view, address) {
            Ok(number) => self.at = number,
            Err(reason) => return self.stop_before(address, reason),
        }
        Ok(())
    }
}
