//! Swift's names, without the types: `main.Shelf.put(_:at:)`, as Swift's own guides write functions.
//!
//! The mangling is a program for a machine with a stack (Swift's `docs/ABI/Mangling.rst`, Swift 5 and later). What is
//! not part of a qualified name is read only as far as needed to go on; an operator that is not known here ends the
//! reading, and the name stays mangled.

mod entities;
mod generated;
mod generics;
mod identifiers;
mod machine;
mod substitutions;
mod types;

use crate::name::MAX_NAME;
use machine::{Machine, Node, MAX_DEPTH};

/// The name behind a mangled one; `None` for names of other languages and for what is not understood.
pub fn demangle(mangled: &str) -> Option<String> {
    let start = ["$s", "$S", "_$s", "_$S", "$e", "_$e"].iter().find_map(|prefix| mangled.strip_prefix(prefix))?;
    let (start, suffix) = start.split_at(start.find('.').unwrap_or(start.len()));
    if !start.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$') {
        return None;
    }
    let mut machine = Machine { rest: start.as_bytes(), ..Machine::default() };
    while !machine.rest.is_empty() {
        machine.step()?;
        if machine.stack.len() > MAX_DEPTH || machine.substitutions.len() > MAX_DEPTH {
            return None;
        }
    }
    let mut left = machine.stack.into_iter();
    match (left.next()?, left.next()) {
        (Node::Entity(name) | Node::Type(name, _), None) if name.len() < MAX_NAME => Some(name + suffix),
        _ => None,
    }
}

impl Machine<'_> {
    fn step(&mut self) -> Option<()> {
        let first = *self.rest.first()?;
        if first.is_ascii_digit() {
            let name = self.identifier()?;
            return self.remember(Node::Identifier(name));
        }
        self.next()?;
        match first {
            b'A' => self.substituted(),
            b'B' => self.builtin(),
            b'C' | b'V' | b'O' | b'P' | b'a' => self.nominal(),
            b'E' => self.extension(),
            b'F' => self.function(),
            b'G' => self.bound_generic(),
            b'K' | b'h' | b'n' | b'd' => self.push(Node::Mark),
            b'L' => self.local(),
            b'M' => self.metadata(),
            b'Q' => self.associated(),
            b'R' => self.requirement(),
            b'S' => self.standard(),
            b'T' => self.thunk(),
            b'X' => self.special(),
            b'Y' => self.annotation(),
            b'Z' => self.entity_as(|name| name),
            b'c' => self.function_type(),
            b'f' => self.special_function(),
            b'i' => self.subscript(),
            b'l' => self.signature(),
            b'm' | b'z' => self.type_as(|name| name),
            b'o' => self.operator(),
            b'p' => self.protocols(),
            b'q' => self.parameter().and_then(|()| self.push_type("")),
            b'r' => self.counts(),
            b's' => self.push(Node::Entity("Swift".to_owned())),
            b't' => self.tuple(),
            b'u' => self.generic(),
            b'v' => self.variable(),
            b'w' => self.value_witness(),
            b'x' => self.push_type(""),
            b'y' => self.push(Node::Empty),
            b'_' => self.push(Node::First),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names_with_labels() {
        for (mangled, name) in EXAMPLES {
            assert_eq!(demangle(mangled).as_deref(), Some(*name), "{mangled}");
        }
    }

    const EXAMPLES: &[(&str, &str)] = &[
        ("$s4main5helloSSyYaKF", "main.hello()"),
        ("$s4main3fooyyF", "main.foo()"),
        ("$s4main3foo1xySi_tF", "main.foo(x:)"),
        ("$s4main3fooyySiF", "main.foo(_:)"),
        ("$s4main3foo_1bySi_SitF", "main.foo(_:b:)"),
        ("$s4main5ShelfC3put4bookSiSS_tF", "main.Shelf.put(book:)"),
        ("$s4main5ShelfC5countSivg", "main.Shelf.count.getter"),
        ("$s4main5ShelfC8capacityACSi_tcfC", "main.Shelf.init(capacity:)"),
        ("$s4main5ShelfCfD", "main.Shelf.deinit"),
        ("$s4main5ShelfCMa", "type metadata accessor for main.Shelf"),
        ("$s4main3fooyyFyycfU_", "main.foo().closure #1"),
        ("$s4main3fooyyxSQRzlF", "main.foo(_:)"),
        ("$s4main3fooyyFTQ0_", "main.foo()"),
        ("$s4main5ShelfV2eeoiySbAC_ACtFZ", "main.Shelf.==(_:_:)"),
        ("$sSi4mainE5twiceSiyF", "Swift.Int.twice()"),
        ("$s4main5ShelfCySSSgSicig", "main.Shelf.subscript(_:).getter"),
        ("$s4main1fyyAA1P_pF", "main.f(_:)"),
        ("$s4main1fyyxAA1PRzlF", "main.f(_:)"),
        ("$s4main5StackV4pushyyxFSi_Tg5", "main.Stack.push(_:)"),
        ("$s4main9ShelfBookC03getB0AA4BookVyF", "main.ShelfBook.getShelf()"),
        ("$s4main3BoxVyACyxGxcfC", "main.Box.init(_:)"),
        ("$s4main5inneryys5Int32Vz_yADctF", "main.inner(_:_:)"),
        ("$s4main6LoggerC3log_5levelySS_AA5LevelOtF", "main.Logger.log(_:level:)"),
        ("$s4main4testyyF5innerL_yyF", "main.test().inner #1()"),
        ("$s4main3fooyyF.cold.1", "main.foo().cold.1"),
    ];

    #[test]
    fn what_is_not_understood_stays() {
        for name in ["$s", "$s4main", "$s4main3foo", "$s99main3fooyyF", "$sA", "$s4main3fooyyFTR", "main", "$sAA_"] {
            assert_eq!(demangle(name), None, "{name}");
        }
    }

    #[test]
    fn no_name_ends_the_program() {
        let letters = b"AABCEFGKLMQRSSTXYZacdfgilmnopqrstuvwxyz__0123456789";
        let mut state = 1u64;
        for _ in 0..200_000 {
            let mut name = String::from("$s4main");
            for _ in 0..24 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                name.push(char::from(letters[(state >> 33) as usize % letters.len()]));
            }
            let _ = demangle(&name);
        }
    }
}
