//! Binaries that a session names: objects of its store, or the same files elsewhere where it was copied out of that.

use crate::files::{search, Files};
use crate::temporary::TemporaryFile;
use crate::unpacked::content;
use pt_image::{Binary, Search};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub struct Binaries {
    search: Search,
    files: Files,
    by_key: HashMap<String, Result<Arc<Binary>, String>>,
}

impl Binaries {
    pub fn new(folders: &[PathBuf]) -> Self {
        Binaries { search: search(folders), files: Files::new(folders), by_key: HashMap::new() }
    }

    /// The binary of a key. `path`: its object; `mapped`: its path in the process; `build_id`: empty when it is not known. Says
    /// in `warnings` why its debug file cannot be used.
    pub fn find(
        &mut self,
        key: &str,
        path: &Path,
        mapped: &str,
        build_id: &str,
        warnings: &mut Vec<String>,
    ) -> Result<Arc<Binary>, String> {
        if let Some(known) = self.by_key.get(key) {
            return known.clone();
        }
        let found = if build_id.is_empty() || !matches!(path.try_exists(), Ok(false)) {
            load(path, mapped, &self.search).map(|(binary, refusal)| {
                warnings.extend(refusal.map(|why| format!("{mapped}: its debug file cannot be used: {why}")));
                Arc::new(binary)
            })
        } else {
            let absent = |why| format!("the store of this session has no {key} ({}); {why}", path.display());
            self.files.find(mapped, build_id).map_err(absent)
        };
        self.by_key.insert(key.to_owned(), found.clone());
        found
    }
}

/// A binary of the store, unpacked, with its separate debug file where there is one, and why that cannot be used. `mapped`: its path
/// in the process.
fn load(path: &Path, mapped: &str, search: &Search) -> Result<(Binary, Option<String>), String> {
    let unpacked = |path: &Path| {
        let bytes = content(path).map_err(|error| error.to_string())?;
        TemporaryFile::new(&bytes).map_err(|error| error.to_string())
    };
    let debug = PathBuf::from(format!("{}.debug", path.display()));
    let (debug, refusal) = match debug.is_file().then(|| unpacked(&debug)).transpose() {
        Ok(debug) => (debug, None),
        Err(why) => (None, Some(why)),
    };
    let debug_path = debug.as_ref().map(|file| file.0.clone());
    let search = Search { debug: debug_path, mapped: Some(mapped.into()), ..search.clone() };
    let bytes = pt_image::Bytes::open(&unpacked(path)?.0).map_err(|error| format!("{}: {error}", path.display()))?;
    let binary = Binary::of(path, bytes, &search).map_err(|error| error.to_string())?;
    Ok((binary, refusal))
}
