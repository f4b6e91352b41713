//! The forms of a function's name that patterns are compared with.

use std::borrow::Cow;

/// Behind them a name of libc says for which processors it is.
const PROCESSORS: [&str; 4] = ["_sse", "_avx", "_evex", "_erms"];

/// The name as it is told, and what else a pattern may call the function.
///
/// Of C++: without parameters, and without template arguments at the end. Of Rust: methods as `type::method`. Of C: the
/// public name of one that is reserved.
pub fn forms(name: &str) -> Vec<Cow<'_, str>> {
    let mut forms = vec![Cow::Borrowed(name)];
    if let Some(public) = public(name) {
        forms.push(Cow::Borrowed(public));
    }
    let whole = without_inline_namespace(method_of_type(name));
    let short = without_parameters(&whole);
    let bare = without_arguments(short);
    // Functions of C have no parameters in their names: `read(int)` is not the `read` that everyone knows.
    let others = [&whole, short, bare].into_iter().filter(|form| is_cpp(form) && *form != name);
    let mut others: Vec<_> = others.map(|form| Cow::Owned(form.to_owned())).collect();
    others.dedup();
    forms.extend(others);
    forms
}

fn is_cpp(name: &str) -> bool {
    name.contains("::") || name.starts_with("operator")
}

/// `read` of `__libc_read`, `__GI___read` and `__read_nocancel`, `memcpy` of `__memcpy_chk_avx_unaligned`: names of libc that
/// stand for the function with the public name, and of which one is told.
fn public(name: &str) -> Option<&str> {
    let name = name.strip_prefix("__GI_").unwrap_or(name);
    let rest = ["__libc_", "_IO_", "__"].iter().find_map(|prefix| name.strip_prefix(prefix))?.trim_start_matches('_');
    let end = PROCESSORS.iter().filter_map(|processor| rest.find(processor)).min().unwrap_or(rest.len());
    let rest = &rest[..end];
    let suffix = ["_chk", "_nocancel", "_internal"].iter().find_map(|suffix| rest.strip_suffix(suffix));
    Some(suffix.unwrap_or(rest))
}

/// `std::time::Instant::now` of `<std::time::Instant>::now`, `A::drop` of `<A as core::ops::drop::Drop>::drop`.
fn method_of_type(name: &str) -> Cow<'_, str> {
    if !name.starts_with('<') {
        return Cow::Borrowed(name);
    }
    let (mut depth, mut end, mut before) = (0, None, b' ');
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' if before != b'-' => depth -= 1,
            b' ' if depth == 1 && name[at..].starts_with(" as ") => end = end.or(Some(at)),
            _ => {}
        }
        if depth == 0 {
            return Cow::Owned(format!("{}{}", &name[1..end.unwrap_or(at)], &name[at + 1..]));
        }
        before = byte;
    }
    Cow::Borrowed(name)
}

/// `std::mutex::lock` of libc++'s `std::__1::mutex::lock`.
fn without_inline_namespace(name: Cow<'_, str>) -> Cow<'_, str> {
    if name.contains("std::__1::") {
        return Cow::Owned(name.replace("std::__1::", "std::"));
    }
    name
}

/// `std::mutex::lock` of `std::mutex::lock() const [clone .cold]`. Names of Go and Rust have no parameters at their end.
fn without_parameters(name: &str) -> &str {
    let mut head = match name.find(" [clone ") {
        Some(at) => &name[..at],
        None => name,
    };
    while let Some(rest) =
        [" const", " volatile", " noexcept", "&", " "].iter().find_map(|word| head.strip_suffix(word))
    {
        head = rest;
    }
    strip_balanced(head, b'(', b')').filter(|rest| !rest.is_empty() && !rest.ends_with("operator")).unwrap_or(head)
}

/// `std::move` of `std::move<int&>`; `f` of `f[abi:cxx11]`; `operator<<` of `operator<< <int>`.
fn without_arguments(name: &str) -> &str {
    let name = match name.rfind("[abi:") {
        Some(at) if name.ends_with(']') => &name[..at],
        _ => name,
    };
    let operator =
        ["operator>", "operator->", "operator>>", "operator<=>"].iter().any(|operator| name.ends_with(operator));
    match strip_balanced(name, b'<', b'>').filter(|rest| !rest.is_empty() && !operator) {
        // What is between is no argument: `operator<<int>` is `operator<` of int.
        Some(rest) => rest.trim_end(),
        None => name,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_form_has_least() {
        for (name, last) in [
            ("read", "read"),
            ("read(int)", "read(int)"),
            ("__libc_pread", "pread"),
            ("__GI___libc_read", "read"),
            ("___pthread_mutex_lock", "pthread_mutex_lock"),
            ("_IO_fgets", "fgets"),
            ("__vfprintf_internal", "vfprintf"),
            ("__memmove_chk_avx_unaligned_erms", "memmove"),
            ("__strlen_evex", "strlen"),
            ("_read", "_read"),
            ("shop::S::price() const", "shop::S::price"),
            ("shop::S::price() const &", "shop::S::price"),
            ("shop::S::price() const volatile &&", "shop::S::price"),
            ("shop::fill(int (&) [3])", "shop::fill"),
            ("shop::size<char const [4]>(char const (&) [4]) [clone .cold]", "shop::size"),
            ("shop::Box<int [3]>::get()", "shop::Box<int [3]>::get"),
            ("shop::operator<< <int>(shop::S&, int)", "shop::operator<<"),
            ("shop::operator< <int>(shop::S&, int)", "shop::operator<"),
            ("shop::operator<(shop::S&, int)", "shop::operator<"),
            ("shop::operator->()", "shop::operator->"),
            ("shop::operator()(int) const", "shop::operator()"),
            ("operator new[](unsigned long)", "operator new[]"),
            ("std::__1::mutex::lock()", "std::mutex::lock"),
            ("<std::time::Instant>::now", "std::time::Instant::now"),
            ("<<A as B>::C as shop::D<fn() -> E>>::price", "<A as B>::C::price"),
            ("<alloc::vec::Vec<u8> as core::ops::drop::Drop>::drop", "alloc::vec::Vec<u8>::drop"),
            ("<cut", "<cut"),
        ] {
            assert_eq!(forms(name).last().unwrap(), last, "{name}");
        }
    }
}
