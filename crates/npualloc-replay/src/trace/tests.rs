use super::*;

fn parse(text: &str) -> Result<Trace, String> {
    Trace::parse(Path::new("t"), text.as_bytes()).map_err(|error| error.to_string())
}

#[test]
fn reads_every_kind_of_line() {
    let trace = parse(
        "# npualloc-trace v1\n# capacity 4096\n# workload a b\nm step 0\na 0 512 0\n\
         a 1 100 2\nu 0 1\nf 0\ns 1\ns *\ne\nw 2 3\n",
    )
    .expect("a good trace");
    assert_eq!((trace.capacity, trace.workload.as_str()), (4096, "a b"));
    assert_eq!((trace.streams, trace.blocks, trace.peak_live), (3, 2, 612));
    assert_eq!(trace.labels, ["step 0"]);
    assert_eq!(trace.events.len(), 9);
    assert_eq!(trace.events[8], Event::WaitStream { stream: 2, back: 3 });
    assert_eq!(
        trace.events[3],
        Event::Use {
            block: 0,
            stream: 1
        }
    );
}

#[test]
fn work_ends_with_the_last_allocation() {
    let end = |lines: &str| {
        let trace = parse(&format!("# npualloc-trace v1\n{lines}"));
        trace.expect("a good trace").end_of_work()
    };
    assert_eq!(end("s 0\ne\n"), 0);
    assert_eq!(end("a 0 1 0\ne\na 1 1 0\nf 0\nf 1\ns *\ne\n"), 3);
}

#[test]
fn stacks_are_those_of_their_allocations() {
    let trace = parse(
        "# npualloc-trace v1\na 0 1 0\nk inner a.py:1\touter b.py:2\na 1 1 0 1\na 2 1 0 0\na 3 1 0\n",
    )
    .expect("a good trace");
    assert_eq!(trace.stacks, ["", "inner a.py:1\nouter b.py:2"]);
    assert_eq!(trace.stack_of, [0, 1, 0, 0]);
    assert_eq!(trace.events.len(), 4);
    let without = parse("# npualloc-trace v1\na 0 1 0\n").expect("a good trace");
    assert!(without.stacks.is_empty() && without.stack_of.is_empty());
}

#[test]
fn pools_are_those_of_their_allocations() {
    let trace = parse(
        "# npualloc-trace v1\na 0 1 0\np 0 7\np 3 0\na 1 2 0 0 2\na 2 4 1 0 1\nd 2\na 3 8 0 0 0\n",
    )
    .expect("a good trace");
    assert_eq!(trace.pools, [(0, 7), (3, 0)]);
    let pools: Vec<u16> = trace
        .events
        .iter()
        .filter_map(|event| match event {
            Event::Alloc { pool, .. } => Some(*pool),
            _ => None,
        })
        .collect();
    assert_eq!(pools, [0, 2, 1, 0]);
    assert_eq!(trace.events[3], Event::ReleasePool { pool: 2 });
    assert_eq!(size_of::<Event>(), 16);
}

#[test]
fn names_the_line_that_is_wrong() {
    let head = "# npualloc-trace v1\n";
    for (line, problem) in [
        ("a 1 512 0", "t:2: block 1 should be 0"),
        ("a 0 x 0", "t:2: the size \"x\" is no number"),
        ("a 0 512", "t:2: the stream is missing"),
        ("a 0 512 0 7", "t:2: stack 7 is not there"),
        ("a 0 512 0 0 7", "t:2: pool 7 is not there"),
        ("a 0 512 0 0 x", "t:2: the pool \"x\" is no number"),
        ("a 0 512 0 0 0 7", "t:2: \"7\" is too much"),
        ("w 0 1", "t:2: there are no 1 events before"),
        ("w 0", "t:2: the number of events is missing"),
        ("p 0 0", "t:2: (0, 0) is the default pool"),
        ("p 1", "t:2: the pool's id is missing"),
        ("p 1 2 3", "t:2: \"3\" is too much"),
        ("d", "t:2: the pool is missing"),
        ("d 0", "t:2: the default pool stays"),
        (
            "p 1 0\nd 1\na 0 1 0 0 1",
            "t:4: pool 1 has no user any more",
        ),
        ("a 0 512 0 x", "t:2: the stack \"x\" is no number"),
        ("a 0 512 5000", "t:2: stream 5000 is not below 1024"),
        ("f 0", "t:2: block 0 was never allocated"),
        ("a 0 9 0\nf 0\nf 0", "t:4: block 0 is not alive any more"),
        ("a 0 2000000000000000000 0", "t:2: more than 1 EiB is alive"),
        (
            "m out of memory: 2000000000000000000 bytes\na 0 1 0\na 1 2000000000000000000 0",
            "t:4: more than 1 EiB is alive",
        ),
        ("x 1", "t:2: unknown event \"x\""),
    ] {
        assert_eq!(parse(&format!("{head}{line}\n")).unwrap_err(), problem);
    }
    assert_eq!(
        parse(&format!("{head}a 0 512 0\nf")).unwrap_err(),
        "t: the file ends in the middle, after line 2"
    );
    let idle = format!("{head}{}", "\n".repeat(1 << 20));
    assert_eq!(
        parse(&idle).unwrap_err(),
        "t:1048577: more than 1048576 lines that are no events"
    );
    for (text, begins) in [
        ("", "it is empty"),
        ("hello\n", "its first line is \"hello\""),
        (
            "# npualloc-trace v2\n",
            "its first line is \"# npualloc-trace v2\"",
        ),
    ] {
        let error = parse(text).unwrap_err();
        let expected = format!("t: not an npualloc trace of version 1 ({begins}");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn requests_that_failed_were_never_alive() {
    let trace = parse(
        "# npualloc-trace v1\na 0 10 0\nm out of memory: 90 bytes\nk f\np 0 1\na 1 90 0 1 1\nf 1\na 2 5 0\n\
         m out of memory: 18446744073709551615 bytes\na 3 18446744073709551615 0\nf 3\nf 2\n",
    )
    .expect("a good trace");
    assert_eq!((trace.peak_live, trace.blocks), (15, 4));
    assert_eq!(trace.failed, [1, 3]);
    assert_eq!(trace.fatal(), Some(3));
    // As recorded: places in the trace are counted in events.
    assert_eq!(trace.events.len(), 9);
    let went_on = parse("# npualloc-trace v1\nm out of memory: 9 bytes\na 0 9 0\nf 0\na 1 1 0\n");
    let went_on = went_on.expect("a good trace");
    assert_eq!(
        (went_on.failed.as_slice(), went_on.fatal()),
        ([0].as_slice(), None)
    );
}

#[test]
fn what_only_looks_like_a_failed_request_is_an_allocation() {
    for lines in [
        "m out of memory: 90 bytes\na 0 91 0\nf 0",
        "m out of memory: 90 bytes\na 0 90 0\na 1 1 0\nf 0",
        "m out of memory: 90 bytes\na 0 90 0\nu 0 0\nf 0",
        "m out of memory: 90 bytes\ne\na 0 90 0\nf 0",
        "m out of memory: 90 bytes\na 0 90 0",
        "a 0 90 0\nf 0",
    ] {
        let trace = parse(&format!("# npualloc-trace v1\n{lines}\n")).expect("a good trace");
        assert!(trace.failed.is_empty() && trace.peak_live >= 90, "{lines}");
    }
    let kept = "a 0 5 0\nm out of memory: 90 bytes\na 1 90 0\nf 0";
    let trace = parse(&format!("# npualloc-trace v1\n{kept}\n")).expect("a good trace");
    assert!(trace.failed.is_empty() && trace.peak_live == 95);
}

#[test]
fn lines_that_are_too_long_are_refused_whole() {
    // With the rest of the line read as an event, this would be a good trace.
    let head = "# npualloc-trace v1\n";
    let hidden = format!("{head}#{}a 0 1 0\n", " ".repeat((64 << 10) - 1));
    assert_eq!(parse(&hidden).unwrap_err(), "t:2: longer than 65536 bytes");
    let error = parse(&format!("{head}{}\n", "x".repeat(60 << 10))).unwrap_err();
    assert!(
        error.starts_with("t:2: unknown event") && error.len() < 300,
        "{error}"
    );
}

#[test]
fn texts_have_a_limit_together() {
    let stack = format!("k {}\n", "f".repeat(5000));
    let good = format!("# npualloc-trace v1\n{}", stack.repeat(12));
    assert!(parse(&good).is_ok());
    let error = parse(&format!("{good}{stack}{stack}")).unwrap_err();
    assert!(error.contains("bytes of markers and stacks"), "{error}");
    // What a marker costs besides its text counts too.
    let error = parse(&format!("# npualloc-trace v1\n{}", "m\n".repeat(2000))).unwrap_err();
    assert!(error.contains("bytes of markers and stacks"), "{error}");
}

#[test]
fn a_source_may_give_a_byte_at_a_time() {
    let path = Path::new("t");
    let text = b"# npualloc-trace v1\na 0 7 0\n";
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, text).expect("compressed");
    for bytes in [text.to_vec(), encoder.finish().expect("compressed")] {
        let input = BufReader::with_capacity(1, bytes.as_slice());
        assert_eq!(
            Trace::read_from(path, input)
                .expect("a good trace")
                .peak_live,
            7
        );
    }
}

#[cfg(feature = "core")]
#[test]
fn recordings_end_where_the_reader_does() {
    use npualloc::record::Limits;
    let limits = Limits {
        events: parser::MAX_EVENTS as u64,
        streams: parser::MAX_STREAMS as usize,
        pools: parser::MAX_POOLS,
        stacks: parser::MAX_STACKS as u32,
        text: parser::MOST_TEXT,
    };
    assert_eq!(limits, Limits::READER);
    assert_eq!(parser::TEXT_COST, Limits::TEXT_COST);
}
