//! A thread for a connection: SQLite blocks, and tasks must not.

use std::sync::mpsc;
use std::thread;

use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use super::options::SqliteOptions;
use super::session::Session;
use crate::words::error::StoreError;

type Job = Box<dyn FnOnce(&Session) + Send>;

/// A thread that owns a connection, and does one job after the other. It ends when this is dropped,
/// after the jobs that it was given.
pub(super) struct Thread {
    jobs: mpsc::Sender<Job>,
}

impl Thread {
    /// Starts a thread, and opens its connection. The tracker counts it until the connection is
    /// closed.
    pub(super) async fn start(options: SqliteOptions, running: &TaskTracker) -> Result<Self, StoreError> {
        let path = options.path.clone();
        let (jobs, queue) = mpsc::channel::<Job>();
        let (opened, open) = oneshot::channel();
        let running = running.token();
        let work = move || {
            // The token is dropped last.
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

    /// The result of a job; `None` if the job has panicked, which ends the thread and rolls back
    /// its transaction. A job is done whether or not its answer is still awaited.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Session) -> T + Send + 'static,
    ) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(move |session: &Session| {
            let done = job(session);
            // A caller that was dropped does not need the answer.
            let _ = reply.send(done);
        });
        self.jobs.send(job).ok()?;
        answer.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::file;
    use crate::words::lease::Token;
    use rusqlite::TransactionBehavior;

    fn begin(session: &Session) -> rusqlite::Transaction<'_> {
        session.begin(TransactionBehavior::Immediate).expect("no other connection has the lock")
    }

    #[tokio::test]
    async fn a_job_that_panics_ends_its_thread_and_is_rolled_back() {
        let folder = std::env::temp_dir().join(format!("semel-test-{}", Token::random()));
        std::fs::create_dir(&folder).unwrap();
        let options = SqliteOptions::new(file::create(&folder.join("file.db")).unwrap());
        let running = TaskTracker::new();
        let thread = Thread::start(options.clone(), &running).await.unwrap();
        let half_way = thread.run(|session| {
            let change = begin(session);
            change.execute_batch("create table half (x)").unwrap();
            panic!("on purpose");
        });
        assert_eq!(half_way.await, None);
        assert_eq!(thread.run(|_| 7).await, None);

        let next = Thread::start(options, &running).await.unwrap();
        let tables = next.run(|session| {
            begin(session).query_row("select count(*) from sqlite_schema", [], |row| row.get::<_, i64>(0))
        });
        assert_eq!(tables.await.unwrap().unwrap(), 0);
        drop((thread, next));
        running.close();
        running.wait().await;
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
