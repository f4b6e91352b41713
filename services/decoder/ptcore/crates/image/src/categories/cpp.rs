//! The parts of C++ names that a pattern may leave out.

/// Functions of C have no parameters in their names: `read(int)` is not the `read` that everyone knows.
pub fn is_cpp(name: &str) -> bool {
    name.contains("::") || name.starts_with("operator")
}

/// `std::mutex::lock` of `std::mutex::lock() const [clone .cold]`. Names of Go and Rust have no parameters at their end.
pub fn without_parameters(name: &str) -> &str {
    let end = name.find(" [").unwrap_or(name.len());
    let head = name[..end].trim_end_matches(" const").trim_end_matches(" volatile").trim_end_matches('&').trim_end();
    strip_balanced(head, b'(', b')').filter(|rest| !rest.is_empty() && !rest.ends_with("operator")).unwrap_or(head)
}

/// `std::move` of `std::move<int&>`; `f` of `f[abi:cxx11]`.
pub fn without_arguments(name: &str) -> &str {
    let name = match name.rfind("[abi:") {
        Some(at) if name.ends_with(']') => &name[..at],
        _ => name,
    };
    let operator = name.ends_with("operator>") || name.ends_with("operator->") || name.ends_with("operator>>");
    strip_balanced(name, b'<', b'>').filter(|rest| !rest.is_empty() && !operator).unwrap_or(name)
}

/// The name without the bracket that it ends with.
fn strip_balanced(name: &str, open: u8, close: u8) -> Option<&str> {
    if !name.ends_with(char::from(close)) {
        return None;
    }
    let mut depth = 0usize;
    for (at, byte) in name.bytes().enumerate().rev() {
        if byte == close {
            depth += 1;
        } else if byte == open {
            depth -= 1;
            if depth == 0 {
                return Some(&name[..at]);
            }
        }
    }
    None
}
