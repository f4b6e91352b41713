//! Expressions: Itanium C++ ABI, 5.1.6, "Expressions".

use super::operators::Form;
use super::Parser;
use crate::demangle::tree::{Id, List, Node, Parentheses};

impl Parser<'_> {
    /// `<expression>`
    pub fn expression(&mut self) -> Option<Id> {
        self.deeper(Self::bare_expression)
    }

    fn bare_expression(&mut self) -> Option<Id> {
        match self.peek_two() {
            [b'L', _] => self.primary(),
            [b'T', _] => self.parameter_in_expression(),
            [b'f', b'p'] => self.function_parameter(),
            [b'f', b'L'] if self.peek_behind(2).is_ascii_digit() => self.function_parameter(),
            [b'f', _] => self.fold(),
            [b'0'..=b'9', _] | [b'o', b'n'] | [b's', b'r'] | [b'd', b'n'] => self.unresolved_name(),
            [b'g', b's'] => self.global(),
            [b'u', _] => self.vendor_expression(),
            _ => self.operation(),
        }
    }

    fn parameter_in_expression(&mut self) -> Option<Id> {
        let parameter = self.template_parameter()?;
        self.maybe_template(parameter)
    }

    /// `<function-param>`
    fn function_parameter(&mut self) -> Option<Id> {
        if self.eat("fpT") {
            return self.add(Node::FunctionParameter(None));
        }
        if !self.eat("fp") {
            self.expect("fL")?;
            self.number()?;
            self.expect("p")?;
        }
        self.qualifiers();
        let number = self.number_from_zero()?;
        self.add(Node::FunctionParameter(Some(number.checked_add(1)?)))
    }

    /// `<fold-expression>`
    fn fold(&mut self) -> Option<Id> {
        self.expect("f")?;
        let kind = self.take(1)?;
        let operator = self.operator()?.name;
        let first = self.expression()?;
        let (left, right) = match kind {
            "l" => (None, Some(first)),
            "r" => (Some(first), None),
            "L" | "R" => (Some(first), Some(self.expression()?)),
            _ => return None,
        };
        self.add(Node::Fold { operator, left, right })
    }

    /// What `::` stands before.
    fn global(&mut self) -> Option<Id> {
        self.expect("gs")?;
        let of = match self.peek_two() {
            [b'n', b'w' | b'a'] | [b'd', b'l' | b'a'] => self.operation()?,
            _ => self.unresolved_name()?,
        };
        self.add(Node::Prefix("::", Parentheses::Never, of))
    }

    /// `u <source-name> <template-arg>* E`
    fn vendor_expression(&mut self) -> Option<Id> {
        self.expect("u")?;
        let name = self.source_name()?;
        let arguments = self.until_end(Self::template_argument)?;
        self.add(Node::Call(name, arguments))
    }

    fn operation(&mut self) -> Option<Id> {
        let code = self.peek_two();
        if let Some(special) = self.special_form(code) {
            return special;
        }
        let operator = self.operator()?;
        match operator.form {
            Form::Prefix => self.prefixed(operator.name.trim_start(), Parentheses::Mostly),
            Form::Step if !self.eat("_") => {
                let of = self.expression()?;
                self.add(Node::Postfix(of, operator.name))
            }
            Form::Step => self.prefixed(operator.name, Parentheses::Mostly),
            Form::Binary => {
                let left = self.expression()?;
                let right = self.expression()?;
                self.add(Node::Binary(operator.name, left, right))
            }
            Form::Other => None,
        }
    }

    fn prefixed(&mut self, operator: &'static str, parentheses: Parentheses) -> Option<Id> {
        let of = self.expression()?;
        self.add(Node::Prefix(operator, parentheses, of))
    }

    fn prefixed_type(&mut self, operator: &'static str, parentheses: Parentheses) -> Option<Id> {
        let of = self.type_()?;
        self.add(Node::Prefix(operator, parentheses, of))
    }

    /// Those that are not an operator with its operands; `None` for any other.
    fn special_form(&mut self, code: [u8; 2]) -> Option<Option<Id>> {
        let read: fn(&mut Self) -> Option<Id> = match &code {
            b"cl" => Self::call,
            b"cp" => Self::call,
            b"cv" => Self::conversion_of,
            b"tl" => Self::braced_of_type,
            b"il" => |parser| parser.braced(None),
            b"di" => Self::field,
            b"dx" => Self::element,
            b"dX" => Self::elements,
            b"nw" | b"na" => Self::new_expression,
            b"dl" => |parser| parser.prefixed("delete ", Parentheses::Mostly),
            b"da" => |parser| parser.prefixed("delete[] ", Parentheses::Mostly),
            b"aw" => |parser| parser.prefixed("co_await ", Parentheses::Mostly),
            b"sc" => |parser| parser.named_cast("static_cast"),
            b"dc" => |parser| parser.named_cast("dynamic_cast"),
            b"cc" => |parser| parser.named_cast("const_cast"),
            b"rc" => |parser| parser.named_cast("reinterpret_cast"),
            b"st" => |parser| parser.prefixed_type("sizeof ", Parentheses::Always),
            b"at" => |parser| parser.prefixed_type("alignof ", Parentheses::Always),
            b"ti" => |parser| parser.prefixed_type("typeid ", Parentheses::Always),
            b"sz" => |parser| parser.prefixed("sizeof ", Parentheses::Mostly),
            b"az" => |parser| parser.prefixed("alignof ", Parentheses::Mostly),
            b"te" => |parser| parser.prefixed("typeid ", Parentheses::Always),
            b"nx" => |parser| parser.prefixed("noexcept ", Parentheses::Always),
            b"tw" => |parser| parser.prefixed("throw ", Parentheses::Mostly),
            b"tr" => |parser| parser.add(Node::Name("throw")),
            b"sp" => Self::expansion,
            b"sZ" => Self::pack_size,
            b"sP" => |parser| {
                let items = parser.until_end(Self::template_argument)?;
                parser.add(Node::ListSize(items))
            },
            b"ix" => Self::index,
            b"qu" => Self::conditional,
            b"so" => Self::subobject,
            b"mc" => Self::member_pointer,
            b"rq" => |parser| parser.requires(List::default()),
            b"rQ" => Self::requires_of,
            _ => return None,
        };
        self.skip(2);
        Some(read(self))
    }

    fn call(&mut self) -> Option<Id> {
        let function = self.expression()?;
        let arguments = self.until_end(Self::expression)?;
        self.add(Node::Call(function, arguments))
    }

    /// `cv <type> <expression>` or `cv <type> _ <expression>* E`
    fn conversion_of(&mut self) -> Option<Id> {
        let around = std::mem::take(&mut self.in_conversion);
        let to = self.type_()?;
        self.in_conversion = around;
        let of = if self.eat("_") {
            let arguments = self.until_end(Self::expression)?;
            self.tree.add(Node::Arguments(arguments))
        } else {
            self.expression()?
        };
        self.add(Node::Cast(to, of))
    }

    fn named_cast(&mut self, name: &'static str) -> Option<Id> {
        let to = self.type_()?;
        let of = self.expression()?;
        self.add(Node::NamedCast(name, to, of))
    }

    fn expansion(&mut self) -> Option<Id> {
        let pattern = self.expression()?;
        self.add(Node::Expansion(pattern))
    }

    fn pack_size(&mut self) -> Option<Id> {
        let of = if self.peek() == b'T' { self.template_parameter()? } else { self.expression()? };
        self.add(Node::PackSize(of))
    }

    fn index(&mut self) -> Option<Id> {
        let of = self.expression()?;
        let index = self.expression()?;
        self.add(Node::Index(of, index))
    }

    fn conditional(&mut self) -> Option<Id> {
        let condition = self.expression()?;
        let then = self.expression()?;
        let otherwise = self.expression()?;
        self.add(Node::Conditional(condition, then, otherwise))
    }

    /// `so <type> <expression> [<offset>] <union-selector>* [p] E`
    fn subobject(&mut self) -> Option<Id> {
        let of = self.type_()?;
        let whole = self.expression()?;
        self.offset();
        while self.eat("_") {
            self.number();
        }
        self.eat("p");
        self.expect("E")?;
        self.add(Node::Subobject(whole, of))
    }

    /// `mc <type> <expression> [<offset>] E`
    fn member_pointer(&mut self) -> Option<Id> {
        let of = self.type_()?;
        let member = self.expression()?;
        self.offset();
        self.expect("E")?;
        self.add(Node::MemberPointer(of, member))
    }

    fn offset(&mut self) {
        self.eat("n");
        self.take_while(|one| one.is_ascii_digit());
    }
}
