//! What a process holds on to.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::process::Process;

/// How much more than before a process may hold on to when all is over.
const MEMORY_SLACK_KIB: u64 = 16 << 10;
const FILES_SLACK: usize = 8;
/// How long it may take to let go: idle connections and what is voided later.
const LIMIT: Duration = Duration::from_secs(30);

/// Memory and open files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Footprint {
    pub(crate) memory_kib: u64,
    pub(crate) files: usize,
}

impl Footprint {
    pub(crate) fn of(process: &Process) -> Result<Self> {
        let id = process.id();
        let status = fs::read_to_string(format!("/proc/{id}/status"))?;
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
        let memory_kib = memory.context("the system does not say how much memory a process has")?.parse()?;
        Ok(Self { memory_kib, files: fs::read_dir(format!("/proc/{id}/fd"))?.count() })
    }

    /// Waits until a process holds on to no more than it did.
    pub(crate) async fn is_back(self, process: &Process) -> Result<Self> {
        let began = Instant::now();
        loop {
            let now = Self::of(process)?;
            if now.memory_kib <= self.memory_kib + MEMORY_SLACK_KIB && now.files <= self.files + FILES_SLACK {
                return Ok(now);
            }
            let name = &process.program.name;
            ensure!(began.elapsed() < LIMIT, "{name} has not let go: before {self:?}, now {now:?}");
            sleep(Duration::from_millis(200)).await;
        }
    }
}
