//! Code that programs wrote at run time: what their jitdumps and perf maps tell, each read once.

use crate::jit::{self, Dump, PerfMap};
use crate::Conversion;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// So many functions of jitdumps are taken, of all processes together.
const MAX_FUNCTIONS: usize = 1 << 21;

pub struct Written<'o> {
    folders: &'o [PathBuf],
    /// By the name under which they were mapped.
    dumps: HashMap<String, Result<Arc<Dump>, String>>,
    /// Pids, and the dumps that are theirs.
    taken: HashSet<(u32, String)>,
    functions: usize,
    /// By pid.
    names: HashMap<u32, Arc<PerfMap>>,
    /// What of perf maps could not be read.
    pub warnings: Vec<String>,
}

impl<'o> Written<'o> {
    pub fn new(folders: &'o [PathBuf]) -> Self {
        Written {
            folders,
            dumps: HashMap::new(),
            taken: HashSet::new(),
            functions: 0,
            names: HashMap::new(),
            warnings: Vec::new(),
        }
    }

    /// The jitdump `file`, which the process mapped as `name`; without code where that is told already.
    pub fn dump(&mut self, pid: u32, name: &str, file: &str, conversion: Option<Conversion>) -> Result<Dump, String> {
        if !self.taken.insert((pid, name.to_owned())) {
            return Ok(Dump { code: Vec::new(), damage: None });
        }
        let read = || jit::read(name, file, self.folders, conversion).map(Arc::new);
        let dump = Arc::clone(self.dumps.entry(name.to_owned()).or_insert_with(read).as_ref().map_err(Clone::clone)?);
        let room = MAX_FUNCTIONS - self.functions;
        let code = dump.code.iter().take(room).cloned().collect::<Vec<_>>();
        self.functions += code.len();
        let too_many = || format!("functions behind the first {MAX_FUNCTIONS} of all jitdumps are left out");
        let left_out = (code.len() < dump.code.len()).then(too_many);
        Ok(Dump { code, damage: left_out.or_else(|| dump.damage.clone()) })
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
