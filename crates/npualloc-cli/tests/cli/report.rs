//! The page: complete, alone, safe against what a trace says, and drawn by a real browser.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use predicates::str::contains;

use crate::browser::{attribute, chromium, run};
use crate::traces::{Files, MIB, growing, gzip, npualloc};

/// Steps of a model on two streams, without an end: about `events` events, and bytes alive at the peak.
fn training(events: usize) -> (String, u64) {
    let mut text = String::from("# npualloc-trace v1\n# workload </script><b>training</b>\n");
    let (mut next, mut count, mut step) = (0u64, 0, 0u64);
    let (mut alive, mut peak) = (0u64, 0u64);
    while count < events {
        let _ = writeln!(text, "m step {step}");
        let first = next;
        let size = |i: u64| (i * 37 % 64 + 1) * 128 * 1024 + step % 7 * 4096;
        for i in 0..200 {
            let _ = writeln!(text, "a {next} {} {}", size(i), i % 2);
            alive += size(i);
            if i % 5 == 0 {
                let _ = writeln!(text, "u {next} {}", (i + 1) % 2);
                count += 1;
            }
            next += 1;
        }
        peak = peak.max(alive);
        for i in (0..200).rev() {
            let _ = writeln!(text, "f {}", first + i);
            alive -= size(i);
        }
        count += 401;
        step += 1;
    }
    (text, peak)
}

#[test]
fn a_name_of_several_lines_is_told_in_one() {
    let files = Files::new();
    let trace = files.write("t", growing());
    npualloc()
        .args(["report", trace.to_str().expect("a name"), "-o"])
        .arg(files.0.path().join("new\nline.html"))
        .assert()
        .success()
        .stdout(contains("new\u{fffd}line.html"));
}

#[test]
fn the_page_needs_no_network_and_runs_no_text_of_the_trace() {
    let files = Files::new();
    let (trace, _) = training(2000);
    let trace = files.write("t", trace);
    let page = files.0.path().join("page.html");
    npualloc()
        .args(["report", trace.to_str().expect("a name"), "-o"])
        .arg(&page)
        .assert()
        .success()
        .stdout(contains("page.html"));
    let text = std::fs::read_to_string(page).expect("written");
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!text.contains(outside), "{outside}");
    }
    assert!(text.contains("default-src 'none'"));
    assert_eq!(text.matches("</script>").count(), 3);
    assert!(!text.contains("<b>training"));
    assert_eq!(files.names(), ["page.html", "t"]);
}

#[test]
fn nothing_is_left_behind_when_there_is_no_page() {
    let files = Files::new();
    let good = files.write("t", growing());
    let bad = files.write("bad", "hello");
    let kept = files.write("kept.html", "kept");
    let page = |trace: &std::path::Path, output: &str, more: &[&str]| {
        npualloc()
            .current_dir(files.0.path())
            .arg("report")
            .arg(trace)
            .args(["-o", output])
            .args(more)
            .assert()
            .code(2);
    };
    page(&bad, "kept.html", &[]);
    page(&good, "kept.html", &["--conf", "colour:blue"]);
    page(&good, "kept.html", &["--capacity", "0"]);
    page(&good, "no/such/place.html", &[]);
    page(&good, ".", &[]);
    assert_eq!(files.names(), ["bad", "kept.html", "t"]);
    assert_eq!(std::fs::read(kept).expect("read"), b"kept");
}

#[test]
fn a_page_is_not_written_over_its_trace() {
    let files = Files::new();
    let contents = growing();
    let trace = files.write("t", &contents);
    let name = |name: &str| files.0.path().join(name);
    std::os::unix::fs::symlink("t", name("link")).expect("linked");
    std::fs::hard_link(&trace, name("other")).expect("linked");
    for (input, output) in [("t", "t"), ("t", "link"), ("link", "t"), ("t", "other")] {
        npualloc()
            .arg("report")
            .arg(name(input))
            .arg("-o")
            .arg(name(output))
            .assert()
            .code(2)
            .stdout("")
            .stderr(contains("is the input"));
    }
    assert_eq!(std::fs::read_to_string(trace).expect("read"), contents);
    assert_eq!(files.names(), ["link", "other", "t"]);
}

#[test]
fn a_page_may_have_a_name_that_is_no_text() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let name = std::ffi::OsStr::from_bytes(b"page\xff.html");
    let output = npualloc()
        .args(["report", "--json"])
        .arg(trace)
        .arg("-o")
        .arg(files.0.path().join(name))
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let written: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let shown = written["page"].as_str().expect("a text");
    assert!(shown.ends_with("page\u{fffd}.html"), "{shown}");
}

#[test]
fn a_browser_draws_half_a_million_events_and_agrees_with_the_replay() {
    let Some(chromium) = chromium() else {
        return;
    };
    let files = Files::new();
    let (trace, peak) = training(500_000);
    let trace = files.write("t", trace);
    let page = files.0.path().join("page.html");
    npualloc()
        .arg("report")
        .arg(&trace)
        .args(["--conf", "expandable_segments:True", "-o"])
        .arg(&page)
        .assert()
        .success();
    let dom = run(&chromium, &page, &["--dump-dom"]).stdout;
    let dom = String::from_utf8_lossy(&dom);
    assert_eq!(attribute(&dom, "data-ready", "data-ready"), Some("yes"));
    // The page opens where most is alive; what it shows there was rebuilt from its tables.
    let shown = attribute(&dom, "data-cause=\"live\"", "data-bytes");
    assert_eq!(shown, Some(peak.to_string().as_str()));
    assert!(
        dom.contains("&lt;/script&gt;&lt;b&gt;training"),
        "the text of the trace"
    );
    let shot = |name: &str, scheme: &str| {
        let png = files.0.path().join(name);
        let flags = [
            format!("--screenshot={}", png.display()),
            format!("--blink-settings=preferredColorScheme={scheme}"),
            "--window-size=1280,1600".to_owned(),
        ];
        run(&chromium, &page, &flags.each_ref().map(String::as_str));
        std::fs::read(png).expect("a picture")
    };
    let (dark, light) = (shot("dark.png", "0"), shot("light.png", "1"));
    for picture in [&dark, &light] {
        assert!(picture.starts_with(b"\x89PNG"));
        // An empty page of this size takes about 10 kB.
        assert!(picture.len() > 60_000, "{} bytes", picture.len());
    }
    assert_ne!(dark, light);
}

#[test]
fn a_browser_shows_private_pools() {
    let Some(chromium) = chromium() else {
        return;
    };
    let files = Files::new();
    let (big, small) = (40 * MIB, 1000);
    let trace = format!(
        "# npualloc-trace v1\np 0 7\np 3 0\na 0 {big} 0\na 1 {big} 0 0 1\na 2 {small} 1 0 2\na 3 {big} 0 0 1\nf 3\n\
         a 4 {big} 0\na 5 {} 0 0 1\n",
        100 * MIB
    );
    let trace = files.write("t", trace);
    let page = files.0.path().join("page.html");
    npualloc()
        .arg("report")
        .arg(&trace)
        .args([
            "--capacity",
            "200MiB",
            "--conf",
            "expandable_segments:False",
            "-o",
        ])
        .arg(&page)
        .assert()
        .success();
    let dom_of = |place: &std::path::Path| {
        let dom = run(&chromium, place, &["--dump-dom"]).stdout;
        String::from_utf8_lossy(&dom).into_owned()
    };
    let dom = dom_of(&page);
    assert_eq!(attribute(&dom, "data-ready", "data-ready"), Some("yes"));
    assert!(dom.contains("2 private pools"));
    // A line for each pool, with what it holds: 40 MiB each time, in segments of 42 MiB.
    for (line, reserved) in [
        ("default pool, stream 0, above 1 MiB", "84.00 MiB"),
        ("pool (0, 7), stream 0, above 1 MiB", "84.00 MiB"),
        ("pool (3, 0), stream 1, up to 1 MiB", "2.00 MiB"),
    ] {
        let at = dom.find(line).unwrap_or_else(|| panic!("no line {line:?}"));
        let row = &dom[at..at + dom[at..].find("</tr>").expect("a row")];
        assert!(row.contains(&format!("<td>{reserved}</td>")), "{row}");
    }
    assert!(dom.contains("asked for on stream 0 from the private pool (0, 7)"));
    assert!(!dom.contains("</i>free, marked in the colour of its pool"));
    let coloured = dom_of(&files.0.path().join("page.html#pool"));
    assert_eq!(
        attribute(&coloured, "data-ready", "data-colour"),
        Some("pool")
    );
    assert!(coloured.contains("</i>free, marked in the colour of its pool"));
}

#[test]
fn a_browser_shows_the_moment_memory_ran_out() {
    let Some(chromium) = chromium() else {
        return;
    };
    let files = Files::new();
    let trace = files.write("t", growing());
    let page = files.0.path().join("page.html");
    npualloc()
        .arg("report")
        .arg(&trace)
        .args(["--capacity", "1GiB", "-o"])
        .arg(&page)
        .assert()
        .success()
        .stdout(contains("runs out of memory at event 16 (step 0)"));
    let dom = run(&chromium, &page, &["--dump-dom"]).stdout;
    let dom = String::from_utf8_lossy(&dom);
    assert_eq!(attribute(&dom, "data-ready", "data-moment"), Some("16"));
    // Fifteen tensors are live, each in a segment 2 MiB larger than it.
    let live = (15 * 64 * MIB).to_string();
    assert_eq!(
        attribute(&dom, "data-cause=\"live\"", "data-bytes"),
        Some(live.as_str())
    );
    assert!(dom.contains("Memory ran out"));
    assert!(dom.contains("64.00 MiB asked for on stream 0"));
}

#[test]
fn the_page_of_a_file_that_was_cut_says_so() {
    let Some(chromium) = chromium() else {
        return;
    };
    let files = Files::new();
    let whole = gzip(growing().as_bytes());
    for (contents, hidden) in [(&whole[..], Some("")), (&whole[..whole.len() / 2], None)] {
        let trace = files.write("t.gz", contents);
        let page = files.0.path().join("page.html");
        npualloc()
            .arg("report")
            .arg(&trace)
            .arg("-o")
            .arg(&page)
            .assert()
            .success();
        let dom = run(&chromium, &page, &["--dump-dom"]).stdout;
        let dom = String::from_utf8_lossy(&dom);
        assert_eq!(attribute(&dom, "id=\"torn\"", "id"), Some("torn"));
        assert_eq!(attribute(&dom, "id=\"torn\"", "hidden"), hidden);
    }
}
