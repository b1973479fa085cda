//! The memory and files that a process holds.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::time::sleep;

use crate::process::Process;

/// The growth in memory that is allowed at the end.
const MEMORY_SLACK_KIB: u64 = 16 << 10;
const FILES_SLACK: usize = 8;
/// The time limit for the release of resources: idle connections, and claims that are voided later.
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

    /// Waits until a process holds no more than at the beginning.
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
