//! Types of functions: Itanium C++ ABI, 5.1.5.3, "Function types".

use super::Parser;
use crate::demangle::tree::{Exceptions, Id, Node, Signature};

impl Parser<'_> {
    pub fn starts_function(&self) -> bool {
        matches!(self.peek_two(), [b'F', _] | [b'D', b'o' | b'O' | b'w' | b'x'])
    }

    /// `<function-type>` behind its qualifiers.
    pub fn function_type(&mut self, mut signature: Signature) -> Option<Id> {
        signature.exceptions = self.exceptions()?;
        signature.transaction_safe = self.eat("Dx");
        self.expect("F")?;
        // extern "C"
        self.eat("Y");
        signature.returns = Some(self.type_()?);
        let mut parameters = Vec::new();
        if !self.eat("v") {
            while !self.ends_parameters() {
                parameters.push(self.type_()?);
            }
        }
        signature.parameters = self.tree.list(&parameters);
        signature.reference = self.reference_qualifier();
        self.expect("E")?;
        self.add(Node::Function(signature))
    }

    fn ends_parameters(&self) -> bool {
        matches!(self.peek_two(), [b'E', _] | [b'R' | b'O', b'E'] | [0, _])
    }

    /// `<exception-spec>`
    fn exceptions(&mut self) -> Option<Option<Exceptions>> {
        Some(if self.eat("Do") {
            Some(Exceptions::Noexcept)
        } else if self.eat("DO") {
            let condition = self.expression()?;
            self.expect("E")?;
            Some(Exceptions::NoexceptIf(condition))
        } else if self.eat("Dw") {
            Some(Exceptions::Throws(self.until_end(Self::type_)?))
        } else {
            None
        })
    }
}
