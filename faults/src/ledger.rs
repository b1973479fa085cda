//! The ledger of effects: a process that appends, syncs, and only then answers. It uses no store.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, ensure};
use clap::Args;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;

use crate::event::Effect;

/// The options of the ledger's process.
#[derive(Args)]
pub(crate) struct LedgerArgs {
    /// The socket of the ledger.
    #[arg(long)]
    listen: PathBuf,
    /// The file of the ledger.
    #[arg(long)]
    file: PathBuf,
}

/// An effect to be written, and the sender of its answer.
type Entry = (String, oneshot::Sender<()>);

pub(crate) async fn serve(args: LedgerArgs) -> Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(&args.file);
    let file = file.with_context(|| format!("could not open {}", args.file.display()))?;
    let (entries, queue) = mpsc::channel();
    thread::spawn(move || {
        if let Err(error) = keep(file, &queue) {
            eprintln!("the ledger cannot go on: {error:#}");
            std::process::exit(1);
        }
    });
    // A killed ledger leaves its socket behind.
    let _none = std::fs::remove_file(&args.listen);
    let listener = UnixListener::bind(&args.listen)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let entries = entries.clone();
        tokio::spawn(async move {
            // A client that disconnects early needs no answer.
            let _ended = enter(stream, &entries).await;
        });
    }
}

async fn enter(stream: UnixStream, entries: &mpsc::Sender<Entry>) -> Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    ensure!(line.ends_with('\n'), "half an entry");
    let (written, wait) = oneshot::channel();
    entries.send((line, written))?;
    wait.await?;
    stream.get_mut().write_all(b"k").await?;
    Ok(())
}

/// Writes the queued effects, syncs once, and answers all of them.
fn keep(mut file: File, queue: &mpsc::Receiver<Entry>) -> Result<()> {
    while let Ok(first) = queue.recv() {
        let entries: Vec<Entry> = std::iter::once(first).chain(queue.try_iter()).collect();
        let lines: String = entries.iter().map(|(line, _)| line.as_str()).collect();
        file.write_all(lines.as_bytes())?;
        file.sync_data()?;
        for (_, written) in entries {
            let _gone = written.send(());
        }
    }
    Ok(())
}

/// Records an effect: it has happened if this succeeds, and it may have happened otherwise.
pub(crate) async fn effect(ledger: &Path, effect: &Effect) -> Result<()> {
    let mut stream = UnixStream::connect(ledger).await.context("the ledger is not there")?;
    let mut line = serde_json::to_vec(effect)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    let mut answer = [0];
    stream.read_exact(&mut answer).await.context("the ledger did not answer")?;
    Ok(())
}
