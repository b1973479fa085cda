//! A server in a process of its own, so that its processor time and its memory are separate from
//! those of the load.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};

use crate::process::{memory_mib, processor_seconds};

/// A server in a process of its own, which ends when this is dropped.
pub(crate) struct Served {
    pub(crate) name: &'static str,
    pub(crate) address: SocketAddr,
    process: Child,
}

impl Served {
    /// One of the apps of this program; its first line is its address.
    pub(crate) async fn start(name: &'static str, app: &[&str]) -> Result<Self> {
        let bench = std::env::current_exe().context("could not find this program")?;
        let mut process = Command::new(bench)
            .arg("serve")
            .args(app)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("could not start a server")?;
        let out = process.stdout.take().context("the server has no output")?;
        let address = address_after(out, "").await?;
        Ok(Self { name, address, process })
    }

    /// A program that prints its address on its standard error, after these words.
    pub(crate) async fn listening(name: &'static str, mut command: Command, words: &str) -> Result<Self> {
        let mut process = command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let out = process.stderr.take().context("the server has no standard error")?;
        let address = address_after(out, words).await.with_context(|| format!("{name} did not start"))?;
        Ok(Self { name, address, process })
    }

    /// A program that listens on the given address.
    pub(crate) async fn at(name: &'static str, mut command: Command, address: SocketAddr) -> Result<Self> {
        let mut process = command.stdin(Stdio::null()).kill_on_drop(true).spawn()?;
        while tokio::net::TcpStream::connect(address).await.is_err() {
            if let Some(status) = process.try_wait()? {
                bail!("{name} ended: {status}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { name, address, process })
    }

    /// The processor time that the process has used so far, without its children.
    pub(crate) fn processor_seconds(&self) -> Result<f64> {
        processor_seconds(&self.id()?)
    }

    /// The memory that the process has in use now, in MiB.
    pub(crate) fn memory_mib(&self) -> Result<f64> {
        memory_mib(&self.id()?)
    }

    fn id(&self) -> Result<String> {
        Ok(self.process.id().context("the server has ended")?.to_string())
    }
}

impl Drop for Served {
    /// Asks the process to end, and gives it a moment: if nginx were killed, it would leave its
    /// workers behind.
    fn drop(&mut self) {
        let kill = |id: String| std::process::Command::new("sh").args(["-c", "kill $0", &id]).status();
        let asked = self.id().and_then(|id| Ok(kill(id)?));
        let ends = Instant::now() + Duration::from_secs(1);
        while asked.is_ok() && matches!(self.process.try_wait(), Ok(None)) && Instant::now() < ends {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The address that a server prints after these words. Its later output is read, too, and
/// discarded.
async fn address_after(out: impl AsyncRead + Unpin + Send + 'static, words: &str) -> Result<SocketAddr> {
    let mut lines = BufReader::new(out).lines();
    let mut said = String::new();
    loop {
        let line = lines.next_line().await?.with_context(|| format!("it ended: {said}"))?;
        if let Some(address) = line.split_once(words).and_then(|(_, address)| address.trim().parse().ok()) {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(address);
        }
        said.push_str(&line);
    }
}
