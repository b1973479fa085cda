//! The engine: it claims a key, runs the work once, and settles the key.
//!
//! [`Once::run`] is the entry, and `drive` the line through the room.
//! - [`policy`]: what happens after a crash, and the limits of an attempt.
//! - `admission/`: the limits that a request passes before its key is claimed, and the answer from
//!   the record where they refuse it.
//! - `claim`: a claim with its retries, and the voids of claims that were not answered.
//! - `attempt`: the work under its lease.
//! - `renew`: the renewals of all leases of the process.
//! - `settle`: the end of an attempt: complete, release, abandon or hold, until the store answers.
//! - `wait`: repeats that wait for the attempt that runs.
//! - `reconcile`: the hook that is asked about lost attempts.
//! - `voids`: the bounded list of claims whose answer was lost.
//! - `patience`: retries with backoff.
//! - `health`: the recent successes and failures of writes to the store.
//! - `upkeep`: pruning of the store.
//! - `error`: the reasons why there is no value.

pub(crate) mod policy;
mod admission;
mod claim;
mod attempt;
mod renew;
mod settle;
mod voids;
mod wait;
mod reconcile;
mod patience;
mod health;
mod upkeep;
mod error;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::oneshot;
use tokio::task::JoinError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::engine::policy::{Policy, PolicyError};
use crate::fault;
use crate::observe::Meter;
use crate::protocol::answer::Claim;
use crate::protocol::ask::Takeover;
use crate::store::Store;
use crate::store::pruner::Pruning;
use crate::words::error::StoreError;
use crate::words::intent::{Intent, IntoIntent};
use crate::words::key::{IntoKey, Key};
use crate::words::lease::Lease;
use crate::words::outcome::Outcome;
use crate::words::record::Owner;
use crate::words::terms::AfterCrash;

use self::admission::look::Answered;
use self::admission::{Admission, Admitted, Refused};
use self::health::Health;
use self::renew::LiveAttempts;
use self::upkeep::Upkeep;
use self::voids::Voids;
use self::wait::{Waiter, Waiters};
use crate::runtime::carry::Carried;

pub use self::admission::Ceiling;
pub use self::error::{Failure, RunError};
pub use self::health::StoreHealth;
pub use self::reconcile::{Reconcile, Reconciled};

/// How often a reconcile hook is asked in one run; each time, another attempt was lost meanwhile.
const MAX_RECONCILES: u32 = 3;

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
    engine: Arc<Engine>,
}

/// The state that the clones of an engine share, until one of them gets other settings.
#[derive(Clone)]
struct Engine {
    store: Arc<dyn Store>,
    policy: Policy,
    owner: Owner,
    reconcile: Option<Arc<dyn Reconcile>>,
    waiters: Arc<Waiters>,
    alive: Arc<LiveAttempts>,
    voids: Arc<Voids>,
    admission: Admission,
    health: Arc<Health>,
    upkeep: Option<Arc<Upkeep>>,
    tasks: TaskTracker,
    shutdown: CancellationToken,
    /// Cancelled when repeats no longer wait: at the shutdown or before it.
    waits_end: CancellationToken,
    meter: Arc<Meter>,
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
    /// The limit of concurrent attempts unless set.
    pub const DEFAULT_MAX_ATTEMPTS: usize = 10_000;

    /// An engine over a store, with [`Policy::hold`].
    pub fn new(store: impl Store) -> Self {
        let shutdown = CancellationToken::new();
        let engine = Engine {
            meter: Arc::new(Meter::new(store.name())),
            store: Arc::new(store),
            policy: Policy::hold(),
            owner: Owner::of_process(),
            reconcile: None,
            waiters: Arc::default(),
            alive: Arc::default(),
            voids: Arc::default(),
            admission: Admission::default(),
            health: Arc::default(),
            upkeep: Some(Arc::new(Upkeep::new(Pruning::default(), &shutdown))),
            tasks: TaskTracker::new(),
            waits_end: shutdown.child_token(),
            shutdown,
        };
        Self { engine: Arc::new(engine) }
    }

    /// The same engine with another policy.
    ///
    /// # Panics
    /// If a setting of the policy breaks a limit, or the store cannot keep its promise:
    /// [`Policy::transactional`] over any store but Postgres. A service finds that out when it
    /// starts; [`Once::try_with_policy`] is for policies that a configuration names.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        self.try_with_policy(policy).unwrap_or_else(|error| panic!("{error}"))
    }

    /// The same engine with another policy.
    ///
    /// # Errors
    /// [`PolicyError`] if a setting breaks a limit, or the store cannot keep the policy's promise.
    pub fn try_with_policy(self, policy: Policy) -> Result<Self, PolicyError> {
        policy.check()?;
        let store = &self.engine.store;
        if policy.after_crash() == AfterCrash::Transactional && !store.completes_in_transactions() {
            return Err(PolicyError::NotTransactional { store: store.name() });
        }
        Ok(self.with(|engine| engine.policy = policy))
    }

    /// The store below.
    #[cfg(feature = "http")]
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.engine.store
    }

    /// How keys are run here.
    pub fn policy(&self) -> &Policy {
        &self.engine.policy
    }

    /// The same engine with a name for this process, shown to operators.
    #[must_use]
    pub fn with_owner(self, name: &str) -> Self {
        self.with(|engine| engine.owner = Owner::new(name))
    }

    /// The same engine with a hook that is asked about held keys.
    #[must_use]
    pub fn with_reconcile(self, reconcile: impl Reconcile) -> Self {
        self.with(|engine| engine.reconcile = Some(Arc::new(reconcile)))
    }

    /// The same engine with another limit of attempts that run at a time;
    /// [`Once::DEFAULT_MAX_ATTEMPTS`] unless set.
    ///
    /// An attempt continues when its caller is dropped, so a limit on callers does not bound
    /// attempts. At the limit, the engine only asks the store for the record: repeats of a key that
    /// is done, running or held are answered as usual, and a call that would run is refused as
    /// [`RunError::TooManyAttempts`], with nothing claimed. A takeover and a reconcile hook count
    /// as attempts. A repeat that waits does not count, nor does an attempt that is settled in the
    /// background because the store did not take its outcome in time. But while as many attempts as
    /// the limit are settled in the background, no other begins, because each of them keeps its
    /// outcome in memory. Clones made afterwards count together with this one.
    #[must_use]
    pub fn with_max_attempts(self, limit: usize) -> Self {
        self.with(|engine| engine.admission.set_max_attempts(limit))
    }

    /// The same engine with a limit of unsettled keys of one caller, which is the realm and the
    /// principal of its keys; none unless set. At the limit, a call that would run is refused
    /// as [`RunError::QuotaExceeded`].
    ///
    /// The process counts attempts that run or are not settled yet, and, for half an hour to an
    /// hour, keys that were left held. It counts for at most 65,536 callers. Clones made afterwards
    /// count together with this one.
    #[must_use]
    pub fn with_max_unsettled_per_caller(self, limit: u32) -> Self {
        self.with(|engine| engine.admission.set_max_unsettled(limit))
    }

    /// The same engine with a limit of new keys that one caller may use within this time; none
    /// unless set. Beyond, a key without a record is refused as [`RunError::QuotaExceeded`], which
    /// says when there is room for the next one.
    ///
    /// It is counted as [`Once::with_max_unsettled_per_caller`] is.
    #[must_use]
    pub fn with_max_new_per_caller(self, limit: u32, within: Duration) -> Self {
        self.with(|engine| engine.admission.set_max_new(limit, within))
    }

    /// The same engine with a ceiling for what the store keeps. While it is reached, a key without
    /// a record is refused as [`RunError::StoreFull`].
    #[must_use]
    pub fn with_ceiling(self, ceiling: Ceiling) -> Self {
        self.with(|engine| engine.admission.set_ceiling(ceiling))
    }

    /// The same engine with other settings for pruning.
    ///
    /// An engine over a store that [needs it](Store::needs_pruning) removes expired records in the
    /// background, from its first run until it is drained or its last clone is dropped. Several
    /// processes, and several engines of one, share the work; see
    /// [`Prune::paced`](crate::admin::Prune::paced).
    #[must_use]
    pub fn with_pruning(self, pruning: Pruning) -> Self {
        let upkeep = Upkeep::new(pruning, &self.engine.shutdown);
        self.with(|engine| engine.upkeep = Some(Arc::new(upkeep)))
    }

    /// The same engine without pruning, where another program prunes the store, such as
    /// `semel prune` or [`continuously_prune`](crate::admin::continuously_prune).
    #[must_use]
    pub fn without_pruning(self) -> Self {
        self.with(|engine| engine.upkeep = None)
    }

    /// How the writes of this engine and its clones have fared lately, to judge by whether it is
    /// ready for requests.
    pub fn store_health(&self) -> StoreHealth {
        self.engine.health.now()
    }

    fn with(mut self, change: impl FnOnce(&mut Engine)) -> Self {
        change(Arc::make_mut(&mut self.engine));
        self
    }

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
        self.carry(key, intent, work, Place::OwnTask, None).await
    }

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
        self.carry(key.clone(), intent.clone(), work, Place::Here, let_go).await
    }

    fn carry(
        &self,
        key: Key,
        intent: Intent,
        work: Work,
        place: Place,
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
            let ran = once.drive(&key, &intent, &mut caller, work, place).await;
            drop(tracked);
            ran
        };
        Carried::new(drive, here)
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

    /// The steps of the engine: claim, run, settle; or wait, or ask the hook, and claim again.
    ///
    /// The steps that most runs do not take are boxed, which keeps the future of every run small.
    async fn drive(
        &self,
        key: &Key,
        intent: &Intent,
        caller: &mut Caller,
        work: Work,
        place: Place,
    ) -> Result<Ran<Outcome>, RunError> {
        let until = Instant::now() + self.engine.policy.wait();
        let mut takeover = self.engine.policy.takeover();
        let mut found_out = None;
        let mut reconciles_left = MAX_RECONCILES;
        let mut waiter: Option<Box<Waiter>> = None;
        let mut kept: Option<Admitted> = None;
        loop {
            let Answered { mut claim, copies, right } =
                self.ask_within_limits(key, intent, takeover, kept.take()).await?;
            if !self.goes_on(&claim, key)
                && let Some(waiter) = waiter.take()
            {
                waiter.wake_others();
            }
            match &mut claim {
                Claim::Granted(lease) => {
                    let permit = right.map_err(Refused::error)?.granted(lease);
                    drop(waiter);
                    fault::reach("granted");
                    if let Some(outcome) = found_out {
                        return Box::pin(self.record(lease, intent, &copies, outcome)).await;
                    }
                    return match place {
                        #[cfg(feature = "http")]
                        Place::Here => self.attempt(lease, intent, &copies, work, permit).await,
                        Place::OwnTask => self
                            .start(lease.clone(), intent, &copies, work, permit)
                            .await
                            .unwrap_or_else(interrupted),
                    };
                }
                Claim::Done(done) => return Ok(Ran { value: done.outcome.clone(), replayed: true }),
                Claim::Mismatch(with) => return Err(RunError::Mismatch(with.clone())),
                Claim::Late => {
                    let late = StoreError::unavailable("the claim reached the store too late");
                    return Err(RunError::Unavailable(late));
                }
                &mut Claim::Running { since, left } => {
                    drop(right);
                    Box::pin(self.wait(key, until, caller, &mut waiter))
                        .await
                        .map_err(|_| RunError::Pending { since, retry_after: left })?;
                    // The finding of the hook may be out of date, because an attempt ran meanwhile.
                    (takeover, found_out) = (self.engine.policy.takeover(), None);
                }
                // Its renewals do not get through, but it lives, so it is not lost.
                &mut Claim::Held(held) if self.engine.alive.has(key, held.fence) => {
                    drop(right);
                    let retry_after = self.engine.policy.terms().lease();
                    Box::pin(self.wait(key, until, caller, &mut waiter))
                        .await
                        .map_err(|_| RunError::Pending { since: held.since, retry_after })?;
                    (takeover, found_out) = (self.engine.policy.takeover(), None);
                }
                &mut Claim::Held(held) => {
                    // A hook is work, too.
                    kept = match right {
                        Ok(admitted) => Some(admitted),
                        Err(refused) if self.engine.reconcile.is_some() => return Err(refused.error()),
                        Err(_) => None,
                    };
                    let known = if reconciles_left > 0 {
                        Box::pin(self.find_out(key, intent, held)).await
                    } else {
                        Reconciled::Unknown
                    };
                    found_out = match known {
                        Reconciled::Happened(outcome) => Some(outcome),
                        Reconciled::DidNotHappen => None,
                        Reconciled::Unknown => return Err(RunError::Held(held)),
                    };
                    reconciles_left -= 1;
                    takeover = Takeover::Of(held.fence);
                }
            }
        }
    }

    /// Returns `true` if an attempt runs under this key, so that a wait for it makes sense.
    fn goes_on(&self, claim: &Claim, key: &Key) -> bool {
        match claim {
            Claim::Granted(_) | Claim::Running { .. } => true,
            Claim::Held(held) => self.engine.alive.has(key, held.fence),
            Claim::Done(_) | Claim::Mismatch(_) | Claim::Late => false,
        }
    }

    /// Waits until the running attempt may have ended. The first call enters the caller among the
    /// waiters, and later calls keep its place.
    async fn wait(
        &self,
        key: &Key,
        until: Instant,
        caller: &mut Caller,
        waiter: &mut Option<Box<Waiter>>,
    ) -> Result<(), WaitEnded> {
        if Instant::now() >= until {
            return Err(WaitEnded);
        }
        let waiter = match waiter {
            Some(waiter) => waiter,
            None => waiter.insert(Box::new(self.engine.waiters.enter(key).ok_or(WaitEnded)?)),
        };
        tokio::select! {
            biased;
            () = caller.leaves() => Err(WaitEnded),
            () = self.engine.waits_end.cancelled() => Err(WaitEnded),
            () = waiter.wait(until, &self.engine.store, &self.engine.tasks) => Ok(()),
        }
    }
}

/// The value in the body of the outcome.
fn parsed<T: DeserializeOwned>(ran: Ran<Outcome>) -> Result<Ran<T>, RunError> {
    let value = ran.value.parse().map_err(RunError::Outcome)?;
    Ok(Ran { value, replayed: ran.replayed })
}

/// A bug in a store is passed on to the caller; else the runtime has ended.
fn interrupted<T>(error: JoinError) -> Result<T, RunError> {
    match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(RunError::Interrupted),
    }
}

/// The work of one attempt, behind a pointer: it is handed from step to step.
pub(crate) type Work = Box<dyn FnOnce(Lease) -> BoxFuture<'static, Worked> + Send>;

/// The result of the work.
pub(crate) struct Worked {
    pub(crate) result: Result<Outcome, Failure>,
    /// Bytes that are held until the attempt is settled: as long as the store has not taken an
    /// outcome, its memory is in use, and these bytes may carry the charge for it.
    pub(crate) held: Option<Bytes>,
}

impl From<Result<Outcome, Failure>> for Worked {
    fn from(result: Result<Outcome, Failure>) -> Self {
        Self { result, held: None }
    }
}

/// A future that completes when repeats should no longer wait, for example because memory is short.
pub(crate) type LetGo = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The caller of a run.
struct Caller {
    /// Closed when the caller is gone.
    gone: oneshot::Sender<()>,
    let_go: Option<LetGo>,
}

impl Caller {
    /// Completes when the caller is dropped or should no longer wait.
    async fn leaves(&mut self) {
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

/// The task of an attempt. The attempt is finished on either, even if its caller is dropped.
#[derive(Clone, Copy)]
enum Place {
    /// A task of its own: it continues while its caller does something else.
    OwnTask,
    /// The task of its caller, until the caller is dropped.
    #[cfg(feature = "http")]
    Here,
}

/// The end of a wait after which the request is refused: its time is over, there are too many
/// waiters, a shutdown has begun, or the caller has left.
struct WaitEnded;
