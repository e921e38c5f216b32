//! The page: complete, alone, safe against what a trace says, and drawn by a real browser.

use std::fmt::Write as _;

use predicates::str::contains;

use crate::browser::{attribute, chromium, run};
use crate::traces::{Files, MIB, growing, npualloc};

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
