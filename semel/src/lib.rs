//! Makes operations safe to retry.

#![warn(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod key;
mod fingerprint;
mod intent;
mod lease;
mod outcome;
mod record;
mod terms;
mod ask;
mod answer;
pub mod change;
pub mod decide;
mod store;
mod inspect;
pub mod backend;
pub mod slot;
pub mod verbs;
mod memory;
mod policy;
mod once;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod text;
mod time;

pub use answer::{Ack, Change, Claim, Held, Void};
pub use ask::{Ask, Takeover};
pub use error::StoreError;
pub use fingerprint::{Fingerprint, FingerprintError};
pub use inspect::{Cursor, Inspect, Page, Query, Stats};
pub use intent::{Intent, IntentError};
pub use key::{Key, KeyError, Scope};
pub use lease::{Fence, Lease, Token, TokenError};
pub use memory::{MemoryClock, MemoryStore};
pub use once::{Failure, Once, Ran, Reconcile, Reconciled, RunError};
pub use outcome::{Outcome, OutcomeError};
pub use policy::{AfterCrash, Policy, PolicyError};
pub use record::{Note, Owner, Phase, Record, State};
pub use store::{Prune, Store};
pub use terms::{Terms, TermsError};
pub use text::TextError;
pub use time::Timestamp;
