//! Writes names, and types that have no declarator.

use super::Printer;
use crate::demangle::tree::{Declared, Id, List, Node, Signature};

impl Printer<'_, '_> {
    /// A part without a half that stands behind something else.
    pub fn whole(&mut self, id: Id, node: Node) -> Option<()> {
        match node {
            Node::Name(text) => self.write(text),
            Node::Nested(scope, name) => self.nested(scope, name),
            Node::Local(function, entity) => {
                self.print(function)?;
                self.write("::")?;
                self.print(entity)
            }
            Node::DefaultArgument(number, name) => {
                self.write("{default arg#")?;
                self.write_number(number)?;
                self.write("}::")?;
                self.print(name)
            }
            Node::Standard(name, _) => self.write(name),
            Node::Template(name, arguments) => {
                self.print(name)?;
                self.print_arguments(arguments)
            }
            Node::Constrained(template, requires) => {
                self.print(template)?;
                self.constraint(template, requires)
            }
            Node::Tagged(name, tag) => {
                self.print(name)?;
                self.write("[abi:")?;
                self.write(tag)?;
                self.write("]")
            }
            Node::Operator(name) => {
                self.write("operator")?;
                self.write(name)
            }
            Node::Conversion(to) => {
                self.write("operator ")?;
                self.print(to)
            }
            Node::Before(word, name) | Node::Special(word, name) => {
                self.write(word)?;
                self.print(name)
            }
            Node::Constructor(class) => self.class_name(class),
            Node::Destructor(class) => {
                self.write("~")?;
                self.class_name(class)
            }
            Node::Lambda { head, parameters, requires, number } => self.lambda(head, parameters, requires, number),
            Node::Unnamed(number) => {
                self.write("{unnamed type#")?;
                self.write_number(number)?;
                self.write("}")
            }
            Node::Binding(names) => {
                self.write("[")?;
                self.print_list(names)?;
                self.write("]")
            }
            Node::InModule(name, module) => {
                self.print(name)?;
                self.write("@")?;
                self.print(module)
            }
            Node::Module(around, is_partition, name) => self.module(around, is_partition, name),
            Node::Encoding(name, arguments, signature) => self.encoding(name, arguments, signature),
            Node::ConstructionVtable(base, derived) => {
                self.write("construction vtable for ")?;
                self.print(base)?;
                self.write("-in-")?;
                self.print(derived)
            }
            Node::ReferenceTemporary(of, number) => {
                self.write("reference temporary #")?;
                self.write_number(number)?;
                self.write(" for ")?;
                self.print(of)
            }
            Node::Decltype(of) => {
                self.write("decltype (")?;
                self.print(of)?;
                self.write(")")
            }
            Node::FloatN(bits, suffix) => {
                self.write("_Float")?;
                self.write_number(bits)?;
                self.write(suffix)
            }
            Node::BitInt(bits, is_signed) => {
                self.write(if is_signed { "signed _BitInt(" } else { "unsigned _BitInt(" })?;
                self.print(bits)?;
                self.write(")")
            }
            Node::ConstrainedAuto(concept, word) => {
                self.print(concept)?;
                self.write(word)
            }
            Node::Declared(..) | Node::DeclaredPack(_) | Node::DeclaredConstraint(..) => self.declaration(id),
            Node::Pack(items) => self.print_list(items),
            Node::Expansion(pattern) => self.print_expansion(pattern),
            node => self.expression(node),
        }
    }

    fn nested(&mut self, scope: Id, name: Id) -> Option<()> {
        self.print(scope)?;
        self.write("::")?;
        self.print(name)
    }

    /// The last name of a class, without arguments.
    fn class_name(&mut self, class: Id) -> Option<()> {
        let mut class = class;
        loop {
            self.step()?;
            class = match self.tree.node(class) {
                Node::Nested(scope, name) if matches!(self.tree.node(name), Node::Unnamed(_)) => scope,
                Node::Nested(_, name)
                | Node::Local(_, name)
                | Node::Template(name, _)
                | Node::Constrained(name, _)
                | Node::Behind(name, _)
                | Node::Tagged(name, _)
                | Node::InModule(name, _)
                | Node::DefaultArgument(_, name) => name,
                Node::Parameter(..) if self.lambdas.is_empty() => self.resolved(class)?,
                Node::Standard(_, last) => return self.write(last),
                _ => return self.print(class),
            };
        }
    }

    fn encoding(&mut self, name: Id, arguments: List, signature: Signature) -> Option<()> {
        let arguments_around = std::mem::replace(&mut self.arguments, arguments);
        let lambdas_around = std::mem::take(&mut self.lambdas);
        let levels_around = self.levels.take();
        self.function(name, signature)?;
        self.arguments = arguments_around;
        self.lambdas = lambdas_around;
        self.levels = levels_around;
        Some(())
    }

    fn function(&mut self, name: Id, signature: Signature) -> Option<()> {
        if let Some(returns) = signature.returns {
            self.left(returns)?;
            if !self.has_right(returns)? {
                self.write(" ")?;
            }
        }
        self.print(name)?;
        self.print_signature(signature)?;
        if let Some(returns) = signature.returns {
            self.right(returns)?;
        }
        match signature.requires {
            Some(requires) => self.constraint(name, requires),
            None => Some(()),
        }
    }

    /// ` requires C<int>` behind a name.
    fn constraint(&mut self, name: Id, requires: Id) -> Option<()> {
        self.write(" requires ")?;
        let levels = self.template_levels(name)?;
        let around = self.levels.replace(levels);
        self.print(requires)?;
        self.levels = around;
        Some(())
    }

    /// The arguments of each template in a name, the outermost first.
    fn template_levels(&mut self, name: Id) -> Option<Vec<List>> {
        let mut levels = Vec::new();
        let mut left = vec![name];
        while let Some(id) = left.pop() {
            self.step()?;
            match self.tree.node(id) {
                Node::Template(name, arguments) => {
                    levels.push(arguments);
                    left.push(name);
                }
                Node::Nested(scope, name) => left.extend([scope, name]),
                Node::Local(_, name)
                | Node::Constrained(name, _)
                | Node::Tagged(name, _)
                | Node::InModule(name, _)
                | Node::Behind(name, _) => left.push(name),
                _ => (),
            }
        }
        levels.reverse();
        Some(levels)
    }

    fn module(&mut self, around: Option<Id>, is_partition: bool, name: Id) -> Option<()> {
        if let Some(around) = around {
            self.print(around)?;
            self.write(if is_partition { ":" } else { "." })?;
        } else if is_partition {
            self.write(":")?;
        }
        self.print(name)
    }

    fn lambda(&mut self, head: List, parameters: List, requires: Option<Id>, number: u64) -> Option<()> {
        self.write("{lambda")?;
        self.lambdas.push(head);
        if !head.is_empty() {
            self.print_arguments(head)?;
        }
        self.print_parameters(parameters)?;
        if let Some(requires) = requires {
            self.write(" requires ")?;
            self.print(requires)?;
        }
        self.lambdas.pop();
        self.write("#")?;
        self.write_number(number)?;
        self.write("}")
    }

    /// `$T0` where the lambda declares it, `auto:1` otherwise.
    pub fn parameter_of_lambda(&mut self, level: Option<usize>, index: usize) -> Option<()> {
        let head = level.map_or(self.lambdas.last(), |level| self.lambdas.get(level)).copied()?;
        match self.tree.items(head).get(index) {
            Some(&declared) => self.declared_name(declared),
            None => {
                self.write("auto:")?;
                self.write_number(index as u64 + 1)
            }
        }
    }

    /// `typename $T0`, `int... $N1`, `template<typename> class $TT2`
    fn declaration(&mut self, id: Id) -> Option<()> {
        self.kind(id, "")?;
        self.write(" ")?;
        self.declared_name(id)
    }

    /// `typename`: a declaration without its name.
    fn kind(&mut self, id: Id, dots: &str) -> Option<()> {
        match self.tree.node(id) {
            Node::DeclaredPack(of) => return self.deeper(|printer| printer.kind(of, "...")),
            Node::Declared(Declared::Value(of), _) => self.print(of)?,
            Node::Declared(Declared::Template(inner), _) => {
                self.write("template<")?;
                for (number, &one) in self.tree.items(inner).iter().enumerate() {
                    self.write(if number > 0 { ", " } else { "" })?;
                    self.deeper(|printer| printer.kind(one, ""))?;
                }
                self.write("> class")?;
            }
            Node::DeclaredConstraint(concept, _) => self.print(concept)?,
            _ => self.write("typename")?,
        }
        self.write(dots)
    }

    fn declared_name(&mut self, id: Id) -> Option<()> {
        let (kind, number) = match self.tree.node(id) {
            Node::DeclaredPack(of) => return self.deeper(|printer| printer.declared_name(of)),
            Node::Declared(Declared::Value(_), number) => ("$N", number),
            Node::Declared(Declared::Template(_), number) => ("$TT", number),
            Node::Declared(Declared::Type, number) | Node::DeclaredConstraint(_, number) => ("$T", number),
            _ => return None,
        };
        self.write(kind)?;
        self.write_number(number)
    }
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn what_points_to_a_member_of_a_class_stands_behind_it() {
        for (name, expected) in [
            ("_ZN1S3setEPKN1AERNS0_1BE", "S::set(A const*, A::B&)"),
            ("_ZN3app3Srv3setEPKNS_3CfgERNS1_3OptE", "app::Srv::set(app::Cfg const*, app::Cfg::Opt&)"),
            ("_ZN3app3Srv3getERNS_3CfgEPNS1_3OptE", "app::Srv::get(app::Cfg&, app::Cfg::Opt*)"),
            ("_Z1fPN1n1AEPKNS0_1BE", "f(n::A*, n::A::B const*)"),
            ("_Z1fPN1n1AEPPKNS0_1B1CE", "f(n::A*, n::A::B::C const**)"),
            ("_Z1fPN1n1AEPVKNS0_1BIiEE", "f(n::A*, n::A::B<int> const volatile*)"),
            ("_Z1fPN1n1AEPKNS0_1BIiE1CE", "f(n::A*, n::A::B<int>::C const*)"),
            ("_Z1fPN1n1AEPNS0_1BEPNS2_1CE", "f(n::A*, n::A::B*, n::A::B::C*)"),
            ("_Z1fN1n1AEN1m1DIRNS0_1BEEE", "f(n::A, m::D<n::A::B&>)"),
            ("_Z1fISaIKiEEvN1n1AEPKNS3_1BE", "f<std::allocator<int const> >(n::A, n::A::B const*)"),
            ("_Z1fIN1n1AEEvPNT_1BEPKNS2_1CE", "f<n::A>(n::A::B*, n::A::C const*)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }

    #[test]
    fn what_functions_end_with_stays() {
        for (name, expected) in [
            ("_ZZNR1n1A1fEvENKUlvE_clEv", "n::A::f() &::{lambda()#1}::operator()() const"),
            ("_ZZNK1n1A1fEvE1x", "n::A::f() const::x"),
            ("_ZZN1n1AaNERKS0_ENKUlvE_clEv", "n::A::operator&=(n::A const&)::{lambda()#1}::operator()() const"),
            ("_ZN1n1gIPFvPNS_1AEEEEvT_", "n::g<void (*)(n::A*)>(void (*)(n::A*))"),
            ("_Z1fPZN1n1gEvE1A", "f(n::g()::A*)"),
            ("_Z1fPN1n1AEPZNKS_1gERS0_E1B", "f(n::A*, n::g(n::A&) const::B*)"),
            ("_Z1fIKN1n1AEEvNT_1BE", "f<n::A const>(n::A const::B)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}
