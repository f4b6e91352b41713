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
    /// By pid the jitdumps of which nothing says how far their clock is from that of perf, and the last time in each.
    unplaced: HashMap<u32, (String, u64)>,
    /// By child, until it is another program: who forked it, and when.
    forks: HashMap<u32, (u32, u64)>,
    /// By pid.
    names: HashMap<u32, Arc<PerfMap>>,
    /// What of perf maps could not be read.
    pub warnings: Vec<String>,
}

impl<'o> Written<'o> {
    pub fn new(folders: &'o [PathBuf]) -> Self {
        Written {
            folders,
            taken: HashMap::new(),
            functions: 0,
            unplaced: HashMap::new(),
            forks: HashMap::new(),
            names: HashMap::new(),
            warnings: Vec::new(),
        }
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
            Some(&owner) if owner == pid => return Ok(Dump { code: Vec::new(), by_tsc: true, made: 0, damage: None }),
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
            // A program maps the file as it makes it: by so much its clock is ahead of that of perf, and children would
            // be forked before the code was there that they have of it. By a clock that is behind the program would have
            // written code before it mapped the file, and before it was executed: its code would be that of the program
            // before.
            let is_placed = tsc != 0 && dump.made != 0;
            let ahead = if is_placed { dump.made.saturating_sub(tsc) } else { 0 };
            dump.code.iter_mut().for_each(|(at, _)| *at = tsc.max(at.saturating_sub(ahead)));
            let last = dump.code.iter().map(|&(at, _)| at).max();
            if let (false, Some(last)) = (is_placed, last) {
                self.unplaced.insert(pid, (there.to_owned(), last));
            }
        }
        Ok(dump)
    }

    /// A child has the code that its parent has then.
    pub fn fork(&mut self, parent: u32, child: u32, tsc: u64) {
        self.forks.insert(child, (parent, tsc));
    }

    /// It has other code from now on.
    pub fn exec(&mut self, pid: u32) {
        self.forks.remove(&pid);
    }

    /// Children of which it is not known which code of their parents they have.
    pub fn doubts(&self) -> impl Iterator<Item = String> + '_ {
        let mut unplaced: Vec<_> = self.unplaced.iter().collect();
        unplaced.sort_unstable();
        unplaced.into_iter().filter_map(|(&pid, (name, last))| {
            let forked = self.forks.iter().filter(|(_, &(parent, tsc))| parent == pid && tsc < *last);
            let (first, count) = (forked.clone().map(|(&child, _)| child).min()?, forked.count());
            let children = match count {
                1 => format!("process {first}"),
                _ => format!("{count} processes, as {first},"),
            };
            Some(format!(
                "{name}: which of its code {children} had when process {pid} forked is a guess, as its times are not those \
                 of the TSC and it was made before the recording began: have them be TSC times \
                 (JITDUMP_USE_ARCH_TIMESTAMP=1), or record from the program's begin on"
            ))
        })
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
