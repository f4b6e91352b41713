//! The conformance vectors of libipt: packet streams with what its tools print for them.
//!
//! A case is a stream (`NAME.pt`), a code image (`NAME.bin`) and listings: packets (`NAME-ptdump*.exp`) and flow
//! (`NAME-ptxed*.exp`), each for a processor (`-cpu_FAMILY_MODEL`) or for none in particular.
#![allow(dead_code)]

pub mod flow;
pub mod packets;
pub mod times;

use pt_flow::{Cpu, Errata};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub struct Listing {
    pub cpu: Option<Cpu>,
    pub lines: Vec<String>,
}

impl Listing {
    pub fn errata(&self) -> Errata {
        self.cpu.and_then(Errata::of).unwrap_or_default()
    }
}

pub struct Case {
    pub name: String,
    pub stream: Vec<u8>,
    pub code: Vec<u8>,
    pub packets: Vec<Listing>,
    pub flow: Vec<Listing>,
}

/// Why a listing differs from what is decoded.
pub type Verdict = Result<(), String>;

/// Where the flow differs on purpose.
const OTHERWISE: &[(&str, &str)] = &[(
    "ptxed-resync-psb-bad_status-psb",
    "a PSB whose status does not fit ends the flow for libipt until the next one; here execution goes on from its status, \
     which is complete by itself (SDM section \"Packet Stream Boundary (PSB) Packet\")",
)];

pub struct Outcome {
    pub packets: Verdict,
    /// `None` where there is no flow listing.
    pub flow: Option<Verdict>,
    /// `None` where no packet listing has times.
    pub times: Option<Verdict>,
}

impl Case {
    pub fn run(&self) -> Outcome {
        let packets = self.packets.iter().try_for_each(|listing| packets::compare(self, listing));
        let flow = self.flow.iter().try_for_each(|listing| flow::compare(self, listing));
        let times: Vec<_> = self.packets.iter().filter_map(|listing| times::compare(self, listing)).collect();
        let times = (!times.is_empty()).then(|| times.into_iter().collect());
        Outcome { packets, flow: (!self.flow.is_empty()).then_some(flow), times }
    }

    /// Why the flow differs on purpose.
    pub fn otherwise(&self) -> Option<&'static str> {
        OTHERWISE.iter().find(|(name, _)| *name == self.name).map(|&(_, why)| why)
    }

    pub fn processors(&self) -> usize {
        self.packets.len()
    }
}

/// All cases by name; `None` without reference data.
pub fn cases(data: Option<PathBuf>) -> Option<&'static [Case]> {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    let archive = data?.join("pt/ptt/libipt-vectors.tar.xz");
    Some(CASES.get_or_init(|| unpacked(&archive)))
}

fn unpacked(archive: &Path) -> Vec<Case> {
    let folder = std::env::temp_dir().join(format!("permille-vectors-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let unpacked = Command::new("tar").arg("-xJf").arg(archive).arg("-C").arg(&folder).status().unwrap();
    assert!(unpacked.success(), "tar cannot unpack {}", archive.display());
    let cases = read(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
    cases
}

fn read(folder: &Path) -> Vec<Case> {
    let mut cases = BTreeMap::new();
    let mut listings = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("pt") => {
                let code = std::fs::read(path.with_extension("bin")).unwrap();
                let stream = std::fs::read(&path).unwrap();
                cases.insert(stem.clone(), Case { name: stem, stream, code, packets: vec![], flow: vec![] });
            }
            Some("exp") => listings.push((stem, std::fs::read_to_string(&path).unwrap())),
            _ => {}
        }
    }
    listings.sort();
    for (stem, text) in listings {
        let (stem, cpu) = match stem.split_once("-cpu_") {
            Some((stem, cpu)) => (stem.to_owned(), Some(processor(cpu))),
            None => (stem, None),
        };
        let (name, kind) = stem.rsplit_once('-').unwrap();
        let case: &mut Case = cases.get_mut(name).unwrap_or_else(|| panic!("no stream for {stem}"));
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        let listing = Listing { cpu, lines };
        match kind {
            "ptdump" => case.packets.push(listing),
            "ptxed" => case.flow.push(listing),
            other => panic!("a listing of {other}"),
        }
    }
    cases.into_values().collect()
}

fn processor(text: &str) -> Cpu {
    let numbers: Vec<_> = text.split('_').map(|number| number.parse().unwrap()).collect();
    Cpu { family: numbers[0], model: numbers[1] as u8, stepping: 0 }
}

/// The number that a whole field of 16 hexadecimal digits is.
pub fn address(field: &str) -> Option<u64> {
    (field.len() == 16).then(|| u64::from_str_radix(field, 16).ok()).flatten()
}

pub fn hexadecimal(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or_else(|_| panic!("{text:?} is no number"))
}
