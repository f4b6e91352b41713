//! Files of packets alone.

use crate::support::{reference_data, Told};
use pt_capture::{open, Kind, Options, RawImage};
use pt_flow::Flow;
use std::io::Read;
use std::path::Path;

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
fn what_the_scripts_of_libipt_take_out_of_a_recording_is_found_together() {
    let Some(data) = reference_data() else { return };
    let folder = std::env::temp_dir().join(format!("pt-raw-libipt-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (name, of_libipt) in [
        ("pt.bin", "perf.data-aux-idx0.bin"),
        ("primary.sideband.pevent", "perf.data-sideband-cpu0.pevent"),
        ("secondary.sideband.pevent", "perf.data-sideband.pevent"),
        ("hello", "hello"),
    ] {
        std::fs::write(folder.join(of_libipt), std::fs::read(data.join("pt/dynamorio").join(name)).unwrap()).unwrap();
    }
    let capture = open(&folder.join("perf.data-aux-idx0.bin"), &Options::default()).unwrap();
    let mut told = Told::default();
    let stream = &capture.streams[0];
    Flow::new(&capture.memory()).decode(&stream.data, &capture.config, &stream.epochs, &mut told);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(told.instructions.len(), 8, "{told:x?}");
}

#[test]
fn what_is_no_recording_is_said_to_be_none() {
    let Some(data) = reference_data() else { return };
    let error = |name: &str| open(&data.join(name), &Options::default()).err().unwrap().to_string();
    assert!(error("README.md").contains("no PSB in"), "{}", error("README.md"));
    assert!(error("nowhere").contains("No such file"));
}

#[test]
fn what_is_no_file_of_records_is_named() {
    let Some(data) = reference_data() else { return };
    let folder = data.join("pt/dynamorio");
    let why = |records: &Path| {
        let options = Options { sideband: vec![records.to_owned()], ..Options::default() };
        open(&folder.join("pt.bin"), &options).err().unwrap().to_string()
    };
    assert!(why(&folder.join("hello")).contains("an ELF file, no file of perf's records"));
    assert!(why(&folder.join("pt.bin")).contains("Processor Trace packets, no file"));
    assert!(why(&data.join("pt/perf/perf.data.intel_pt-4.14")).contains("a whole recording of perf"));
}

/// Packets in a file of the given bytes; what is wrong with it.
fn opened(name: &str, content: &[u8]) -> Result<(Vec<u8>, Vec<String>), String> {
    let file = std::env::temp_dir().join(format!("pt-raw-{}-{name}", std::process::id()));
    std::fs::write(&file, content).unwrap();
    let capture = open(&file, &Options::default());
    std::fs::remove_file(&file).unwrap();
    capture.map(|one| (one.streams[0].data.to_vec(), one.warnings)).map_err(|error| error.to_string())
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    flate2::bufread::GzEncoder::new(content, flate2::Compression::fast()).read_to_end(&mut packed).unwrap();
    packed
}

#[test]
fn bytes_behind_gzip_data_are_left_out() {
    let packets = [0x02, 0x82].repeat(8);
    let both = [gzip(&packets), gzip(&packets)].concat();
    let twice = packets.repeat(2);
    assert_eq!(opened("members", &both), Ok((twice.clone(), Vec::new())));
    assert_eq!(opened("zeros", &[&both[..], &[0; 512]].concat()), Ok((twice.clone(), Vec::new())));
    let told = vec!["8 bytes behind the end of the gzip data are left out".to_owned()];
    assert_eq!(opened("others", &[&both[..], b"trailing"].concat()), Ok((twice, told)));
    assert!(opened("cut", &both[..both.len() - 1]).is_err());
}

#[test]
fn a_zstd_file_may_have_several_frames() {
    let packets = [0x02, 0x82].repeat(8);
    let frame = ruzstd::encoding::compress_to_vec(&packets[..], ruzstd::encoding::CompressionLevel::Fastest);
    let both = frame.repeat(2);
    assert_eq!(opened("frames", &both), Ok((packets.repeat(2), Vec::new())));
    let told = vec!["8 bytes behind the end of the zstd data are left out".to_owned()];
    assert_eq!(opened("behind", &[&both[..], b"trailing"].concat()), Ok((packets.repeat(2), told)));
    assert!(opened("half", &both[..both.len() - 1]).is_err());
}

#[test]
fn an_image_that_cannot_be_is_refused_with_the_reason() {
    let folder = std::env::temp_dir().join(format!("pt-raw-images-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (packets, code) = (folder.join("pt.bin"), folder.join("code"));
    std::fs::write(&packets, pt_packet::PSB).unwrap();
    std::fs::write(&code, [0x90; 0x1001]).unwrap();
    let refused = |offset, size, address| {
        let images = vec![RawImage { file: code.clone(), offset, size, address }];
        open(&packets, &Options { images, ..Options::default() }).err().map(|error| error.to_string())
    };
    assert_eq!(refused(0, Some(0xfff), u64::MAX - 0xfff), None);
    for (offset, size, address, why) in [
        (0, Some(0), 0x1000, "an image of no bytes is none"),
        (
            0,
            Some(0x1000),
            u64::MAX - 0xfff,
            "0x1000 bytes from address 0xfffffffffffff000 on reach to the last address",
        ),
        (0x1001, None, 0x1000, "bytes from offset 0x1001 are wanted, the file has 0x1001"),
        (1, Some(0x1001), 0x1000, "0x1001 bytes from offset 0x1 are wanted, the file has 0x1001"),
    ] {
        let told = refused(offset, size, address).expect(why);
        assert!(told.contains(why), "{told}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
