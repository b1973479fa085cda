//! A process that is restarted whenever it ends, as by a supervisor.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;

use crate::reaper;

/// The time limit until a process listens.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The command of a process.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<OsString>,
    pub(crate) environment: Vec<(String, String)>,
    /// The file for its output.
    pub(crate) output: PathBuf,
    /// The address on which it listens once it is up, if any.
    pub(crate) listen: Option<SocketAddr>,
}

impl Program {
    fn start(&self, failpoint: Option<String>) -> Result<Child> {
        let output = OpenOptions::new().create(true).append(true).open(&self.output)?;
        let mut command = Command::new(&self.path);
        command.args(&self.args).envs(self.environment.iter().cloned()).env("RUST_BACKTRACE", "0");
        command.envs(failpoint.map(|point| ("SEMEL_FAILPOINT", point)));
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("could not run {}", self.path.display()))?;
        child.id().into_iter().for_each(reaper::begins);
        Ok(child)
    }
}

/// A process, over all its restarts.
pub(crate) struct Process {
    pub(crate) program: Program,
    state: Arc<State>,
    _keeper: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct State {
    /// The current process identifier; 0 between two lives.
    id: AtomicI32,
    life: Mutex<Life>,
    /// The failpoint at which the next life is to end.
    next: Mutex<Option<String>>,
    /// The number of kills, by place.
    ends: Mutex<BTreeMap<String, u64>>,
    /// The reason why it is not restarted.
    trouble: Mutex<Option<String>>,
}

/// The expected end of a life.
#[derive(Default)]
struct Life {
    /// The failpoint at which it is to end.
    armed: Option<String>,
    /// Set if it was killed from outside.
    killed: bool,
}

impl Process {
    /// Starts the process, waits until it is up, and restarts it whenever it has ended.
    pub(crate) async fn start(program: Program) -> Result<Self> {
        let state = Arc::<State>::default();
        let child = program.start(None)?;
        state.enter(&child);
        let (kept, keeping) = (program.clone(), Arc::clone(&state));
        let keeper = tokio::spawn(async move {
            if let Err(error) = keep(&kept, child, &keeping).await {
                *keeping.trouble.lock() = Some(format!("{error:#}"));
            }
        });
        let process = Self { program, state, _keeper: AbortOnDropHandle::new(keeper) };
        process.up().await?;
        Ok(process)
    }

    /// Waits until the process listens.
    pub(crate) async fn up(&self) -> Result<()> {
        let Some(listen) = self.program.listen else { return Ok(()) };
        let began = Instant::now();
        while TcpStream::connect(listen).await.is_err() {
            if let Some(trouble) = self.trouble() {
                bail!("{}: {trouble}", self.program.name);
            }
            ensure!(
                began.elapsed() < START_LIMIT,
                "{} is not up after {START_LIMIT:?}; see {}",
                self.program.name,
                self.program.output.display()
            );
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Kills the process. Its next life ends at a failpoint, such as `granted:37`, if one is given.
    pub(crate) fn kill(&self, next: Option<String>) {
        *self.state.next.lock() = next;
        self.state.life.lock().killed = true;
        self.signal(Signal::KILL);
    }

    /// Ends the kills: when this returns, the process runs, and is not going to end by itself.
    pub(crate) async fn disarm(&self) -> Result<()> {
        self.signal(Signal::CONT);
        loop {
            *self.state.next.lock() = None;
            let is_armed = self.state.life.lock().armed.is_some();
            match (self.id(), is_armed) {
                (0, _) => {}
                (_, true) => self.kill(None),
                (_, false) => return self.up().await,
            }
            // The next life may have received the failpoint in the meantime.
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The unexpected end of the process, if there was one.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.trouble.lock().clone()
    }

    /// The number of kills, by place.
    pub(crate) fn ends(&self) -> Vec<(String, u64)> {
        self.state.ends.lock().clone().into_iter().collect()
    }

    /// The current process identifier; 0 between two lives.
    pub(crate) fn id(&self) -> i32 {
        self.state.id.load(Ordering::Relaxed)
    }

    /// Sends a signal to the current process, if there is one.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(id) = Pid::from_raw(self.id()) {
            // The process may have ended by itself at this moment.
            let _gone = kill_process(id, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process is killed together with its supervisor task.
        self.state.leave();
    }
}

async fn keep(program: &Program, mut child: Child, state: &State) -> Result<()> {
    loop {
        let ended = child.wait().await?;
        state.leave();
        let failpoint = state.next.lock().take();
        let armed = failpoint.as_ref().and_then(|point| Some(point.split_once(':')?.0.to_owned()));
        let life = std::mem::replace(&mut *state.life.lock(), Life { armed, killed: false });
        if ended.signal() == Some(Signal::KILL.as_raw()) {
            let place = life.armed.filter(|_| !life.killed).map(|point| format!("at {point}"));
            let place = place.unwrap_or_else(|| "at any moment".to_owned());
            *state.ends.lock().entry(place).or_default() += 1;
        } else if ended.code() != Some(1) {
            // A process that cannot reach its store at the start exits with 1. Nothing else ends by
            // itself.
            bail!("ended with {ended}; see {}", program.output.display());
        }
        child = program.start(failpoint)?;
        state.enter(&child);
        // The pause limits the restarts of a process that cannot start because its store is down.
        sleep(Duration::from_millis(100)).await;
    }
}

impl State {
    fn leave(&self) {
        let id = self.id.swap(0, Ordering::Relaxed);
        u32::try_from(id).into_iter().for_each(reaper::ends);
    }

    fn enter(&self, child: &Child) {
        let id = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or_default();
        self.id.store(id, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod facts {
    use super::*;

    fn sleeper(folder: &std::path::Path) -> Program {
        Program {
            name: "sleeper".to_owned(),
            path: "sleep".into(),
            args: vec!["1000".into()],
            environment: Vec::new(),
            output: folder.join("log"),
            listen: None,
        }
    }

    async fn next_life(process: &Process, before: i32) -> i32 {
        loop {
            match process.id() {
                0 => {}
                id if id == before => {}
                id => return id,
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_killed_process_is_started_again_and_it_is_known_where_it_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(sleeper(folder.path())).await.unwrap();
        let first = process.id();
        process.kill(Some("granted:3".to_owned()));
        let second = next_life(&process, first).await;
        // The signal stands for a failpoint at which the process kills itself.
        process.signal(Signal::KILL);
        next_life(&process, second).await;
        assert_eq!(process.ends(), [("at any moment".to_owned(), 1), ("at granted".to_owned(), 1)]);
    }

    #[tokio::test]
    async fn a_process_that_is_to_end_at_a_failpoint_lives_when_it_is_disarmed() {
        let folder = tempfile::tempdir().unwrap();
        let process = Process::start(sleeper(folder.path())).await.unwrap();
        let first = process.id();
        process.kill(Some("granted:3".to_owned()));
        let second = next_life(&process, first).await;
        process.disarm().await.unwrap();
        assert_ne!(process.id(), second);
        assert!(process.state.life.lock().armed.is_none());
        assert_eq!(process.ends(), [("at any moment".to_owned(), 2)]);
    }
}
