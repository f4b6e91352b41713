//! Which packets there are, by a session's manifest.

use crate::json::Node;
use crate::CaptureError;
use pt_flow::{AddressFilter, Config};

/// `pt`: that part of the manifest.
pub fn config(pt: &Node) -> Result<Config, CaptureError> {
    let number = |name: &str, below: u64| pt.find(name)?.map_or(Ok(0), |node| node.integer(below));
    let ratio = pt.elements("tsc_ctc_ratio")?;
    let part = |at: usize| ratio.get(at).map_or(Ok(0), |node| node.integer(1 << 32));
    Ok(Config {
        mtc_freq: number("mtc_freq", 16)? as u8,
        tsc_ctc_ratio: (part(0)? as u32, part(1)? as u32),
        nominal_ratio: number("nominal_ratio", 256)? as u8,
        without_tnt: pt.find("without_tnt")?.map_or(Ok(false), |node| node.truth())?,
        filter: filter(pt)?,
        ..Config::default()
    })
}

/// First and last address of each range, as many as processors have.
fn filter(pt: &Node) -> Result<AddressFilter, CaptureError> {
    let mut filter = AddressFilter::default();
    for (range, told) in filter.ranges.iter_mut().zip(pt.elements("filter")?) {
        *range = Some(told.numbers::<2>()?.into());
    }
    Ok(filter)
}
