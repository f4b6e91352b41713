//! Reading code, and why there is none.

use super::{Content, Image, Section, Space, NOTHING};
use pt_flow::{CodeMemory, CodeSlice, Near};

impl CodeMemory for Image {
    // Pieces are the same in every epoch, so a slice that ends with its piece has one length for one generation.
    fn read(&self, epoch: u32, address: u64) -> Option<CodeSlice<'_>> {
        self.read_near(epoch, address, &mut Near::default())
    }

    #[inline]
    fn read_near(&self, epoch: u32, address: u64, near: &mut Near) -> Option<CodeSlice<'_>> {
        if near.epoch != epoch || !(near.start..near.end).contains(&address) {
            let (section, start, end) = self.section_at(epoch, address)?;
            *near = Near { epoch, start, end, section, ..*near };
        }
        let Near { section, end, .. } = *near;
        let room = usize::try_from(end - address).unwrap_or(usize::MAX);
        let Section { space, content } = &self.sections[section as usize];
        let bytes = match content {
            Content::File { delta } => self.binary(*space)?.loaded(address.wrapping_sub(*delta)),
            Content::Code { address: base, bytes, .. } => bytes.get(usize::try_from(address - base).ok()?..)?,
            Content::Missing => return None,
        };
        let bytes = &bytes[..bytes.len().min(room)];
        (!bytes.is_empty()).then_some(CodeSlice { bytes, generation: section.into() })
    }
}

impl Image {
    /// Why there is no code at the address.
    pub fn why_no_code(&self, epoch: u32, address: u64) -> String {
        let section = self.section_at(epoch, address).map_or(NOTHING, |(section, _, _)| section);
        match &self.spaces[self.sections[section as usize].space as usize] {
            Space::Unmapped => "nothing was mapped there".to_owned(),
            Space::Code => "the code that was written there is incomplete".to_owned(),
            Space::Binary { name, .. } => format!("the file of {name} ends before it"),
            Space::Missing { name, reason } if name.is_empty() => reason.clone(),
            Space::Missing { name, reason } => format!("{name}: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Symbols;

    fn bytes(image: &Image, epoch: u32, address: u64) -> Option<&[u8]> {
        image.read(epoch, address).map(|slice| slice.bytes)
    }

    fn generation(image: &Image, epoch: u32, address: u64) -> u64 {
        image.read(epoch, address).unwrap().generation
    }

    #[test]
    fn an_epoch_sees_the_changes_up_to_it() {
        let mut image = Image::new();
        image.code(2, 0x1000, vec![1, 2, 3, 4]).unwrap();
        image.code(4, 0x1002, vec![7]).unwrap();
        image.unmap(6, 0x1000, 2).unwrap();
        assert_eq!(bytes(&image, 1, 0x1000), None);
        assert_eq!(bytes(&image, 2, 0x1000), Some(&[1, 2][..]));
        assert_eq!(bytes(&image, 3, 0x1002), Some(&[3][..]));
        assert_eq!(bytes(&image, 4, 0x1002), Some(&[7][..]));
        assert_eq!(bytes(&image, 5, 0x1003), Some(&[4][..]));
        assert_eq!(bytes(&image, 6, 0x1001), None);
        assert_eq!(bytes(&image, u32::MAX, 0x1002), Some(&[7][..]));
        assert_eq!(bytes(&image, 6, 0x1004), None);
    }

    #[test]
    fn the_same_bytes_at_the_same_place_are_one_generation() {
        let mut image = Image::new();
        image.code(1, 0x1000, vec![0x90, 0xc3]).unwrap();
        image.code(2, 0x1000, vec![0xcc, 0xc3]).unwrap();
        image.code(3, 0x1000, vec![0x90, 0xc3]).unwrap();
        assert_ne!(generation(&image, 1, 0x1000), generation(&image, 2, 0x1000));
        assert_eq!(generation(&image, 1, 0x1000), generation(&image, 3, 0x1000));
    }

    #[test]
    fn the_last_change_of_an_epoch_counts() {
        let mut image = Image::new();
        image.code(1, 0x1000, vec![1]).unwrap();
        image.unmap(1, 0x1000, 1).unwrap();
        assert_eq!(bytes(&image, 1, 0x1000), None);
        image.code(1, 0x1000, vec![2]).unwrap();
        assert_eq!(bytes(&image, 1, 0x1000), Some(&[2][..]));
    }

    #[test]
    fn slices_of_one_generation_are_equally_long_in_every_epoch() {
        let mut image = Image::new();
        image.code(1, 0x1000, vec![0x90; 8]).unwrap();
        image.code(2, 0x1004, vec![0xcc]).unwrap();
        assert_eq!(generation(&image, 1, 0x1000), generation(&image, 2, 0x1000));
        assert_eq!(bytes(&image, 1, 0x1000), bytes(&image, 2, 0x1000));
    }

    #[test]
    fn missing_code_says_why() {
        let mut image = Image::new();
        image.missing(1, 0x1000, 0x1000, "/usr/lib/libx.so", "the file is gone").unwrap();
        assert_eq!(bytes(&image, 1, 0x1800), None);
        assert_eq!(image.why_no_code(1, 0x1800), "/usr/lib/libx.so: the file is gone");
        assert_eq!(image.why_no_code(0, 0x1800), "nothing was mapped there");
        let place = image.place(1, 0x1800);
        assert_eq!(image.describe(place.space, None, 0x1800).name, "libx.so+0x1800");
    }

    #[test]
    fn it_agrees_with_a_plain_model_of_memory() {
        let mut seed = 7u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        let mut image = Image::new();
        let mut model = vec![[None::<u8>; 64]];
        for epoch in 1..200u32 {
            let mut now = *model.last().unwrap();
            for _ in 0..random(3) {
                let start = random(60);
                let size = 1 + random(64 - start);
                let value = random(5) as u8;
                if value == 0 {
                    image.unmap(epoch, start, size).unwrap();
                } else {
                    image.code(epoch, start, vec![value; size as usize]).unwrap();
                }
                now[start as usize..(start + size) as usize].fill((value > 0).then_some(value));
            }
            model.push(now);
        }
        let mut near = Near::default();
        for (epoch, memory) in model.iter().enumerate() {
            for (address, &byte) in memory.iter().enumerate() {
                let slice = bytes(&image, epoch as u32, address as u64);
                assert_eq!(slice.map(|slice| slice[0]), byte);
                let near = image.read_near(epoch as u32, address as u64, &mut near);
                assert_eq!(near.map(|slice| slice.bytes), slice);
                let rest = slice.unwrap_or_default();
                assert!(rest.iter().zip(&memory[address..]).all(|(&byte, &model)| Some(byte) == model));
            }
        }
    }
}
