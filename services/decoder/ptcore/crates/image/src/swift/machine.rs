//! The machine: what is still to be read, and the stack of what was.

use crate::name::MAX_NAME;

pub const MAX_DEPTH: usize = 1 << 10;

#[derive(Clone)]
pub enum Node {
    Identifier(String),
    /// A module, function or variable: something that contains others.
    Entity(String),
    /// A type, and how many parameters it stands for as the parameters of a function.
    Type(String, usize),
    /// A function's type, with the number of its parameters.
    Function(usize),
    Empty,
    First,
    /// A mark on what follows, which the name does not show.
    Mark,
    Signature,
}

#[derive(Default)]
pub struct Machine<'m> {
    pub rest: &'m [u8],
    pub stack: Vec<Node>,
    pub substitutions: Vec<Node>,
    pub words: Vec<String>,
}

impl Machine<'_> {
    pub(super) fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    pub(super) fn next_if(&mut self, byte: u8) -> bool {
        let fits = self.rest.first() == Some(&byte);
        if fits {
            self.rest = &self.rest[1..];
        }
        fits
    }

    /// Words and substitutions let a short name grow: it must not do so without end.
    pub(super) fn push(&mut self, node: Node) -> Option<()> {
        let short = match &node {
            Node::Identifier(name) | Node::Entity(name) | Node::Type(name, _) => name.len() <= MAX_NAME,
            _ => true,
        };
        self.stack.push(node);
        short.then_some(())
    }

    pub(super) fn push_type(&mut self, name: &str) -> Option<()> {
        self.push(Node::Type(name.to_owned(), 1))
    }

    pub(super) fn natural(&mut self) -> Option<usize> {
        let mut number = None;
        while let Some(digit) = self.rest.first().filter(|byte| byte.is_ascii_digit()) {
            let value = number.unwrap_or(0usize).checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
            (number, self.rest) = (Some(value), &self.rest[1..]);
        }
        number
    }

    /// `_` is 0, `0_` is 1.
    pub(super) fn index(&mut self) -> Option<usize> {
        let number = self.natural().map_or(0, |number| number.saturating_add(1));
        self.next_if(b'_').then_some(number)
    }

    pub(super) fn pop_type(&mut self) -> Option<(String, usize)> {
        match self.stack.pop()? {
            Node::Type(name, count) => Some((name, count)),
            Node::Function(_) => Some((String::new(), 1)),
            _ => None,
        }
    }

    pub(super) fn pop_if(&mut self, fits: impl Fn(&Node) -> bool) -> bool {
        let popped = self.stack.last().is_some_and(fits);
        if popped {
            self.stack.pop();
        }
        popped
    }

    pub(super) fn pop_empty(&mut self) -> bool {
        self.pop_if(|node| matches!(node, Node::Empty))
    }

    pub(super) fn pop_first(&mut self) -> bool {
        self.pop_if(|node| matches!(node, Node::First))
    }

    pub(super) fn pop_marks(&mut self) {
        while self.pop_if(|node| matches!(node, Node::Mark)) {}
    }

    pub(super) fn pop_signature(&mut self) {
        self.pop_if(|node| matches!(node, Node::Signature));
    }

    pub(super) fn pop_identifier(&mut self) -> Option<String> {
        match self.stack.pop()? {
            Node::Identifier(name) => Some(name),
            _ => None,
        }
    }

    pub(super) fn pop_context(&mut self) -> Option<String> {
        match self.stack.pop()? {
            Node::Identifier(name) | Node::Entity(name) => Some(name),
            Node::Type(name, _) if !name.is_empty() => Some(name),
            _ => None,
        }
    }

    pub(super) fn type_as(&mut self, change: impl Fn(String) -> String) -> Option<()> {
        let (name, _) = self.pop_type()?;
        self.push(Node::Type(change(name), 1))
    }

    pub(super) fn entity_as(&mut self, change: impl Fn(String) -> String) -> Option<()> {
        match self.stack.pop()? {
            Node::Entity(name) => self.push(Node::Entity(change(name))),
            _ => None,
        }
    }
}
