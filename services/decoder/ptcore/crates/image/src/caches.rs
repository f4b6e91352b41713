//! Copies of binaries and debug files that other tools of the user have made, by build id.
//!
//! perf keeps what it recorded below `~/.debug` (perf-buildid-cache(1); names: `build_id_cache__basename` in Linux's
//! tools/perf/util/build-id.c); whatever asks debuginfod keeps what it got (debuginfod-client-config(7)).

use std::path::{Path, PathBuf};

/// Where these tools keep them.
#[derive(Clone, Debug, Default)]
pub struct Caches {
    perf: Option<PathBuf>,
    debuginfod: Vec<PathBuf>,
}

impl Caches {
    /// Those of the user who runs this.
    pub fn of_user() -> Caches {
        Caches::of(|name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from))
    }

    /// By what environment variables say.
    pub fn of(variable: impl Fn(&str) -> Option<PathBuf>) -> Caches {
        let home = variable("HOME");
        let below = |folder: Option<PathBuf>, name: &str| folder.map(|folder| folder.join(name));
        let cache = variable("XDG_CACHE_HOME").or_else(|| below(home.clone(), ".cache"));
        let debuginfod = match variable("DEBUGINFOD_CACHE_PATH") {
            Some(folder) => vec![folder],
            None => {
                let old = below(home.clone(), ".debuginfod_client_cache");
                [below(cache, "debuginfod_client"), old].into_iter().flatten().collect()
            }
        };
        Caches { perf: below(home, ".debug"), debuginfod }
    }

    /// Where the binary with this build id may be.
    pub fn binaries(&self, build_id: &str) -> Vec<PathBuf> {
        let kept = self.perf.iter().flat_map(|folder| Caches::kept_by_perf(folder, build_id)).collect();
        self.candidates(kept, build_id, "executable")
    }

    /// Where its debug file may be.
    pub fn debug_files(&self, build_id: &str) -> Vec<PathBuf> {
        let kept = self.perf.iter().filter_map(|folder| Some(by_id(folder, build_id)?.join("debug"))).collect();
        self.candidates(kept, build_id, "debuginfo")
    }

    /// Where perf keeps the binary with this build id when `folder` is its cache, or a copy of it. What the kernel puts
    /// into every process is no file of any path: perf calls it `vdso`. Older versions of perf linked to the file itself.
    pub fn kept_by_perf(folder: &Path, build_id: &str) -> Vec<PathBuf> {
        let Some(by_id) = by_id(folder, build_id) else { return Vec::new() };
        vec![by_id.join("elf"), by_id.join("vdso"), folder.join("[vdso]").join(build_id).join("vdso"), by_id]
    }

    fn candidates(&self, kept: Vec<PathBuf>, build_id: &str, fetched: &str) -> Vec<PathBuf> {
        if !is_id(build_id) {
            return Vec::new();
        }
        let fetched = self.debuginfod.iter().map(|folder| folder.join(build_id).join(fetched));
        kept.into_iter().chain(fetched).filter(|path| is_there(path)).collect()
    }
}

/// perf's link to the folder of what has the build id.
fn by_id(folder: &Path, build_id: &str) -> Option<PathBuf> {
    let (first, rest) = is_id(build_id).then(|| build_id.split_at(2))?;
    Some(folder.join(".build-id").join(first).join(rest))
}

fn is_id(build_id: &str) -> bool {
    build_id.len() > 2 && build_id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// What no server had is noted by an empty file.
fn is_there(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(variables: &[(&str, &str)]) -> Caches {
        let known: Vec<_> = variables.iter().map(|&(name, value)| (name.to_owned(), PathBuf::from(value))).collect();
        Caches::of(|name| known.iter().find(|known| known.0 == name).map(|known| known.1.clone()))
    }

    #[test]
    fn variables_say_where_debuginfod_keeps_files() {
        let of_home = told(&[("HOME", "/h")]);
        assert_eq!(of_home.perf, Some("/h/.debug".into()));
        let old = PathBuf::from("/h/.debuginfod_client_cache");
        assert_eq!(of_home.debuginfod, ["/h/.cache/debuginfod_client".into(), old.clone()]);
        let moved = told(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c")]);
        assert_eq!(moved.debuginfod, ["/c/debuginfod_client".into(), old]);
        let named = told(&[("HOME", "/h"), ("XDG_CACHE_HOME", "/c"), ("DEBUGINFOD_CACHE_PATH", "/d")]);
        assert_eq!(named.debuginfod, [PathBuf::from("/d")]);
        assert!(told(&[]).debuginfod.is_empty());
    }
}
