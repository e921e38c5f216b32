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
        ("x 1", "t:2: unknown event \"x\""),
    ] {
        assert_eq!(parse(&format!("{head}{line}\n")).unwrap_err(), problem);
    }
    assert_eq!(
        parse(&format!("{head}a 0 512 0\nf")).unwrap_err(),
        "t: the file ends in the middle, after line 2"
    );
    for text in ["", "hello\n", "# npualloc-trace v2\n"] {
        assert!(parse(text).unwrap_err().contains("not an npualloc trace"));
    }
}
