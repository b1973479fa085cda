//! The list of promises, which is the same on the page and in the functions that check them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use semel::store::{conformance::PRIMITIVES, conformance::PROMISES};

/// The name and the docs of every promise, from the source.
fn in_source() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/conformance");
    let mut found = BTreeMap::new();
    for file in fs::read_dir(folder).expect("the conformance suite is there") {
        let text = fs::read_to_string(file.expect("a file").path()).expect("source is text");
        let mut says = Vec::new();
        for line in text.lines() {
            let name = line.strip_prefix("pub async fn ").and_then(|rest| rest.split_once("(on: &"));
            match (line.strip_prefix("/// "), name) {
                (Some(part), _) => says.push(part),
                (None, Some((name, _))) if name != "check" => {
                    found.insert(name.to_owned(), std::mem::take(&mut says).join(" "));
                }
                (None, _) => says.clear(),
            }
        }
    }
    found
}

fn names() -> Vec<&'static str> {
    let of_stores = PROMISES.iter().map(|promise| promise.name);
    of_stores.chain(PRIMITIVES.iter().map(|promise| promise.name)).collect()
}

#[test]
fn every_promise_in_the_source_is_checked() {
    let source: Vec<String> = in_source().into_keys().collect();
    let mut checked = names();
    checked.sort_unstable();
    assert_eq!(checked, source);
}

#[test]
fn every_promise_stands_in_the_docs_as_in_the_source() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/protocol.md");
    let page = fs::read_to_string(page).expect("docs/protocol.md is there");
    for (name, says) in in_source() {
        let row = format!("| `{name}` | {says} |");
        assert!(page.contains(&row), "docs/protocol.md has no row\n{row}");
    }
    let rows = page.lines().filter(|line| line.starts_with("| `") && line.ends_with(". |")).count();
    assert_eq!(rows, names().len(), "docs/protocol.md promises as much as is checked");
}
