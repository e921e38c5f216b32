//! Input from pipes, and output to what is no regular file.

use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::process::{Command, Stdio};

use crate::traces::{Files, growing, gzip, npualloc};

#[test]
fn a_pipe_is_read_like_a_file() {
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/npu.pickle");
    let pickle = std::fs::read(data).expect("the snapshot");
    for contents in [growing().into_bytes(), gzip(growing().as_bytes()), pickle] {
        npualloc()
            .args(["replay", "/dev/stdin"])
            .write_stdin(contents)
            .assert()
            .success();
    }
}

#[test]
fn a_reader_that_goes_away_does_not_change_the_verdict() {
    let files = Files::new();
    let trace = files.write("t", growing());
    for (capacity, status) in [("64GiB", 0), ("1GiB", 1)] {
        let mut command = Command::new(npualloc().get_program());
        command.arg("fit").arg(&trace).args(["--in", capacity]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        drop(child.stdout.take());
        assert_eq!(child.wait().expect("it ends").code(), Some(status));
    }
    let mut report = Command::new(npualloc().get_program());
    report
        .arg("report")
        .arg(&trace)
        .args(["-o", "/dev/stdout"])
        .stderr(Stdio::piped());
    let mut child = report.stdout(Stdio::piped()).spawn().expect("it runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
}

#[test]
fn what_cannot_be_said_on_standard_error_does_not_change_the_status() {
    let files = Files::new();
    let absent = files.0.path().join("absent");
    let whole = gzip(growing().as_bytes());
    let cut = files.write("cut.gz", &whole[..whole.len() / 2]);
    for (trace, status) in [(absent, 2), (cut, 0)] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let ended = Command::new(npualloc().get_program())
            .arg("replay")
            .arg(trace)
            .stdout(Stdio::null())
            .stderr(full.expect("opened"))
            .status();
        assert_eq!(ended.expect("it runs").code(), Some(status));
    }
}

fn report_to(files: &Files, output: &std::path::Path) {
    let trace = files.write("t", growing());
    npualloc()
        .arg("report")
        .arg(trace)
        .arg("-o")
        .arg(output)
        .assert()
        .success();
}

#[test]
fn a_page_for_a_pipe_goes_into_the_pipe() {
    let files = Files::new();
    let pipe = files.0.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let name = pipe.clone();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let file = std::fs::File::open(name);
        file.and_then(|mut file| file.read_to_string(&mut text))
            .map(|_| text)
    });
    report_to(&files, &pipe);
    let kind = std::fs::symlink_metadata(&pipe).expect("there").file_type();
    // Else the reader would wait for good.
    assert!(kind.is_fifo(), "{kind:?}");
    let text = reader.join().expect("no panic").expect("read");
    assert!(text.ends_with("</html>\n"), "{} bytes", text.len());
}

#[test]
fn a_page_for_the_standard_output_is_all_there_is_on_it() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let log = files.write("log", "kept\n");
    let run = |stdout: Stdio| {
        let child = Command::new(npualloc().get_program())
            .arg("report")
            .arg(&trace)
            .args(["-o", "/dev/stdout"])
            .stdout(stdout)
            .stderr(Stdio::piped())
            .spawn();
        let output = child.expect("it runs").wait_with_output().expect("it ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert!(errors.contains("Written: /dev/stdout"), "{errors}");
        String::from_utf8(output.stdout).expect("text")
    };
    let page = run(Stdio::piped());
    assert!(page.starts_with("<!") && page.ends_with("</html>\n"));
    let appended = std::fs::OpenOptions::new().append(true).open(&log);
    run(appended.expect("opened").into());
    let text = std::fs::read_to_string(log).expect("read");
    assert!(text.starts_with("kept\n<!") && text.ends_with("</html>\n"));
    assert_eq!(files.names(), ["log", "t"]);
}

#[test]
fn a_link_to_a_page_stays_a_link() {
    let files = Files::new();
    let target = files.write("target.html", "old");
    for (link, to) in [("link.html", "target.html"), ("new.html", "made.html")] {
        let link = files.0.path().join(link);
        symlink(to, &link).expect("linked");
        report_to(&files, &link);
        assert!(link.is_symlink());
        let text = std::fs::read_to_string(files.0.path().join(to)).expect("read");
        assert!(text.starts_with("<!"), "{to}");
    }
    assert!(target.is_file());
    assert_eq!(
        files.names(),
        ["link.html", "made.html", "new.html", "t", "target.html"]
    );
}

#[test]
fn a_page_that_cannot_be_written_is_named() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let page = files.0.path().join("missing/x.html");
    let page = page.to_str().expect("a name");
    let trace = trace.to_str().expect("a name");
    let outcome = npualloc()
        .args(["report", "-q", trace, "-o", page])
        .assert()
        .failure();
    let said = String::from_utf8_lossy(&outcome.get_output().stderr).into_owned();
    // The directory of the test has such a name itself.
    assert!(
        said.contains(page) && said.matches("/.tmp").count() == 1,
        "{said}"
    );
}

#[test]
fn the_umask_and_the_mode_of_the_page_before_are_kept() {
    let files = Files::new();
    let trace = files.write("t", growing());
    let mode = |name: &str| {
        let found = std::fs::metadata(files.0.path().join(name)).expect("there");
        found.permissions().mode() & 0o777
    };
    let run = |umask: &str, page: &str| {
        let status = Command::new("sh")
            .args([
                "-c",
                "umask $1; exec \"$2\" report -q \"$3\" -o \"$4\"",
                "sh",
                umask,
            ])
            .arg(npualloc().get_program())
            .arg(&trace)
            .arg(files.0.path().join(page))
            .stdout(Stdio::null())
            .status();
        assert!(status.expect("it runs").success());
    };
    run("077", "private.html");
    run("027", "group.html");
    run("000", "private.html");
    assert_eq!((mode("private.html"), mode("group.html")), (0o600, 0o640));
}
