//! The results of a run, as Markdown tables.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use crate::checker::{Counts, Kind, Verdict};
use crate::footprint::Footprint;
use crate::scenario::Scenario;
use crate::tally::Tally;

/// The results of all rounds of each scenario, in the order of their first runs.
#[derive(Default)]
pub(crate) struct Report {
    lines: Vec<Line>,
}

struct Line {
    scenario: &'static str,
    is_control: bool,
    rounds: u64,
    counts: Counts,
    kinds: BTreeMap<Kind, usize>,
}

impl Report {
    pub(crate) fn add(&mut self, scenario: &'static str, is_control: bool, verdict: &Verdict) {
        if !self.lines.iter().any(|line| line.scenario == scenario) {
            let (counts, kinds) = (Counts::default(), BTreeMap::new());
            self.lines.push(Line { scenario, is_control, rounds: 0, counts, kinds });
        }
        for line in self.lines.iter_mut().filter(|line| line.scenario == scenario) {
            line.rounds += 1;
            line.counts.add(&verdict.counts);
            for (kind, count) in verdict.kinds() {
                *line.kinds.entry(kind).or_default() += count;
            }
        }
    }

    /// The tables, in Markdown.
    pub(crate) fn tables(&self, tally: &Tally) -> String {
        let mut text = String::from("| injected | times |\n| --- | ---: |\n");
        for (name, count) in tally.iter() {
            let _ = writeln!(text, "| {name} | {count} |");
        }
        text.push_str(
            "\n| round | rounds | keys | requests | runs | takeovers | effects | replays | 409 | 422 | 503 | lost | violations |\n\
             | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        );
        for Line { scenario, rounds, counts, kinds, .. } in self.lines.iter().filter(|line| !line.is_control)
        {
            let violations: usize = kinds.values().sum();
            let _ = writeln!(
                text,
                "| {scenario} | {rounds} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {violations} |",
                counts.keys,
                counts.requests,
                counts.runs,
                counts.takeovers,
                counts.effects,
                counts.replays,
                counts.conflicts,
                counts.mismatches,
                counts.unavailable,
                counts.lost,
            );
        }
        text.push_str("\n| control | keys | what the checker reported, in keys |\n| --- | ---: | --- |\n");
        for Line { scenario, counts, kinds, .. } in self.lines.iter().filter(|line| line.is_control) {
            let found: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
            let _ = writeln!(text, "| {scenario} | {} | {} |", counts.keys, found.join(", "));
        }
        text
    }
}

/// Prints the result of a round.
pub(crate) fn show(
    scenario: &Scenario,
    verdict: &Verdict,
    footprints: &[(Footprint, Footprint)],
    took: Duration,
    is_ok: bool,
) {
    let mark = if is_ok { "ok" } else { "FAILED" };
    let (seconds, counts) = (took.as_secs_f64(), &verdict.counts);
    let rate = counts.requests as f64 / seconds;
    println!("{mark:<6} {:<32} {seconds:>5.1} s {rate:>7.0} requests/s  {counts}", scenario.name);
    for (kind, count) in verdict.kinds() {
        println!("         {kind}: {count} keys");
    }
    for violation in verdict.violations.iter().filter(|_| !is_ok).take(5) {
        println!("         {violation}");
    }
    for (before, after) in footprints {
        println!(
            "         {} KiB and {} open files before, {} KiB and {} after",
            before.memory_kib, before.files, after.memory_kib, after.files
        );
    }
}
