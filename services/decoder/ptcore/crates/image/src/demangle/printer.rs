//! Writes a name in the words of binutils' `c++filt`.

mod declarators;
mod expressions;
mod literals;
mod names;
mod packs;

use super::tree::{Id, List, Node, Reference, Tree};
use crate::name::MAX_NAME;

/// How deep the parts of a name may stand in each other as they are written: substitutions make that deeper than it was read.
const MAX_DEPTH: u32 = 1 << 10;
/// How many parts are written at most: substitutions may double them without end, some without a byte.
const MAX_STEPS: u32 = 1 << 16;

/// What has been written. Each part is a function, which answers `None` where that becomes too much.
pub struct Printer<'t, 'a> {
    pub tree: &'t Tree<'a>,
    pub text: String,
    /// Which argument of packs is written, all where it is none.
    pub in_pack: Option<usize>,
    /// What the parameters of the template around stand for.
    pub arguments: List,
    /// In a constraint: those of each template around, the outermost first. Only there others than the innermost are meant.
    pub levels: Option<Vec<List>>,
    /// What the lambdas around declare between `<` and `>`.
    pub lambdas: Vec<List>,
    depth: u32,
    steps: u32,
}

impl<'t, 'a> Printer<'t, 'a> {
    pub fn new(tree: &'t Tree<'a>) -> Self {
        Printer {
            tree,
            text: String::new(),
            in_pack: None,
            arguments: List::default(),
            levels: None,
            lambdas: Vec::new(),
            depth: 0,
            steps: 0,
        }
    }

    pub fn write(&mut self, text: &str) -> Option<()> {
        if self.text.len() + text.len() > MAX_NAME {
            return None;
        }
        self.text.push_str(text);
        Some(())
    }

    pub fn write_number(&mut self, number: u64) -> Option<()> {
        self.write(&number.to_string())
    }

    pub fn last(&self) -> u8 {
        self.text.as_bytes().last().copied().unwrap_or(0)
    }

    pub fn step(&mut self) -> Option<()> {
        self.steps += 1;
        (self.steps <= MAX_STEPS).then_some(())
    }

    /// All of a part: its declarator stands around what has none here.
    pub fn print(&mut self, id: Id) -> Option<()> {
        self.left(id)?;
        self.right(id)
    }

    /// What `write` writes one level deeper.
    pub fn deeper(&mut self, write: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.step()?;
        if self.depth == MAX_DEPTH {
            return None;
        }
        self.depth += 1;
        write(self)?;
        self.depth -= 1;
        Some(())
    }

    /// What a parameter of a template stands for, and what is no parameter, or one of a lambda, itself.
    pub fn resolved(&mut self, id: Id) -> Option<Id> {
        let mut at = id;
        while let Some(argument) = self.argument(at)? {
            self.step()?;
            at = match (self.tree.node(argument), self.in_pack) {
                (Node::Pack(items), Some(number)) => self.tree.items(items).get(number).copied()?,
                _ => argument,
            };
        }
        Some(at)
    }

    fn argument(&self, id: Id) -> Option<Option<Id>> {
        match self.tree.node(id) {
            Node::Parameter(level, index) if self.lambdas.is_empty() => {
                let arguments = match &self.levels {
                    Some(levels) => *levels.get(level.unwrap_or(0))?,
                    None => self.arguments,
                };
                self.tree.items(arguments).get(index).copied().map(Some)
            }
            _ => Some(None),
        }
    }

    /// Parts with commas in between, nothing for packs without arguments.
    pub fn print_list(&mut self, list: List) -> Option<()> {
        let start = self.text.len();
        for &one in self.tree.items(list) {
            let end = self.text.len();
            if end > start {
                self.write(", ")?;
            }
            let before = self.text.len();
            self.print(one)?;
            if self.text.len() == before {
                self.text.truncate(end);
            }
        }
        Some(())
    }

    /// `(parameters)`
    pub fn print_parameters(&mut self, list: List) -> Option<()> {
        self.write("(")?;
        self.print_list(list)?;
        self.write(")")
    }

    /// `<arguments>`: as c++filt does it, packs without arguments leave a comma unless they are at the end.
    pub fn print_arguments(&mut self, list: List) -> Option<()> {
        self.write(if self.last() == b'<' { " <" } else { "<" })?;
        let mut end = self.text.len();
        for (number, &one) in self.tree.items(list).iter().enumerate() {
            if number > 0 {
                self.write(", ")?;
            }
            let before = self.text.len();
            self.print(one)?;
            if self.text.len() > before {
                end = self.text.len();
            }
        }
        self.text.truncate(end);
        self.write(if self.last() == b'>' { " >" } else { ">" })
    }

    /// References collapse: what is referred to, and how.
    pub fn collapsed(&mut self, of: Id, reference: Reference) -> Option<(Id, Reference)> {
        let mut reference = reference;
        let mut of = of;
        loop {
            self.step()?;
            let Node::Reference(inner, kind) = self.tree.node(self.resolved(of)?) else { return Some((of, reference)) };
            if kind == Reference::LValue {
                reference = kind;
            }
            of = inner;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    /// Each type has the one before it twice, substituted.
    fn doubled(levels: usize) -> String {
        let digit = |number: usize| char::from_digit(number as u32, 36).unwrap().to_ascii_uppercase();
        let before = |level: usize| if level == 0 { "S_".to_owned() } else { format!("S{}_", digit(level - 1)) };
        (0..levels).map(|level| format!("Fv{0}{0}E", before(level))).collect()
    }

    #[test]
    fn types_that_grow_without_end_stay_mangled() {
        assert_eq!(demangle(&format!("_Z1fP1A{}", doubled(1))), "f(A*, void (A, A))");
        let name = format!("_Z1fP1A{}", doubled(36));
        assert_eq!(demangle(&name), name);
    }

    #[test]
    fn what_grows_without_a_byte_written_stays_mangled() {
        // Such a type is searched for packs; a type of no arguments writes none.
        for start in ["_Z1fIJEEvP1ADpT_", "_Z1fIJEEvDpT_"] {
            let name = format!("{start}{}Dp{}", doubled(36), "SZ_");
            assert_eq!(demangle(&name), name);
        }
    }
}
