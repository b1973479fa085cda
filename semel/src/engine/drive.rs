//! The line of steps of one call: claim, run, settle.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::task::JoinError;

use super::claim::{Claimed, claim};
use super::error::RunError;
use super::run::{Attempt, Work, run};
use super::settle::settle;
use super::{Once, Ran};
use crate::runtime::carry::Carried;
use crate::words::intent::Intent;
use crate::words::key::Key;
use crate::words::outcome::Outcome;

/// A future that completes when repeats should no longer wait, for example because memory is short.
pub(crate) type LetGo = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The task that runs and settles an attempt. Both go on if the caller is dropped.
#[derive(Clone, Copy)]
pub(super) enum AttemptTask {
    /// A task of its own: the attempt continues while its caller does something else.
    Own,
    /// The task of its caller, until the caller is dropped.
    #[cfg(feature = "http")]
    OfCaller,
}

/// The caller of a run.
pub(super) struct Caller {
    /// Closed when the caller is gone.
    gone: oneshot::Sender<()>,
    let_go: Option<LetGo>,
}

impl Caller {
    /// Completes when the caller is dropped or should no longer wait.
    pub(super) async fn leaves(&mut self) {
        match &self.let_go {
            None => self.gone.closed().await,
            Some(let_go) => {
                let let_go = let_go();
                tokio::select! {
                    () = self.gone.closed() => {}
                    () = let_go => {}
                }
            }
        }
    }
}

impl Once {
    /// As [`Once::run_outcome`], for work that runs on the task of its caller, which polls this
    /// future until it is ready or drops it. A dropped future continues on a task of its own, as
    /// any run does. A wait for another attempt also ends when `let_go` completes.
    #[cfg(feature = "http")]
    pub(crate) async fn run_here(
        &self,
        key: &Key,
        intent: &Intent,
        work: Work,
        let_go: Option<LetGo>,
    ) -> Result<Ran<Outcome>, RunError> {
        self.carry(key.clone(), intent.clone(), work, AttemptTask::OfCaller, let_go).await
    }

    /// The steps of one call, which go on if the caller drops this future.
    pub(super) fn carry(
        &self,
        key: Key,
        intent: Intent,
        work: Work,
        task: AttemptTask,
        let_go: Option<LetGo>,
    ) -> Carried<Result<Ran<Outcome>, RunError>> {
        let once = self.clone();
        if let Some(upkeep) = &self.engine.upkeep {
            upkeep.begin(&self.engine.store, &self.engine.tasks);
        }
        // Only a wait for another attempt ends with the caller, which holds the other end of this.
        let (gone, here) = oneshot::channel();
        let mut caller = Caller { gone, let_go };
        // A drain waits for its end, on any task.
        let tracked = self.engine.tasks.token();
        let drive = async move {
            let ran = once.drive(&key, &intent, &mut caller, work, task).await;
            drop(tracked);
            ran
        };
        Carried::new(drive, here)
    }

    /// The steps of one call: claim, run, settle. A key that is done takes only the first, and one
    /// whose effect a reconcile hook has reported leaves out the second.
    async fn drive(
        &self,
        key: &Key,
        intent: &Intent,
        caller: &mut Caller,
        work: Work,
        task: AttemptTask,
    ) -> Result<Ran<Outcome>, RunError> {
        let attempt = match claim(self, key, intent, caller).await? {
            Claimed::Granted(attempt) => attempt,
            Claimed::Happened(attempt, outcome) => {
                return Box::pin(self.settle_reported(attempt, intent, outcome)).await;
            }
            Claimed::Done(outcome) => return Ok(Ran { value: outcome, replayed: true }),
        };
        match task {
            AttemptTask::Own => {
                let (once, intent) = (self.clone(), intent.clone());
                let attempt = async move { once.run_and_settle(attempt, &intent, work).await };
                self.engine.tasks.spawn(attempt).await.unwrap_or_else(interrupted)
            }
            #[cfg(feature = "http")]
            AttemptTask::OfCaller => self.run_and_settle(attempt, intent, work).await,
        }
    }

    /// The steps of an attempt that was granted.
    async fn run_and_settle(
        &self,
        mut attempt: Attempt,
        intent: &Intent,
        work: Work,
    ) -> Result<Ran<Outcome>, RunError> {
        match run(self, &mut attempt, intent, work).await {
            Ok(worked) => settle(self, &mut attempt, intent, worked).await,
            Err(not_run) => *not_run,
        }
    }
}

/// A bug in a store is passed on to the caller; else the runtime has ended.
fn interrupted<T>(error: JoinError) -> Result<T, RunError> {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(RunError::Interrupted),
    }
}
