//! The code of a stream with its names.

use pt_capture::Memory;
use pt_flow::{CodeMemory, Reason};
use pt_image::{Binary, Description, Frame, Image, Symbols};
use std::borrow::Borrow;
use std::sync::Arc;

/// What the listings ask beside the code itself. Epochs are those of the stream.
pub trait Code: CodeMemory + Symbols {
    /// Why there is no code at the address.
    fn why_no_code(&self, epoch: u32, address: u64) -> String;

    /// As [`Image::describe`].
    fn describe(&self, space: u32, function: Option<u32>, address: u64) -> Description;

    /// The binary of a space that is one.
    fn binary(&self, space: u32) -> Option<&Arc<Binary>>;

    /// The functions at an address, the innermost inlined one first, as [`Binary::frames`].
    fn frames(&self, epoch: u32, address: u64) -> Vec<Frame> {
        let place = self.place(epoch, address);
        self.binary(place.space).map_or(Vec::new(), |binary| binary.frames(address.wrapping_sub(place.bias)))
    }

    /// Why a stretch was lost, in words that name the address where code is missing.
    fn why(&self, reason: Reason, epoch: u32, address: u64) -> String {
        match reason {
            Reason::NoCode | Reason::NoKernelCode => {
                let known = self.why_no_code(epoch, address);
                format!("{}: nothing is known at {address:#x}: {known}", reason.name())
            }
            reason => format!("{}: {reason}", reason.name()),
        }
    }
}

impl Code for Image {
    fn why_no_code(&self, epoch: u32, address: u64) -> String {
        Image::why_no_code(self, epoch, address)
    }

    fn binary(&self, space: u32) -> Option<&Arc<Binary>> {
        Image::binary(self, space)
    }

    fn describe(&self, space: u32, function: Option<u32>, address: u64) -> Description {
        Image::describe(self, space, function, address)
    }
}

impl<I: Borrow<Image>> Code for Memory<'_, I> {
    fn why_no_code(&self, epoch: u32, address: u64) -> String {
        Memory::why_no_code(self, epoch, address)
    }

    fn binary(&self, space: u32) -> Option<&Arc<Binary>> {
        Memory::binary(self, space)
    }

    fn describe(&self, space: u32, function: Option<u32>, address: u64) -> Description {
        Memory::describe(self, space, function, address)
    }
}

impl<C: Code> Code for Arc<C> {
    fn why_no_code(&self, epoch: u32, address: u64) -> String {
        (**self).why_no_code(epoch, address)
    }

    fn binary(&self, space: u32) -> Option<&Arc<Binary>> {
        (**self).binary(space)
    }

    fn describe(&self, space: u32, function: Option<u32>, address: u64) -> Description {
        (**self).describe(space, function, address)
    }
}
