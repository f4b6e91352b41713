//! Types, of which a name shows those that contain something, and how many parameters a function has.

use super::machine::{Machine, Node, MAX_DEPTH};

impl Machine<'_> {
    /// A class, structure, enumeration, protocol or alias.
    pub(super) fn nominal(&mut self) -> Option<()> {
        let name = self.pop_identifier()?;
        let context = self.pop_context()?;
        self.remember(Node::Type(format!("{context}.{name}"), 1))
    }

    pub(super) fn builtin(&mut self) -> Option<()> {
        match self.next()? {
            b'i' | b'f' => self.index().map(drop)?,
            b'v' => {
                self.index()?;
                return self.type_as(|name| name);
            }
            _ => {}
        }
        let node = Node::Type("Builtin".to_owned(), 1);
        self.remember(node)
    }

    pub(super) fn bound_generic(&mut self) -> Option<()> {
        loop {
            while matches!(self.stack.last(), Some(Node::Type(..) | Node::Function(_))) {
                self.stack.pop();
            }
            if self.pop_empty() {
                break;
            }
            self.pop_first().then_some(())?;
        }
        let (name, _) = self.pop_type()?;
        self.remember(Node::Type(name, 1))
    }

    pub(super) fn tuple(&mut self) -> Option<()> {
        let count = self.pop_list(true)?;
        self.push(Node::Type(String::new(), count))
    }

    /// A list of types in which a mark follows the first one.
    pub(super) fn pop_list(&mut self, labels: bool) -> Option<usize> {
        if self.pop_empty() {
            return Some(0);
        }
        for count in 1..MAX_DEPTH {
            let first = self.pop_first();
            self.pop_marks();
            if labels && matches!(self.stack.last(), Some(Node::Identifier(_))) {
                self.stack.pop();
            }
            self.pop_type()?;
            if first {
                return Some(count);
            }
        }
        None
    }

    pub(super) fn protocols(&mut self) -> Option<()> {
        if !self.pop_empty() {
            loop {
                let first = self.pop_first();
                self.pop_protocol()?;
                if first {
                    break;
                }
            }
        }
        self.push_type("")
    }

    /// A protocol stands as a type, or as its name behind where it is declared.
    pub(super) fn pop_protocol(&mut self) -> Option<()> {
        if matches!(self.stack.last(), Some(Node::Identifier(_))) {
            self.pop_identifier()?;
            return self.pop_context().map(drop);
        }
        self.pop_type().map(drop)
    }

    pub(super) fn function_type(&mut self) -> Option<()> {
        let count = self.pop_function()?;
        self.push(Node::Function(count))
    }

    /// How many parameters the function's type on the stack has, 0 for another type.
    pub(super) fn pop_function_type(&mut self) -> Option<usize> {
        match self.stack.pop()? {
            Node::Function(count) => Some(count),
            Node::Type(..) => Some(0),
            _ => None,
        }
    }

    /// How many parameters the function has whose result and parameters are on the stack.
    pub(super) fn pop_function(&mut self) -> Option<usize> {
        self.pop_marks();
        let count = if self.pop_empty() {
            0
        } else {
            self.pop_marks();
            self.pop_type()?.1
        };
        if !self.pop_empty() {
            self.pop_marks();
            self.pop_type()?;
        }
        Some(count)
    }

    pub(super) fn special(&mut self) -> Option<()> {
        match self.next()? {
            b'E' | b'C' | b'B' | b'K' | b'A' | b'f' | b'L' | b'U' => self.function_type(),
            b'o' | b'w' | b'u' | b'S' | b'D' | b'p' => self.type_as(|name| name),
            b'm' | b'M' => {
                self.next()?;
                self.type_as(|name| name)
            }
            b'l' => self.protocols(),
            _ => None,
        }
    }

    pub(super) fn annotation(&mut self) -> Option<()> {
        match self.next()? {
            b'a' | b'b' | b'u' | b'T' | b'A' => {}
            b'K' | b'c' => drop(self.pop_type()?),
            _ => return None,
        }
        self.push(Node::Mark)
    }
}
