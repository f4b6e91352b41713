//! Swift's names, without the types: `main.Shelf.put(_:at:)`, as Swift's own guides write functions.
//!
//! The mangling is a program for a machine with a stack (Swift's `docs/ABI/Mangling.rst`, Swift 5 and later). What is
//! not part of a qualified name is read only as far as needed to go on; an operator that is not known here ends the
//! reading, and the name stays mangled.

use crate::name::MAX_NAME;

const MAX_DEPTH: usize = 1 << 10;
const MAX_WORDS: usize = 26;

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

#[derive(Clone)]
enum Node {
    Identifier(String),
    /// A module, function or variable: something that contains others.
    Entity(String),
    /// A type, and how many parameters it stands for as the parameters of a function.
    Type(String, usize),
    /// A function's type, with the number of its parameters.
    Function(usize),
    Empty,
    First,
    /// A mark on what follows, which the name does not show.
    Mark,
    Signature,
}

#[derive(Default)]
struct Machine<'m> {
    rest: &'m [u8],
    stack: Vec<Node>,
    substitutions: Vec<Node>,
    words: Vec<String>,
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

    fn next(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn next_if(&mut self, byte: u8) -> bool {
        let fits = self.rest.first() == Some(&byte);
        if fits {
            self.rest = &self.rest[1..];
        }
        fits
    }

    /// Words and substitutions let a short name grow: it must not do so without end.
    fn push(&mut self, node: Node) -> Option<()> {
        let short = match &node {
            Node::Identifier(name) | Node::Entity(name) | Node::Type(name, _) => name.len() <= MAX_NAME,
            _ => true,
        };
        self.stack.push(node);
        short.then_some(())
    }

    fn push_type(&mut self, name: &str) -> Option<()> {
        self.push(Node::Type(name.to_owned(), 1))
    }

    fn natural(&mut self) -> Option<usize> {
        let mut number = None;
        while let Some(digit) = self.rest.first().filter(|byte| byte.is_ascii_digit()) {
            let value = number.unwrap_or(0usize).checked_mul(10)?.checked_add(usize::from(digit - b'0'))?;
            (number, self.rest) = (Some(value), &self.rest[1..]);
        }
        number
    }

    /// `_` is 0, `0_` is 1.
    fn index(&mut self) -> Option<usize> {
        let number = self.natural().map_or(0, |number| number.saturating_add(1));
        self.next_if(b'_').then_some(number)
    }

    /// Letters, or after a `0` words of earlier identifiers with letters between them.
    fn identifier(&mut self) -> Option<String> {
        let substitutes = self.next_if(b'0');
        let punycode = substitutes && self.next_if(b'0');
        if punycode {
            return None;
        }
        let mut more = substitutes;
        let mut name = String::new();
        loop {
            while more && self.rest.first().is_some_and(u8::is_ascii_alphabetic) {
                let letter = self.next()?;
                more = letter.is_ascii_lowercase();
                name += self.words.get(usize::from(letter.to_ascii_lowercase() - b'a'))?;
                (name.len() <= MAX_NAME).then_some(())?;
            }
            if self.next_if(b'0') {
                break;
            }
            let length = self.natural()?;
            let (text, rest) = self.rest.split_at_checked(length)?;
            self.rest = rest;
            let text = std::str::from_utf8(text).ok()?;
            self.learn(text);
            name += text;
            if !more {
                break;
            }
        }
        (!name.is_empty()).then_some(name)
    }

    /// Words begin with an upper-case letter or behind what is no letter, and have two letters or more.
    fn learn(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut start = None;
        for at in 0..=bytes.len() {
            let byte = bytes.get(at).copied().unwrap_or(0);
            let before = at.checked_sub(1).map_or(0, |before| bytes[before]);
            if let Some(begin) = start {
                let ends = byte == b'_' || byte == 0 || (!before.is_ascii_uppercase() && byte.is_ascii_uppercase());
                if ends {
                    if at - begin >= 2 && self.words.len() < MAX_WORDS {
                        self.words.push(text[begin..at].to_owned());
                    }
                    start = None;
                }
            }
            if start.is_none() && byte != 0 && byte != b'_' && !byte.is_ascii_digit() {
                start = Some(at);
            }
        }
    }

    fn remember(&mut self, node: Node) -> Option<()> {
        self.substitutions.push(node.clone());
        self.push(node)
    }

    fn substituted(&mut self) -> Option<()> {
        let mut count = None;
        loop {
            if let Some(number) = self.natural() {
                count = Some(number);
            }
            let letter = self.next()?;
            if letter == b'_' {
                let number = count.map_or(26, |count: usize| count.saturating_add(27));
                let node = self.substitutions.get(number)?.clone();
                return self.push(node);
            }
            let node = self.substitutions.get(usize::from(letter.to_ascii_lowercase().checked_sub(b'a')?))?.clone();
            for _ in 0..count.take().unwrap_or(1).min(MAX_DEPTH) {
                self.push(node.clone());
            }
            if letter.is_ascii_uppercase() {
                return Some(());
            }
        }
    }

    fn standard(&mut self) -> Option<()> {
        match *self.rest.first()? {
            b'o' => self.next().and_then(|_| self.push(Node::Entity("__C".to_owned()))),
            b'C' => self.next().and_then(|_| self.push(Node::Entity("__C_Synthesized".to_owned()))),
            b'g' => {
                self.next();
                self.pop_type()?;
                self.remember(Node::Type("Swift.Optional".to_owned(), 1))
            }
            _ => {
                let count = self.natural().unwrap_or(1);
                let table = if self.next_if(b'c') { CONCURRENCY } else { STANDARD };
                let letter = char::from(self.next()?);
                let name = table.split(' ').find_map(|name| name.strip_prefix(letter))?;
                for _ in 0..count.min(MAX_DEPTH) {
                    self.push_type(&format!("Swift.{name}"));
                }
                Some(())
            }
        }
    }

    fn builtin(&mut self) -> Option<()> {
        match self.next()? {
            b'i' | b'f' => self.index().map(drop)?,
            b'v' => {
                self.index()?;
                return self.type_as(|name| name);
            }
            _ => {}
        }
        let node = Node::Type("Builtin".to_owned(), 1);
        self.remember(node)
    }

    fn pop_type(&mut self) -> Option<(String, usize)> {
        match self.stack.pop()? {
            Node::Type(name, count) => Some((name, count)),
            Node::Function(_) => Some((String::new(), 1)),
            _ => None,
        }
    }

    fn pop_if(&mut self, fits: impl Fn(&Node) -> bool) -> bool {
        let popped = self.stack.last().is_some_and(fits);
        if popped {
            self.stack.pop();
        }
        popped
    }

    fn pop_empty(&mut self) -> bool {
        self.pop_if(|node| matches!(node, Node::Empty))
    }

    fn pop_first(&mut self) -> bool {
        self.pop_if(|node| matches!(node, Node::First))
    }

    fn pop_marks(&mut self) {
        while self.pop_if(|node| matches!(node, Node::Mark)) {}
    }

    fn pop_signature(&mut self) {
        self.pop_if(|node| matches!(node, Node::Signature));
    }

    fn pop_identifier(&mut self) -> Option<String> {
        match self.stack.pop()? {
            Node::Identifier(name) => Some(name),
            _ => None,
        }
    }

    fn pop_context(&mut self) -> Option<String> {
        match self.stack.pop()? {
            Node::Identifier(name) | Node::Entity(name) => Some(name),
            Node::Type(name, _) if !name.is_empty() => Some(name),
            _ => None,
        }
    }

    fn type_as(&mut self, change: impl Fn(String) -> String) -> Option<()> {
        let (name, _) = self.pop_type()?;
        self.push(Node::Type(change(name), 1))
    }

    fn entity_as(&mut self, change: impl Fn(String) -> String) -> Option<()> {
        match self.stack.pop()? {
            Node::Entity(name) => self.push(Node::Entity(change(name))),
            _ => None,
        }
    }

    /// A class, structure, enumeration, protocol or alias.
    fn nominal(&mut self) -> Option<()> {
        let name = self.pop_identifier()?;
        let context = self.pop_context()?;
        self.remember(Node::Type(format!("{context}.{name}"), 1))
    }

    fn extension(&mut self) -> Option<()> {
        self.pop_signature();
        self.pop_context()?;
        let (name, _) = self.pop_type()?;
        self.push(Node::Entity(name))
    }

    fn bound_generic(&mut self) -> Option<()> {
        loop {
            while matches!(self.stack.last(), Some(Node::Type(..) | Node::Function(_))) {
                self.stack.pop();
            }
            if self.pop_empty() {
                break;
            }
            self.pop_first().then_some(())?;
        }
        let (name, _) = self.pop_type()?;
        self.remember(Node::Type(name, 1))
    }

    fn local(&mut self) -> Option<()> {
        if self.next_if(b'L') {
            self.pop_identifier()?;
            let name = self.pop_identifier()?;
            return self.push(Node::Identifier(name));
        }
        let index = self.index()?;
        let name = self.pop_identifier()?;
        self.push(Node::Identifier(format!("{name} #{}", index + 1)))
    }

    fn operator(&mut self) -> Option<()> {
        let name = self.pop_identifier()?;
        matches!(self.next()?, b'i' | b'p' | b'P').then_some(())?;
        let letter = |byte: u8| OPERATORS.as_bytes().get(usize::from(byte.checked_sub(b'a')?)).copied();
        let name = name.bytes().map(|byte| letter(byte).filter(|&byte| byte != b' ').map(char::from));
        let name = name.collect::<Option<String>>()?;
        self.push(Node::Identifier(name))
    }

    /// A list of types in which a mark follows the first one.
    fn pop_list(&mut self, labels: bool) -> Option<usize> {
        if self.pop_empty() {
            return Some(0);
        }
        for count in 1..MAX_DEPTH {
            let first = self.pop_first();
            self.pop_marks();
            if labels && matches!(self.stack.last(), Some(Node::Identifier(_))) {
                self.stack.pop();
            }
            self.pop_type()?;
            if first {
                return Some(count);
            }
        }
        None
    }

    fn tuple(&mut self) -> Option<()> {
        let count = self.pop_list(true)?;
        self.push(Node::Type(String::new(), count))
    }

    /// A protocol stands as a type, or as its name behind where it is declared.
    fn pop_protocol(&mut self) -> Option<()> {
        if matches!(self.stack.last(), Some(Node::Identifier(_))) {
            self.pop_identifier()?;
            return self.pop_context().map(drop);
        }
        self.pop_type().map(drop)
    }

    fn protocols(&mut self) -> Option<()> {
        if !self.pop_empty() {
            loop {
                let first = self.pop_first();
                self.pop_protocol()?;
                if first {
                    break;
                }
            }
        }
        self.push_type("")
    }

    /// How many parameters the function has whose result and parameters are on the stack.
    fn pop_function(&mut self) -> Option<usize> {
        self.pop_marks();
        let count = if self.pop_empty() {
            0
        } else {
            self.pop_marks();
            self.pop_type()?.1
        };
        if !self.pop_empty() {
            self.pop_marks();
            self.pop_type()?;
        }
        Some(count)
    }

    fn function_type(&mut self) -> Option<()> {
        let count = self.pop_function()?;
        self.push(Node::Function(count))
    }

    /// `(_:at:)`.
    fn pop_labels(&mut self, count: usize) -> Option<String> {
        if count == 0 {
            return Some("()".to_owned());
        }
        if self.pop_empty() {
            return Some(format!("({})", "_:".repeat(count.min(MAX_DEPTH))));
        }
        let mut labels = Vec::new();
        for _ in 0..count {
            labels.push(if self.pop_first() { "_".to_owned() } else { self.pop_identifier()? });
        }
        labels.reverse();
        Some(format!("({}:)", labels.join(":")))
    }

    fn function(&mut self) -> Option<()> {
        self.pop_signature();
        let count = self.pop_function()?;
        let labels = self.pop_labels(count)?;
        let name = self.pop_identifier()?;
        let context = self.pop_context()?;
        self.push(Node::Entity(format!("{context}.{name}{labels}")))
    }

    /// How many parameters the function's type on the stack has, 0 for another type.
    fn pop_function_type(&mut self) -> Option<usize> {
        match self.stack.pop()? {
            Node::Function(count) => Some(count),
            Node::Type(..) => Some(0),
            _ => None,
        }
    }

    fn special_function(&mut self) -> Option<()> {
        let kind = self.next()?;
        let index = match kind {
            b'A' | b'U' | b'u' => self.index()? + 1,
            _ => 0,
        };
        let name = match kind {
            b'C' | b'c' => {
                let count = self.pop_function_type()?;
                let labels = self.pop_labels(count)?;
                format!("init{labels}")
            }
            b'D' | b'd' => "deinit".to_owned(),
            b'Z' => "isolated deinit".to_owned(),
            b'E' => "ivar destroyer".to_owned(),
            b'e' => "ivar initializer".to_owned(),
            b'i' => "variable initializer".to_owned(),
            b'A' => format!("default argument {index}"),
            b'U' | b'u' => {
                self.pop_function_type()?;
                format!("closure #{index}")
            }
            _ => return None,
        };
        let context = self.pop_context()?;
        self.push(Node::Entity(format!("{context}.{name}")))
    }

    fn variable(&mut self) -> Option<()> {
        self.pop_marks();
        self.pop_function_type()?;
        let name = self.pop_identifier()?;
        let context = self.pop_context()?;
        self.accessor(format!("{context}.{name}"))
    }

    fn subscript(&mut self) -> Option<()> {
        let count = self.pop_function_type()?;
        let labels = self.pop_labels(count)?;
        let context = self.pop_context()?;
        self.accessor(format!("{context}.subscript{labels}"))
    }

    fn accessor(&mut self, name: String) -> Option<()> {
        let kind = match self.next()? {
            b'p' => return self.push(Node::Entity(name)),
            b'g' | b'G' => "getter",
            b's' => "setter",
            b'M' | b'x' => "modify",
            b'r' | b'y' => "read",
            b'w' => "willSet",
            b'W' => "didSet",
            b'i' => "init",
            b'a' | b'l' => {
                self.next()?;
                "addressor"
            }
            _ => return None,
        };
        self.push(Node::Entity(format!("{name}.{kind}")))
    }

    fn parameter(&mut self) -> Option<()> {
        if self.next_if(b'z') {
            return Some(());
        }
        if self.next_if(b'd') {
            self.index()?;
        }
        self.index().map(drop)
    }

    /// A type that another one has by a protocol: `Element` of a sequence.
    fn associated(&mut self) -> Option<()> {
        match self.next()? {
            b'z' => {}
            b'y' => self.parameter()?,
            b'r' => return self.push_type(""),
            _ => return None,
        }
        if matches!(self.stack.last(), Some(Node::Type(..))) {
            self.stack.pop();
        }
        self.pop_identifier()?;
        self.remember(Node::Type(String::new(), 1))
    }

    fn requirement(&mut self) -> Option<()> {
        match *self.rest.first()? {
            b'b' | b's' => self.next().map(drop)?,
            b'l' => {
                self.next();
                self.parameter()?;
                matches!(self.next()?, b'U' | b'R' | b'N' | b'C' | b'D' | b'T').then_some(())?;
                return self.push(Node::Signature);
            }
            b'z' | b'_' | b'd' | b'0'..=b'9' => {}
            _ => return None,
        }
        self.parameter()?;
        self.pop_protocol()?;
        self.push(Node::Signature)
    }

    fn signature(&mut self) -> Option<()> {
        while self.pop_if(|node| matches!(node, Node::Signature)) {}
        self.push(Node::Signature)
    }

    fn counts(&mut self) -> Option<()> {
        while !self.next_if(b'l') {
            if !self.next_if(b'z') {
                self.index()?;
            }
        }
        self.signature()
    }

    fn generic(&mut self) -> Option<()> {
        let whole = self.stack.pop()?;
        self.pop_signature();
        // The signature stands behind the type or in front of it.
        match whole {
            Node::Signature => Some(()),
            other => self.push(other),
        }
    }

    fn special(&mut self) -> Option<()> {
        match self.next()? {
            b'E' | b'C' | b'B' | b'K' | b'A' | b'f' | b'L' | b'U' => self.function_type(),
            b'o' | b'w' | b'u' | b'S' | b'D' | b'p' => self.type_as(|name| name),
            b'm' | b'M' => {
                self.next()?;
                self.type_as(|name| name)
            }
            b'l' => self.protocols(),
            _ => None,
        }
    }

    fn annotation(&mut self) -> Option<()> {
        match self.next()? {
            b'a' | b'b' | b'u' | b'T' | b'A' => {}
            b'K' | b'c' => drop(self.pop_type()?),
            _ => return None,
        }
        self.push(Node::Mark)
    }

    fn metadata(&mut self) -> Option<()> {
        let what = match self.next()? {
            b'a' => "type metadata accessor for",
            b'r' => "type metadata completion function for",
            b'i' => "type metadata instantiation function for",
            _ => return None,
        };
        let (name, _) = self.pop_type()?;
        self.push(Node::Entity(format!("{what} {name}")))
    }

    fn value_witness(&mut self) -> Option<()> {
        let (first, second) = (self.next()?, self.next()?);
        let (name, _) = self.pop_type()?;
        self.push(Node::Entity(format!("value witness {}{} for {name}", char::from(first), char::from(second))))
    }

    fn thunk(&mut self) -> Option<()> {
        match self.next()? {
            // Ways into a function, and the parts that a function which waits is cut into.
            b'o' | b'O' | b'D' | b'm' | b'j' | b'u' | b'A' => Some(()),
            b'Q' | b'Y' => self.index().map(drop),
            // A function made for certain types.
            b'g' | b'G' => {
                self.next()?.is_ascii_digit().then_some(())?;
                self.pop_list(false).map(drop)
            }
            _ => None,
        }?;
        self.entity_as(|name| name)
    }
}

/// Operators' characters by letter.
const OPERATORS: &str = "& @/= >    <*!|+?%-~   ^ .";

/// Types of the standard library by letter.
const STANDARD: &str =
    "AAutoreleasingUnsafeMutablePointer aArray bBool DDictionary dDouble fFloat hSet IDefaultIndices \
    iInt JCharacter NClosedRange nRange OObjectIdentifier PUnsafePointer pUnsafeMutablePointer RUnsafeBufferPointer \
    rUnsafeMutableBufferPointer SString sSubstring uUInt VUnsafeRawPointer vUnsafeMutableRawPointer \
    WUnsafeRawBufferPointer wUnsafeMutableRawBufferPointer qOptional BBinaryFloatingPoint EEncodable eDecodable \
    FFloatingPoint GRandomNumberGenerator HHashable jNumeric KBidirectionalCollection kRandomAccessCollection \
    LComparable lCollection MMutableCollection mRangeReplaceableCollection QEquatable TSequence tIteratorProtocol \
    UUnsignedInteger XRangeExpression xStrideable YRawRepresentable yStringProtocol ZSignedInteger zBinaryInteger";
const CONCURRENCY: &str = "AActor CCheckedContinuation cUnsafeContinuation ECancellationError eUnownedSerialExecutor \
    FExecutor fSerialExecutor GTaskGroup gThrowingTaskGroup hTaskExecutor IAsyncIteratorProtocol iAsyncSequence \
    JUnownedJob MMainActor PTaskPriority SAsyncStream sAsyncThrowingStream TTask tUnsafeCurrentTask";

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
