//! Files that debug information refers to and that are not found: what stands in them is not told.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// A program of many files may refer to as many; so many are named.
const MOST_NAMED: usize = 1 << 10;
/// Linux's PATH_MAX: what is longer names no file.
const MOST_BYTES: usize = 4096;

/// A file that debug information refers to: a `.dwo` file, or what several debug files have in common (`dwz`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Absent {
    /// As the debug information names it.
    pub file: PathBuf,
    /// A file of that name is there, of another build or damaged.
    pub refused: Option<PathBuf>,
}

impl Absent {
    /// What is the matter, of the binary of that name.
    pub(crate) fn told(&self, binary: &str) -> String {
        let what = match &self.refused {
            Some(refused) => format!("{} is of another build or damaged", refused.display()),
            None => "it is not there".to_owned(),
        };
        format!(
            "{binary}: debug information refers to {}: {what}: what is inlined there is not told",
            self.file.display()
        )
    }
}

/// Those of one binary.
#[derive(Default)]
pub(crate) struct Absents {
    named: RefCell<BTreeSet<Absent>>,
    more: Cell<usize>,
}

impl Absents {
    /// `folder`: what a relative `name` is relative to.
    pub fn add(&self, folder: &[u8], name: &[u8], refused: Option<PathBuf>) {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(&bytes[..bytes.len().min(MOST_BYTES)]));
        let absent = Absent { file: path(folder).join(path(name)), refused };
        let mut named = self.named.borrow_mut();
        if named.len() < MOST_NAMED {
            named.insert(absent);
        } else if !named.contains(&absent) {
            self.more.set(self.more.get() + 1);
        }
    }

    /// Those that are named, and how many others there are.
    pub fn all(&self) -> (Vec<Absent>, usize) {
        (self.named.borrow().iter().cloned().collect(), self.more.get())
    }
}
