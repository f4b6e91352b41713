//! What is kept by numbers that a flow hands out, of blocks and of paths.
//!
//! The first one whom a flow tells something is told nearly all numbers. Who comes later, as one of many threads of a core, is told
//! some high ones: a list up to the highest would take as much for each of a thousand threads as all that they ran together.

/// So many places are passed over in any case.
const FEWEST: usize = 1 << 6;
/// Numbers that one after the other stand together: those of code that runs together mostly are.
const TOGETHER: usize = 8;
/// The list grows by so many elements at a time.
const STEP: usize = 64;

/// Elements by number.
pub struct Numbered<T> {
    list: Vec<T>,
    nothing: T,
    /// There is room for so many as soon as there is one.
    room: usize,
    /// Below it each number is a place.
    near: usize,
    /// Places below it that were passed over.
    vacant: usize,
    far: Far,
}

/// By upper bits of numbers: where those stand that have them, and which bits they are, by place.
#[derive(Default)]
struct Far {
    slots: Vec<Slot>,
    keys: Vec<u32>,
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
        Numbered { list: Vec::new(), nothing, room, near: 0, vacant: 0, far: Far::default() }
    }

    #[inline(always)]
    fn place(&self, number: u32) -> usize {
        let number = number as usize;
        if number < self.near {
            number
        } else {
            self.place_of_far(number)
        }
    }

    #[inline(never)]
    fn place_of_far(&self, number: usize) -> usize {
        match self.far.find((number / TOGETHER) as u32) {
            Some(place) => self.near + place as usize * TOGETHER + number % TOGETHER,
            None => usize::MAX,
        }
    }

    #[inline(always)]
    pub fn get(&self, number: u32) -> Option<&T> {
        self.list.get(self.place(number))
    }

    #[inline(always)]
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let place = self.place(number);
        self.list.get_mut(place)
    }

    /// Where there is no element, there is one of nothing from now on.
    #[inline(always)]
    pub fn put(&mut self, number: u32) -> &mut T {
        let mut place = self.place(number);
        if place >= self.list.len() {
            place = self.make_room(number as usize);
        }
        &mut self.list[place]
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self, number: usize) -> usize {
        let passed_over = number.saturating_sub(self.near);
        if self.far.keys.is_empty() && self.vacant + passed_over <= self.near.max(FEWEST) {
            self.list.reserve(self.room.saturating_sub(self.near));
            self.vacant += passed_over;
            self.near = (number + 1).next_multiple_of(STEP);
            self.list.resize(self.near, self.nothing);
            return number;
        }
        let place = self.near + self.far.put((number / TOGETHER) as u32) as usize * TOGETHER;
        self.list.resize(place + TOGETHER, self.nothing);
        place + number % TOGETHER
    }

    /// All elements with their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let (near, far) = self.list.split_at_mut(self.near);
        let first = self.far.keys.iter().map(|key| key * TOGETHER as u32);
        let far = far.chunks_exact_mut(TOGETHER).zip(first).flat_map(|(some, first)| (first..).zip(some));
        (0..).zip(near).chain(far)
    }

    pub fn memory(&self) -> usize {
        self.list.capacity() * size_of::<T>()
            + self.far.slots.capacity() * size_of::<Slot>()
            + self.far.keys.capacity() * 4
    }
}

impl Far {
    fn find(&self, key: u32) -> Option<u32> {
        let slot = self.slots.get(self.at(key)?)?;
        (slot.key == key).then_some(slot.place)
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

    /// Puts a key in that is not there; its place.
    fn put(&mut self, key: u32) -> u32 {
        if self.keys.len() * 2 >= self.slots.len() {
            self.slots = vec![VACANT; (self.slots.len() * 2).max(64)];
            for (place, &key) in (0..).zip(&self.keys) {
                if let Some(at) = self.at(key) {
                    self.slots[at] = Slot { key, place };
                }
            }
        }
        let place = self.keys.len() as u32;
        self.keys.push(key);
        if let Some(at) = self.at(key) {
            self.slots[at] = Slot { key, place };
        }
        place
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
