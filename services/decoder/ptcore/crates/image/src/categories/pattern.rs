//! Patterns with wildcards.

/// Whether the whole of `text` fits the pattern. Time is at most the product of both lengths.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut next) = (0, 0);
    // Where to go on with one byte more for the last star.
    let mut star = None;
    while next < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(&byte) if byte == b'?' || byte == text[next] => (at, next) = (at + 1, next + 1),
            _ => match star {
                Some((back, taken)) => {
                    star = Some((back, taken + 1));
                    (at, next) = (back + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "acd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("?", "", false),
            ("a?c", "abc", true),
            ("*", "", true),
            ("", "", true),
            ("[vdso]", "[vdso]", true),
            ("[vdso]", "v", false),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
        let (pattern, text) = ("*a".repeat(200), "a".repeat(4000));
        assert!(matches(&pattern, &text) && !matches(&(pattern + "b"), &text));
    }
}
