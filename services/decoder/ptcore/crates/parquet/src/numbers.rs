//! Numbers of which the same few come again and again.

use crate::deltas::Deltas;
use crate::indices::indices;

/// More different ones are no longer few: two bytes tell a place.
const MOST: usize = u16::MAX as usize + 1;
/// Numbers below are found without a hash.
const SMALL: usize = 1 << 12;
const SLOTS: usize = MOST * 2;
const NONE: u32 = u32::MAX;

/// The place of each number among the different ones; when these are too many, the numbers themselves.
pub struct Numbers {
    values: Vec<u64>,
    places: Vec<u16>,
    small: Box<[u32; SMALL]>,
    /// Places by the hash of the number.
    slots: Vec<u32>,
    /// All numbers, since there were too many different ones.
    all: Option<Deltas>,
}

impl Default for Numbers {
    fn default() -> Self {
        let (values, places) = (Vec::new(), Vec::new());
        Numbers { values, places, small: Box::new([NONE; SMALL]), slots: Vec::new(), all: None }
    }
}

impl Numbers {
    /// Signed numbers are told as their bits.
    pub fn extend(&mut self, numbers: &[u64]) {
        if let Some(all) = &mut self.all {
            return all.extend(numbers);
        }
        let mut places = std::mem::take(&mut self.places);
        let begin = places.len();
        places.resize(begin + numbers.len(), 0);
        for (place, &number) in places[begin..].iter_mut().zip(numbers) {
            *place = match self.small.get(number as usize) {
                Some(&known) if known != NONE => known as u16,
                _ => match self.place(number) {
                    Some(place) => place,
                    None => return self.give_up(&places[..begin], numbers),
                },
            };
        }
        self.places = places;
    }

    /// Adds what is encoded to `out` and begins anew. The different numbers, where places among them were encoded.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Option<Vec<u64>> {
        let values = match self.all.take() {
            Some(mut all) => {
                all.finish(out);
                None
            }
            None => {
                indices(&self.places, self.values.len().saturating_sub(1) as u32, out);
                Some(std::mem::take(&mut self.values))
            }
        };
        self.values.clear();
        self.places.clear();
        self.small.fill(NONE);
        self.slots.fill(NONE);
        values
    }

    /// None: there are too many.
    #[inline(never)]
    fn place(&mut self, number: u64) -> Option<u16> {
        let slot = match self.small.get_mut(number as usize) {
            Some(slot) => slot,
            None => {
                if self.slots.is_empty() {
                    self.slots = vec![NONE; SLOTS];
                }
                // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
                let mut at = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - SLOTS.ilog2())) as usize;
                while self.slots[at] != NONE && self.values[self.slots[at] as usize] != number {
                    at = (at + 1) % SLOTS;
                }
                &mut self.slots[at]
            }
        };
        if *slot == NONE {
            *slot = u16::try_from(self.values.len()).ok()?.into();
            self.values.push(number);
        }
        Some(*slot as u16)
    }

    #[cold]
    fn give_up(&mut self, places: &[u16], numbers: &[u64]) {
        let mut all = Deltas::default();
        let known: Vec<_> = places.iter().map(|&place| self.values[usize::from(place)]).collect();
        all.extend(&known);
        all.extend(numbers);
        self.all = Some(all);
    }
}
