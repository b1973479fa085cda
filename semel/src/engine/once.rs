//! `Once`: the calls that run work under a key, and those that end the engine.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;

use super::drive::AttemptTask;
use super::error::{Failure, RunError};
#[cfg(doc)]
use super::policy::Policy;
use super::settings::Engine;
#[cfg(doc)]
use crate::words::intent::Intent;
use crate::words::intent::IntoIntent;
use crate::words::key::IntoKey;
#[cfg(doc)]
use crate::words::key::Key;
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;

/// Runs work once per key.
///
/// Clones share their store and their waiters and are cheap.
///
/// With defaults, a crash holds the key, because the effect of the lost attempt is unknown:
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use semel::{MemoryStore, Once};
///
/// let once = Once::new(MemoryStore::new());
/// let order = ("invoice-42", 1_000);
///
/// let first = once.run(("billing", "invoice-42"), &order, |_lease| async { Ok("charged".to_owned()) }).await?;
/// let again = once.run(("billing", "invoice-42"), &order, |_lease| async { Ok("twice".to_owned()) }).await?;
/// assert_eq!((first.value.as_str(), first.replayed), ("charged", false));
/// assert_eq!((again.value.as_str(), again.replayed), ("charged", true));
/// # Ok(())
/// # }
/// ```
/// Customised, for work that may run again because its effect is deduplicated by the fence:
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use semel::{Failure, Intent, Key, MemoryStore, Once, Policy};
///
/// let policy = Policy::retry().with_lease(Duration::from_secs(10)).with_wait(Duration::from_secs(5));
/// let once = Once::new(MemoryStore::new()).with_policy(policy).with_owner("worker-3");
/// let key = Key::new("jobs", "report-7")?;
/// let intent = Intent::of("render", "report-7", &"march")?;
/// let ran = once
///     .run(&key, &intent, |lease| async move {
///         let pages: u32 = tokio::select! {
///             pages = async { 12 } => pages,
///             () = lease.lost() => return Err(Failure::unknown("another worker took over")),
///         };
///         Ok(pages)
///     })
///     .await?;
/// assert_eq!(ran.value, 12);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Once {
    pub(super) engine: Arc<Engine>,
}

/// The value of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ran<T> {
    /// The value, the same for every caller.
    pub value: T,
    /// Set if another attempt made it.
    pub replayed: bool,
}

impl<T> Ran<T> {
    /// The value of a run, for code that replaces an engine in tests.
    pub fn new(value: T, replayed: bool) -> Self {
        Self { value, replayed }
    }
}

impl Once {
    /// Runs the work if this call is the first with its key; otherwise returns the recorded value.
    ///
    /// The key is a [`Key`] or the parts of one, and the intent an [`Intent`] or a reference to the
    /// payload of the request; see [`IntoKey`] and [`IntoIntent`].
    ///
    /// The work runs on a task of its own: dropping this future does not stop it, and its value is
    /// recorded all the same. So it owns what it uses; [`Once::run_borrowed`] is for work that
    /// cannot. Every caller, including the first, gets the value decoded from the recorded bytes.
    ///
    /// Another task renews the lease. Work that blocks its thread belongs on a blocking thread: if
    /// it blocks every thread of the runtime, nothing is renewed and the lease ends.
    ///
    /// An error of the work abandons the key unless it is [`Failure::nothing_happened`]; so does a
    /// panic. An error that repeats should get as well, such as a refused card, is a value: return
    /// `Ok(Err(refused))`.
    ///
    /// # Errors
    /// [`RunError`] says why there is no value.
    pub async fn run<T, W, F>(
        &self,
        key: impl IntoKey,
        intent: impl IntoIntent,
        work: W,
    ) -> Result<Ran<T>, RunError>
    where
        T: Serialize + DeserializeOwned + Send + 'static,
        W: FnOnce(Lease) -> F + Send + 'static,
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let recorded = |lease| async move { Ok(Outcome::json(&work(lease).await?)?) };
        parsed(self.run_outcome(key, intent, recorded).await?)
    }

    /// As [`Once::run`], for work that borrows from its caller, and therefore stops with it.
    ///
    /// If this future is dropped while the work runs, the work is dropped half-way, and the key is
    /// abandoned, as it is if the process dies. Use it where nothing drops the future: in a
    /// consumer, a job or a command, and not in a handler whose client may disconnect.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use semel::{MemoryStore, Once};
    ///
    /// let once = Once::new(MemoryStore::new());
    /// let order = ("invoice-42".to_owned(), 1_000);
    /// let mut charged = Vec::new();
    /// let ran = once
    ///     .run_borrowed(("billing", &order.0), &order, async |_lease| {
    ///         charged.push(&order);
    ///         Ok(order.1)
    ///     })
    ///     .await?;
    /// assert_eq!((ran.value, charged.len()), (1_000, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RunError`] says why there is no value.
    pub async fn run_borrowed<T, W>(
        &self,
        key: impl IntoKey,
        intent: impl IntoIntent,
        work: W,
    ) -> Result<Ran<T>, RunError>
    where
        T: Serialize + DeserializeOwned,
        W: AsyncFnOnce(Lease) -> Result<T, Failure>,
    {
        let (grant, mut granted) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let has_begun = Arc::new(AtomicBool::new(false));
        let begun = Arc::clone(&has_begun);
        // The attempt waits for the work of the caller, and learns if the caller is dropped.
        let attempt = |lease| async move {
            let _gone = grant.send(lease);
            ended.await.unwrap_or_else(|_| {
                Err(match begun.load(Ordering::Acquire) {
                    true => Failure::unknown("the caller was dropped, and the work with it"),
                    false => Failure::nothing_happened("the caller was dropped before the work began"),
                })
            })
        };
        let mut run = pin!(self.run_outcome(key, intent, attempt));
        let lease = tokio::select! {
            biased;
            lease = &mut granted => lease,
            ran = &mut run => return parsed(ran?),
        };
        if let Ok(lease) = lease {
            has_begun.store(true, Ordering::Release);
            let worked = work(lease).await.and_then(|value| Ok(Outcome::json(&value)?));
            let _over = end.send(worked);
        }
        parsed(run.await?)
    }

    /// As [`Once::run`], for work that makes its outcome itself.
    ///
    /// The first caller gets the outcome whole; if its body is over [`Policy::max_body_bytes`], it
    /// is recorded without, and repeats get it without.
    ///
    /// # Errors
    /// [`RunError`] says why there is no outcome.
    pub async fn run_outcome<W, F>(
        &self,
        key: impl IntoKey,
        intent: impl IntoIntent,
        work: W,
    ) -> Result<Ran<Outcome>, RunError>
    where
        W: FnOnce(Lease) -> F + Send + 'static,
        F: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let key = key.into_key()?;
        let intent = intent.into_intent(&key)?;
        let work = Box::new(move |lease| -> BoxFuture<'static, _> {
            let work = work(lease);
            Box::pin(async move { work.await.into() })
        });
        self.carry(key, intent, work, AttemptTask::Own, None).await
    }

    /// Ends all waits for running attempts: repeats that wait are refused at once, as
    /// [`RunError::Pending`], and so are later ones.
    ///
    /// Call it at the beginning of a shutdown, before waiting for requests in flight.
    pub fn end_waits(&self) {
        self.engine.waits_end.cancel();
    }

    /// Waits until all work that has started here is settled, and all background tasks have ended.
    ///
    /// It waits for every `run` as well: a future of `run` that is neither polled nor dropped would
    /// keep it waiting for ever.
    ///
    /// Call it at shutdown, after the last `run`. It begins with [`Once::end_waits`]; attempts that
    /// are not settled are tried for one more patience. It waits for running work, and never
    /// releases it. Claims that were not answered and cannot be voided in that time are given up:
    /// if one was applied, its key is in use until the lease is over.
    pub async fn drain(&self) {
        self.engine.shutdown.cancel();
        self.engine.tasks.close();
        self.engine.tasks.wait().await;
    }
}

/// The value in the body of the outcome.
fn parsed<T: DeserializeOwned>(ran: Ran<Outcome>) -> Result<Ran<T>, RunError> {
    let value = ran.value.parse().map_err(RunError::Outcome)?;
    Ok(Ran { value, replayed: ran.replayed })
}
