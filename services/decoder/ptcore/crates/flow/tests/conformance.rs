//! libipt's conformance vectors, packet for packet and event for event.

use crate::{support, vectors};

#[test]
fn every_vector_decodes_as_libipt_lists_it() {
    let Some(cases) = vectors::cases(support::reference_data()) else { return };
    assert_eq!(cases.len(), 242);
    let mut wrong = 0;
    for case in cases {
        let outcome = case.run();
        if case.otherwise().is_some() {
            assert!(matches!(outcome.flow, Some(Err(_))), "{} does not differ any more", case.name);
        }
        let flow = outcome.flow.filter(|_| case.otherwise().is_none());
        for (layer, verdict) in [("packets", Some(outcome.packets)), ("flow", flow), ("times", outcome.times)] {
            if let Some(Err(why)) = verdict {
                println!("{} {layer}: {why}", case.name);
                wrong += 1;
            }
        }
    }
    assert_eq!(wrong, 0);
}
