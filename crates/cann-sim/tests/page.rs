//! The user's page says what the code does: every variable that is read is in
//! its table with its default, and its table of costs is the cost model's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ascendcl::Config;
use ascendcl::model::cost::{CALL_KINDS, CostModel, PAGE, kind_by_name};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn page() -> String {
    fs::read_to_string(Path::new(ROOT).join("../../docs/run-without-npu.md")).unwrap()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Names of variables in a text.
fn variables(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.match_indices("CANN_SIM_")
        .map(|(at, _)| {
            let rest = &text[at..];
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            rest[..end].trim_end_matches('_').to_owned()
        })
        .filter(|name| name != "CANN_SIM")
        .collect()
}

/// Rows of the page's table of knobs: variable, and default.
fn knobs() -> BTreeMap<String, String> {
    let page = page();
    let rows = page.lines().filter(|line| line.starts_with("| `CANN_SIM_"));
    rows.map(|row| {
        let cells: Vec<&str> = row
            .split('|')
            .map(|cell| cell.trim().trim_matches('`'))
            .collect();
        assert_eq!(cells.len(), 6, "variable, default, unit, meaning: {row}");
        (cells[1].to_owned(), cells[2].to_owned())
    })
    .collect()
}

#[test]
fn every_variable_that_is_read_is_on_the_page() {
    let mut files = Vec::new();
    sources(&Path::new(ROOT).join("src"), &mut files);
    let mut read = BTreeSet::new();
    for file in files {
        read.extend(variables(&fs::read_to_string(file).unwrap()));
    }
    assert!(
        read.contains("CANN_SIM_CAPACITY"),
        "the sources are searched"
    );
    let listed: BTreeSet<String> = knobs().into_keys().collect();
    assert_eq!(read, listed);
}

#[test]
fn the_defaults_on_the_page_are_the_code_s() {
    let standard = format!("{:?}", Config::default());
    for (name, default) in knobs() {
        let lookup = |asked: &str| (asked == name).then(|| default.clone());
        let config = Config::from_lookup(lookup).unwrap();
        assert_eq!(format!("{config:?}"), standard, "{name}");
    }
    let lookup = |asked: &str| (asked == "CANN_SIM_DEVICES").then(|| "3".to_owned());
    let other = Config::from_lookup(lookup).unwrap();
    assert_ne!(format!("{other:?}"), standard, "another value is seen");
}

#[test]
fn the_costs_on_the_page_are_the_model_s() {
    let costs = CostModel::default();
    let mut listed = BTreeSet::new();
    for row in page().lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let cells = &cells[1..cells.len() - 1];
        for entry in cells.chunks(3) {
            let [name, base, per_page] = entry else {
                continue;
            };
            let Some(kind) = kind_by_name(name.trim_matches('`')) else {
                continue;
            };
            let base: u64 = base.parse().unwrap();
            let per_page: u64 = per_page.parse().unwrap();
            assert_eq!(costs.call(kind, 0), base, "{name}");
            assert_eq!(costs.call(kind, PAGE) - base, per_page, "{name}");
            listed.insert(kind);
        }
    }
    let all: BTreeSet<_> = CALL_KINDS.iter().copied().collect();
    assert_eq!(listed, all);
}
