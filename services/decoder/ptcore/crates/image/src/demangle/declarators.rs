//! Types with a qualifier added, as text.

/// `int&&` for `int` and `O`, the mangled qualifier (Itanium C++ ABI, 5.1.5.1, "Type qualifiers"): references collapse, and
/// it stands at the declarator of what is a pointer to a function or an array. `None` where its place is not known.
pub fn qualified(of_type: &str, qualifier: char) -> Option<String> {
    let (at, is_array) = declarator(of_type)?;
    let (inner, rest) = of_type.split_at(at);
    let added = match qualifier {
        'O' if inner.ends_with('&') => inner.to_owned(),
        'O' => written(inner, "&&", is_array),
        'R' => written(inner.trim_end_matches('&'), "&", is_array),
        'P' => written(inner, "*", is_array),
        'K' if inner.ends_with(" const") => inner.to_owned(),
        // What is constant of an array is each of its elements.
        'K' => written(inner, " const", false),
        _ => return None,
    };
    Some(added + rest)
}

fn written(inner: &str, qualifier: &str, is_array: bool) -> String {
    if is_array {
        format!("{inner} ({qualifier})")
    } else {
        [inner, qualifier].concat()
    }
}

/// Where a qualifier stands, and whether as the first of an array.
fn declarator(of_type: &str) -> Option<(usize, bool)> {
    let mut end = of_type.len();
    while let Some(open) = of_type[..end].strip_suffix(']').and_then(|text| text.rfind(" [")) {
        end = open;
    }
    if end < of_type.len() {
        return Some(group(&of_type[..end]).unwrap_or((end, true)));
    }
    let parameters = without_qualifiers(of_type);
    if !parameters.ends_with(')') {
        return Some((of_type.len(), false));
    }
    group(&parameters[..opening(parameters)?])
}

/// The end of `(*)`, `(&)` or `(A::*)` at the end of `text`, where it is nothing more.
fn group(text: &str) -> Option<(usize, bool)> {
    let inside = text.strip_suffix(')')?;
    let group = &inside[inside.rfind(['(', ')'])?..];
    let is_declarator = group.starts_with('(') && group.trim_end_matches(" const").ends_with(['*', '&']);
    is_declarator.then_some((inside.len(), false))
}

/// Where the parenthesis opens that closes at the end.
fn opening(text: &str) -> Option<usize> {
    let mut open = 0;
    text.bytes().rposition(|one| {
        match one {
            b')' => open += 1,
            b'(' => open -= 1,
            _ => (),
        }
        open == 0
    })
}

/// Without what stands behind the parameters of a member function.
fn without_qualifiers(function: &str) -> &str {
    const QUALIFIERS: [&str; 5] = [" const", " volatile", " noexcept", " &&", " &"];
    let mut text = function;
    while let Some(rest) = QUALIFIERS.iter().find_map(|one| text.strip_suffix(one)) {
        text = rest;
    }
    if text.ends_with(')') {
        text
    } else {
        function
    }
}

#[cfg(test)]
mod tests {
    use super::qualified;

    #[test]
    fn references_collapse() {
        for (of_type, qualifier, expected) in [
            ("int", 'O', "int&&"),
            ("int&", 'O', "int&"),
            ("int&&", 'O', "int&&"),
            ("int&&", 'R', "int&"),
            ("A::f() const::{lambda()#1}", 'R', "A::f() const::{lambda()#1}&"),
            ("char const*", 'K', "char const* const"),
            ("int const", 'K', "int const"),
        ] {
            assert_eq!(qualified(of_type, qualifier).as_deref(), Some(expected));
        }
    }

    #[test]
    fn functions_and_arrays_have_them_at_the_declarator() {
        for (of_type, qualifier, expected) in [
            ("int (*)(int)", 'O', "int (*&&)(int)"),
            ("int (&)(int)", 'O', "int (&)(int)"),
            ("int (*)(void (*)())", 'K', "int (* const)(void (*)())"),
            ("void (A::*)() const", 'R', "void (A::*&)() const"),
            ("int [3]", 'O', "int (&&) [3]"),
            ("int [2] [3]", 'R', "int (&) [2] [3]"),
            ("char [3]", 'K', "char const [3]"),
            ("char const [3]", 'K', "char const [3]"),
            ("char const (&) [21]", 'O', "char const (&) [21]"),
        ] {
            assert_eq!(qualified(of_type, qualifier).as_deref(), Some(expected));
        }
        for (of_type, qualifier) in [("int (int)", 'O'), ("int (*(*)())()", 'O'), ("int )", 'O')] {
            assert_eq!(qualified(of_type, qualifier), None, "{of_type}");
        }
    }
}
