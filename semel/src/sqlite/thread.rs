//! A thread for a connection: SQLite blocks, and tasks must not.

use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::options::SqliteOptions;
use super::session::Session;
use crate::error::StoreError;

type Job = Box<dyn FnOnce(&Session) + Send>;

/// A thread that has a connection for itself, and does one job after the other. It ends when this is dropped, after what
/// it was given.
pub(super) struct Thread {
    jobs: mpsc::Sender<Job>,
}

impl Thread {
    /// Starts one, and opens its connection. The tracker knows of it until the connection is closed.
    pub(super) async fn start(options: SqliteOptions, running: &TaskTracker) -> Result<Self, StoreError> {
        let path = options.path.clone();
        let (jobs, queue) = mpsc::channel::<Job>();
        let (opened, open) = oneshot::channel();
        let running = running.token();
        let work = move || {
            // It is dropped last.
            let _running = running;
            let session = match Session::open(options) {
                Ok(session) => session,
                Err(error) => return drop(opened.send(Err(error))),
            };
            if opened.send(Ok(())).is_ok() {
                queue.into_iter().for_each(|job| job(&session));
            }
        };
        let failed = || StoreError::unavailable(format!("there is no thread for {}", path.display()));
        thread::Builder::new()
            .name("semel-sqlite".to_owned())
            .spawn(work)
            .map_err(|e| failed().with_source(e))?;
        open.await.unwrap_or_else(|_| Err(failed()))?;
        Ok(Self { jobs })
    }

    /// What a job comes to; nothing if it has panicked, which ends the thread and rolls back what it was at. A job is
    /// done whether its answer is still waited for or not.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Session) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(move |session: &Session| {
            let done = job(session);
            // Whoever went away does not want to know.
            let _ = reply.send(done);
        });
        self.jobs.send(job).ok()?;
        answer.await.ok()
    }
}
