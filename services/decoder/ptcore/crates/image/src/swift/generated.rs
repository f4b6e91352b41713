//! Functions that the compiler makes: accessors of metadata, witnesses of values, thunks.

use super::machine::{Machine, Node};

impl Machine<'_> {
    pub(super) fn metadata(&mut self) -> Option<()> {
        let what = match self.next()? {
            b'a' => "type metadata accessor for",
            b'r' => "type metadata completion function for",
            b'i' => "type metadata instantiation function for",
            _ => return None,
        };
        let (name, _) = self.pop_type()?;
        self.push(Node::Entity(format!("{what} {name}")))
    }

    pub(super) fn value_witness(&mut self) -> Option<()> {
        let (first, second) = (self.next()?, self.next()?);
        let (name, _) = self.pop_type()?;
        self.push(Node::Entity(format!("value witness {}{} for {name}", char::from(first), char::from(second))))
    }

    pub(super) fn thunk(&mut self) -> Option<()> {
        match self.next()? {
            // Ways into a function, and the parts that a function which waits is cut into.
            b'o' | b'O' | b'D' | b'm' | b'j' | b'u' | b'A' => Some(()),
            b'Q' | b'Y' => self.index().map(drop),
            // A function made for certain types.
            b'g' | b'G' => {
                self.next()?.is_ascii_digit().then_some(())?;
                self.pop_list(false).map(drop)
            }
            _ => None,
        }?;
        self.entity_as(|name| name)
    }
}
