//! Tests of log files.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::case::hold;
use crate::checker::{History, Policy, check};

/// Writes a log with half a line at its end, as a killed process leaves it.
fn write<T: Serialize>(path: &Path, events: &[T]) -> PathBuf {
    let line = |event| serde_json::to_string(event).unwrap() + "\n";
    let mut text: String = events.iter().map(line).collect();
    if let Some(last) = events.last() {
        text.push_str(line(last).get(..20).unwrap());
    }
    fs::write(path, text).unwrap();
    path.to_owned()
}

#[test]
fn several_logs_are_read_and_half_a_last_line_is_left_out() {
    let folder = std::env::temp_dir().join(format!("faults-logs-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let all = hold().starts("a", 10).releases("a", 20).works("b", 30).told("b").history;
    let at = |name: &str| folder.join(name);
    let clients = [write(&at("client-1"), &all.requests[..1]), write(&at("client-2"), &all.requests[1..])];
    let handlers = [write(&at("handler-1"), &all.steps[..1]), write(&at("handler-2"), &all.steps[1..])];
    let ledgers = [write(&at("ledger-1"), &all.effects), write(&at("ledger-2"), &all.effects[..0])];
    let read = History::read(&clients, &handlers, &ledgers).unwrap();
    let missing = History::read(&[at("client-3")], &handlers, &ledgers);
    fs::remove_dir_all(&folder).unwrap();

    assert_eq!((&read.requests, &read.steps, &read.effects), (&all.requests, &all.steps, &all.effects));
    let verdict = check(&super::case::terms(Policy::Hold), &read);
    assert_eq!(verdict.violations, []);
    assert_eq!((verdict.counts.keys, verdict.counts.runs, verdict.counts.effects), (1, 2, 1));
    assert!(missing.unwrap_err().to_string().contains("client-3"));
}
