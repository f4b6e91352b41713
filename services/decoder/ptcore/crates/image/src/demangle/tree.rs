//! What a name consists of.

mod parts;

/// A part of a name, by its place among all: what is substituted is there once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Id(u32);

/// Parts that follow each other: parameters, arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct List {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Qualifiers {
    pub restrict: bool,
    pub is_volatile: bool,
    pub is_const: bool,
}

impl Qualifiers {
    pub fn any(self) -> bool {
        self.restrict || self.is_volatile || self.is_const
    }

    pub fn and(self, other: Qualifiers) -> Qualifiers {
        Qualifiers {
            restrict: self.restrict || other.restrict,
            is_volatile: self.is_volatile || other.is_volatile,
            is_const: self.is_const || other.is_const,
        }
    }

    pub fn without(self, other: Qualifiers) -> Qualifiers {
        Qualifiers {
            restrict: self.restrict && !other.restrict,
            is_volatile: self.is_volatile && !other.is_volatile,
            is_const: self.is_const && !other.is_const,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    LValue,
    RValue,
}

impl Reference {
    pub fn text(self) -> &'static str {
        match self {
            Reference::LValue => "&",
            Reference::RValue => "&&",
        }
    }
}

/// What stands around the parameters of a function.
#[derive(Clone, Copy, Debug, Default)]
pub struct Signature {
    pub returns: Option<Id>,
    pub parameters: List,
    pub qualifiers: Qualifiers,
    pub reference: Option<Reference>,
    pub exceptions: Option<Exceptions>,
    pub transaction_safe: bool,
    pub requires: Option<Id>,
}

#[derive(Clone, Copy, Debug)]
pub enum Exceptions {
    Noexcept,
    NoexceptIf(Id),
    Throws(List),
}

/// Where an operand stands in parentheses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parentheses {
    Never,
    /// Unless it is a mere name.
    Mostly,
    Always,
}

#[derive(Clone, Copy, Debug)]
pub enum Node<'a> {
    /// An identifier or a builtin type.
    Name(&'a str),
    /// `scope::name`
    Nested(Id, Id),
    /// `function::entity`
    Local(Id, Id),
    /// Of the last but so many parameters.
    DefaultArgument(u64, Id),
    /// A class of the standard library and how its constructors are called.
    Standard(&'static str, &'static str),
    Template(Id, List),
    /// What the arguments of a template must fulfil stands behind it.
    Constrained(Id, Id),
    Tagged(Id, &'a str),
    Operator(&'static str),
    Conversion(Id),
    /// What stands before a name: `operator"" `.
    Before(&'static str, Id),
    Constructor(Id),
    Destructor(Id),
    Lambda {
        head: List,
        parameters: List,
        requires: Option<Id>,
        number: u64,
    },
    Unnamed(u64),
    Binding(List),
    /// A name in a module.
    InModule(Id, Id),
    /// A module: the one around it, whether it is a partition, and its name.
    Module(Option<Id>, bool, Id),
    /// A function with the arguments of its template.
    Encoding(Id, List, Signature),
    Special(&'static str, Id),
    ConstructionVtable(Id, Id),
    ReferenceTemporary(Id, u64),

    Pointer(Id),
    Reference(Id, Reference),
    PointerToMember(Id, Id),
    Qualified(Id, Qualifiers),
    VendorQualified(Id, Id),
    /// What has a word behind it: ` _Complex`, `[friend]`.
    Behind(Id, &'static str),
    Function(Signature),
    Array(Option<Id>, Id),
    Vector(Id, Id),
    Decltype(Id),
    FloatN(u64, &'static str),
    BitInt(Id, bool),
    ConstrainedAuto(Id, &'static str),
    VendorType(Id, List),

    /// A parameter of the template around it, or of a lambda that stands so deep in lambdas: what it stands for is known only
    /// where it is written, since it may be substituted elsewhere.
    Parameter(Option<usize>, usize),
    /// What a lambda declares between `<` and `>`, and its number there.
    Declared(Declared, u64),
    DeclaredPack(Id),
    DeclaredConstraint(Id, u64),
    Pack(List),
    Expansion(Id),

    Literal(Id, &'a str),
    FunctionParameter(Option<u64>),
    /// An operator in front, a mere word where there is no operand.
    Prefix(&'static str, Parentheses, Id),
    Postfix(Id, &'static str),
    Binary(&'static str, Id, Id),
    Conditional(Id, Id, Id),
    Index(Id, Id),
    Call(Id, List),
    Cast(Id, Id),
    NamedCast(&'static str, Id, Id),
    Braced(Option<Id>, List),
    New {
        placement: List,
        of: Id,
        initial: Option<Id>,
    },
    Arguments(List),
    Fold {
        operator: &'static str,
        left: Option<Id>,
        right: Option<Id>,
    },
    PackSize(Id),
    ListSize(List),
    Field(Id, Id),
    /// From one index to another.
    Element(Id, Option<Id>, Id),
    Subobject(Id, Id),
    MemberPointer(Id, Id),
    Requires {
        parameters: List,
        requirements: List,
    },
    Requirement {
        noexcept: bool,
        of: Id,
        constraint: Option<Id>,
    },
}

#[derive(Clone, Copy, Debug)]
pub enum Declared {
    Type,
    Value(Id),
    Template(List),
}

#[derive(Default)]
pub struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    items: Vec<Id>,
}

impl<'a> Tree<'a> {
    pub fn add(&mut self, node: Node<'a>) -> Id {
        let id = Id(self.nodes.len() as u32);
        self.nodes.push(node);
        id
    }

    pub fn list(&mut self, items: &[Id]) -> List {
        let start = self.items.len() as u32;
        self.items.extend_from_slice(items);
        List { start, end: self.items.len() as u32 }
    }

    pub fn node(&self, id: Id) -> Node<'a> {
        self.nodes[id.0 as usize]
    }

    pub fn items(&self, list: List) -> &[Id] {
        &self.items[list.start as usize..list.end as usize]
    }
}

impl List {
    pub fn is_empty(self) -> bool {
        self.start == self.end
    }
}
