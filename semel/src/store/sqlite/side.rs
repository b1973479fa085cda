//! A connection beside the one that commits batches, so that a long listing delays no batch.

use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

use super::errors::Fault;
use super::options::SqliteOptions;
use super::session::Session;
use super::thread::Thread;
use crate::words::error::StoreError;

pub(super) struct Side {
    options: SqliteOptions,
    /// The threads, until their connections are closed.
    running: TaskTracker,
    state: Mutex<State>,
}

enum State {
    Open(Arc<Thread>),
    /// No connection; one is opened when it is needed.
    Idle,
    Closed,
}

impl Side {
    /// Opens the file, so that a problem with it is known at once.
    pub(super) async fn open(options: SqliteOptions) -> Result<Self, StoreError> {
        let side = Self { options, running: TaskTracker::new(), state: Mutex::new(State::Idle) };
        side.thread().await?;
        Ok(side)
    }

    /// The result of a job on this connection.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Session) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let thread = self.thread().await?;
        let fault = match thread.run(job).await {
            Some(Ok(done)) => return Ok(done),
            Some(Err(fault)) if !fault.ends_session => return Err(fault.into_error()),
            fault => fault,
        };
        self.give_up(&thread).await;
        Err(match fault {
            Some(Err(fault)) => fault.into_error(),
            _ => {
                let path = self.options.path.display();
                StoreError::unknown(format!("the thread that reads {path} has panicked"))
            }
        })
    }

    /// Finishes the waiting jobs, accepts no more, and closes the connection.
    pub(super) async fn close(&self) {
        *self.state.lock().await = State::Closed;
        self.running.close();
        self.running.wait().await;
    }

    /// The thread with the connection, or a new one if it is gone.
    async fn thread(&self) -> Result<Arc<Thread>, StoreError> {
        let mut state = self.state.lock().await;
        match &*state {
            State::Open(thread) => Ok(Arc::clone(thread)),
            State::Idle => {
                let thread = Arc::new(Thread::start(self.options.clone(), &self.running).await?);
                *state = State::Open(Arc::clone(&thread));
                Ok(thread)
            }
            State::Closed => Err(StoreError::unavailable("the store is closed")),
        }
    }

    /// Discards a thread, unless another has replaced it.
    async fn give_up(&self, thread: &Arc<Thread>) {
        let mut state = self.state.lock().await;
        if matches!(&*state, State::Open(kept) if Arc::ptr_eq(kept, thread)) {
            *state = State::Idle;
        }
    }
}
