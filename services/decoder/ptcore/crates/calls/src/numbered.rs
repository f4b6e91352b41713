//! What is kept by numbers that a flow hands out, of blocks and of paths.
//!
//! The first one whom a flow tells something is told nearly all numbers. Who comes later, as one of many threads of a core, is told
//! some high ones: a list up to the highest would take as much for each of a thousand threads as all that they ran together.

use pt_flow::cold_path;

/// So many places are passed over in any case.
const FEWEST: usize = 1 << 6;
/// Numbers that one after the other stand together: those of code that runs together mostly are.
const TOGETHER: usize = 8;
/// The list grows by so many elements at a time.
const STEP: usize = 64;

/// Elements by number.
pub struct Numbered<T> {
    /// Of numbers below its length.
    near: Vec<T>,
    nothing: T,
    /// There is room for so many as soon as there is one.
    room: usize,
    /// Numbers that were passed over.
    vacant: usize,
    far: Far<T>,
}

/// Elements by the upper bits of their numbers.
struct Far<T> {
    list: Vec<T>,
    /// Of those that stand together, by place.
    keys: Vec<u32>,
    slots: Vec<Slot>,
}

#[derive(Clone, Copy)]
struct Slot {
    key: u32,
    place: u32,
}

const VACANT: Slot = Slot { key: u32::MAX, place: 0 };

impl<T: Copy> Numbered<T> {
    /// `nothing`: what is there of a number of which nothing was put in. `room`: for so many from the outset.
    pub fn new(nothing: T, room: usize) -> Self {
        let far = Far { list: Vec::new(), keys: Vec::new(), slots: Vec::new() };
        Numbered { near: Vec::new(), nothing, room, vacant: 0, far }
    }

    #[inline(always)]
    pub fn get(&self, number: u32) -> Option<&T> {
        match self.near.get(number as usize) {
            None => self.far.get(number),
            known => known,
        }
    }

    #[inline(always)]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        match self.near.get_mut(number as usize) {
            None => {
                cold_path();
                self.far.get_mut(number)
            }
            known => known,
        }
    }

    /// Where there is no element, there is one of nothing from now on.
    #[inline(always)]
    pub fn put(&mut self, number: u32) -> &mut T {
        if number as usize >= self.near.len() {
            return self.put_behind(number);
        }
        &mut self.near[number as usize]
    }

    #[cold]
    #[inline(never)]
    fn put_behind(&mut self, number: u32) -> &mut T {
        let index = number as usize;
        let passed_over = index - self.near.len();
        if !self.far.keys.is_empty() || self.vacant + passed_over > self.near.len().max(FEWEST) {
            return self.far.put(number, self.nothing);
        }
        self.near.reserve(self.room.saturating_sub(self.near.len()));
        self.vacant += passed_over;
        self.near.resize((index + 1).next_multiple_of(STEP), self.nothing);
        &mut self.near[index]
    }

    /// Those that stand at their numbers, which are all for whom a flow tells most.
    #[inline(always)]
    pub fn near(&mut self) -> &mut [T] {
        &mut self.near
    }

    /// All elements with their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let first = self.far.keys.iter().map(|key| key * TOGETHER as u32);
        let far = self.far.list.chunks_exact_mut(TOGETHER).zip(first).flat_map(|(some, first)| (first..).zip(some));
        (0..).zip(&mut self.near).chain(far)
    }

    pub fn memory(&self) -> usize {
        let Far { list, keys, slots } = &self.far;
        (self.near.capacity() + list.capacity()) * size_of::<T>()
            + keys.capacity() * 4
            + slots.capacity() * size_of::<Slot>()
    }
}

impl<T: Copy> Far<T> {
    #[inline(never)]
    fn get(&self, number: u32) -> Option<&T> {
        self.list.get(self.index(number)?)
    }

    #[inline(never)]
    fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let index = self.index(number)?;
        self.list.get_mut(index)
    }

    fn put(&mut self, number: u32, nothing: T) -> &mut T {
        let index = match self.index(number) {
            Some(index) => index,
            None => {
                self.add(number / TOGETHER as u32);
                let index = self.list.len() + number as usize % TOGETHER;
                self.list.resize(self.list.len() + TOGETHER, nothing);
                index
            }
        };
        &mut self.list[index]
    }

    fn index(&self, number: u32) -> Option<usize> {
        let key = number / TOGETHER as u32;
        let slot = self.slots.get(self.at(key)?)?;
        (slot.key == key).then_some(slot.place as usize * TOGETHER + number as usize % TOGETHER)
    }

    /// Where the key is or would be.
    fn at(&self, key: u32) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = (key.wrapping_mul(0x9e37_79b1) as usize >> 7) & mask;
        while self.slots[at].key != key && self.slots[at].key != VACANT.key {
            at = (at + 1) & mask;
        }
        Some(at)
    }

    /// Adds a key that is not there.
    fn add(&mut self, key: u32) {
        self.keys.push(key);
        let mut from = self.keys.len() - 1;
        if self.keys.len() * 2 > self.slots.len() {
            self.slots = vec![VACANT; (self.slots.len() * 2).max(64)];
            from = 0;
        }
        for place in from..self.keys.len() {
            let key = self.keys[place];
            if let Some(at) = self.at(key) {
                self.slots[at] = Slot { key, place: place as u32 };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Puts numbers in, in this order; all are there and nothing else.
    fn holds(numbers: &[u32]) -> Numbered<u32> {
        let (mut numbered, mut plain) = (Numbered::new(0, 8), BTreeMap::new());
        for &number in numbers {
            *numbered.put(number) += number + 1;
            *plain.entry(number).or_insert(0) += number + 1;
            assert_eq!(numbered.get(number), plain.get(&number));
        }
        for number in numbers.iter().flat_map(|number| number.saturating_sub(9)..number.saturating_add(9)) {
            let found = numbered.get(number).copied().filter(|&known| known != 0);
            assert_eq!(found, plain.get(&number).copied(), "{number}");
            assert_eq!(numbered.get_mut(number).copied().filter(|&known| known != 0), found);
        }
        let all = numbered.iter_mut().filter(|(_, known)| **known != 0).map(|(number, known)| (number, *known));
        assert_eq!(all.collect::<BTreeMap<_, _>>(), plain);
        numbered
    }

    #[test]
    fn whatever_is_put_in_is_there() {
        let mut state = 1_u64;
        let mut chance = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % below
        };
        for most in [1, 10, 100, 1000, 100_000, 1 << 30] {
            for count in [1, 3, 50, 400] {
                // Somewhere, and some that follow.
                let somewhere = (0..count).map(|_| chance(most)).collect::<Vec<_>>();
                holds(&somewhere);
                holds(&somewhere.iter().flat_map(|&first| first..first + 20).collect::<Vec<_>>());
            }
        }
        assert_eq!(holds(&[]).get(u32::MAX), None);
    }

    #[test]
    fn it_takes_as_much_as_was_put_in_wherever_numbers_begin() {
        let memory = |first: u32| {
            let numbers: Vec<_> = (first..first + 4000).filter(|number| number / 20 % 3 == 0).collect();
            holds(&numbers).memory()
        };
        assert!(memory(1 << 28) < 2 * memory(0), "{} {}", memory(1 << 28), memory(0));
        let all: Vec<_> = (0..4000).collect();
        assert!(holds(&all).far.keys.is_empty());
    }
}
