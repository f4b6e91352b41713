//! Writes packs of arguments: each argument in the pattern that stands for all.

use super::Printer;
use crate::demangle::tree::{Id, List, Node};

impl Printer<'_, '_> {
    /// `A&&, B&&` for `T&&...`: the pattern for each argument of the first pack in it.
    pub fn print_expansion(&mut self, pattern: Id) -> Option<()> {
        let Some(pack) = self.first_pack(pattern)? else {
            self.print_operand(pattern)?;
            return self.write("...");
        };
        let around = self.in_pack;
        let length = self.tree.items(pack).len();
        for number in 0..length {
            if number > 0 {
                self.write(", ")?;
            }
            self.in_pack = Some(number);
            self.print(pattern)?;
        }
        self.in_pack = around;
        Some(())
    }

    /// The first pack that a pattern refers to, but for those that it expands itself.
    pub fn first_pack(&mut self, pattern: Id) -> Option<Option<List>> {
        let mut left = vec![pattern];
        let mut parts = Vec::new();
        while let Some(id) = left.pop() {
            self.step()?;
            if let Some(items) = self.pack(id) {
                return Some(Some(items));
            }
            match self.tree.node(id) {
                Node::Expansion(_) | Node::Lambda { .. } | Node::Encoding(..) => (),
                _ => {
                    self.tree.parts(id, &mut parts);
                    left.extend(parts.drain(..).rev());
                }
            }
        }
        Some(None)
    }

    /// The pack that a parameter of a template stands for.
    pub fn pack(&self, id: Id) -> Option<List> {
        match self.tree.node(self.argument(id)??) {
            Node::Pack(items) => Some(items),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn packs_without_arguments_leave_no_comma() {
        for (name, expected) in [
            ("_ZN1MIiJEE2goEv", "M<int>::go()"),
            ("_ZN1MIiJEJEE2goEv", "M<int>::go()"),
            ("_ZN1MIJEJEE2goEv", "M<>::go()"),
            ("_ZN1MI1NIiJEEJEE2goEv", "M<N<int> >::go()"),
            ("_ZN1MI1NIiJEEE2goEv", "M<N<int> >::go()"),
            ("_Z1fIiJEEvT_DpT0_", "f<int>(int)"),
            ("_Z1fIiJEEvT_DpRKT0_", "f<int>(int)"),
            ("_Z1gIiJEEvPFvT_DpT0_E", "g<int>(void (*)(int))"),
            ("_ZN1V7emplaceIJEEEvDpOT_", "V::emplace<>()"),
            ("_ZN1SC1IJEEEDpOT_", "S::S<>()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn what_has_arguments_stays() {
        for (name, expected) in [
            ("_ZcmIiEvT_S0_", "operator,<int>(int, int)"),
            ("_ZgtIiJEEvT_S0_", "operator><int>(int, int)"),
            ("_ZN1nptIiEEvT_", "n::operator-><int>(int)"),
            ("_Z1fIXadL_ZN1ncmENS0_1BES1_EEJEEvv", "f<&n::operator,>()"),
            ("_Z1fPFvRiEOA3_iPPK1A", "f(void (*)(int&), int (&&) [3], A const**)"),
            ("_Z1fPFPFvvEvE", "f(void (*(*)())())"),
            ("_Z1fM1AFviE", "f(void (A::*)(int))"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn each_argument_of_a_pack_has_its_pattern() {
        for (name, expected) in [
            ("_Z1gIJiiEEiDpOT_", "g<int, int>(int&&, int&&)"),
            ("_Z1gIJPiPcEEiDpOT_", "g<int*, char*>(int*&&, char*&&)"),
            ("_Z1gIJRiiOcEEiDpOT_", "g<int&, int, char&&>(int&, int&&, char&&)"),
            ("_Z1gIiJN1n1AES1_EEiT_DpRKT0_", "g<int, n::A, n::A>(int, n::A const&, n::A const&)"),
            (
                "_Z1gIJPFviEA3_iRA3_iEEvDpOT_",
                "g<void (*)(int), int [3], int (&) [3]>(void (*&&)(int), int (&&) [3], int (&) [3])",
            ),
            (
                "_Z1gIJA3_cA3_KciEEvDpRKT_",
                "g<char [3], char const [3], int>(char const (&) [3], char const (&) [3], int const&)",
            ),
            ("_Z1gIJRiiEEvDpRT_", "g<int&, int>(int&, int&)"),
            ("_Z1gIJicEEvDpSt10unique_ptrIT_E", "g<int, char>(std::unique_ptr<int>, std::unique_ptr<char>)"),
            ("_Z1gIJ1AIiEcEEvDpOSaIT_E", "g<A<int>, char>(std::allocator<A<int> >&&, std::allocator<char>&&)"),
            (
                "_Z1gIJicEJaiEEvDpSt4pairIT_T0_E",
                "g<int, char, signed char, int>(std::pair<int, signed char>, std::pair<char, int>)",
            ),
            ("_ZN1AC1IJicEEEDpOT_", "A::A<int, char>(int&&, char&&)"),
            ("_Z1gIJicEEvDpOT_N1n1AEPS4_", "g<int, char>(int&&, char&&, n::A, n::A*)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn a_pack_without_arguments_leaves_nothing_of_its_pattern() {
        for (name, expected) in [
            ("_Z1gIJEEvcDpN1nIT_E4typeE", "g<>(char)"),
            ("_Z1gIJEEvDpSaIT_E", "g<>()"),
            ("_Z1gIJEEvcDpRKT_i", "g<>(char, int)"),
            ("_Z1gIJEEvDpOT_DpSaIS0_Ei", "g<>(int)"),
            ("_Z1gIJEcEvDpOSt4pairIT_T0_Ei", "g<, char>(int)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn packs_without_a_pattern_stay() {
        for (name, expected) in [
            ("_Z1gIJicEEvDpT_", "g<int, char>(int, char)"),
            ("_Z1gIJicEEvSt5tupleIJDpT_EE", "g<int, char>(std::tuple<int, char>)"),
            ("_Z1gIJEEvDpOT_", "g<>()"),
            ("_Z1gIJiEEvDpOT_", "g<int>(int&&)"),
            ("_ZN5fooDp1gIJicEEEvDpOT_", "fooDp::g<int, char>(int&&, char&&)"),
            ("_Z5fooDpv", "fooDp()"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}
