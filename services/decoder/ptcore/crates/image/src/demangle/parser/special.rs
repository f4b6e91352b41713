//! Tables, thunks and the like: Itanium C++ ABI, 5.1.4, "Virtual Tables and RTTI".

use super::encodings::Place;
use super::Parser;
use crate::demangle::tree::{Id, Node};

impl Parser<'_> {
    /// `<special-name>`
    pub fn special_name(&mut self) -> Option<Id> {
        let what = self.take(2)?;
        let of_type = match what {
            "TV" => "vtable for ",
            "TT" => "VTT for ",
            "TI" => "typeinfo for ",
            "TS" => "typeinfo name for ",
            "TF" => "typeinfo fn for ",
            "TJ" => "java Class for ",
            _ => "",
        };
        if !of_type.is_empty() {
            let id = self.type_()?;
            return self.add(Node::Special(of_type, id));
        }
        let of_name = match what {
            "GV" => "guard variable for ",
            "TH" => "TLS init function for ",
            "TW" => "TLS wrapper function for ",
            _ => "",
        };
        if !of_name.is_empty() {
            let id = self.name()?.id;
            return self.add(Node::Special(of_name, id));
        }
        match what {
            "TA" => {
                let id = self.template_argument()?;
                self.add(Node::Special("template parameter object for ", id))
            }
            "TC" => self.construction_vtable(),
            "Th" | "Tv" | "Tc" => self.thunk(what),
            "GR" => self.reference_temporary(),
            "GA" => self.special_encoding("hidden alias for "),
            "GT" if self.eat("n") => self.special_encoding("non-transaction clone for "),
            "GT" if self.eat("t") => self.special_encoding("transaction clone for "),
            "GI" => {
                let module = self.module_name()?;
                self.add(Node::Special("initializer for module ", module))
            }
            _ => None,
        }
    }

    fn special_encoding(&mut self, before: &'static str) -> Option<Id> {
        let function = self.encoding(Place::Outer)?;
        self.add(Node::Special(before, function))
    }

    fn construction_vtable(&mut self) -> Option<Id> {
        let derived = self.type_()?;
        self.number()?;
        self.expect("_")?;
        let base = self.type_()?;
        self.add(Node::ConstructionVtable(base, derived))
    }

    fn reference_temporary(&mut self) -> Option<Id> {
        let of = self.name()?.id;
        let number = self.sequence().unwrap_or(0);
        self.add(Node::ReferenceTemporary(of, number as u64))
    }

    fn thunk(&mut self, what: &str) -> Option<Id> {
        let before = match what {
            "Th" => "non-virtual thunk to ",
            "Tv" => "virtual thunk to ",
            _ => "covariant return thunk to ",
        };
        if what == "Tc" {
            self.call_offset()?;
            self.call_offset()?;
        } else {
            self.offsets(what == "Tv")?;
        }
        self.special_encoding(before)
    }

    /// `<call-offset>`
    fn call_offset(&mut self) -> Option<()> {
        let is_virtual = self.eat("v");
        if !is_virtual {
            self.expect("h")?;
        }
        self.offsets(is_virtual)
    }

    fn offsets(&mut self, is_virtual: bool) -> Option<()> {
        for _ in 0..=u32::from(is_virtual) {
            self.signed_number()?;
            self.expect("_")?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn tables_and_variables_say_what_they_are_for() {
        for (name, expected) in [
            ("_ZTV1A", "vtable for A"),
            ("_ZTT1A", "VTT for A"),
            ("_ZTI1A", "typeinfo for A"),
            ("_ZTS1A", "typeinfo name for A"),
            ("_ZTIPKc", "typeinfo for char const*"),
            ("_ZTC1A8_1B", "construction vtable for B-in-A"),
            ("_ZTW1x", "TLS wrapper function for x"),
            ("_ZTH1x", "TLS init function for x"),
            ("_ZGV1x", "guard variable for x"),
            ("_ZGVZ1fvE1x", "guard variable for f()::x"),
            ("_ZGRZ1fvE1x0", "reference temporary #0 for f()::x"),
            ("_ZGTt1fv", "transaction clone for f()"),
            ("_ZGTn1fv", "non-transaction clone for f()"),
            ("_ZGA1fv", "hidden alias for f()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}
