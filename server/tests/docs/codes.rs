//! The page on troubleshooting, which explains every code of a problem and every exit code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::page::{read, root};

const PAGE: &str = "docs/troubleshooting.md";

/// The headings of the page that name a code: the fragment to which the `type` of a problem points.
fn explained() -> BTreeSet<String> {
    let page = read(PAGE);
    let headings = page.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    headings.map(str::to_owned).collect()
}

/// The codes of problems in the source: a status, then the code as text.
fn codes_in(source: &str) -> impl Iterator<Item = String> {
    source.split("StatusCode::").skip(1).filter_map(|after| {
        let after = after.trim_start_matches(|c: char| c.is_ascii_uppercase() || c == '_');
        let after = after.strip_prefix(',')?.trim_start().strip_prefix('"')?;
        let code = &after[..after.find('"')?];
        let is_code = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        is_code.then(|| code.to_owned())
    })
}

/// The codes in all files of a folder, and in those below.
fn codes_below(folder: &Path, codes: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            codes_below(&path, codes);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            codes.extend(codes_in(&fs::read_to_string(path).expect("source is text")));
        }
    }
}

fn codes() -> BTreeSet<String> {
    let mut codes = BTreeSet::new();
    for folder in ["semel/src", "server/src"] {
        codes_below(&root().join(folder), &mut codes);
    }
    codes
}

#[test]
fn every_code_of_a_problem_is_explained_under_a_heading_of_its_name() {
    assert_eq!(explained(), codes(), "{PAGE} on the left, the source on the right");
}

#[test]
fn codes_are_found_as_the_layer_publishes_them() {
    let published = semel::http::IdempotencyLayer::new(semel::MemoryStore::new()).published();
    let problems = published["problems"].as_array().expect("a list");
    let codes = codes();
    for problem in problems {
        let code = problem["code"].as_str().expect("text");
        assert!(codes.contains(code), "{code} is published and was not found in the source");
    }
    for code in ["upstream_lost", "no_route", "method_refused"] {
        assert!(codes.contains(code), "{code} of the gateway was not found in the source");
    }
}

#[test]
fn every_exit_code_is_explained() {
    let help = Command::new(env!("CARGO_BIN_EXE_semel")).arg("--help").output().expect("the binary runs");
    let help = String::from_utf8(help.stdout).expect("text");
    let (_, listed) = help.split_once("Exit codes:\n").expect("the help lists them");
    let listed: Vec<&str> = listed.lines().filter_map(|line| line.trim().split("  ").next()).collect();
    assert!(listed.len() > 5 && listed[0] == "0", "{listed:?}");
    let page = read(PAGE);
    for code in listed {
        assert!(
            page.contains(&format!("\n### Exit code {code}\n")),
            "{PAGE} does not explain exit code {code}"
        );
    }
}
