//! Generic parameters and their requirements, which a name does not show.

use super::machine::{Machine, Node};

impl Machine<'_> {
    pub(super) fn parameter(&mut self) -> Option<()> {
        if self.next_if(b'z') {
            return Some(());
        }
        if self.next_if(b'd') {
            self.index()?;
        }
        self.index().map(drop)
    }

    /// A type that another one has by a protocol: `Element` of a sequence.
    pub(super) fn associated(&mut self) -> Option<()> {
        match self.next()? {
            b'z' => {}
            b'y' => self.parameter()?,
            b'r' => return self.push_type(""),
            _ => return None,
        }
        if matches!(self.stack.last(), Some(Node::Type(..))) {
            self.stack.pop();
        }
        self.pop_identifier()?;
        self.remember(Node::Type(String::new(), 1))
    }

    pub(super) fn requirement(&mut self) -> Option<()> {
        match *self.rest.first()? {
            b'b' | b's' => self.next().map(drop)?,
            b'l' => {
                self.next();
                self.parameter()?;
                matches!(self.next()?, b'U' | b'R' | b'N' | b'C' | b'D' | b'T').then_some(())?;
                return self.push(Node::Signature);
            }
            b'z' | b'_' | b'd' | b'0'..=b'9' => {}
            _ => return None,
        }
        self.parameter()?;
        self.pop_protocol()?;
        self.push(Node::Signature)
    }

    pub(super) fn signature(&mut self) -> Option<()> {
        while self.pop_if(|node| matches!(node, Node::Signature)) {}
        self.push(Node::Signature)
    }

    pub(super) fn counts(&mut self) -> Option<()> {
        while !self.next_if(b'l') {
            if !self.next_if(b'z') {
                self.index()?;
            }
        }
        self.signature()
    }

    pub(super) fn generic(&mut self) -> Option<()> {
        let whole = self.stack.pop()?;
        self.pop_signature();
        // The signature stands behind the type or in front of it.
        match whole {
            Node::Signature => Some(()),
            other => self.push(other),
        }
    }
}
