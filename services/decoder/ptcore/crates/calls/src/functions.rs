//! The functions that ran, and what they add up to.

use pt_flow::AddressHasher;
use pt_image::{Place, Role};
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasherDefault;
use std::ops::{Bound, Range};

/// A function that ran, with its sums over all calls.
#[derive(Clone, Debug)]
pub struct FunctionTotals {
    /// As the image numbers them.
    pub space: u32,
    pub function: Option<u32>,
    /// Where it is entered, in the space's own addresses.
    pub address: u64,
    pub calls: u64,
    pub self_instructions: u64,
    /// Instructions with those of all calls below, recursion counted once.
    pub total_instructions: u64,
    /// TSC ticks.
    pub self_ticks: u64,
    pub total_ticks: u64,
}

/// What makes a function itself: see [`FunctionTotals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionKey {
    pub space: u32,
    pub function: Option<u32>,
    pub address: u64,
}

impl FunctionTotals {
    pub fn key(&self) -> FunctionKey {
        FunctionKey { space: self.space, function: self.function, address: self.address }
    }
}

/// What the calls of a function add up to while they are followed.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub struct Sums {
    pub calls: u64,
    pub self_instructions: u64,
    pub total_instructions: u64,
    pub self_ticks: u64,
    pub total_ticks: u64,
    /// How many calls are open.
    pub open: u32,
    pub role: Role,
    /// The stretch in which a call of it ended last that was not inside another one, and the totals before:
    /// instructions and ticks.
    pub stretch: u16,
    pub before: (u64, u64),
}

impl Sums {
    /// A call ended. Whether it counts in the totals: it was not inside another one of the function.
    #[inline(always)]
    pub fn end_call(&mut self, total: u64, own: u64, stretch: u16) -> bool {
        self.open -= 1;
        self.calls += 1;
        self.self_instructions += own;
        if self.open != 0 {
            return false;
        }
        self.remember(stretch);
        self.total_instructions += total;
        true
    }

    /// What the totals were before the stretch, in case all of it turns out to lie inside a call of the function.
    #[inline(always)]
    pub fn remember(&mut self, stretch: u16) {
        if self.stretch != stretch {
            (self.stretch, self.before) = (stretch, (self.total_instructions, self.total_ticks));
        }
    }
}

/// Functions by what the image knows, else by the addresses that were called.
#[derive(Default)]
pub struct Functions {
    pub sums: Vec<Sums>,
    /// Changes with every answer that `at` would give in code that nothing divides.
    pub version: u32,
    /// What changed last: the function that was divided or turned out to be called, and from which address on.
    pub changed: Option<(u32, u64)>,
    known: Vec<FunctionKey>,
    named: HashMap<(u32, u32), u32, BuildHasherDefault<AddressHasher>>,
    /// Functions in code that nothing divides, by space, then by the space's own address.
    found: BTreeMap<u32, BTreeMap<u64, Found>>,
    /// Numbers that such functions ever had.
    numbers: HashMap<(u32, u64), u32, BuildHasherDefault<AddressHasher>>,
    /// What became known of such code, in order.
    pub news: Vec<News>,
}

/// In place of a version.
pub const NO_VERSION: u32 = u32::MAX;

/// What became known of code that nothing divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    pub space: u32,
    /// Where the function begins, and the code that nothing divides.
    pub start: u64,
    pub first: u64,
    pub called: bool,
    /// Where the one begins that all of its code was taken for before.
    pub divided: Option<u64>,
    /// `start` as it was called.
    pub address: u64,
    pub role: Role,
}

impl News {
    /// Where a function begins.
    pub fn begin(&self) -> (u32, u64) {
        (self.space, self.start)
    }

    /// All that is said of where a function begins.
    pub fn told(&self) -> (u32, u64, bool) {
        (self.space, self.start, self.called)
    }
}

#[derive(Clone, Copy)]
struct Found {
    number: u32,
    called: bool,
}

/// The function at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    pub function: u32,
    /// The address is where it is entered.
    pub entry: bool,
}

impl Functions {
    /// The function at `address`. In code that nothing divides, `called` makes the address the entry of a function; any
    /// other address belongs to the nearest entry before it.
    pub fn at(&mut self, place: &Place, address: u64, called: bool) -> Entered {
        let own = address.wrapping_sub(place.bias);
        if let Some(function) = place.function {
            let number = match self.named.get(&(place.space, function)) {
                Some(&number) => number,
                None => {
                    let address = place.start.wrapping_sub(place.bias);
                    let key = FunctionKey { space: place.space, function: place.function, address };
                    let number = self.add(key, place.role);
                    self.named.insert((place.space, function), number);
                    number
                }
            };
            return Entered { function: number, entry: place.entry };
        }
        let first = place.start.wrapping_sub(place.bias);
        let before = self.nearest(place.space, first.min(own), own);
        let news = News {
            space: place.space,
            start: if called { own } else { first.min(own) },
            first: first.min(own),
            called,
            divided: None,
            address,
            role: place.role,
        };
        match before {
            Some((start, found)) if start == own || !called => {
                if called && !found.called {
                    self.learn_behind(before, &news);
                }
                Entered { function: found.number, entry: start == own && (called || found.called) }
            }
            _ => {
                let function = self.learn_behind(before, &news).unwrap_or(u32::MAX);
                Entered { function, entry: called }
            }
        }
    }

    /// Takes over what became known of code that nothing divides; the number of the function. `None` when it was known.
    /// Whoever keeps what `at` answered has to look at `changed` then.
    pub fn learn(&mut self, news: &News) -> Option<u32> {
        self.learn_behind(self.nearest(news.space, news.first, news.start), news)
    }

    /// The same where it is known which one begins last before the function or with it.
    fn learn_behind(&mut self, before: Option<(u64, Found)>, news: &News) -> Option<u32> {
        let News { space, start, called, address, role, .. } = *news;
        let (number, divided) = match before {
            Some((at, found)) if at == start => {
                if found.called || !called {
                    return None;
                }
                (found.number, found.number)
            }
            _ => {
                let key = FunctionKey { space, function: None, address: start };
                let number = match self.numbers.get(&(space, start)) {
                    Some(&number) => number,
                    None => {
                        let number = self.add(key, role);
                        self.numbers.insert((space, start), number);
                        number
                    }
                };
                (number, before.map_or(u32::MAX, |(_, found)| found.number))
            }
        };
        self.found.entry(space).or_default().insert(start, Found { number, called });
        self.news.push(News { divided: before.map(|(start, _)| start), ..*news });
        self.change(divided, address);
        Some(number)
    }

    /// Where functions begin in the same undivided code before this one, the nearest first.
    pub fn before(&self, news: &News) -> impl Iterator<Item = (u32, u64)> + '_ {
        let &News { space, first, start, .. } = news;
        let found = self.found.get(&space).map(|found| found.range(first..start));
        found.into_iter().flatten().rev().map(move |(&begin, _)| (space, begin))
    }

    /// The last one that begins from `first` up to `own`.
    fn nearest(&self, space: u32, first: u64, own: u64) -> Option<(u64, Found)> {
        let (&start, &found) = self.found.get(&space)?.range(..=own).next_back()?;
        (first <= start).then_some((start, found))
    }

    /// The addresses around `address` that are in the function, as `at` answered, and not where it is entered.
    pub fn body(&self, function: u32, place: &Place, address: u64) -> Range<u64> {
        let Some(found) = self.found.get(&place.space).filter(|_| place.function.is_none()) else {
            return place.start.saturating_add(1)..place.end;
        };
        let begin = self.known[function as usize].address.wrapping_add(place.bias);
        let behind = (Bound::Excluded(address.wrapping_sub(place.bias)), Bound::Unbounded);
        let next = found.range(behind).next();
        let end = next.map_or(place.end, |(start, _)| start.wrapping_add(place.bias).min(place.end));
        // The code in front may be a file's in this epoch.
        begin.saturating_add(1).max(address)..end
    }

    /// Whether the image knows a function that is entered there.
    pub fn is_divided_at(&self, entered: Entered) -> bool {
        entered.entry && self.known[entered.function as usize].function.is_some()
    }

    /// Whether something is known of code that nothing divides.
    pub fn is_any_found(&self) -> bool {
        !self.found.is_empty()
    }

    /// Forgets what is known of code that nothing divides.
    pub fn forget(&mut self) {
        self.found.clear();
        self.news.clear();
        self.count_change();
    }

    /// The number of a function, of which one that no symbol names is known.
    pub fn number(&mut self, key: FunctionKey, role: Role) -> Option<u32> {
        let Some(function) = key.function else {
            return self.found.get(&key.space)?.get(&key.address).map(|found| found.number);
        };
        let known = self.named.get(&(key.space, function)).copied();
        Some(known.unwrap_or_else(|| {
            let number = self.add(key, role);
            self.named.insert((key.space, function), number);
            number
        }))
    }

    /// What the functions of these numbers add up to; sums begin anew.
    pub fn take(&mut self, numbers: &[u32]) -> Vec<FunctionTotals> {
        let mut totals = Vec::with_capacity(numbers.len());
        for &number in numbers {
            let FunctionKey { space, function, address } = self.known[number as usize];
            let Sums { calls, self_instructions, total_instructions, self_ticks, total_ticks, .. } =
                self.sums[number as usize];
            totals.push(FunctionTotals {
                space,
                function,
                address,
                calls,
                self_instructions,
                total_instructions,
                self_ticks,
                total_ticks,
            });
        }
        for sums in &mut self.sums {
            *sums = Sums { role: sums.role, ..Sums::default() };
        }
        totals
    }

    #[inline(always)]
    pub fn role(&self, number: u32) -> Role {
        self.sums[number as usize].role
    }

    pub fn key(&self, number: u32) -> FunctionKey {
        self.known[number as usize]
    }

    fn count_change(&mut self) {
        self.version = (self.version + 1) % NO_VERSION;
    }

    fn change(&mut self, number: u32, address: u64) {
        self.count_change();
        self.changed = Some((number, address));
    }

    fn add(&mut self, key: FunctionKey, role: Role) -> u32 {
        self.known.push(key);
        self.sums.push(Sums { role, ..Sums::default() });
        (self.known.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(start: u64, end: u64) -> Place {
        Place { space: 1, function: None, start, end, bias: 0x1000, entry: false, role: Role::Plain }
    }

    #[test]
    fn calls_divide_code_that_has_no_symbols() {
        let mut functions = Functions::default();
        let place = bare(0x5000, 0x6000);
        let whole = functions.at(&place, 0x5100, false);
        assert!(!whole.entry);
        assert_eq!(functions.known[whole.function as usize].address, 0x4000);
        let called = functions.at(&place, 0x5200, true);
        assert!(called.entry && called.function != whole.function);
        assert_eq!(functions.known[called.function as usize].address, 0x4200);
        assert_eq!(functions.at(&place, 0x5280, false), Entered { function: called.function, entry: false });
        assert_eq!(functions.at(&place, 0x5200, false), called);
        assert_eq!(functions.at(&place, 0x51ff, false), whole);
    }

    #[test]
    fn a_function_goes_on_up_to_the_next_that_was_called() {
        let mut functions = Functions::default();
        let place = bare(0x5000, 0x6000);
        let one = functions.at(&place, 0x5100, true);
        assert_eq!(functions.body(one.function, &place, 0x5100), 0x5101..0x6000);
        functions.at(&place, 0x5200, true);
        assert_eq!(functions.body(one.function, &place, 0x5100), 0x5101..0x5200);
        let named = Place { function: Some(3), ..bare(0x5400, 0x5500) };
        let two = functions.at(&named, 0x5480, false);
        assert_eq!(functions.body(two.function, &named, 0x5480), 0x5401..0x5500);
    }

    #[test]
    fn of_code_that_nothing_divides_only_what_is_behind_an_address_is_the_same() {
        let mut functions = Functions::default();
        let one = functions.at(&bare(0x5000, 0x5200), 0x5100, true);
        assert_eq!(functions.body(one.function, &bare(0x5000, 0x6000), 0x5800), 0x5800..0x6000);
    }

    #[test]
    fn a_space_may_have_any_number() {
        let mut functions = Functions::default();
        let place = Place { space: u32::MAX, ..bare(0x5000, 0x6000) };
        let whole = functions.at(&place, 0x5100, false);
        assert_eq!(functions.at(&place, 0x5200, false), whole);
    }

    #[test]
    fn another_stretch_of_bare_code_is_another_function() {
        let mut functions = Functions::default();
        let one = functions.at(&bare(0x5000, 0x6000), 0x5100, true);
        let two = functions.at(&bare(0x7000, 0x8000), 0x7100, false);
        assert_ne!(one.function, two.function);
    }
}
