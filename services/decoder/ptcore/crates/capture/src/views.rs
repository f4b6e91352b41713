//! Who runs in which address space, by number.

use crate::View;
use std::collections::HashMap;
use std::ops::Deref;

/// Views by number, and which of them have the same code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Views {
    views: Vec<View>,
    /// By number: that of the first one with the same code.
    same_code: Vec<u32>,
    numbers: HashMap<View, u32>,
    first: HashMap<(usize, u32, u32), u32>,
}

impl Views {
    /// The number of a view, which is added where it is new.
    pub fn number(&mut self, view: View) -> u32 {
        if let Some(number) = self.find(view) {
            return number;
        }
        let number = self.views.len() as u32;
        self.views.push(view);
        self.numbers.insert(view, number);
        let first = self.first.entry((view.image, view.epoch, view.kernel)).or_insert(number);
        self.same_code.push(*first);
        number
    }

    /// The number of a view that there is.
    pub fn find(&self, view: View) -> Option<u32> {
        self.numbers.get(&view).copied()
    }

    /// The first view in which all code is what it is in this one.
    pub fn same_code(&self, number: u32) -> u32 {
        self.same_code.get(number as usize).copied().unwrap_or(number)
    }
}

impl Deref for Views {
    type Target = [View];

    fn deref(&self) -> &[View] {
        &self.views
    }
}

/// Numbered in their order, each once.
impl FromIterator<View> for Views {
    fn from_iter<I: IntoIterator<Item = View>>(views: I) -> Self {
        let mut all = Views::default();
        for view in views {
            all.number(view);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_process_have_the_same_code() {
        let view = |tid, epoch| View { pid: 1, tid, image: 0, epoch, kernel: 0, stay: 0 };
        let given = [view(1, 0), view(2, 0), view(1, 1), view(2, 0), view(2, 1)];
        let mut views: Views = given.into_iter().collect();
        assert_eq!(given.map(|view| views.number(view)), [0, 1, 2, 1, 3]);
        assert_eq!([0, 1, 2, 3, 4].map(|number| views.same_code(number)), [0, 0, 2, 2, 4]);
        let other = views.number(View { image: 1, ..view(1, 0) });
        assert_eq!(views.same_code(other), other);
    }
}
