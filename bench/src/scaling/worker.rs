//! Several processes of semel on one Postgres.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::cost::{Cost, Used};
use super::{CALLERS, show};
use crate::load::{flat_out, uuid_v4};
use crate::postgres::Semel;
use crate::process::processor_seconds;
use crate::report::{Report, progress};
use crate::server::Server;

/// One of the processes.
#[derive(clap::Args)]
pub(crate) struct Args {
    url: String,
    callers: usize,
    seconds: f64,
}

const SCHEMA: &str = "processes";

/// Connects, reports that, waits for a byte, and then claims and completes new keys. The last line
/// has the result.
pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let connections = semel::store::PostgresOptions::DEFAULT_CONNECTIONS;
        let side = Arc::new(Semel::connect(&args.url, connections, SCHEMA).await?);
        println!("ready");
        tokio::io::stdin().read_u8().await.context("could not read the signal to begin")?;
        let before = processor_seconds("self")?;
        let measured = flat_out(args.callers, Duration::from_secs_f64(args.seconds), move |_| {
            let side = Arc::clone(&side);
            async move { side.first(&uuid_v4()).await }
        })
        .await?;
        let own = processor_seconds("self")? - before;
        let (p50, p99) = (measured.millis(50.0), measured.millis(99.0));
        println!("{} {} {p50} {p99} {own}", measured.operations, measured.per_second);
        Ok(())
    })
}

/// A process that waits for its turn.
struct Worker {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Worker {
    async fn start(args: &Args) -> Result<Self> {
        let bench = std::env::current_exe().context("could not find this program")?;
        let mut process = Command::new(bench)
            .arg("work")
            .arg(&args.url)
            .args([args.callers.to_string(), args.seconds.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("could not start a process")?;
        let mut out = BufReader::new(process.stdout.take().context("the process has no output")?);
        let mut line = String::new();
        out.read_line(&mut line).await?;
        anyhow::ensure!(line.trim() == "ready", "a process said {line:?}");
        Ok(Self { process, out })
    }

    async fn begin(&mut self) -> Result<()> {
        let pipe = self.process.stdin.as_mut().context("the process has no input")?;
        pipe.write_all(b"!").await?;
        Ok(pipe.flush().await?)
    }

    /// Operations, operations a second, p50, p99 and processor seconds.
    async fn end(mut self) -> Result<[f64; 5]> {
        let mut line = String::new();
        self.out.read_line(&mut line).await?;
        // Its sessions report their use when they end.
        self.process.wait().await?;
        let words: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        words.try_into().ok().with_context(|| format!("a process said {line:?}"))
    }
}

/// The callers of the other tables, divided among a growing number of processes.
pub(super) async fn by_processes(args: &super::Args, server: &Server, report: &mut Report) -> Result<()> {
    let counts = [1, 2, 4];
    let mut all = counts.map(|_| Cost::default());
    let _migrated = Semel::connect(&server.url, 1, SCHEMA).await?;
    progress("scaling: by processes");
    for _ in 0..args.rounds() {
        server.empty_tables(&["processes.records"]).await?;
        for (processes, cost) in counts.into_iter().zip(&mut all) {
            let share =
                Args { url: server.url.clone(), callers: CALLERS / processes, seconds: args.seconds() };
            let mut workers = Vec::new();
            for _ in 0..processes {
                workers.push(Worker::start(&share).await?);
            }
            let before = Used::so_far(server).await?;
            for worker in &mut workers {
                worker.begin().await?;
            }
            let mut ends = Vec::new();
            for worker in workers {
                ends.push(worker.end().await?);
            }
            let sum = |at: usize| ends.iter().map(|end: &[f64; 5]| end[at]).sum::<f64>();
            let most = |at: usize| ends.iter().map(|end| end[at]).fold(0.0, f64::max);
            cost.rate.push(sum(1));
            cost.p50.push(most(2));
            cost.p99.push(most(3));
            cost.client_micros.push(sum(4) * 1e6 / sum(0).max(1.0));
            tokio::time::sleep(Duration::from_millis(300)).await;
            before.add_until(&Used::so_far(server).await?, sum(0) as u64, cost);
        }
    }
    let rows = counts.into_iter().map(|count| count.to_string()).zip(all).collect();
    let title = format!("claim + complete by processes, {CALLERS} callers divided between them");
    show(&title, "processes", rows, report);
    Ok(())
}
