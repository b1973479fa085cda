//! Makes operations safe to retry: payments, orders, mails that must go out once, jobs.
//!
//! A caller names an operation by a [`Key`]. semel claims the key in a [`Store`], lets one attempt
//! run, records its [`Outcome`], and answers every repeat from the record. If a process dies in
//! between, the next attempt does not guess: it follows the [`Policy`].
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use semel::{MemoryStore, Once};
//!
//! let once = Once::new(MemoryStore::new());
//! let order = ("ann", 1_000);
//!
//! let ran = once.run(("billing", "invoice-42"), &order, |_lease| async { Ok("receipt 7".to_owned()) }).await?;
//! assert!(!ran.replayed);
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//!
//! For one key, within its retention: at most one outcome is recorded, it never changes, and every
//! answer is that outcome; only the current token and fence can write; and the policy decides how
//! often the work starts.
//!
//! | policy | the work starts | after a crash |
//! | --- | --- | --- |
//! | [`Policy::hold`], the default | at most once | the key is held until an operator or a [`Reconcile`] hook says what happened |
//! | [`Policy::retry`] | at most once, plus the leases that ran out | the next attempt takes over |
//! | [`Policy::transactional`] | may start again; what it does is committed exactly once, with its outcome, over a store that has such transactions: Postgres | the next attempt takes over |
//!
//! A store that can forget an acknowledged write breaks these promises; [`MemoryStore`] forgets
//! everything when the process ends.
//!
//! # What can be observed
//!
//! Failures that no caller sees are logged with `tracing`, each once, where it is handled; whole
//! keys, bodies and credentials are not. Metrics go to the installed recorder of the crate
//! `metrics`:
//!
//! | name | labels | what |
//! | --- | --- | --- |
//! | `semel_claims_total` | `store`, `answer` | claims: granted, done, running, held, mismatch, late, unavailable, refused by a limit |
//! | `semel_claim_seconds` | `store` | from the question to its answer, with all tries |
//! | `semel_work_seconds` | `store` | how long the work of an attempt took |
//! | `semel_settlements_total` | `store`, `answer` | attempts by how they were settled: completed, released, abandoned, held, superseded, pending, refused |
//! | `semel_settle_seconds` | `store` | from the end of the work to the answer of the store |
//! | `semel_leases_lost_total` | `store` | leases that could no longer be counted upon while their work ran |
//! | `semel_hot_questions_total` | `store`, `answer` | what a hot store said to claims: hit, miss, failed, or aside if it was not asked |
//! | `semel_http_requests_total` | `answer` | requests with a key: first, replayed, or the code of the refusal |
//!
//! # Where to look
//!
//! - To run work: [`Once`].
//! - To make HTTP requests safe to retry: `http::IdempotencyLayer` (feature `http`, a default).
//! - To keep records in Postgres: `PostgresStore` (feature `postgres`); in a file: `SqliteStore`
//!   (feature `sqlite`); in Redis: `RedisStore` (feature `redis`).
//! - To let Redis, or memory, answer repeats before Postgres: [`Tiered`].
//! - To look into a store, settle a held key and remove expired records: [`admin`].
//! - To set the options of a store, use one directly, or write one: [`store`], and the suite in
//!   `semel::store::conformance` (feature `conformance`).
//! - To pass errors on, and to tell one from another: [`Error`] and [`error`].
//! - The rule itself: [`protocol::decide`].

#![warn(clippy::print_stdout, clippy::print_stderr)]
// docs.rs shows the required feature beside each item.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod words;
#[doc(hidden)]
pub mod protocol;
pub mod store;
pub mod admin;
pub mod error;
mod engine;
#[cfg(feature = "http")]
pub mod http;
mod runtime;
mod observe;
#[cfg(not(semel_faults))]
mod fault;
#[cfg(semel_faults)]
#[doc(hidden)]
pub mod fault;
#[cfg(all(any(test, fuzzing), feature = "http", feature = "postgres"))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(all(doctest, feature = "axum", feature = "postgres", feature = "redis"))]
mod pages;

pub use engine::policy::Policy;
pub use engine::{Failure, Once, Ran, Reconcile, Reconciled, RunError};
pub use error::Error;
pub use protocol::answer::{Held, Mismatch};
pub use store::Store;
pub use store::memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use store::postgres::PostgresStore;
#[cfg(feature = "redis")]
pub use store::redis::RedisStore;
#[cfg(feature = "sqlite")]
pub use store::sqlite::SqliteStore;
pub use store::tiered::Tiered;
pub use words::error::StoreError;
pub use words::fingerprint::Fingerprint;
pub use words::intent::{Intent, IntoIntent};
pub use words::key::{IntoKey, Key, Scope};
pub use words::lease::{Fence, Lease};
pub use words::outcome::Outcome;
pub use words::terms::AfterCrash;
pub use words::time::Timestamp;
