//! Builtin types: Itanium C++ ABI, 5.1.5.2, "Builtin types".

/// `<builtin-type>` of one letter.
pub fn builtin(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'v' => "void",
        b'w' => "wchar_t",
        b'b' => "bool",
        b'c' => "char",
        b'a' => "signed char",
        b'h' => "unsigned char",
        b's' => "short",
        b't' => "unsigned short",
        b'i' => "int",
        b'j' => "unsigned int",
        b'l' => "long",
        b'm' => "unsigned long",
        b'x' => "long long",
        b'y' => "unsigned long long",
        b'n' => "__int128",
        b'o' => "unsigned __int128",
        b'f' => "float",
        b'd' => "double",
        b'e' => "long double",
        b'g' => "__float128",
        b'z' => "...",
        _ => return None,
    })
}

/// `<builtin-type>` behind a `D`.
pub fn extended_builtin(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'd' => "decimal64",
        b'e' => "decimal128",
        b'f' => "decimal32",
        b'h' => "half",
        b's' => "char16_t",
        b'i' => "char32_t",
        b'u' => "char8_t",
        b'a' => "auto",
        b'c' => "decltype(auto)",
        b'n' => "decltype(nullptr)",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::demangle::demangle;

    #[test]
    fn builtin_types_have_names() {
        for (name, expected) in [
            ("_Z1fwbcahstijlm", "f(wchar_t, bool, char, signed char, unsigned char, short, unsigned short, int, unsigned int, long, unsigned long)"),
            ("_Z1fxynofdegz", "f(long long, unsigned long long, __int128, unsigned __int128, float, double, long double, __float128, ...)"),
            ("_Z1fDF16_DF32xDF16bDhDfDdDe", "f(_Float16, _Float32x, std::bfloat16_t, half, decimal32, decimal64, decimal128)"),
            ("_Z1fDnDaDcDuDsDi", "f(decltype(nullptr), auto, decltype(auto), char8_t, char16_t, char32_t)"),
        ] {
            assert_eq!(demangle(name), expected);
        }
    }
}
