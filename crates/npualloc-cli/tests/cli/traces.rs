//! Small traces, and the program.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use assert_cmd::Command;
use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;

/// The program.
pub fn npualloc() -> Command {
    Command::cargo_bin("npualloc").expect("the program is built")
}

/// Sixteen tensors of 64 MiB that are replaced again and again by slightly larger ones. In each step one
/// of 12 MiB is added that stays: it settles in what a growing one has left.
pub fn growing() -> String {
    let mut text = String::from("# npualloc-trace v1\n# workload growing tensors\n");
    let mut next = 0;
    let mut live: Vec<u64> = Vec::new();
    for step in 0..40 {
        let _ = writeln!(text, "m step {step}");
        for slot in 0..16 {
            let _ = writeln!(text, "a {next} {} 0", 64 * MIB + step * 512 * 1024);
            if step == 0 {
                live.push(next);
            } else {
                let _ = writeln!(text, "f {}", live[slot]);
                live[slot] = next;
                if slot == 0 {
                    next += 1;
                    let _ = writeln!(text, "a {next} {} 0", 12 * MIB);
                }
            }
            next += 1;
        }
    }
    text
}

/// A directory with files in it.
pub struct Files(pub TempDir);

impl Files {
    pub fn new() -> Self {
        Self(TempDir::new().expect("a directory"))
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, contents).expect("written");
        path
    }

    /// Names of the files there are.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).expect("listed");
        let mut names: Vec<String> = entries
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        names.sort();
        names
    }
}

pub fn gzip(contents: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(contents).expect("compressed");
    encoder.finish().expect("compressed")
}
