//! What a terminal gets: no control characters, whatever a trace or a name says.

use std::path::Path;

use serde_json::Value;

use crate::traces::{Files, gzip, npualloc};

/// Red, a title, and the one-character form of the sequence that begins the first, which JSON allows in texts.
const CONTROLS: &str = "\x1b[31m\x1b]0;title\x07\u{9b}1m\x7f";

fn hostile() -> String {
    let gib = 1u64 << 30;
    format!(
        "# npualloc-trace v1\n# workload red{CONTROLS}\nm step{CONTROLS}\na 0 {gib} 0\na 1 {gib} 0\n"
    )
}

/// What a command printed, on both streams.
fn printed(arguments: &[&str], trace: &Path) -> (String, String) {
    let output = npualloc().args(arguments).arg(trace).output();
    let output = output.expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(output.stdout), text(output.stderr))
}

fn has_controls(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && c != '\n')
}

#[test]
fn texts_and_names_are_shown_without_control_characters() {
    let files = Files::new();
    let trace = files.write("t", hostile());
    let page = files.0.path().join("page\x1b[31m.html");
    let page = page.to_str().expect("a name");
    for command in [
        vec!["replay", "--capacity", "1GiB"],
        vec!["fit", "--in", "1GiB"],
        vec!["advise", "--capacity", "1GiB"],
        vec!["report", "--capacity", "1GiB", "-o", page],
    ] {
        let (out, errors) = printed(&command, &trace);
        assert_eq!(errors, "");
        assert!(!has_controls(&out), "{out:?}");
        assert_eq!(
            out.contains("step\u{fffd}[31m"),
            command[0] != "advise",
            "{out}"
        );
    }
    let whole = gzip(hostile().as_bytes());
    let cut = files.write("cut\x1b[31m.gz", &whole[..whole.len() - 4]);
    for (name, said) in [(cut, "was cut"), ("absent\x1b[31m".into(), "No such file")] {
        let (_, errors) = printed(&["replay"], &name);
        assert!(errors.contains(said), "{errors}");
        assert!(!has_controls(&errors), "{errors:?}");
    }
}

#[test]
fn json_holds_them_escaped() {
    let files = Files::new();
    let trace = files.write("t", hostile());
    let (out, _) = printed(&["replay", "--json", "--capacity", "1GiB"], &trace);
    assert!(!has_controls(&out), "{out:?}");
    let report: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(report["workload"], format!("red{CONTROLS}"));
}
