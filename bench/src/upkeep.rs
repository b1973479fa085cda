//! The pages of a large table that listing, counting and pruning read, for docs/postgres.md.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use semel::PostgresStore;
use semel::admin::{Inspect, ListQuery, Prune};
use semel::store::{PostgresOptions, Store, Token};
use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, NoTls};

use crate::report::{Report, progress, seconds_so_far};
use crate::rounds::grouped;
use crate::server::Server;
use crate::table::Table;

const SCHEMA: &str = "upkeep";

/// The number of records that are held.
const HELD: u64 = 10_000;

/// The largest part of the table's pages that an operation may read, in percent, if the table has so
/// many records: a part of the reads does not depend on its size.
const BOUND: f64 = 1.0;
const BOUND_ROWS: u64 = 10_000_000;

/// The longest time in which the watermark passes all records, or a connection ends.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// The table to measure.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Records of the table: a tenth of them is kept for 30 days, and 10,000 are held
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(100_000..))]
    rows: u64,

    /// A Postgres to use instead of starting one; the schema `upkeep` in it is removed
    #[arg(long)]
    url: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    seconds_so_far();
    let runtime = tokio::runtime::Runtime::new().context("could not start a runtime")?;
    runtime.block_on(measure(args))?.finish()
}

/// The measured operations, in the order of the page.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Stale,
    Stats,
    IdleMinute,
    List,
}

impl Operation {
    const ALL: [Self; 4] = [Self::Stale, Self::Stats, Self::IdleMinute, Self::List];

    fn name(self) -> &'static str {
        match self {
            Self::Stale => "`stale`, a page of 100",
            Self::Stats => "`stats`, with the held count",
            Self::IdleMinute => "an idle minute of pruning",
            Self::List => "a page of `list` in which nothing matches",
        }
    }

    /// Does it once, and checks the answer.
    async fn run(self, store: &PostgresStore, server: &Server) -> Result<()> {
        match self {
            Self::Stale => {
                let page = store.stale(&ListQuery::default().with_limit(100)).await?;
                ensure!(page.records.len() == 100 && page.next.is_some(), "a page of 100 held records");
            }
            Self::Stats => {
                let held = store.stats().await?.held;
                ensure!(held == HELD, "{held} records are held");
            }
            Self::IdleMinute => {
                // A process prunes once a minute, and takes the turn if it is due.
                due(server).await?;
                let removed = store.prune(&paced()).await?;
                ensure!(removed == 0, "{removed} records were removed");
            }
            Self::List => {
                let other = ListQuery::default().with_realm("other".to_owned());
                ensure!(store.list(&other).await?.records.is_empty(), "there is no other realm");
            }
        }
        Ok(())
    }
}

async fn measure(args: &Args) -> Result<Report> {
    let server = Server::start(args.url.as_deref()).await?;
    let (client, connection) = tokio_postgres::connect(&server.url, NoTls).await?;
    tokio::spawn(connection);
    server.run(&format!("drop schema if exists {SCHEMA} cascade")).await?;
    let store = connect(&server, "upkeep").await?;
    store.migrate().await?;
    fill(&server, args.rows).await?;
    progress("moving the watermark over all records");
    let behind = format!("select watermark < now() - interval '5 minutes' from {SCHEMA}.upkeep");
    let began = Instant::now();
    while client.query_one(&behind, &[]).await?.get(0) {
        ensure!(began.elapsed() < PATIENCE, "the watermark does not arrive");
        due(&server).await?;
        store.prune(&paced()).await?;
    }
    let size = format!("select pg_relation_size('{SCHEMA}.records') / current_setting('block_size')::bigint");
    let pages: i64 = client.query_one(&size, &[]).await?.get(0);

    let mut report = Report::new("Upkeep");
    let (rows, all) = (grouped(args.rows as f64), grouped(pages as f64));
    let title = format!("pages looked at, with {rows} records on {all} pages");
    let mut table = Table::new(title, ["", "pages looked at", "as a share of the table's"]);
    let mut shares = Vec::new();
    for operation in Operation::ALL {
        progress(operation.name());
        let read = reads(&server, &client, operation).await?;
        let share = read as f64 * 100.0 / pages as f64;
        table.row([operation.name().to_owned(), grouped(read as f64), format!("{share:.2} %")]);
        shares.push((operation, share));
    }
    report.table(table);
    if args.rows < BOUND_ROWS {
        return Ok(report);
    }
    for (operation, share) in shares {
        report.at_most(&format!("{}: pages, % of the table's", operation.name()), share, BOUND);
    }
    Ok(report)
}

/// Adds done and held records of 30 days, in no order on disk. Nothing of it is expired.
async fn fill(server: &Server, rows: u64) -> Result<()> {
    progress(format!("filling the table with {rows} records"));
    let every = rows / HELD;
    let steps = [
        "set synchronous_commit = off; set maintenance_work_mem = '1GB'".to_owned(),
        // With its indexes, filling would take an hour; the final state is the same.
        format!("alter table {SCHEMA}.records drop constraint records_pkey"),
        format!("drop index {SCHEMA}.records_created_at"),
        format!(
            "insert into {SCHEMA}.records (
                id, version, token, fence, attempt, state, realm, principal, key, operation, resource, fingerprint,
                fingerprint_version, owner, lease_until, created_at, retention, after_crash, finished_at, status, headers, body
            )
            select
                sha256(int8send(n)), 2, substr(sha256(int8send(n)), 1, 16), n, 1,
                case when held then 'running' else 'done' end, 'bench', '', 'key-' || n, 'POST /charges', '',
                sha256('1'), 1, 'bench-1', at + interval '30 s', at,
                case when long then 31 else 2 end * 86400000000, 'hold',
                case when not held then at end, case when not held then 200 end, case when not held then ''::bytea end,
                case when not held then convert_to(repeat('x', 200), 'UTF8') end
            from (
                select
                    n, n % 10 = 0 as long, n % {every} = 0 as held,
                    now() - interval '5 minutes'
                        - random() * case when n % 10 = 0 or n % {every} = 0 then 30 else 1 end * interval '1 day' as at
                from generate_series(1, {}) as n
            ) as row",
            every * HELD
        ),
        format!("alter table {SCHEMA}.records add primary key (id)"),
        format!("create index records_created_at on {SCHEMA}.records (created_at)"),
        format!("update {SCHEMA}.upkeep set watermark = '-infinity', candidate_at = now() - interval '2 minutes'"),
        format!("vacuum (analyze) {SCHEMA}.records"),
        "checkpoint; reset synchronous_commit".to_owned(),
    ];
    for step in steps {
        server.run(&step).await?;
    }
    Ok(())
}

/// A store whose connections have this name.
async fn connect(server: &Server, name: &str) -> Result<PostgresStore> {
    let sign = if server.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{sign}application_name={name}", server.url);
    Ok(PostgresOptions::new(&url)?.with_schema(SCHEMA).connect().await?)
}

fn paced() -> Prune {
    Prune::default().with_paced(true)
}

/// Lets the next turn of the upkeep begin.
async fn due(server: &Server) -> Result<()> {
    server.run(&format!("update {SCHEMA}.upkeep set sweep_at = now()")).await
}

/// The number of pages of all tables of the schema and of their indexes that the operation looks
/// at, in a process of its own.
async fn reads(server: &Server, client: &Client, operation: Operation) -> Result<i64> {
    let read = async || {
        let read = "
            select sum(
                heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0)
                    + coalesce(toast_blks_read + toast_blks_hit + tidx_blks_read + tidx_blks_hit, 0)
            )::bigint
            from pg_statio_all_tables
            where schemaname = $1";
        anyhow::Ok(client.query_one(read, &[&SCHEMA]).await?.get::<_, i64>(0))
    };
    let name = Token::random().to_string();
    let before = read().await?;
    let store = connect(server, &name).await?;
    operation.run(&store, server).await?;
    store.close().await;
    drop(store);
    // A server process reports its reads before it ends.
    let left = "select from pg_stat_activity where application_name = $1";
    let began = Instant::now();
    while !client.query(left, &[&name]).await?.is_empty() {
        ensure!(began.elapsed() < PATIENCE, "the connections do not end");
        sleep(Duration::from_millis(20)).await;
    }
    Ok(read().await? - before)
}
