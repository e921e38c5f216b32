//! Compressed traces that are cut, as when the process that wrote them was killed, or damaged.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use npualloc_replay::trace::{Trace, TraceError};

fn member(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("compressed");
    encoder.finish().expect("compressed")
}

/// Blocks that come and go, in as many members; where each begins.
fn recording(members: u64) -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut begins) = (Vec::new(), Vec::new());
    for at in 0..members {
        let mut text = String::new();
        if at == 0 {
            text.push_str("# npualloc-trace v1\n# capacity 4096\n");
        }
        for id in at * 20..at * 20 + 20 {
            let bytes = 1 + id * 7919 % 1000;
            text.push_str(&format!("a {id} {bytes} 0\nm step {id}\nf {id}\n"));
        }
        begins.push(file.len());
        file.extend(member(&text));
    }
    (file, begins)
}

fn read(file: &[u8]) -> Result<Trace, TraceError> {
    Trace::read_from(Path::new("t.gz"), file)
}

#[test]
fn what_came_before_a_cut_is_read() {
    let (file, begins) = recording(3);
    let whole = read(&file).expect("a good trace");
    assert!(!whole.torn);
    assert_eq!((whole.events.len(), whole.blocks), (180, 60));
    for end in begins[1]..file.len() {
        let trace = read(&file[..end]).unwrap_or_else(|error| panic!("{end}: {error}"));
        assert_eq!(trace.torn, !begins.contains(&end), "{end}");
        let events = trace.events.len();
        // Whole members are read whole.
        let members = begins.iter().filter(|begin| **begin <= end).count() - 1;
        assert!(
            events >= 60 * members && events <= 60 * (members + 1),
            "{end}"
        );
        assert_eq!(trace.events, whole.events[..events], "{end}");
        assert_eq!(trace.labels, whole.labels[..trace.labels.len()], "{end}");
    }
    // Nothing but the trailer is cut off.
    assert_eq!(
        read(&file[..file.len() - 8]).expect("a trace").events.len(),
        180
    );
    assert_eq!(
        read(&file[..file.len() - 1]).expect("a trace").events.len(),
        180
    );
}

#[test]
fn a_cut_in_the_first_line_leaves_no_trace() {
    let file = member("# npualloc-trace v1\na 0 1 0\n");
    for end in 1..15 {
        let error = read(&file[..end]).expect_err("no line").to_string();
        assert_eq!(error, "t.gz: the file ends in the middle, after line 0");
    }
    assert!(read(&file[..0]).is_err());
}

#[test]
fn a_cut_file_may_come_a_byte_at_a_time() {
    let (file, _) = recording(2);
    let input = std::io::BufReader::with_capacity(1, &file[..file.len() - 3]);
    let trace = Trace::read_from(Path::new("t.gz"), input).expect("a trace");
    assert!(trace.torn);
    assert_eq!(trace.events.len(), 120);
}

/// Such a block would be alive to the end.
#[test]
fn a_failed_request_that_is_cut_is_left_out() {
    let lines = "# npualloc-trace v1\na 0 5 0\nk f\nm out of memory: 900 bytes\na 1 900 0 1\n";
    let mut file = member(lines);
    let rest = member("f 1\na 2 6 0\n");
    file.extend(&rest[..rest.len() / 2 - 4]);
    let trace = read(&file).expect("a trace");
    assert!(trace.torn && trace.failed.is_empty());
    assert_eq!((trace.blocks, trace.peak_live), (1, 5));
    assert_eq!(trace.events.len(), 2);
    assert!(trace.stack_of.len() <= 1);
}

#[test]
fn a_file_damaged_before_its_last_member_is_refused() {
    let (file, begins) = recording(4);
    let whole = read(&file).expect("a good trace");
    let mut refused = 0;
    for at in 0..begins[3] {
        for bit in 0..8 {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << bit;
            match read(&damaged) {
                // Some bits matter to nobody: a header's time, what fills up the last byte.
                Ok(trace) => assert!(!trace.torn && trace.events == whole.events, "{at}.{bit}"),
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().starts_with("t.gz"), "{error}");
                }
            }
        }
    }
    assert!(refused > begins[3] * 7, "{refused} of {}", begins[3] * 8);
}

#[test]
fn other_damage_is_refused_at_the_end_too() {
    let (file, _) = recording(2);
    let mut checksum = file.clone();
    let at = checksum.len() - 8;
    checksum[at] ^= 1;
    let garbage = [file.as_slice(), b"garbage after the end"].concat();
    let half_a_line = [file.as_slice(), &member("a 40")].concat();
    let bad_line = [file.as_slice(), &member("f 900\n"), &member("e\n")].concat();
    for (damaged, reason) in [
        (checksum, "checksum"),
        (garbage, "gzip"),
        (half_a_line, "the file ends in the middle, after line 122"),
        (bad_line.clone(), "t.gz:123: block 900 was never allocated"),
        (
            bad_line[..bad_line.len() - 2].to_vec(),
            "t.gz:123: block 900",
        ),
    ] {
        let error = read(&damaged).expect_err(reason).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn what_follows_the_last_member_is_no_cut() {
    let (file, _) = recording(2);
    for tail in ["x", "trailing"] {
        let mut longer = file.clone();
        longer.extend(tail.as_bytes());
        let error = read(&longer).expect_err("no member").to_string();
        assert!(error.contains("something else follows"), "{error}");
    }
    // As much of a next one as fitted.
    for length in 1..4 {
        let mut longer = file.clone();
        longer.extend(&file[..length]);
        assert!(read(&longer).expect("a trace").torn);
    }
}
