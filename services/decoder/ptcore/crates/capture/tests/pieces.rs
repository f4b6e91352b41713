//! Recordings in pieces, and listed for a session archive.

use crate::support::{reference_data, Told};
use pt_capture::{list, open, pieces, Capture, Code, Memory, Options};
use pt_flow::{Config, Flow};
use pt_image::Image;
use pt_packet::{writer::write, Packet};

fn captures() -> Vec<(&'static str, Capture)> {
    let Some(data) = reference_data() else { return Vec::new() };
    let named = ["griffin/last.griffin.gz", "griffin/hello.griffin.gz", "lldb/intelpt-multi-core-trace/trace.json"];
    named.map(|name| (name, open(&data.join("pt").join(name), &Options::default()).unwrap())).into()
}

/// Time and address of each instruction of a stream, or of its pieces one after another.
fn flow(capture: &Capture, size: usize) -> (Vec<u64>, usize, usize) {
    let (mut all, mut lost, mut count) = (Vec::new(), 0, 0);
    for stream in &capture.streams {
        for piece in pieces(stream, &capture.config, size) {
            let mut told = Told::default();
            let data = [&stream.data[piece.from..piece.next], &piece.tail].concat();
            let config = Config { appended: piece.tail.len(), ..capture.config };
            Flow::new(capture.memory()).decode(&data, &config, &piece.epochs, &mut told);
            all.extend(told.instructions);
            lost += told.losses.iter().map(|loss| loss.size).sum::<usize>();
            count += 1;
        }
    }
    (all, lost, count)
}

#[test]
fn no_instruction_is_lost_or_doubled_where_a_stream_is_cut() {
    for (name, capture) in captures() {
        let (whole, lost, streams) = flow(&capture, usize::MAX);
        assert_eq!(streams, capture.streams.len());
        for size in [1, 3000, 20_000] {
            let (cut, lost_too, count) = flow(&capture, size);
            assert!(count > streams || size > 1, "{name}: nothing to cut");
            assert_eq!((cut.len(), cut == whole), (whole.len(), true), "{name} in {count} pieces");
            assert_eq!(lost_too, lost, "{name} in {count} pieces");
        }
    }
}

#[test]
fn pieces_tell_their_times_and_follow_each_other() {
    for (name, capture) in captures() {
        for stream in &capture.streams {
            let pieces = pieces(stream, &capture.config, 1);
            assert_eq!(pieces[0].from, 0);
            assert!(pieces.windows(2).all(|pair| pair[0].next == pair[1].from), "{name}");
            assert_eq!(pieces.last().unwrap().next, stream.data.len());
            assert!(pieces.iter().all(|piece| piece.epochs[0].0 == 0), "{name}");
            assert!(pieces.iter().all(|piece| piece.first_tsc <= piece.last_tsc), "{name}");
        }
    }
}

#[test]
fn a_time_that_the_next_one_contradicts_is_no_pieces() {
    let mut data = Vec::new();
    for tsc in [1000, 2000, 3000 | 1 << 50, 4000, 5000] {
        [Packet::Psb, Packet::Tsc(tsc), Packet::Psbend].iter().for_each(|&packet| write(&mut data, packet));
    }
    let file = std::env::temp_dir().join(format!("pieces-{}.pt", std::process::id()));
    std::fs::write(&file, data).unwrap();
    let capture = open(&file, &Options::default());
    std::fs::remove_file(&file).unwrap();
    let capture = capture.unwrap();
    let told =
        pieces(&capture.streams[0], &capture.config, 1).into_iter().map(|piece| (piece.first_tsc, piece.last_tsc));
    assert_eq!(told.collect::<Vec<_>>(), [(1000, 1000), (2000, 2000), (0, 0), (4000, 4000), (5000, 5000)]);
}

#[test]
fn the_listed_code_makes_the_same_memory_again() {
    for (name, capture) in captures() {
        let mut code = Vec::new();
        let listed = list(&capture, &mut code).unwrap();
        let mut images = Vec::new();
        for (_, changes) in &listed.processes {
            let mut image = Image::new();
            for change in changes {
                let (epoch, address, size) = (change.epoch, change.address, change.size);
                match &change.code {
                    Code::Nothing => image.unmap(epoch, address, size),
                    Code::Bytes { at } => {
                        image.code(epoch, address, code[*at as usize..(*at + size) as usize].to_vec())
                    }
                    Code::Binary { number, offset, name } => {
                        image.map(epoch, address, size, *offset, &listed.binaries[*number], name)
                    }
                    Code::Missing { name, reason } => image.missing(epoch, address, size, name, reason),
                    Code::Inside { .. } => panic!("{name} has no code with names of its own"),
                }
                .unwrap();
            }
            images.push(image);
        }
        let place = |pid| listed.processes.iter().position(|&(known, _)| known == pid).unwrap();
        let views = capture.views.iter().map(|&view| pt_capture::View { image: place(view.pid), ..view }).collect();
        let memory = Memory::of(&images, &views, None);
        for stream in &capture.streams {
            let (mut one, mut other) = (Told::default(), Told::default());
            Flow::new(capture.memory()).decode(&stream.data, &capture.config, &stream.epochs, &mut one);
            Flow::new(memory).decode(&stream.data, &capture.config, &stream.epochs, &mut other);
            assert!(!one.instructions.is_empty(), "{name}");
            assert_eq!(one.instructions, other.instructions, "{name}");
        }
    }
}
