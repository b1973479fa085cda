//! Processes that call Postgres, each with a side of its own.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use crate::load::{flat_out, uuid_v4};
use crate::postgres::{Connections, connect};
use crate::process::processor_seconds;

/// One of the processes.
#[derive(clap::Args)]
pub(crate) struct Args {
    pub(crate) url: String,
    /// The name of the side.
    pub(crate) side: String,
    /// The schema of semel.
    pub(crate) schema: String,
    pub(crate) callers: usize,
    pub(crate) seconds: f64,
    #[command(flatten)]
    pub(crate) connections: Connections,
}

/// The result of a process.
pub(crate) struct Worked {
    pub(crate) operations: f64,
    pub(crate) per_second: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) processor_seconds: f64,
}

/// Connects, reports that, waits for a byte, and then claims and completes new keys. The last line
/// has the result.
pub(crate) fn run(args: &Args) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let side = connect(&args.url, &args.side, &args.schema, args.callers, args.connections).await?;
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
pub(crate) struct Worker {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Worker {
    pub(crate) async fn start(args: &Args) -> Result<Self> {
        let bench = std::env::current_exe().context("could not find this program")?;
        let mut process = Command::new(bench)
            .arg("work")
            .args([&args.url, &args.side, &args.schema])
            .args([args.callers.to_string(), args.seconds.to_string()])
            .args(["--connections", &args.connections.connections.to_string()])
            .args(["--additional-connections", &args.connections.additional_connections.to_string()])
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

    async fn end(mut self) -> Result<Worked> {
        let mut line = String::new();
        self.out.read_line(&mut line).await?;
        // Its sessions report their use when they end.
        self.process.wait().await?;
        let words: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [operations, per_second, p50, p99, processor_seconds] =
            words.try_into().ok().with_context(|| format!("a process said {line:?}"))?;
        Ok(Worked { operations, per_second, p50, p99, processor_seconds })
    }

    /// Lets these processes work at the same time.
    pub(crate) async fn together(mut workers: Vec<Self>) -> Result<Vec<Worked>> {
        for worker in &mut workers {
            worker.begin().await?;
        }
        let mut ends = Vec::new();
        for worker in workers {
            ends.push(worker.end().await?);
        }
        Ok(ends)
    }
}
