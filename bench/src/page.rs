//! The page of all benchmarks.

use std::fmt::Write;

use crate::report::{Figure, Item, Report};
use crate::rounds::number;
use crate::table::Table;

/// The facts about the run as a whole.
pub(crate) struct Run {
    /// The command that repeats the run.
    pub(crate) command: String,
    pub(crate) machine: Vec<(&'static str, String)>,
    pub(crate) seconds: f64,
    pub(crate) rounds: &'static str,
}

/// The whole page. It contains nothing that would differ without a new measurement.
pub(crate) fn page(run: &Run, reports: &[Report]) -> String {
    let mut page = format!(
        "# Benchmarks\n\n\
        This page and its pictures are written by one command, which starts its own Postgres and Redis, and took {:.0} minutes:\n\n\
        ```sh\n{}\n```\n\n",
        (run.seconds / 60.0).max(1.0),
        run.command
    );
    page.push_str(&machine(run, reports));
    page.push_str(&noise(run));
    page.push_str(SIDES);
    page.push_str("\n## The figures of all parts\n\n");
    page.push_str(
        "The target of each part, and the result of this run.\n\
        A target that was missed is listed, too, with the reason where it is known.\n\n",
    );
    page.push_str(&figures(reports));
    for report in reports {
        _ = write!(page, "\n## {}\n", report.heading);
        for item in &report.items {
            match item {
                Item::Text(text) => _ = write!(page, "\n{text}\n"),
                Item::Table(table) => {
                    _ = write!(page, "\n{}:\n\n{}", capital(&table.title), table.markdown())
                }
                Item::Plot(plot) => {
                    _ = write!(page, "\n![{}, {}](benchmarks/{}.svg)\n", plot.title, plot.measure, plot.file);
                }
            }
        }
    }
    page
}

fn machine(run: &Run, reports: &[Report]) -> String {
    let mut table = Table::new("", ["part", ""]);
    let mut seen = Vec::new();
    for (name, value) in run.machine.iter().chain(reports.iter().flat_map(|report| &report.versions)) {
        if !seen.contains(name) {
            seen.push(*name);
            table.row([(*name).to_owned(), value.clone()]);
        }
    }
    format!("## The machine\n\n{}\n", table.markdown())
}

fn noise(run: &Run) -> String {
    format!(
        "## What is noise\n\n\
        All sides of a figure take turns within each round, so other load on the machine affects all of them; {}.\n\
        A value is the median of its rounds, and ± is the distance of the farthest round from it.\n\
        A ratio is taken within each round.\n\
        Plots show the median, and a thin line from the lowest to the highest of the rounds.\n\
        Load, servers and references share the same cores, so every figure includes the cost of the client: on a machine of its own, each side would be faster.\n\
        One side was also measured against itself: a smaller difference between two sides says nothing.\n\n",
        run.rounds
    )
}

/// The section about the measured sides.
const SIDES: &str = "## Who is measured\n\n\
    | side | what it does on Postgres |\n| --- | --- |\n\
    | semel | the store as it is: what is queued goes in one transaction, over two connections |\n\
    | cratestack-sqlx | that crate, 0.8.15 from crates.io: an upsert that locks what is there, then a select; complete is an update |\n\
    | per call | semel's own table with one statement for a claim and one for a complete: as few as can be without group commit |\n\
    | insert or error | an insert; if it violates the primary key, a select; an update. Apache Polaris had it so |\n\
    | insert or nothing | an insert that does nothing if the key is there, then a select; an update. Met most often |\n\
    | upsert if expired | an insert that takes over what is expired and locks what is not, then a select; an update. So do anyonce and cratestack |\n\
    | advisory lock | a transaction of an advisory lock, a select and an insert; an update |\n\
    | pgbench, batched | semel's own statements, sent by pgbench over two connections in batches as large as semel's would be: a limit |\n\
    | pgbench, key by key | the same statements with one key in each: a limit of everything that works call by call |\n\n\
    Each side that works call by call has a pool of 16 connections, and prepared statements.\n\
    The four sides in the middle use the statements of those stores, rewritten over one table that has their columns; the cost of their languages and drivers is not included.\n\
    pgbench has no callers that wait for a connection, so its latencies are those of the server alone, while the latencies of the other sides are those of a caller.\n\
    Only in semel, a claim of one key and a complete of another share a commit.\n";

fn figures(reports: &[Report]) -> String {
    let mut table = Table::new("", ["part", "figure", "bound", "found", "in the rounds", "result"]);
    for report in reports {
        for figure in &report.figures {
            let (found, rounds) = shown(figure);
            let cells = [report.heading, &figure.name, &figure.bound(), &found, &rounds, &result(figure)];
            table.row(cells);
        }
    }
    table.markdown()
}

fn shown(figure: &Figure) -> (String, String) {
    let found = &figure.found;
    let rounds = match found.len() {
        0 | 1 => "one".to_owned(),
        _ => format!("{} to {}", number(found.least()), number(found.most())),
    };
    (number(found.median()), rounds)
}

fn result(figure: &Figure) -> String {
    let mut result = if figure.kept() { "reached".to_owned() } else { "**missed**".to_owned() };
    if figure.undecided() {
        result.push_str(", with rounds on both sides of the bound");
    }
    if !figure.kept() && !figure.why.is_empty() {
        result.push_str(": ");
        result.push_str(&figure.why);
    }
    result
}

pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod facts {
    use super::*;
    use crate::rounds::Rounds;

    fn made(found: f64) -> String {
        let mut report = Report::new("Postgres");
        report.version("Postgres", "15.18");
        report.version("Postgres", "twice");
        report
            .at_least("fast", Rounds::from_iter([found, found, found * 2.0]), 1.2)
            .explained("because of the disk");
        let run = Run {
            command: "cargo run".to_owned(),
            machine: vec![("processor", "of some kind".to_owned())],
            seconds: 300.0,
            rounds: "3 rounds",
        };
        page(&run, &[report])
    }

    #[test]
    fn page_explains_only_what_is_missed() {
        let missed = made(1.0);
        assert!(missed.contains(
            "| Postgres | fast | at least 1.2 | 1.00 | 1.00 to 2.00 | **missed**, with rounds on both sides of the bound: because of the disk |"
        ));
        let reached = made(1.5);
        assert!(reached.contains("| fast | at least 1.2 | 1.50 | 1.50 to 3.00 | reached |"));
        assert!(!reached.contains("because of the disk"));
    }

    #[test]
    fn page_names_each_part_of_the_machine_once() {
        let page = made(2.0);
        assert!(page.contains("| processor | of some kind |") && page.contains("| Postgres | 15.18 |"));
        assert!(!page.contains("twice"));
    }
}
