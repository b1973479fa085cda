//! The page of all benchmarks.

use std::fmt::Write;

use crate::report::{Item, Report};
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
        "## Noise\n\n\
        All sides of a comparison take turns within each round, so other load on the machine affects all of them; {}.\n\
        A value is the median of its rounds, and ± is the distance of the farthest round from it.\n\
        A ratio is taken within each round.\n\
        Plots show the median, and a thin line from the lowest to the highest round.\n\
        Load, servers and references share the same cores, so each side would be faster with the load on another machine.\n\
        One side was also measured against itself, which shows the size of a difference that means nothing.\n\n",
        run.rounds
    )
}

/// The section about the measured sides.
const SIDES: &str = "## The measured sides\n\n\
    | side | what it does on Postgres |\n| --- | --- |\n\
    | semel | the store as it is: queued operations share a transaction, over two connections |\n\
    | cratestack-sqlx | that crate, 0.8.15 from crates.io: an upsert that locks an existing row, then a select; complete is an update |\n\
    | per call | semel's own table with one statement for a claim and one for a complete: the minimum without group commit |\n\
    | insert or error | an insert; if it violates the primary key, a select; an update. Apache Polaris had this form |\n\
    | insert or nothing | an insert that does nothing if the key exists, then a select; an update. The most common form |\n\
    | upsert if expired | an insert that takes over an expired row and locks any other, then a select; an update. The form of anyonce and cratestack |\n\
    | advisory lock | a transaction of an advisory lock, a select and an insert; an update |\n\
    | pgbench, batched | semel's own statements, sent by pgbench over two connections in batches as large as semel's would be: an upper limit |\n\
    | pgbench, key by key | the same statements with one key in each: an upper limit for every design that works call by call |\n\n\
    All sides that work call by call have a pool of 16 connections, and prepared statements.\n\
    The four in the middle are the statements of those stores in our own words, over one table that has their columns; the costs of their languages and \
    drivers are not included.\n\
    pgbench has no callers that wait for a connection, so its latencies are those of the server alone, while those of the other sides are the latencies of a caller.\n\
    Only semel lets the claim of one key and the complete of another share a commit.\n";

pub(crate) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn page_shows_no_bounds() {
        let page = made();
        assert!(page.contains("## Postgres") && !page.contains("at least"));
    }

    fn made() -> String {
        let mut report = Report::new("Postgres");
        report.version("Postgres", "15.18");
        report.version("Postgres", "twice");
        report.at_least("fast", 1.0, 1.2);
        let run = Run {
            command: "cargo run".to_owned(),
            machine: vec![("processor", "of some kind".to_owned())],
            seconds: 300.0,
            rounds: "3 rounds",
        };
        page(&run, &[report])
    }

    #[test]
    fn page_names_each_part_of_the_machine_once() {
        let page = made();
        assert!(page.contains("| processor | of some kind |") && page.contains("| Postgres | 15.18 |"));
        assert!(!page.contains("twice"));
    }
}
