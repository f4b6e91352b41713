//! Files of packets alone.

use crate::support::{reference_data, Told};
use pt_capture::{open, Kind, Options, RawImage};
use pt_flow::Flow;

#[test]
fn packets_run_through_the_code_that_was_given() {
    let Some(data) = reference_data() else { return };
    let folder = data.join("pt/dynamorio");
    let image = RawImage { file: folder.join("hello"), offset: 0x1000, size: Some(0x27), address: 0x401000 };
    let options = Options { images: vec![image], cpu: Some((6, 94, 3)), ..Options::default() };
    let capture = open(&folder.join("pt.bin"), &options).unwrap();
    assert_eq!((capture.kind, capture.cpu), (Kind::Raw, Some((6, 94, 3))));
    let mut told = Told::default();
    let stream = &capture.streams[0];
    Flow::new(&capture.memory()).decode(&stream.data, &capture.config, &stream.epochs, &mut told);
    assert_eq!(told.instructions.len(), 8, "{told:x?}");
}

#[test]
fn what_is_no_recording_is_said_to_be_none() {
    let Some(data) = reference_data() else { return };
    let error = |name: &str| open(&data.join(name), &Options::default()).err().unwrap().to_string();
    assert!(error("README.md").contains("no PSB in"), "{}", error("README.md"));
    assert!(error("nowhere").contains("No such file"));
}
