//! What the parts of a name consist of.

use super::{Declared, Exceptions, Id, Node, Tree};

impl Tree<'_> {
    /// Adds the parts of `id` in the order in which they are written.
    pub fn parts(&self, id: Id, parts: &mut Vec<Id>) {
        match self.node(id) {
            Node::Nested(one, other)
            | Node::Local(one, other)
            | Node::InModule(one, other)
            | Node::Constrained(one, other)
            | Node::ConstructionVtable(one, other)
            | Node::PointerToMember(one, other)
            | Node::VendorQualified(one, other)
            | Node::Vector(one, other)
            | Node::Binary(_, one, other)
            | Node::Index(one, other)
            | Node::Cast(one, other)
            | Node::NamedCast(_, one, other)
            | Node::Field(one, other)
            | Node::Subobject(one, other)
            | Node::MemberPointer(one, other) => parts.extend([one, other]),
            Node::Conversion(of)
            | Node::Before(_, of)
            | Node::Special(_, of)
            | Node::Constructor(of)
            | Node::Destructor(of)
            | Node::ReferenceTemporary(of, _)
            | Node::Pointer(of)
            | Node::Reference(of, _)
            | Node::Qualified(of, _)
            | Node::Behind(of, _)
            | Node::Decltype(of)
            | Node::BitInt(of, _)
            | Node::ConstrainedAuto(of, _)
            | Node::Expansion(of)
            | Node::Literal(of, _)
            | Node::Prefix(_, _, of)
            | Node::Postfix(of, _)
            | Node::PackSize(of)
            | Node::DefaultArgument(_, of)
            | Node::Tagged(of, _) => parts.push(of),
            Node::Template(of, list) | Node::VendorType(of, list) | Node::Call(of, list) => {
                parts.push(of);
                parts.extend_from_slice(self.items(list));
            }
            Node::Braced(of, list) => {
                parts.extend(of);
                parts.extend_from_slice(self.items(list));
            }
            Node::Pack(list) | Node::Arguments(list) | Node::ListSize(list) => {
                parts.extend_from_slice(self.items(list))
            }
            Node::Array(dimension, of) => {
                parts.extend(dimension);
                parts.push(of);
            }
            Node::Conditional(one, two, three) => parts.extend([one, two, three]),
            Node::Element(first, last, value) => {
                parts.push(first);
                parts.extend(last);
                parts.push(value);
            }
            Node::New { placement, of, initial } => {
                parts.extend_from_slice(self.items(placement));
                parts.push(of);
                parts.extend(initial);
            }
            Node::Fold { left, right, .. } => parts.extend(left.into_iter().chain(right)),
            Node::Function(signature) => {
                parts.extend(signature.returns);
                parts.extend_from_slice(self.items(signature.parameters));
                if let Some(Exceptions::NoexceptIf(condition)) = signature.exceptions {
                    parts.push(condition);
                }
            }
            Node::Requires { parameters, requirements } => {
                parts.extend_from_slice(self.items(parameters));
                parts.extend_from_slice(self.items(requirements));
            }
            Node::Requirement { of, .. } => parts.push(of),
            Node::Declared(Declared::Value(of), _) => parts.push(of),
            _ => (),
        }
    }
}
