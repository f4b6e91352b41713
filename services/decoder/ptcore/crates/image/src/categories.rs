//! What functions are for: memory, synchronisation, I/O, the kernel, ...
//!
//! A table is text, one rule a line: `category  pattern`, or `category  pattern @ binary`. `#` begins a comment at the
//! begin of a line. The category is a word of lower-case letters, digits and `-`: any word, not only those of the
//! table that is built in (`categories.txt`). Patterns are compared with the whole name:
//!
//! | in a pattern | stands for |
//! | --- | --- |
//! | `*` | any characters, also none |
//! | `?` | one character |
//! | `[` and anything else | itself |
//!
//! The name is the demangled one, without `@plt`; a pattern fits with or without the parameters of a C++ function, its
//! ABI tags and the template arguments at its end, so that `operator new` means each of its forms. Methods of Rust may be
//! written as `type::method`, and names that libc reserves (`__libc_pread`) as the public one. The binary is the
//! file's name without folders, or what the mapping is called (`[vdso]`). The last line that fits decides: rules of
//! the user come after those that are built in, and may name `other` to take a function out of a category.

mod forms;
mod pattern;
mod rule;

pub use rule::TableError;

use forms::forms;
use rule::{rule, Rule};
use std::collections::HashMap;

/// The table that is built in.
const BUILT_IN: &str = include_str!("categories.txt");
/// The category of functions that no rule names.
pub const OTHER: &str = "other";
/// Rules of one table; more are refused.
const MAX_RULES: usize = 1 << 16;

/// Which category a function is in.
pub struct Categories {
    rules: Vec<Rule>,
    /// Rules without wildcards, by the name, and the others by the bytes that the name begins with; in order.
    exact: HashMap<String, Vec<usize>>,
    wild: HashMap<u8, Vec<usize>>,
    anywhere: Vec<usize>,
}

impl Default for Categories {
    fn default() -> Self {
        Categories::new()
    }
}

impl Categories {
    /// The table that is built in.
    pub fn new() -> Categories {
        let (exact, wild) = (HashMap::new(), HashMap::new());
        let mut categories = Categories { rules: Vec::new(), exact, wild, anywhere: Vec::new() };
        // Its lines are tested to be rules.
        let _ = categories.extend(BUILT_IN);
        categories
    }

    /// Adds the rules of a table, which come after those known. A line that is no rule is an error, and none is added.
    pub fn extend(&mut self, table: &str) -> Result<(), TableError> {
        let lines = table.lines().zip(1..).map(|(line, number)| (line.trim(), number));
        let rules: Vec<_> = lines
            .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'))
            .map(|(line, number)| {
                rule(line).map_err(|reason| TableError { line: number, text: line.to_owned(), reason })
            })
            .take(MAX_RULES + 1)
            .collect::<Result<_, _>>()?;
        if rules.len() > MAX_RULES {
            let text = format!("{MAX_RULES} rules and more");
            return Err(TableError { line: 0, text, reason: "a table may have 65536 rules" });
        }
        rules.into_iter().for_each(|rule| self.add(rule));
        Ok(())
    }

    fn add(&mut self, rule: Rule) {
        let number = self.rules.len();
        let list = match rule.function.bytes().next() {
            _ if !rule.function.contains(['*', '?']) => self.exact.entry(rule.function.clone()).or_default(),
            Some(b'*' | b'?') | None => &mut self.anywhere,
            Some(first) => self.wild.entry(first).or_default(),
        };
        list.push(number);
        self.rules.push(rule);
    }

    /// The category of the function with the demangled name `function` in `binary`, a path or what a mapping is called.
    pub fn of(&self, function: &str, binary: &str) -> &str {
        let function = function.strip_suffix("@plt").unwrap_or(function);
        let binary = binary.rsplit('/').next().unwrap_or(binary);
        let mut best = None;
        for name in forms(function) {
            let name = &*name;
            let first = name.bytes().next();
            let lists = [self.exact.get(name), first.and_then(|first| self.wild.get(&first)), Some(&self.anywhere)];
            for list in lists.into_iter().flatten() {
                // Later rules win: the first that fits from behind, unless a better one is known.
                let fits = |&&number: &&usize| self.rules[number].fits(name, binary);
                let newer = list.iter().rev().take_while(|&&number| best.is_none_or(|best| number > best));
                best = newer.into_iter().find(fits).copied().or(best);
            }
        }
        best.map_or(OTHER, |number| &self.rules[number].category)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object, ObjectSymbol};

    fn of(function: &str, binary: &str) -> String {
        Categories::new().of(function, binary).to_owned()
    }

    #[test]
    fn every_line_of_the_built_in_table_is_a_rule_that_wins() {
        let mut categories = Categories::new();
        assert_eq!(categories.extend(BUILT_IN), Ok(()));
        let categories = Categories::new();
        assert!(categories.rules.len() > 400);
        for rule in &categories.rules {
            let name = rule.function.replace(['*', '?'], "x");
            let binary = rule.binary.as_deref().unwrap_or("program").replace('*', "x");
            assert_eq!(categories.of(&name, &binary), rule.category, "{} {:?}", rule.function, rule.binary);
        }
    }

    #[test]
    fn functions_of_c() {
        for (function, category) in [
            ("malloc", "memory"),
            ("free@plt", "memory"),
            ("memcpy@plt", "string"),
            ("__memmove_avx_unaligned_erms", "string"),
            ("pthread_mutex_lock", "synchronisation"),
            ("epoll_wait", "io"),
            ("fopen", "io"),
            ("recvmsg", "network"),
            ("clock_gettime", "time"),
            ("_dl_runtime_resolve_xsavec", "loading"),
            ("__cxa_throw", "exception"),
            ("__cxa_guard_acquire", "synchronisation"),
            ("__cxa_thread_atexit_impl", "loading"),
            ("__libc_pread", "io"),
            ("llseek", "io"),
            ("_IO_fgets", "io"),
            ("__fprintf_chk", "io"),
            ("__fxstat64", "io"),
            ("__read_nocancel", "io"),
            ("__strlen_evex", "string"),
            ("__strftime_l", "time"),
            ("getcontext", "other"),
            ("__memp_fget", "other"),
            ("fork", "process"),
            ("processCommand", "other"),
            ("mallocate", "other"),
            ("", "other"),
        ] {
            assert_eq!(of(function, "/usr/bin/redis-server"), category, "{function}");
        }
    }

    #[test]
    fn functions_of_libc_are_in_one_category_by_each_of_their_names() {
        let data = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").unwrap();
        let file = object::File::parse(&*data).unwrap();
        let mut names = HashMap::<_, Vec<_>>::new();
        for symbol in
            file.dynamic_symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.is_definition())
        {
            names.entry(symbol.address()).or_default().push(symbol.name().unwrap());
        }
        let categories = Categories::new();
        for names in names.into_values().filter(|names| names.len() > 1) {
            let of: Vec<_> = names.iter().map(|name| categories.of(name, "libc.so.6")).collect();
            assert!(of.iter().all(|category| *category == of[0]), "{names:?} {of:?}");
        }
    }

    #[test]
    fn functions_of_cpp_with_and_without_parameters() {
        for (function, category) in [
            ("operator new(unsigned long)", "memory"),
            ("operator new[](unsigned long, std::nothrow_t const&)", "memory"),
            ("operator delete(void*)", "memory"),
            ("std::mutex::lock()", "synchronisation"),
            ("std::unique_lock<std::mutex>::unlock()", "synchronisation"),
            ("std::thread::join()", "synchronisation"),
            ("std::thread::_M_start_thread(std::unique_ptr<std::thread::_State>, void (*)())", "process"),
            ("std::terminate()", "exception"),
            ("std::operator<< <std::char_traits<char> >(std::ostream&, char const*)", "io"),
            ("std::__ostream_insert<char, std::char_traits<char> >(std::ostream&, char const*, long)", "io"),
            ("std::__1::mutex::lock()", "synchronisation"),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::append(char const*)",
                "string",
            ),
            ("std::mutex::lock() const [clone .cold]", "synchronisation"),
            ("read(shelf::book const&)", "other"),
            ("shelf::read(int)", "other"),
            ("shelf::operator()(int) const", "other"),
            ("(anonymous namespace)::put(int)", "other"),
        ] {
            assert_eq!(of(function, "program"), category, "{function}");
        }
    }

    #[test]
    fn functions_of_rust_and_go() {
        for (function, category) in [
            ("alloc::alloc::alloc", "memory"),
            ("std::sync::mpmc::Sender<T>::send", "synchronisation"),
            ("std::fs::File::open", "io"),
            ("std::net::tcp::TcpStream::connect", "network"),
            ("core::panicking::panic_fmt", "exception"),
            ("libunwind::DwarfInstructions<A, R>::stepWithDwarf", "exception"),
            ("fpc_raiseexception", "exception"),
            ("caml_alloc_small_dispatch", "memory"),
            ("<std::time::Instant>::now", "time"),
            ("<std::thread::thread::Thread>::park", "synchronisation"),
            ("<std::io::stdio::Stdout as std::io::Write>::write_all", "io"),
            ("<std::sync::poison::mutex::MutexGuard<T> as core::ops::drop::Drop>::drop", "synchronisation"),
            ("<alloc::raw_vec::RawVecInner>::deallocate", "memory"),
            ("__rustc::__rdl_alloc", "memory"),
            ("runtime.mallocgc", "memory"),
            ("runtime/internal/syscall.Syscall6", "kernel"),
            ("sync.(*Mutex).Lock", "synchronisation"),
            ("net/http.(*conn).serve", "network"),
            ("os.(*File).Read", "io"),
            ("main.(*shelf).put", "other"),
        ] {
            assert_eq!(of(function, "program"), category, "{function}");
        }
    }

    #[test]
    fn the_binary_decides_where_a_rule_says_so() {
        assert_eq!(of("anything", "/lib/x86_64-linux-gnu/libz.so.1.2.13"), "compression");
        assert_eq!(of("tcp_sendmsg", "[kernel.kallsyms]"), "kernel");
        assert_eq!(of("ext4_write", "/lib/modules/6.1/kernel/fs/ext4/ext4.ko.xz"), "kernel");
        assert_eq!(of("__vdso_clock_gettime", "[vdso]"), "time");
        assert_eq!(of("tcp_sendmsg", "program"), "other");
    }

    #[test]
    fn rules_of_the_user_come_last() {
        let mut categories = Categories::new();
        let table = "# ours\n\nrules  shelf::*\nbilling-2  *Invoice*  @ libshop*\nother  malloc @ sandbox\n";
        categories.extend(table).unwrap();
        assert_eq!(categories.of("shelf::put(int)", "a"), "rules");
        assert_eq!(categories.of("printInvoice", "/opt/libshop.so.2"), "billing-2");
        assert_eq!(categories.of("printInvoice", "/opt/other.so"), "other");
        assert_eq!(categories.of("malloc", "sandbox"), "other");
        assert_eq!(categories.of("malloc", "program"), "memory");
    }

    #[test]
    fn a_line_that_is_no_rule_is_named_and_nothing_is_added() {
        const WAY_OUT: &str = "write `category  pattern [@ binary]`, `*` for any name";
        let mut categories = Categories::new();
        for (line, reason) in [
            ("memory", "write `category  pattern [@ binary]`"),
            ("Memory malloc", "a category is a word of lower-case letters, digits and `-`"),
            ("spin  foo() @", WAY_OUT),
            ("spin  foo()@ m.out", WAY_OUT),
            ("spin  foo() @m.out", WAY_OUT),
            ("spin  @ m.out", WAY_OUT),
        ] {
            let error = categories.extend(&format!("memory  mine\n{line}")).unwrap_err();
            assert_eq!((error.line, error.text.as_str(), error.reason), (2, line, reason));
        }
        assert_eq!(categories.of("mine", ""), "other");
    }
}
