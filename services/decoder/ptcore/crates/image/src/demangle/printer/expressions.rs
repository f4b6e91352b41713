//! Writes expressions.

use super::Printer;
use crate::demangle::tree::{Id, List, Node, Parentheses, Qualifiers};

impl Printer<'_, '_> {
    pub fn expression(&mut self, node: Node) -> Option<()> {
        match node {
            Node::VendorType(name, arguments) | Node::Call(name, arguments) => self.call(name, arguments),
            Node::Literal(of, value) => self.literal(of, value),
            Node::FunctionParameter(None) => self.write("this"),
            Node::FunctionParameter(Some(number)) => {
                self.write("{parm#")?;
                self.write_number(number)?;
                self.write("}")
            }
            Node::Prefix(operator, parentheses, of) => self.prefixed(operator, parentheses, of),
            Node::Postfix(of, operator) => {
                self.print_operand(of)?;
                self.write(operator)
            }
            Node::Binary(operator, left, right) => self.binary(operator, left, right),
            Node::Conditional(condition, then, otherwise) => {
                self.print_operand(condition)?;
                self.write("?")?;
                self.print_operand(then)?;
                self.write(" : ")?;
                self.print_operand(otherwise)
            }
            Node::Index(of, index) => {
                self.print_operand(of)?;
                self.write("[")?;
                self.print(index)?;
                self.write("]")
            }
            Node::Arguments(list) => self.print_list(list),
            Node::Cast(to, of) => {
                self.write("(")?;
                self.print(to)?;
                self.write(")")?;
                self.print_operand(of)
            }
            Node::NamedCast(name, to, of) => {
                self.write(name)?;
                self.write("<")?;
                self.print(to)?;
                self.write(">(")?;
                self.print(of)?;
                self.write(")")
            }
            Node::Braced(of, items) => {
                if let Some(of) = of {
                    self.print(of)?;
                }
                self.write("{")?;
                self.print_list(items)?;
                self.write("}")
            }
            Node::New { placement, of, initial } => self.new_expression(placement, of, initial),
            Node::Fold { operator, left, right } => self.fold(operator, left, right),
            Node::PackSize(of) => {
                let length = self.first_pack(of)?.map_or(0, |pack| self.tree.items(pack).len());
                self.write_number(length as u64)
            }
            Node::ListSize(items) => self.list_size(items),
            Node::Field(name, value) => {
                self.write(".")?;
                self.print(name)?;
                self.designated(value)
            }
            Node::Element(first, last, value) => {
                self.write("[")?;
                self.print(first)?;
                if let Some(last) = last {
                    self.write(" ... ")?;
                    self.print(last)?;
                }
                self.write("]")?;
                self.designated(value)
            }
            Node::Subobject(whole, of) => {
                self.print_operand(whole)?;
                self.write(".<")?;
                self.print(of)?;
                self.write(">")
            }
            Node::MemberPointer(of, member) => {
                self.write("(")?;
                self.print(of)?;
                self.write(")")?;
                self.print_operand(member)
            }
            Node::Requires { parameters, requirements } => self.requires(parameters, requirements),
            Node::Requirement { noexcept, of, constraint } => {
                self.write("{")?;
                self.print(of)?;
                self.write("}")?;
                if noexcept {
                    self.write(" noexcept")?;
                }
                if let Some(constraint) = constraint {
                    self.write(" -> ")?;
                    self.print(constraint)?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// A part of an expression, in parentheses but for mere names.
    pub fn print_operand(&mut self, id: Id) -> Option<()> {
        match self.tree.node(id) {
            Node::Name(_) | Node::Before(..) | Node::Nested(..) | Node::Braced(..) | Node::FunctionParameter(_) => {
                self.print(id)
            }
            _ => {
                self.write("(")?;
                self.print(id)?;
                self.write(")")
            }
        }
    }

    fn call(&mut self, function: Id, arguments: List) -> Option<()> {
        // Its parameters are not written beside its arguments.
        match self.tree.node(function) {
            Node::Encoding(name, ..) => self.print_operand(name)?,
            _ => self.print_operand(function)?,
        }
        self.print_parameters(arguments)
    }

    fn prefixed(&mut self, operator: &str, parentheses: Parentheses, of: Id) -> Option<()> {
        self.write(operator)?;
        match (parentheses, self.tree.node(of)) {
            (Parentheses::Never, _) => self.print(of),
            (Parentheses::Always, _) => {
                self.write("(")?;
                self.print(of)?;
                self.write(")")
            }
            (Parentheses::Mostly, Node::Encoding(name, _, signature))
                if operator == "&"
                    && signature.qualifiers == Qualifiers::default()
                    && signature.reference.is_none()
                    && matches!(self.tree.node(name), Node::Nested(..)) =>
            {
                self.print(name)
            }
            (Parentheses::Mostly, _) => self.print_operand(of),
        }
    }

    /// `>` stands in parentheses, because it would end the arguments of a template.
    fn binary(&mut self, operator: &str, left: Id, right: Id) -> Option<()> {
        let is_closing = operator == ">";
        if is_closing {
            self.write("(")?;
        }
        self.print_operand(left)?;
        self.write(operator)?;
        self.print_operand(right)?;
        self.write(if is_closing { ")" } else { "" })
    }

    fn new_expression(&mut self, placement: List, of: Id, initial: Option<Id>) -> Option<()> {
        self.write("new ")?;
        if !placement.is_empty() {
            self.print_parameters(placement)?;
            self.write(" ")?;
        }
        self.print(of)?;
        match initial {
            Some(initial) => self.print_operand(initial),
            None => Some(()),
        }
    }

    fn fold(&mut self, operator: &str, left: Option<Id>, right: Option<Id>) -> Option<()> {
        let around = self.in_pack.take();
        self.write("(")?;
        if let Some(left) = left {
            self.print_folded(left)?;
            self.write(operator)?;
        }
        self.write("...")?;
        if let Some(right) = right {
            self.write(operator)?;
            self.print_folded(right)?;
        }
        self.in_pack = around;
        self.write(")")
    }

    /// A pack is written as a whole.
    fn print_folded(&mut self, id: Id) -> Option<()> {
        if let Some(items) = self.pack(id) {
            return self.print_parameters(items);
        }
        self.print_operand(id)
    }

    fn list_size(&mut self, items: List) -> Option<()> {
        let mut size = 0;
        for &one in self.tree.items(items) {
            size += match self.tree.node(one) {
                Node::Expansion(pattern) => match self.first_pack(pattern)? {
                    Some(pack) => self.tree.items(pack).len(),
                    None => 1,
                },
                _ => 1,
            };
        }
        self.write_number(size as u64)
    }

    fn designated(&mut self, value: Id) -> Option<()> {
        if matches!(self.tree.node(value), Node::Field(..) | Node::Element(..)) {
            return self.print(value);
        }
        self.write("=")?;
        self.print_operand(value)
    }

    fn requires(&mut self, parameters: List, requirements: List) -> Option<()> {
        self.write("requires")?;
        if !parameters.is_empty() {
            self.write(" ")?;
            self.print_parameters(parameters)?;
        }
        self.write(" {")?;
        for &one in self.tree.items(requirements) {
            self.write(" ")?;
            self.print(one)?;
            self.write(";")?;
        }
        self.write(" }")
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn operands_stand_in_parentheses_but_for_names() {
        for (name, expected) in [
            ("_Z1fIXplLi1ELi2EEEvv", "f<(1)+(2)>()"),
            ("_Z1fIXgtLi1ELi2EEEvv", "f<((1)>(2))>()"),
            ("_Z1fIXngLi1EEEvv", "f<-(1)>()"),
            ("_Z1fIXquLb1ELi1ELi2EEEvv", "f<(true)?(1) : (2)>()"),
            ("_Z1fIXdt1a1bEEvv", "f<a.b>()"),
            ("_Z1fIXpt1a1bEEvv", "f<a->b>()"),
            ("_Z1fIXpm1a1bEEvv", "f<a->*b>()"),
            ("_Z1fIXawLi1EEEvv", "f<co_await (1)>()"),
            ("_Z1fIXssLi1ELi2EEEvv", "f<(1)<=>(2)>()"),
            ("_Z1fIXpp_Li1EEEvv", "f<++(1)>()"),
            ("_Z1fIXppLi1EEEvv", "f<(1)++>()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn casts_and_words_have_their_operands_behind_them() {
        for (name, expected) in [
            ("_Z1fIXcviLl1EEEvv", "f<(int)(1l)>()"),
            ("_Z1fIXcvi_Li1ELi2EEEEvv", "f<(int)(1, 2)>()"),
            ("_Z1fIXsclLi1EEEvv", "f<static_cast<long>(1)>()"),
            ("_Z1fIXstiEEvv", "f<sizeof (int)>()"),
            ("_Z1fIXszLi1EEEvv", "f<sizeof (1)>()"),
            ("_Z1fIXtwLi1EEEvv", "f<throw (1)>()"),
            ("_Z1fIXtrEEvv", "f<throw>()"),
            ("_Z1fIXdlLi0EEEvv", "f<delete (0)>()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn functions_that_are_called_or_pointed_to_have_no_parameters_where_they_are_members() {
        for (name, expected) in [
            ("_Z1fIXcl1gLi1ELi2EEEEvv", "f<g(1, 2)>()"),
            ("_Z1fIXclL_Z1giELi1EEEEvv", "f<g(1)>()"),
            ("_Z1fIXadL_Z1giEEEvv", "f<&(g(int))>()"),
            ("_Z1fIXadL_ZN1A1gEiEEEvv", "f<&A::g>()"),
            ("_Z1fIXadL_ZNK1A1gEiEEEvv", "f<&(A::g(int) const)>()"),
            ("_Z1fIXadL_ZN1A1xEEEEvv", "f<&A::x>()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn packs_are_counted_and_folded() {
        for (name, expected) in [
            ("_Z1fIJicEEviDTsZT_E", "f<int, char>(int, decltype (2))"),
            ("_Z1fIXflplLi1EEEvv", "f<(...+(1))>()"),
            ("_Z1fIXfrplLi1EEEvv", "f<((1)+...)>()"),
            ("_Z1fIXfLplLi1ELi2EEEvv", "f<((1)+...+(2))>()"),
            ("_Z1fIJicEEvDTfrplT_E", "f<int, char>(decltype (((int, char)+...)))"),
            ("_Z1fIJicEEv1BIXfraasr1CIT_EE1vEE", "f<int, char>(B<(C<int, char>::v&&...)>)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}
