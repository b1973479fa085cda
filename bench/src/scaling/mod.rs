//! The cost of an operation on Postgres by load, size, callers, rows and processes, for
//! docs/scaling.md.
//!
//! - `cost`: the cost of one load.
//! - `processes`: several processes on one Postgres.

mod cost;
mod processes;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use semel::store::Claim;

use crate::caller::{BODY_BYTES, Caller};
use crate::load::uuid_v4;
use crate::machine::{load_before, machine};
use crate::page::capital;
use crate::postgres::{Connections, Semel};
use crate::report::{Item, Report, progress, seconds_so_far};
use crate::rounds::grouped;
use crate::server::Server;
use crate::table::Table;
use cost::{COLUMNS, Cost, cost};

/// The amount to measure, and the page to write.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Five rounds, longer ones, and a table of ten million rows
    #[arg(long)]
    long: bool,

    /// Another number of rounds
    #[arg(long)]
    rounds: Option<usize>,

    /// Another number of seconds for each load in each round
    #[arg(long)]
    seconds: Option<f64>,

    /// The page that holds the tables between its two marks
    #[arg(long, default_value = "docs/scaling.md")]
    page: PathBuf,
}

impl Args {
    fn rounds(&self) -> usize {
        self.rounds.unwrap_or(if self.long { 5 } else { 3 })
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.long { 3.0 } else { 1.0 })
    }

    fn sizes(&self) -> &'static [u64] {
        if self.long { &[0, 100_000, 1_000_000, 10_000_000] } else { &[0, 100_000, 1_000_000] }
    }
}

/// The number of callers of every table that is not by callers.
const CALLERS: usize = 64;
/// The number of keys of the replays.
const KEYS: u64 = 2_000;

/// The marks of the page; the text between them is replaced.
const BEGIN: &str = "<!-- measured by `bench scaling`: begin -->";
const END: &str = "<!-- measured by `bench scaling`: end -->";

/// Measures, and writes the tables into the page.
pub(crate) fn run(args: &Args) -> Result<()> {
    seconds_so_far();
    let text = std::fs::read_to_string(&args.page)
        .with_context(|| format!("could not read {}", args.page.display()))?;
    let load = load_before();
    // A page without marks is an error before anything is measured.
    between(&text, "").context("the page has no marks")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure(args))?;
    let text = between(&text, &tables(args, load, &report)).context("the page has no marks")?;
    std::fs::write(&args.page, text).with_context(|| format!("could not write {}", args.page.display()))?;
    progress(format!("wrote the tables of {}", args.page.display()));
    Ok(())
}

async fn measure(args: &Args) -> Result<Report> {
    let mut report = Report::new("Scaling");
    let server = Server::start(None).await?;
    report.version("Postgres", format!("{}, `fsync` and `synchronous_commit` on", server.version));
    by_load(args, &server, &mut report).await?;
    by_callers(args, &server, &mut report).await?;
    by_body(args, &server, &mut report).await?;
    by_rows(args, &server, &mut report).await?;
    processes::by_processes(args, &server, &mut report).await?;
    Ok(report)
}

async fn semel(server: &Server, schema: &str) -> Result<Arc<Semel>> {
    Ok(Arc::new(Semel::connect(&server.url, Connections::DEFAULT, schema).await?))
}

fn key(n: u64) -> String {
    format!("key-{}", n % KEYS)
}

/// A key that runs for less than its lease.
fn busy_key(round: usize) -> String {
    format!("busy-{round}")
}

/// Records the outcomes for the replays.
async fn fill(side: &Arc<Semel>) -> Result<()> {
    let tasks = (0..CALLERS as u64).map(|begin| {
        let side = Arc::clone(side);
        tokio::spawn(async move {
            for n in (begin..KEYS).step_by(CALLERS) {
                side.first(&key(n)).await?;
            }
            anyhow::Ok(())
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.context("a caller panicked")??;
    }
    Ok(())
}

/// A row of a table: its name and the cost.
type Row = (String, Cost);

/// Shows the result of each row.
fn show(title: &str, first: &str, rows: Vec<Row>, report: &mut Report) {
    let mut table = Table::new(title, std::iter::once(first).chain(COLUMNS));
    for (name, cost) in rows {
        table.row(std::iter::once(name).chain(cost.cells()));
    }
    report.table(table);
}

/// New keys, replays, and one key that all callers want.
async fn by_load(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let side = semel(server, "loads").await?;
    fill(&side).await?;
    server.run("vacuum loads.records").await?;
    let mut rows: Vec<Row> = Vec::new();
    progress("scaling: by load");
    let new = |side: Arc<Semel>, _| async move { side.first(&uuid_v4()).await };
    let many = |side: Arc<Semel>, n| async move { side.replay(&key(n)).await };
    let hot = |side: Arc<Semel>, _| async move { side.replay(&key(0)).await };
    let mut all: [Cost; 4] = Default::default();
    for round in 0..args.rounds() {
        let [first, replay, one, busy] = &mut all;
        ensure!(
            matches!(side.claim(&busy_key(round)).await?, Claim::Granted(_)),
            "a new key was not granted"
        );
        let running = move |side: Arc<Semel>, _| async move {
            let answer = side.claim(&busy_key(round)).await?;
            ensure!(matches!(answer, Claim::Running { .. }), "a running key was answered {answer:?}");
            Ok(())
        };
        cost(args, server, CALLERS, &side, busy, running).await?;
        cost(args, server, CALLERS, &side, replay, many).await?;
        cost(args, server, CALLERS, &side, one, hot).await?;
        cost(args, server, CALLERS, &side, first, new).await?;
    }
    let names = [
        "claim + complete, new keys".to_owned(),
        format!("replay of {} keys", grouped(KEYS as f64)),
        "replay of one key".to_owned(),
        "claims of one key that is running".to_owned(),
    ];
    rows.extend(names.into_iter().zip(all));
    show(&format!("by what is asked, {CALLERS} callers"), "load", rows, report);
    Ok(())
}

async fn by_callers(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let side = semel(server, "callers").await?;
    let counts = [1, 4, 16, 64, 256];
    let mut all = counts.map(|_| Cost::default());
    progress("scaling: by callers");
    for _ in 0..args.rounds() {
        server.empty_tables(&["callers.records"]).await?;
        for (callers, found) in counts.into_iter().zip(&mut all) {
            let new = |side: Arc<Semel>, _| async move { side.first(&uuid_v4()).await };
            cost(args, server, callers, &side, found, new).await?;
        }
    }
    let rows = counts.into_iter().map(|callers| callers.to_string()).zip(all).collect();
    show("claim + complete by callers of one process", "callers", rows, report);
    Ok(())
}

/// Bodies that do not compress, which are the worst case for the disk.
async fn by_body(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let sizes = [("200 B", BODY_BYTES), ("2 KiB", 2 << 10), ("20 KiB", 20 << 10), ("200 KiB", 200 << 10)];
    let mut sides = Vec::new();
    for (_, bytes) in sizes {
        let caller = Arc::into_inner(semel(server, "bodies").await?).context("it is the only one")?;
        let body = (0..bytes).map(|_| rand::random()).collect();
        sides.push(Arc::new(Caller::new(caller.store)?.with_body(body)));
    }
    let mut new = sizes.map(|_| Cost::default());
    let mut replays = sizes.map(|_| Cost::default());
    for _ in 0..args.rounds() {
        for (at, side) in sides.iter().enumerate() {
            progress(format!("scaling: by body, {}", sizes[at].0));
            server.empty_tables(&["bodies.records"]).await?;
            fill(side).await?;
            server.run("vacuum bodies.records").await?;
            let again = |side: Arc<Semel>, n| async move { side.replay(&key(n)).await };
            cost(args, server, CALLERS, side, &mut replays[at], again).await?;
            let first = |side: Arc<Semel>, _| async move { side.first(&uuid_v4()).await };
            cost(args, server, CALLERS, side, &mut new[at], first).await?;
        }
    }
    let rows = |all: [Cost; 4]| sizes.into_iter().map(|(name, _)| name.to_owned()).zip(all).collect();
    show(&format!("claim + complete by body, {CALLERS} callers"), "body", rows(new), report);
    show(&format!("replay by body, {CALLERS} callers"), "body", rows(replays), report);
    Ok(())
}

async fn by_rows(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let mut sides = Vec::new();
    for rows in args.sizes() {
        let schema = format!("rows_{rows}");
        let side = semel(server, &schema).await?;
        if *rows > 0 {
            server.fill(&schema, *rows, false).await?;
        }
        sides.push((grouped(*rows as f64), side, Cost::default()));
    }
    progress("scaling: by rows");
    for _ in 0..args.rounds() {
        for (_, side, found) in &mut sides {
            let new = |side: Arc<Semel>, _| async move { side.first(&uuid_v4()).await };
            cost(args, server, CALLERS, side, found, new).await?;
        }
    }
    let rows = sides.into_iter().map(|(name, _, found)| (name, found)).collect();
    show(
        &format!("claim + complete by rows of the table, {CALLERS} callers, random keys"),
        "rows",
        rows,
        report,
    );
    Ok(())
}

/// The text between the marks.
fn tables(args: &Args, load: (&'static str, String), report: &Report) -> String {
    let mut parts: Vec<String> = machine(&std::env::temp_dir())
        .into_iter()
        .chain([load])
        .filter(|(part, _)| *part != "rustc")
        .map(|(part, value)| format!("{part}: {value}"))
        .collect();
    parts.extend(report.versions.iter().map(|(part, version)| format!("{part} {version}")));
    let mut text = format!(
        "Medians of {} rounds of {} s each, in which the rows take turns; ± is the distance of the farthest round.\n\
         {}.\n",
        args.rounds(),
        args.seconds(),
        parts.join("; ")
    );
    for item in &report.items {
        match item {
            Item::Table(table) => {
                text.push_str(&format!("\n**{}**\n\n{}", capital(&table.title), table.markdown()));
            }
            Item::Text(words) => text.push_str(&format!("\n{words}\n")),
            Item::Plot(_) => {}
        }
    }
    text
}

/// The page with another text between its marks.
fn between(page: &str, tables: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let written = between(&page, "new\n").expect("it has marks");
        assert_eq!(written, format!("before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(between(&written, "new\n"), Some(written.clone()), "again is the same");
        assert_eq!(between("no marks", "new"), None);
    }
}
