//! Operators: Itanium C++ ABI, 5.1.3, "Operator Encodings".

use super::Parser;
use crate::demangle::tree::{Id, Node};

/// How an expression goes on behind its operator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Prefix,
    /// In front where a `_` follows, behind otherwise.
    Step,
    Binary,
    /// What is only in names, or has a form of its own.
    Other,
}

pub struct Operator {
    code: [u8; 2],
    /// What stands behind `operator`.
    pub name: &'static str,
    pub form: Form,
}

const fn operator(code: &[u8; 2], name: &'static str, form: Form) -> Operator {
    Operator { code: *code, name, form }
}

use Form::{Binary, Other, Prefix, Step};

/// By their codes.
const OPERATORS: [Operator; 51] = [
    operator(b"aN", "&=", Binary),
    operator(b"aS", "=", Binary),
    operator(b"aa", "&&", Binary),
    operator(b"ad", "&", Prefix),
    operator(b"an", "&", Binary),
    operator(b"aw", " co_await", Prefix),
    operator(b"cl", "()", Other),
    operator(b"cm", ",", Binary),
    operator(b"co", "~", Prefix),
    operator(b"dV", "/=", Binary),
    operator(b"da", " delete[]", Prefix),
    operator(b"de", "*", Prefix),
    operator(b"dl", " delete", Prefix),
    operator(b"ds", ".*", Binary),
    operator(b"dt", ".", Binary),
    operator(b"dv", "/", Binary),
    operator(b"eO", "^=", Binary),
    operator(b"eo", "^", Binary),
    operator(b"eq", "==", Binary),
    operator(b"ge", ">=", Binary),
    operator(b"gt", ">", Binary),
    operator(b"ix", "[]", Other),
    operator(b"lS", "<<=", Binary),
    operator(b"le", "<=", Binary),
    operator(b"ls", "<<", Binary),
    operator(b"lt", "<", Binary),
    operator(b"mI", "-=", Binary),
    operator(b"mL", "*=", Binary),
    operator(b"mi", "-", Binary),
    operator(b"ml", "*", Binary),
    operator(b"mm", "--", Step),
    operator(b"na", " new[]", Other),
    operator(b"ne", "!=", Binary),
    operator(b"ng", "-", Prefix),
    operator(b"nt", "!", Prefix),
    operator(b"nw", " new", Other),
    operator(b"oR", "|=", Binary),
    operator(b"oo", "||", Binary),
    operator(b"or", "|", Binary),
    operator(b"pL", "+=", Binary),
    operator(b"pl", "+", Binary),
    operator(b"pm", "->*", Binary),
    operator(b"pp", "++", Step),
    operator(b"ps", "+", Prefix),
    operator(b"pt", "->", Binary),
    operator(b"qu", "?", Other),
    operator(b"rM", "%=", Binary),
    operator(b"rS", ">>=", Binary),
    operator(b"rm", "%", Binary),
    operator(b"rs", ">>", Binary),
    operator(b"ss", "<=>", Binary),
];

impl Parser<'_> {
    /// `<operator-name>` by two letters.
    pub fn operator(&mut self) -> Option<&'static Operator> {
        let code = self.peek_two();
        let at = OPERATORS.binary_search_by_key(&code, |one| one.code).ok()?;
        self.skip(2);
        Some(&OPERATORS[at])
    }

    /// `<operator-name>` as the name of a function, but for conversions.
    pub fn operator_name(&mut self) -> Option<Id> {
        if self.eat("li") {
            let suffix = self.source_name()?;
            return self.add(Node::Before("operator\"\" ", suffix));
        }
        if let [b'v', b'0'..=b'9'] = self.peek_two() {
            self.skip(2);
            let name = self.source_name()?;
            return self.add(Node::Before("operator ", name));
        }
        let operator = self.operator()?;
        self.add(Node::Operator(operator.name))
    }

    /// `cv <type>`: what stands for an argument of the template is not known yet.
    pub fn conversion(&mut self) -> Option<Id> {
        self.expect("cv")?;
        let around = std::mem::replace(&mut self.in_conversion, true);
        let to = self.type_()?;
        self.in_conversion = around;
        self.add(Node::Conversion(to))
    }
}

#[cfg(test)]
mod tests {
    use super::OPERATORS;
    use crate::demangle::demangle;

    #[test]
    fn operators_are_found_by_their_codes() {
        assert!(OPERATORS.is_sorted_by_key(|one| one.code));
    }

    #[test]
    fn operators_are_written_as_in_the_source() {
        for (name, expected) in [
            ("_ZlsIiEvT_", "operator<< <int>(int)"),
            ("_ZltIiEvT_", "operator< <int>(int)"),
            ("_ZgtIiEvT_", "operator><int>(int)"),
            ("_Zv13foov", "operator foo()"),
            ("_ZnamPv", "operator new[](unsigned long, void*)"),
            ("_ZN1AdlEPv", "A::operator delete(void*)"),
            ("_ZN1AclEv", "A::operator()()"),
            ("_ZN1AixEi", "A::operator[](int)"),
            ("_ZN1AptEv", "A::operator->()"),
            ("_ZN1ApmEi", "A::operator->*(int)"),
            ("_ZN1AcmES_", "A::operator,(A)"),
            ("_ZN1AssERKS_", "A::operator<=>(A const&)"),
            ("_ZN1AaSERKS_", "A::operator=(A const&)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn conversions_may_be_templates() {
        for (name, expected) in [
            ("_ZN1AcvPiEv", "A::operator int*()"),
            ("_ZN1AcvT_IiEEv", "A::operator int<int>()"),
            ("_ZN1AcvPT_IiEEv", "A::operator int*<int>()"),
            ("_ZN1Acv1BIiEEv", "A::operator B<int>()"),
            ("_ZN1AcvPFivEEv", "A::operator int (*)()()"),
            ("_ZN2CTIiEcv1EIT_vEIcEEv", "CT<int>::operator E<char, void><char>()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}
