//! The settings of an engine, and the state that they are kept in.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Once;
use super::admission::{Admission, Ceiling};
use super::claim::reconcile::Reconcile;
use super::claim::voids::Voids;
use super::claim::wait::Waiters;
#[cfg(doc)]
use super::error::RunError;
use super::health::{Health, StoreHealth};
use super::policy::{Policy, PolicyError};
use super::run::schedule::LiveAttempts;
use super::upkeep::Upkeep;
use crate::observe::Meter;
use crate::store::Store;
use crate::store::pruner::Pruning;
use crate::words::record::Owner;
use crate::words::terms::AfterCrash;

/// The state that the clones of an engine share, until one of them gets other settings.
#[derive(Clone)]
pub(super) struct Engine {
    pub(super) store: Arc<dyn Store>,
    pub(super) policy: Policy,
    pub(super) owner: Owner,
    pub(super) reconcile: Option<Arc<dyn Reconcile>>,
    pub(super) waiters: Arc<Waiters>,
    pub(super) alive: Arc<LiveAttempts>,
    pub(super) voids: Arc<Voids>,
    pub(super) admission: Admission,
    pub(super) health: Arc<Health>,
    pub(super) upkeep: Option<Arc<Upkeep>>,
    pub(super) tasks: TaskTracker,
    pub(super) shutdown: CancellationToken,
    /// Cancelled when repeats no longer wait: at the shutdown or before it.
    pub(super) waits_end: CancellationToken,
    pub(super) meter: Arc<Meter>,
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

    /// This engine with another policy.
    ///
    /// # Panics
    /// If a setting of the policy breaks a limit, or the store cannot keep its promise:
    /// [`Policy::transactional`] over any store but Postgres. A service finds that out when it
    /// starts; [`Once::try_with_policy`] is for policies that a configuration names.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        self.try_with_policy(policy).unwrap_or_else(|error| panic!("{error}"))
    }

    /// This engine with another policy.
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

    /// This engine with a name for this process, shown to operators.
    #[must_use]
    pub fn with_owner(self, name: &str) -> Self {
        self.with(|engine| engine.owner = Owner::new(name))
    }

    /// This engine with a hook that is asked about held keys.
    #[must_use]
    pub fn with_reconcile(self, reconcile: impl Reconcile) -> Self {
        self.with(|engine| engine.reconcile = Some(Arc::new(reconcile)))
    }

    /// This engine with another limit of attempts that run at a time;
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

    /// This engine with a limit of unsettled keys of one caller, which is the realm and the
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

    /// This engine with a limit of new keys that one caller may use within this time; none
    /// unless set. Beyond, a key without a record is refused as [`RunError::QuotaExceeded`], which
    /// says when there is room for the next one.
    ///
    /// It is counted as [`Once::with_max_unsettled_per_caller`] is.
    #[must_use]
    pub fn with_max_new_per_caller(self, limit: u32, within: Duration) -> Self {
        self.with(|engine| engine.admission.set_max_new(limit, within))
    }

    /// This engine with a ceiling for what the store keeps. While it is reached, a key without
    /// a record is refused as [`RunError::StoreFull`].
    #[must_use]
    pub fn with_ceiling(self, ceiling: Ceiling) -> Self {
        self.with(|engine| engine.admission.set_ceiling(ceiling))
    }

    /// This engine with other settings for pruning.
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

    /// This engine without pruning, where another program prunes the store, such as
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
}
