//! The engine: it claims a key, runs the work once, and settles the key. [`Once`] is the entry, and
//! `drive` the line through the room, whose steps are functions of those names.
//!
//! - `once`: the calls that run work, and those that end the engine.
//! - `settings`: the settings of an engine, and the state that its clones share.
//! - [`policy`]: what happens after a crash, and the limits of an attempt.
//! - `drive`: the steps of one call, and the task that they run on.
//! - `admission/`: the limits that a call passes before its key is claimed, and the answer from the
//!   record where they refuse it.
//! - `claim/`: the step *claim*: claims with their retries, the wait for a running attempt, the
//!   reconcile hook, and the voids of claims that were not answered.
//! - `run/`: the step *run*: the work under its lease, and the renewals of all leases.
//! - `settle`: the step *settle*: a settlement is sent until the store answers.
//! - `settlement`: the write that settles a key: complete, release, abandon or hold.
//! - `patience`: retries with backoff.
//! - `health`: the recent successes and failures of writes to the store.
//! - `upkeep`: pruning of the store.
//! - `error`: the reasons why there is no value.

mod once;
mod settings;
pub(crate) mod policy;
mod drive;
mod admission;
mod claim;
mod run;
mod settle;
mod settlement;
mod patience;
mod health;
mod upkeep;
mod error;

pub use self::admission::Ceiling;
pub use self::claim::reconcile::{Reconcile, Reconciled};
#[cfg(feature = "http")]
pub(crate) use self::drive::LetGo;
pub use self::error::{Failure, RunError};
pub use self::health::StoreHealth;
pub use self::once::{Once, Ran};
#[cfg(feature = "http")]
pub(crate) use self::run::{Work, Worked};
