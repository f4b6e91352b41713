//! What is given by hand about a recording, and what its processor does wrong.

use crate::{Capture, Options};
use pt_flow::Config;
use pt_packet::{Cpu, Errata};

/// Goes before what the recording tells. Errata are those of the processor, none where it is not known.
pub fn take_over(capture: &mut Capture, options: &Options) {
    capture.cpu = options.cpu.or(capture.cpu);
    if let Some(timing) = options.timing {
        let Config { reference_tsc, without_tnt, .. } = capture.config;
        capture.config = Config { reference_tsc, without_tnt, ..timing };
    }
    if let Some(errata) = errata(capture) {
        capture.config.errata = errata;
    }
}

/// A processor whose errata are not known is told of.
pub fn warn(capture: &mut Capture) {
    if let (Some((family, model, stepping)), None) = (capture.cpu, errata(capture)) {
        let what = format!("processor {family}/{model}/{stepping} is not known: it is taken to have no errata");
        capture.warnings.push(what);
    }
}

fn errata(capture: &Capture) -> Option<Errata> {
    let (family, model, stepping) = capture.cpu?;
    Errata::of(Cpu { family, model, stepping })
}
