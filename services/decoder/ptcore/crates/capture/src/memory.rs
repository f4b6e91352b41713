//! The code of all address spaces of a capture, by view.

use crate::guests::GUEST;
use crate::{Capture, View, Views};
use pt_flow::{is_kernel, CodeMemory, CodeSlice, Near};
use pt_image::{Binary, Description, Image, Place, Symbols};
use std::borrow::Borrow;
use std::ops::Range;
use std::sync::Arc;

/// What the flow and call layers ask; epochs are numbers of the capture's views.
pub struct Memory<'c, I = Image> {
    images: &'c [I],
    views: &'c Views,
    kernel: Option<usize>,
    /// Bits of a space's number that are its own; those above name the image.
    space_bits: u32,
}

impl<I> Clone for Memory<'_, I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Memory<'_, I> {}

impl<'c> Memory<'c> {
    pub(crate) fn new(capture: &'c Capture) -> Self {
        Memory::of(&capture.images, &capture.views, capture.kernel)
    }
}

impl<'c, I: Borrow<Image>> Memory<'c, I> {
    /// `views` name their image by its place in `images`, as does `kernel` the one that all address spaces share.
    pub fn of(images: &'c [I], views: &'c Views, kernel: Option<usize>) -> Self {
        let image_bits = usize::BITS - (images.len().max(1) - 1).leading_zeros();
        Memory { images, views, kernel, space_bits: u32::BITS - image_bits }
    }

    /// Why there is no code at the address.
    pub fn why_no_code(&self, epoch: u32, address: u64) -> String {
        match self.at(epoch, address) {
            Some((_, image, epoch)) => image.why_no_code(epoch, address),
            None if self.views.get(epoch as usize).is_some() => "a virtual machine ran".to_owned(),
            None => "the recording does not say who ran".to_owned(),
        }
    }

    /// Where the kernel goes from one thread to another, as `Config` wants it: Linux, arch/x86/entry/entry_64.S.
    pub fn thread_switch(&self) -> Option<u64> {
        self.images.get(self.kernel?)?.borrow().address_of(b"__switch_to_asm")
    }

    /// As [`Image::describe`], for a space as [`Place`] names it.
    pub fn describe(&self, space: u32, function: Option<u32>, address: u64) -> Description {
        let (image, space) = self.divide(space);
        self.images[image].borrow().describe(space, function, address)
    }

    /// The binary of a space that is one.
    pub fn binary(&self, space: u32) -> Option<&'c Arc<Binary>> {
        let (image, space) = self.divide(space);
        self.images.get(image)?.borrow().binary(space)
    }

    fn divide(&self, space: u32) -> (usize, u32) {
        match self.space_bits {
            32.. => (0, space),
            bits => ((space >> bits) as usize, space & ((1 << bits) - 1)),
        }
    }

    fn at(&self, epoch: u32, address: u64) -> Option<(usize, &'c Image, u32)> {
        let view = self.views.get(epoch as usize).filter(|view| view.kernel != GUEST)?;
        if let (Some(kernel), true) = (self.kernel, is_kernel(address)) {
            return Some((kernel, self.images.get(kernel)?.borrow(), view.kernel));
        }
        Some((view.image, self.images.get(view.image)?.borrow(), view.epoch))
    }
}

impl<I: Borrow<Image>> CodeMemory for Memory<'_, I> {
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        self.read_near(epoch, address, &mut Near::default())
    }

    fn read_near(&self, epoch: u32, address: u64, near: &mut Near) -> Option<CodeSlice<'_>> {
        let (number, image, epoch) = self.at(epoch, address)?;
        if near.memory != number {
            *near = Near { memory: number, ..Near::default() };
        }
        let slice = image.read_near(epoch, address, near)?;
        Some(CodeSlice { generation: (number as u64) << 32 | slice.generation, ..slice })
    }

    fn same_code(&self, epoch: u32) -> u32 {
        self.views.same_code(epoch)
    }

    fn thread(&self, epoch: u32) -> u64 {
        self.views.get(epoch as usize).map_or(0, View::thread)
    }
}

impl<I: Borrow<Image>> Symbols for Memory<'_, I> {
    fn place(&self, epoch: u32, address: u64) -> Place {
        // An image without anything answers for addresses of nobody.
        let Some((number, image, epoch)) = self.at(epoch, address) else {
            return Image::new().place(0, address);
        };
        let place = image.place(epoch, address);
        let space = match self.space_bits {
            32.. => place.space,
            bits => (number as u32) << bits | place.space & ((1 << bits) - 1),
        };
        Place { space, ..place }
    }

    fn caught_at(&self, epoch: u32, pad: u64) -> Option<Vec<Range<u64>>> {
        let (_, image, epoch) = self.at(epoch, pad)?;
        image.caught_at(epoch, pad)
    }

    fn restarts_at(&self, epoch: u32, address: u64) -> bool {
        self.at(epoch, address).is_some_and(|(_, image, epoch)| image.restarts_at(epoch, address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 1 << 63;
    use crate::View;

    #[test]
    fn what_is_near_is_so_in_one_image_alone() {
        let image = |byte| {
            let mut image = Image::new();
            image.code(0, 0x1000, vec![byte; 16]).unwrap();
            image.code(0, KERNEL, vec![byte + 1; 16]).unwrap();
            image
        };
        let view = |image| View { pid: 1, tid: 1, image, epoch: 0, kernel: 0, stay: 0 };
        let (images, views) = ([image(1), image(3), image(5)], [view(0), view(1)].into_iter().collect());
        let memory = Memory::of(&images, &views, Some(2));
        let mut near = Near::default();
        for _ in 0..2 {
            for (epoch, address, byte) in
                [(0, 0x1000, 1), (1, 0x1004, 3), (0, KERNEL, 6), (0, 0x1008, 1), (1, 0x1008, 3)]
            {
                let read = memory.read_near(epoch, address, &mut near).unwrap();
                assert_eq!(read.bytes[0], byte);
                assert_eq!(read.generation, memory.read(epoch, address).unwrap().generation);
            }
        }
        assert!(memory.read_near(0, 0x1010, &mut near).is_none() && memory.read_near(2, 0x1000, &mut near).is_none());
    }
}
