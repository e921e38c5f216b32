use super::super::limits::Limits;
use super::*;
use flate2::read::MultiGzDecoder;
use std::io::Read;

fn text(path: &Path) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(std::fs::File::open(path).expect("there"))
        .read_to_string(&mut text)
        .expect("readable");
    text
}

fn directory() -> PathBuf {
    let unique = std::thread::current()
        .name()
        .unwrap_or("t")
        .replace(':', "_");
    let path = std::env::temp_dir().join(format!("{unique}_{}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a directory");
    path
}

/// On stream `stream`, from the default pool, without a stack.
fn request(device: i32, bytes: usize, stream: usize) -> Request {
    Request {
        device,
        bytes,
        stream,
        pool: (0, 0),
        stack: 0,
    }
}

fn with_stack(stack: u32, request: Request) -> Request {
    Request { stack, ..request }
}

fn from_pool(pool: (u64, u64), request: Request) -> Request {
    Request { pool, ..request }
}

#[test]
fn calls_become_lines() {
    let directory = directory();
    let path = directory.join("t.gz");
    let recorder = Recorder::start(&path, 0, 4096).expect("started");
    recorder.mark("step\n0");
    recorder.allocated(0x1000, &request(0, 512, 77), || 0);
    recorder.allocated(0x2000, &request(0, 100, 88), || 0);
    recorder.used(0x1000, 88);
    recorder.used(0x9000, 88);
    recorder.freed(0x1000);
    recorder.freed(0x1000);
    recorder.stream_waited(88);
    recorder.stream_waited(99);
    recorder.device_waited(0);
    recorder.device_waited(5);
    recorder.allocated(0x3000, &request(1, 7, 88), || 99);
    recorder.emptied(0);
    recorder.failed(&request(0, 1 << 40, 77), || 0);
    assert!(recorder.finish().expect("written") > 0);
    recorder.allocated(0x4000, &request(0, 1, 77), || 0);
    assert_eq!(
        text(&path),
        "# npualloc-trace v1\n# capacity 4096\nm step 0\na 0 512 0\na 1 100 1\nu 0 1\nf 0\ns 1\n\
         s *\ne\nm out of memory: 1099511627776 bytes\na 2 1099511627776 0\nf 2\n"
    );
    assert_eq!(
        text(&directory.join("t.gz.npu1")),
        "# npualloc-trace v1\n# capacity 99\na 0 7 0\n"
    );
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn the_path_is_that_of_the_device_used_first() {
    let directory = directory();
    let path = directory.join("t.gz");
    let recorder = Recorder::open(&path).expect("opened");
    assert!(path.exists(), "so that a bad path is told at once");
    assert!(recorder.mark("begin"));
    recorder.device_waited(0);
    recorder.emptied(0);
    recorder.allocated(0x1000, &request(3, 512, 77), || 4096);
    recorder.allocated(0x2000, &request(0, 100, 88), || 99);
    assert!(recorder.finish().expect("written") > 0);
    assert!(!recorder.mark("too late"));
    assert_eq!(
        text(&path),
        "# npualloc-trace v1\nm begin\n# capacity 4096\na 0 512 0\n"
    );
    assert_eq!(
        text(&directory.join("t.gz.npu0")),
        "# npualloc-trace v1\n# capacity 99\na 0 100 0\n"
    );
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn a_block_whose_free_was_missed_ends_where_its_address_is_used_again() {
    let directory = directory();
    let path = directory.join("t.gz");
    let recorder = Recorder::start(&path, 0, 0).expect("started");
    recorder.allocated(0x1000, &request(0, 512, 77), || 0);
    recorder.allocated(0x1000, &request(0, 100, 77), || 0);
    recorder.freed(0x1000);
    assert!(recorder.finish().expect("written") > 0);
    let lines = text(&path);
    assert!(
        lines.ends_with("a 0 512 0\nf 0\na 1 100 0\nf 1\n"),
        "{lines}"
    );
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn waiting_for_an_event_names_what_was_there_when_it_was_recorded() {
    let directory = directory();
    let path = directory.join("t.gz");
    let recorder = Recorder::start(&path, 0, 0).expect("started");
    recorder.event_waited(1);
    recorder.event_recorded(1, 77);
    recorder.allocated(0x1000, &request(0, 512, 77), || 0);
    recorder.event_waited(1);
    recorder.event_recorded(1, 77);
    recorder.event_waited(1);
    recorder.mark("later");
    let stack = recorder.add_stack("f a.py:1");
    recorder.allocated(0x2000, &with_stack(stack, request(0, 100, 88)), || 0);
    recorder.event_waited(1);
    recorder.finish().expect("written");
    // The line of the stack counts for nothing.
    assert_eq!(
        text(&path),
        "# npualloc-trace v1\na 0 512 0\nw 0 0\nm later\nk f a.py:1\na 1 100 1 1\nw 0 3\n"
    );
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn pools_are_numbered_until_nobody_uses_them() {
    let directory = directory();
    let path = directory.join("t.gz");
    let recorder = Recorder::start(&path, 0, 0).expect("started");
    recorder.pool_released(0, (0, 9));
    recorder.allocated(0x1000, &from_pool((0, 9), request(0, 1, 7)), || 0);
    recorder.allocated(0x2000, &from_pool((4, 0), request(0, 2, 7)), || 0);
    recorder.allocated(0x3000, &request(0, 3, 7), || 0);
    recorder.pool_released(0, (0, 9));
    recorder.freed(0x1000);
    recorder.allocated(0x1000, &from_pool((0, 9), request(0, 4, 7)), || 0);
    recorder.allocated(0x4000, &from_pool((4, 0), request(1, 5, 7)), || 0);
    recorder.finish().expect("written");
    assert_eq!(
        text(&path),
        "# npualloc-trace v1\np 0 9\na 0 1 0 0 1\np 4 0\na 1 2 0 0 2\na 2 3 0\nd 1\nf 0\n\
         p 0 9\na 3 4 0 0 3\n"
    );
    assert_eq!(
        text(&directory.join("t.gz.npu1")),
        "# npualloc-trace v1\np 4 0\na 0 5 0 0 1\n"
    );
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn a_stack_is_written_once_to_each_file_that_needs_it() {
    let directory = directory();
    let path = directory.join("t.gz");
    let recorder = Recorder::start(&path, 0, 0).expect("started");
    let (one, two) = (
        recorder.add_stack("f a.py:1\tg\nb.py:2"),
        recorder.add_stack("h"),
    );
    recorder.allocated(0x1000, &with_stack(two, request(0, 1, 7)), || 0);
    recorder.allocated(0x2000, &with_stack(one, request(0, 2, 7)), || 0);
    recorder.allocated(0x3000, &with_stack(two, request(0, 3, 7)), || 0);
    recorder.allocated(0x4000, &with_stack(one, request(1, 4, 7)), || 0);
    recorder.allocated(0x5000, &with_stack(99, request(1, 5, 7)), || 0);
    recorder.finish().expect("written");
    assert_eq!(
        text(&path),
        "# npualloc-trace v1\nk h\na 0 1 0 1\nk f a.py:1\tg b.py:2\na 1 2 0 2\na 2 3 0 1\n"
    );
    assert_eq!(
        text(&directory.join("t.gz.npu1")),
        "# npualloc-trace v1\nk f a.py:1\tg b.py:2\na 0 4 0 1\na 1 5 0\n"
    );
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn threads_lose_nothing_when_the_buffers_are_full() {
    let directory = directory();
    let path = directory.join("t.gz");
    let recorder = Recorder::start(&path, 0, 0).expect("started");
    const EACH: usize = 300_000;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let recorder = &recorder;
            scope.spawn(move || {
                for round in 0..EACH {
                    let addr = 16 * (1 + thread * EACH + round);
                    recorder.allocated(addr, &request(0, 512, 7), || 0);
                    recorder.freed(addr);
                }
            });
        }
    });
    recorder.finish().expect("written");
    let text = text(&path);
    assert_eq!(
        text.lines().filter(|line| line.starts_with("a ")).count(),
        2 * EACH
    );
    assert_eq!(
        text.lines().filter(|line| line.starts_with("f ")).count(),
        2 * EACH
    );
    std::fs::remove_dir_all(directory).expect("removed");
}

fn limited(path: &Path, limits: Limits) -> Recorder {
    let recorder = Recorder::start(path, 0, 0).expect("started");
    recorder.state.lock().files[0].1.limits = limits;
    recorder
}

#[test]
fn a_recording_ends_where_the_reader_would_stop() {
    let directory = directory();
    let path = directory.join("t.gz");
    let limits = Limits {
        events: 5,
        ..Limits::READER
    };
    let recorder = limited(&path, limits);
    for addr in 1..4 {
        recorder.allocated(addr, &request(0, 512, 7), || 0);
        recorder.freed(addr);
    }
    recorder.mark("late");
    // Written at once, not when the process ends.
    while text_so_far(&path).lines().count() < 6 {
        std::thread::yield_now();
    }
    let error = recorder.finish().expect_err("it is told").to_string();
    assert!(error.contains("more than 5 events"), "{error}");
    let lines = text(&path);
    assert!(
        lines.ends_with("a 0 512 0\nf 0\na 1 512 0\nf 1\na 2 512 0\n"),
        "{lines}"
    );
    // A failed request is there as a whole or not at all.
    let limits = Limits {
        events: 3,
        ..Limits::READER
    };
    let recorder = limited(&path, limits);
    recorder.mark("one");
    recorder.failed(&request(0, 1 << 40, 7), || 0);
    assert!(recorder.finish().is_err());
    assert_eq!(text(&path), "# npualloc-trace v1\nm one\n");
    std::fs::remove_dir_all(directory).expect("removed");
}

fn text_so_far(path: &Path) -> String {
    let mut text = String::new();
    let file = std::fs::File::open(path).expect("there");
    let _ = MultiGzDecoder::new(file).read_to_string(&mut text);
    text
}

#[test]
fn pools_streams_and_texts_have_limits_too() {
    let directory = directory();
    let path = directory.join("t.gz");
    let few = Limits {
        pools: 1,
        streams: 1,
        stacks: 1,
        text: 1000,
        ..Limits::READER
    };
    let recorder = limited(&path, few);
    recorder.allocated(1, &from_pool((0, 1), request(0, 1, 7)), || 0);
    recorder.allocated(2, &from_pool((0, 2), request(0, 2, 7)), || 0);
    let error = recorder.finish().expect_err("it is told").to_string();
    assert!(error.contains("more than 1 private pools"), "{error}");
    let recorder = limited(&path, few);
    recorder.allocated(1, &request(0, 1, 7), || 0);
    recorder.used(1, 8);
    let error = recorder.finish().expect_err("it is told").to_string();
    assert!(error.contains("more than 1 streams"), "{error}");
    let recorder = limited(&path, few);
    recorder.mark(&"x".repeat(200));
    for _ in 0..4 {
        recorder.mark(&"x".repeat(200));
    }
    let error = recorder.finish().expect_err("it is told").to_string();
    assert!(error.contains("more than 1000 bytes of markers"), "{error}");
    // What is more than that is left out.
    let recorder = limited(&path, few);
    let (one, two) = (recorder.add_stack("f"), recorder.add_stack("g"));
    recorder.allocated(1, &with_stack(one, request(0, 1, 7)), || 0);
    recorder.allocated(2, &with_stack(two, request(0, 2, 7)), || 0);
    recorder.finish().expect("written");
    assert_eq!(
        text(&path),
        "# npualloc-trace v1\nk f\na 0 1 0 1\na 1 2 0\n"
    );
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn nothing_of_a_recording_stays_in_memory() {
    let directory = directory();
    let recorder = Recorder::start(&directory.join("t.gz"), 0, 0).expect("started");
    assert_eq!(recorder.add_stack("f a.py:1"), 1);
    recorder.finish().expect("written");
    assert_eq!(recorder.add_stack("g a.py:2"), 0);
    assert_eq!(recorder.state.lock().stacks.capacity(), 0);
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn a_marker_that_reads_like_a_failure_is_none() {
    let directory = directory();
    let path = directory.join("t.gz");
    let recorder = Recorder::start(&path, 0, 0).expect("started");
    recorder.mark("out of memory: 512 bytes");
    recorder.allocated(0x1000, &request(0, 512, 77), || 0);
    recorder.finish().expect("written");
    assert_eq!(
        text(&path),
        "# npualloc-trace v1\nm marked: out of memory: 512 bytes\na 0 512 0\n"
    );
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn a_file_belongs_to_one_recording_at_a_time() {
    let directory = directory();
    let path = directory.join("t.gz");
    let first = Recorder::start(&path, 0, 0).expect("started");
    first.allocated(0x1000, &request(0, 512, 7), || 0);
    let error = Recorder::start(&path, 0, 0)
        .expect_err("refused")
        .to_string();
    assert!(
        error.contains("being written by another recording; %p"),
        "{error}"
    );
    first.finish().expect("written");
    assert_eq!(text(&path), "# npualloc-trace v1\na 0 512 0\n");
    // A file of another kind stays as it is.
    let other = directory.join("train.py");
    for contents in ["import torch\n", "#", "\u{1f}"] {
        std::fs::write(&other, contents).expect("written");
        let error = Recorder::start(&other, 0, 0)
            .expect_err("refused")
            .to_string();
        assert!(error.contains("no recording"), "{error}");
        assert_eq!(std::fs::read_to_string(&other).expect("there"), contents);
    }
    std::fs::remove_file(&other).expect("removed");
    // The same again, although an older recording is there.
    Recorder::start(&path, 0, 0)
        .expect("started")
        .finish()
        .expect("written");
    assert_eq!(text(&path), "# npualloc-trace v1\n");
    std::fs::remove_dir_all(directory).expect("removed");
}

#[test]
fn a_file_that_cannot_be_made_is_an_error() {
    let error = Recorder::start(Path::new("/no/such/place"), 0, 0).unwrap_err();
    assert!(error.to_string().starts_with("/no/such/place: "));
    let path = expand("a.%r.%p", Some("3"));
    assert_eq!(path, PathBuf::from(format!("a.3.{}", std::process::id())));
}
