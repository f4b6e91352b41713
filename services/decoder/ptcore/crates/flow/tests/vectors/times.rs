//! Times in packet listings.
//!
//! The options a listing was made with (frequency of MTC, clock ratios) are not in it: that setting is looked for under
//! which every time of the listing comes out.

use super::{Case, Listing, Verdict};
use pt_flow::{Config, Errata, Time};
use pt_packet::Reader;

/// `None` where the listing has no times.
pub fn compare(case: &Case, listing: &Listing) -> Option<Verdict> {
    let expected = expected(listing);
    if expected.is_empty() {
        return None;
    }
    let mut best = (0, String::new());
    for mtc_freq in 0..16 {
        for tsc_ctc_ratio in [(1, 1), (2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (0, 0), (64, 1), (3, 1), (1, 8)] {
            for (nominal_ratio, forget) in (0..=8).flat_map(|ratio| [(ratio, false), (ratio, true)]) {
                let config = Config {
                    mtc_freq,
                    tsc_ctc_ratio,
                    nominal_ratio,
                    errata: listing.errata(),
                    forget_rate_at_overflow: forget,
                    ..Config::default()
                };
                match follow(case, config, &expected) {
                    Ok(()) => return Some(Ok(())),
                    Err((right, why)) if right >= best.0 => best = (right, format!("{config:?}: {why}")),
                    Err(_) => {}
                }
            }
        }
    }
    Some(Err(best.1))
}

#[derive(Debug, PartialEq)]
enum Said {
    At(u64),
    Since(i64),
    /// Thousandths by which the ticks per cycle changed; `None` when they are not known.
    Rate(Option<i64>),
}

fn expected(listing: &Listing) -> Vec<(u64, Said)> {
    let mut expected = Vec::new();
    for line in listing.lines.iter().filter(|line| !line.contains("PERF_RECORD")) {
        let mut fields = line.split_whitespace();
        let Some(offset) = fields.next().and_then(super::address) else { continue };
        let fields: Vec<_> = fields.collect();
        for pair in fields[1..].windows(2) {
            match (pair[0], pair[1]) {
                ("tsc", value) if super::address(value).is_some() => {
                    expected.push((offset, Said::At(super::hexadecimal(value))));
                }
                ("tsc", value) if value.starts_with(['+', '-']) => {
                    let ticks = super::hexadecimal(&value[1..]) as i64;
                    expected.push((offset, Said::Since(if value.starts_with('-') { -ticks } else { ticks })));
                }
                ("fcr", "<unavailable>") => expected.push((offset, Said::Rate(None))),
                ("fcr", value) => {
                    let thousandths: f64 = value.parse::<f64>().unwrap() * 1000.0;
                    expected.push((offset, Said::Rate(Some(thousandths.round() as i64))));
                }
                _ => {}
            }
        }
    }
    expected
}

/// How many times came out, and the first that did not.
fn follow(case: &Case, config: Config, expected: &[(u64, Said)]) -> Result<(), (usize, String)> {
    let mut time = Time::new(config);
    let mut rest = expected.iter().enumerate().peekable();
    let (mut last, mut last_rate, mut now) = (0, 0.0, 0);
    for item in Reader::with_errata(&case.stream, Errata::default()) {
        let Ok((offset, packet)) = item else { break };
        time.take(&packet);
        assert!(time.now() >= now, "{}: time goes back", case.name);
        now = time.now();
        while let Some((number, (_, said))) = rest.next_if(|(_, (at, _))| *at == offset as u64) {
            let found = match said {
                Said::At(_) => Said::At(time.estimate()),
                Said::Since(_) => Said::Since(time.estimate() as i64 - last as i64),
                Said::Rate(_) => {
                    Said::Rate(time.rate().map(|rate| ((rate.ratio() - last_rate) * 1000.0).round() as i64))
                }
            };
            if found != *said {
                return Err((number, format!("at {offset:#x} {found:?}, listed as {said:?}")));
            }
            last = time.estimate();
            last_rate = time.rate().map_or(0.0, |rate| rate.ratio());
        }
    }
    rest.next().map_or(Ok(()), |(number, (at, said))| Err((number, format!("{said:?} at {at:#x} is not reached"))))
}
