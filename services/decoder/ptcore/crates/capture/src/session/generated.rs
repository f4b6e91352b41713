//! The perf maps and jitdumps that were taken with a session.

use super::PIDS;
use crate::jit::{Generated, Told};
use crate::json::Node;
use crate::{Bytes, CaptureError, Conversion};
use std::collections::{BTreeMap, HashMap};

/// Of one process.
#[derive(Default)]
struct Files {
    map: Option<Bytes>,
    /// By name.
    dumps: Vec<(String, Bytes)>,
}

/// By pid; and what of them is missing or cannot be used. `file`: the content of an entry's object.
pub fn read(
    manifest: &Node,
    mut file: impl FnMut(&Node) -> Result<Bytes, CaptureError>,
) -> Result<(HashMap<u32, Generated>, Vec<String>), CaptureError> {
    let (mut files, mut warnings) = (BTreeMap::<u32, Files>::new(), Vec::new());
    for told in manifest.elements("jit")? {
        let bytes = match file(&told) {
            Ok(bytes) => bytes,
            Err(error) => {
                warnings.push(format!("names of code that was written at run time are missing: {error}"));
                continue;
            }
        };
        let own = files.entry(told.get("pid")?.integer(PIDS)? as u32).or_default();
        match told.get("kind")?.text()? {
            "perf-map" => own.map = Some(bytes),
            "jitdump" => own.dumps.push((told.get("name")?.text()?.to_owned(), bytes)),
            // Of a newer recorder.
            _ => {}
        }
    }
    let conversion = conversion(manifest)?;
    let mut all = HashMap::new();
    for (pid, Files { map, dumps }) in files {
        let dumps: Vec<_> = dumps.iter().map(|(name, bytes)| (name.as_str(), &**bytes)).collect();
        let generated = Generated::read(map.as_deref().unwrap_or_default(), &dumps, conversion);
        warnings.extend(generated.notes.iter().map(|note| format!("process {pid}: {note}")));
        all.insert(pid, generated);
    }
    Ok((all, warnings))
}

/// Between the TSC and CLOCK_MONOTONIC.
fn conversion(manifest: &Node) -> Result<Option<Conversion>, CaptureError> {
    let Some(clock) = manifest.find("monotonic")? else { return Ok(None) };
    let number = |name: &str| clock.get(name)?.address();
    Ok(Conversion::through((number("tsc0")?, number("ns0")?), (number("tsc1")?, number("ns1")?)))
}

pub fn told(epoch: u32, change: &Node) -> Result<Told, CaptureError> {
    Ok(Told {
        epoch,
        tsc: change.find("tsc")?.map_or(Ok(0), |node| node.address())?,
        address: change.get("address")?.address()?,
        size: change.get("size_bytes")?.address()?,
        code: match change.get("event")?.text()? {
            "code" => true,
            "map" => change.find("path")?.map_or(Ok(""), |path| path.text())?.is_empty(),
            _ => false,
        },
    })
}
