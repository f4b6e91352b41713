//! Code that programs wrote at run time: what their jitdumps and perf maps tell, each read once.

use crate::files::DELETED;
use crate::jit::{self, Dump};
use crate::perf_map::PerfMap;
use crate::Conversion;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So many functions of jitdumps are taken, of all processes together.
const MAX_FUNCTIONS: usize = 1 << 21;

/// Finds and reads those files.
pub struct Written<'o> {
    /// Where they are looked for first.
    folders: &'o [PathBuf],
    /// The process of each jitdump that was read, by name.
    taken: HashMap<String, u32>,
    functions: usize,
    /// By pid.
    names: HashMap<u32, Arc<PerfMap>>,
    /// What of perf maps could not be read.
    pub warnings: Vec<String>,
}

impl<'o> Written<'o> {
    pub fn new(folders: &'o [PathBuf]) -> Self {
        Written { folders, taken: HashMap::new(), functions: 0, names: HashMap::new(), warnings: Vec::new() }
    }

    /// The jitdump `file`, which the process mapped as `name` at `tsc`; without code where that is told already.
    pub fn dump(
        &mut self,
        (pid, tsc): (u32, u64),
        name: &str,
        file: &str,
        conversion: Option<Conversion>,
    ) -> Result<Dump, String> {
        let there = name.strip_suffix(DELETED).unwrap_or(name);
        match self.taken.get(there) {
            Some(&owner) if owner == pid => return Ok(Dump { code: Vec::new(), by_tsc: true, damage: None }),
            // Each writes its own. Processes of several containers have the same pids, and files of the same name.
            Some(owner) => {
                return Err(format!("it is taken for that of process {owner}, others have another of this name"));
            }
            None => self.taken.insert(there.to_owned(), pid),
        };
        let mut dump = jit::read(name, file, self.folders, conversion)?;
        let room = MAX_FUNCTIONS - self.functions;
        if dump.code.len() > room {
            let what = format!("functions behind the first {MAX_FUNCTIONS} of all jitdumps are left out");
            dump.damage.get_or_insert(what);
            dump.code.truncate(room);
        }
        self.functions += dump.code.len();
        if !dump.by_tsc {
            // By a clock that is behind the program would have written code before it mapped the file, and before it
            // was executed: its code would be that of the program before.
            dump.code.iter_mut().for_each(|(at, _)| *at = tsc.max(*at));
        }
        Ok(dump)
    }

    /// The perf map of a process, empty where there is none.
    pub fn names(&mut self, pid: u32) -> Arc<PerfMap> {
        let Written { folders, names, warnings, .. } = self;
        let read = || {
            let file = format!("perf-{pid}.map");
            let inside = folders.iter().map(|folder| folder.join(&file)).chain([Path::new("/tmp").join(&file)]);
            let Some(path) = inside.into_iter().find(|path| path.is_file()) else { return Arc::default() };
            let (names, left_out) = PerfMap::read(&path).unwrap_or_else(|error| (PerfMap::default(), Some(error)));
            warnings.extend(left_out);
            Arc::new(names)
        };
        Arc::clone(names.entry(pid).or_insert_with(read))
    }
}

/// Memory of which perf expects the names in a perf map (tools/perf/util/map.h, is_anon_memory, is_no_dso_memory), and what
/// was given a name with prctl(2), PR_SET_VMA_ANON_NAME.
pub fn has_no_file(name: &str) -> bool {
    let begins = ["/dev/zero", "/anon_hugepage", "/SYSV", "[stack", "[heap", "[anon"];
    name == "//anon" || begins.iter().any(|begin| name.starts_with(begin))
}
