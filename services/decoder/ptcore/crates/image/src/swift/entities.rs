//! Functions, variables and what else stands in a context: `main.Shelf.put(_:at:)`.

use super::machine::{Machine, Node, MAX_DEPTH};

impl Machine<'_> {
    pub(super) fn extension(&mut self) -> Option<()> {
        self.pop_signature();
        self.pop_context()?;
        let (name, _) = self.pop_type()?;
        self.push(Node::Entity(name))
    }

    pub(super) fn function(&mut self) -> Option<()> {
        self.pop_signature();
        let count = self.pop_function()?;
        let labels = self.pop_labels(count)?;
        let name = self.pop_identifier()?;
        let context = self.pop_context()?;
        self.push(Node::Entity(format!("{context}.{name}{labels}")))
    }

    /// `(_:at:)`.
    fn pop_labels(&mut self, count: usize) -> Option<String> {
        if count == 0 {
            return Some("()".to_owned());
        }
        if self.pop_empty() {
            return Some(format!("({})", "_:".repeat(count.min(MAX_DEPTH))));
        }
        let mut labels = Vec::new();
        for _ in 0..count {
            labels.push(if self.pop_first() { "_".to_owned() } else { self.pop_identifier()? });
        }
        labels.reverse();
        Some(format!("({}:)", labels.join(":")))
    }

    pub(super) fn special_function(&mut self) -> Option<()> {
        let kind = self.next()?;
        let index = match kind {
            b'A' | b'U' | b'u' => self.index()? + 1,
            _ => 0,
        };
        let name = match kind {
            b'C' | b'c' => {
                let count = self.pop_function_type()?;
                let labels = self.pop_labels(count)?;
                format!("init{labels}")
            }
            b'D' | b'd' => "deinit".to_owned(),
            b'Z' => "isolated deinit".to_owned(),
            b'E' => "ivar destroyer".to_owned(),
            b'e' => "ivar initializer".to_owned(),
            b'i' => "variable initializer".to_owned(),
            b'A' => format!("default argument {index}"),
            b'U' | b'u' => {
                self.pop_function_type()?;
                format!("closure #{index}")
            }
            _ => return None,
        };
        let context = self.pop_context()?;
        self.push(Node::Entity(format!("{context}.{name}")))
    }

    pub(super) fn variable(&mut self) -> Option<()> {
        self.pop_marks();
        self.pop_function_type()?;
        let name = self.pop_identifier()?;
        let context = self.pop_context()?;
        self.accessor(format!("{context}.{name}"))
    }

    pub(super) fn subscript(&mut self) -> Option<()> {
        let count = self.pop_function_type()?;
        let labels = self.pop_labels(count)?;
        let context = self.pop_context()?;
        self.accessor(format!("{context}.subscript{labels}"))
    }

    fn accessor(&mut self, name: String) -> Option<()> {
        let kind = match self.next()? {
            b'p' => return self.push(Node::Entity(name)),
            b'g' | b'G' => "getter",
            b's' => "setter",
            b'M' | b'x' => "modify",
            b'r' | b'y' => "read",
            b'w' => "willSet",
            b'W' => "didSet",
            b'i' => "init",
            b'a' | b'l' => {
                self.next()?;
                "addressor"
            }
            _ => return None,
        };
        self.push(Node::Entity(format!("{name}.{kind}")))
    }
}
