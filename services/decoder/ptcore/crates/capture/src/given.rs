//! What is given by hand about a recording, and what its processor does wrong.

use crate::{Capture, Kind, Options};
use pt_flow::Config;
use pt_packet::{Cpu, Errata};

/// Goes before what the recording tells. Errata are those of the processor, none where it is not known.
pub fn take_over(capture: &mut Capture, options: &Options) {
    capture.cpu = options.cpu.or(capture.cpu);
    if let Some(timing) = options.timing {
        let Config { reference_tsc, without_tnt, filter, .. } = capture.config;
        capture.config = Config { reference_tsc, without_tnt, filter, ..timing };
    }
    if let Some(errata) = errata(capture) {
        capture.config.errata = errata;
    }
}

/// A processor whose errata are not known is told of, and that none is named in a recording of a kind that names it.
pub fn warn(capture: &mut Capture) {
    let names_it = matches!(capture.kind, Kind::PerfData | Kind::Lldb) && !capture.streams.is_empty();
    match (capture.cpu, errata(capture)) {
        (Some((family, model, stepping)), None) => capture
            .warnings
            .push(format!("processor {family}/{model}/{stepping} is not known: it is taken to have no errata")),
        (None, _) if names_it => capture.warnings.push(
            "the recording does not name its processor, which is taken to have no errata: name it with --cpu, such as 6/85/4"
                .to_owned(),
        ),
        _ => {}
    }
}

/// What was given in vain is told. `known`: with what was found beside the recording.
pub fn warn_of_unused(capture: &mut Capture, given: &Options, known: &Options) {
    let is_raw = capture.kind == Kind::Raw;
    let kernel = given.vmlinux.is_some() || given.kcore.is_some() || given.kallsyms.is_some();
    // Records beside packets tell of the kernel what those of a perf.data do.
    let told = matches!(capture.kind, Kind::PerfData) || is_raw && !known.sideband.is_empty();
    let kernel = match capture.kind {
        _ if told && given.kallsyms.is_some() && known.kcore.is_none() => {
            Some("kallsyms: they name what is in a kcore, and none is there")
        }
        _ if told && given.vmlinux.is_some() && known.kcore.is_some() && known.kallsyms.is_some() => {
            Some("vmlinux: the kcore has the kernel's code, kallsyms its names")
        }
        Kind::Raw if kernel && !told => {
            Some("the kernel: no records (sideband) say where it was; as an image it is given with its address")
        }
        Kind::Griffin | Kind::Lldb | Kind::Session if kernel => {
            Some("the kernel: records of perf alone say where it was")
        }
        _ => None,
    };
    let image = (!is_raw && !given.images.is_empty()).then_some("the image: the recording says which code was where");
    let sideband =
        (!is_raw && !given.sideband.is_empty()).then_some("the records (sideband): they are for packets alone");
    let unused = [image, sideband, kernel].into_iter().flatten();
    capture.warnings.extend(unused.map(|what| format!("not used of what was given: {what}")));
}

fn errata(capture: &Capture) -> Option<Errata> {
    let (family, model, stepping) = capture.cpu?;
    Errata::of(Cpu { family, model, stepping })
}
