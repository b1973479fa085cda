//! The conformance suite: the contract of a store, as tests that the author of any store can run.
//!
//! Each promise of docs/protocol.md has one async function of the same name. A store's own test is
//! a few lines:
//!
//! ```
//! # #[tokio::main]
//! # async fn main() {
//! use semel::MemoryStore;
//! use semel::store::conformance::{self, Subject};
//!
//! let store = MemoryStore::new();
//! let clock = store.clone();
//! let subject = Subject::new(store).with_passing(move |time| {
//!     clock.memory_clock().advance(time);
//!     async {}
//! });
//! conformance::check(&subject).await.expect("the store keeps its promises");
//! conformance::check_backend(MemoryStore::new()).await.expect("and so do its primitives");
//! # }
//! ```
//! Keys are random, so a store need not be empty and several runs may share it. A store without a
//! clock that can be moved leaves [`Subject::with_passing`] out, and time passes by sleeping; a
//! store that can be opened twice passes its second handle to [`Subject::with_peer`]. Nothing is
//! skipped.

mod check;
mod claims;
mod operator;
mod owner;
mod primitives;
mod records;
mod retention;
mod secrets;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::protocol::answer::Claim;
use crate::protocol::ask::{Ask, Takeover};
use crate::store::inspect::Inspect;
use crate::words::intent::Intent;
use crate::words::key::{Key, Scope};
use crate::words::lease::{Lease, Token};
use crate::words::outcome::Outcome;
use crate::words::record::Owner;
use crate::words::terms::{AfterCrash, Terms};

pub use check::{Broken, PRIMITIVES, PROMISES, Promise, check, check_backend};
pub use claims::*;
pub use operator::*;
pub use owner::*;
pub use primitives::*;
pub use records::*;
pub use retention::*;
pub use secrets::*;

type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A store under test, and its special properties.
#[derive(Clone)]
pub struct Subject {
    store: Arc<dyn Inspect>,
    peer: Arc<dyn Inspect>,
    passing: Arc<dyn Fn(Duration) -> Boxed<()> + Send + Sync>,
    lease: Duration,
    at_once: usize,
}

impl Subject {
    /// A store in one process, whose clock passes by itself.
    pub fn new(store: impl Inspect) -> Self {
        let store: Arc<dyn Inspect> = Arc::new(store);
        Self {
            peer: Arc::clone(&store),
            store,
            passing: Arc::new(|time| Box::pin(tokio::time::sleep(time))),
            lease: Duration::from_millis(500),
            at_once: 1,
        }
    }

    /// Adds a second handle to the same records, as another process would have.
    #[must_use]
    pub fn with_peer(self, peer: impl Inspect) -> Self {
        Self { peer: Arc::new(peer), ..self }
    }

    /// Adds a way to let time pass in the store other than to sleep.
    #[must_use]
    pub fn with_passing<F>(self, passing: impl Fn(Duration) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { passing: Arc::new(move |time| Box::pin(passing(time))), ..self }
    }

    /// Sets the length of a lease: long enough that no step of a test outlasts it, short enough to
    /// wait for. 500 ms unless set.
    #[must_use]
    pub fn with_lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// Sets the number of promises that are checked concurrently, because most of the time is spent
    /// waiting for leases to be over. This does not suit a clock that is moved, since all checks
    /// would see the move; and it needs a longer lease, since the checks slow each other down.
    #[must_use]
    pub fn with_checks_at_once(self, at_once: usize) -> Self {
        Self { at_once: at_once.max(1), ..self }
    }

    /// Lets at least this much time pass in the store.
    async fn pass(&self, time: Duration) {
        (self.passing)(time + Duration::from_millis(20)).await;
    }

    fn terms(&self) -> Terms {
        self.terms_kept(Duration::from_secs(3600))
    }

    fn terms_kept(&self, retention: Duration) -> Terms {
        Terms::new(self.lease, retention).expect("the lease of a subject is within the limits")
    }

    /// A claim of this key by a new attempt, valid for 100 seconds.
    async fn ask(&self, key: &Key) -> Ask {
        let now = self.store.now().await.expect("the store tells its time");
        Ask {
            key: key.clone(),
            intent: intent(1),
            token: Token::random(),
            owner: Owner::new("conformance"),
            terms: self.terms(),
            takeover: Takeover::Never,
            not_after: now.after(Duration::from_secs(100)),
        }
    }

    async fn claim(&self, ask: &Ask) -> Claim {
        self.store.claim(ask).await.expect("the store answers a claim")
    }

    /// The lease of a claim that must be granted.
    async fn granted(&self, ask: &Ask) -> Lease {
        match self.claim(ask).await {
            Claim::Granted(lease) => lease,
            other => panic!("the claim was not granted: {other:?}"),
        }
    }

    /// A new key under a lease.
    async fn running(&self) -> (Ask, Lease) {
        let ask = self.ask(&key()).await;
        let lease = self.granted(&ask).await;
        (ask, lease)
    }

    /// A new key whose lease is over: it ran under `hold`.
    async fn held(&self) -> (Ask, Lease) {
        let (ask, lease) = self.running().await;
        self.pass(self.lease).await;
        (ask, lease)
    }

    /// A new key under a lease, whose attempt may be taken over when it is lost.
    async fn retried(&self) -> (Ask, Lease) {
        let ask = retry(self.ask(&key()).await);
        let lease = self.granted(&ask).await;
        (ask, lease)
    }

    /// A new key whose lease is over: it ran under `retry`.
    async fn lost(&self) -> (Ask, Lease) {
        let (ask, lease) = self.retried().await;
        self.pass(self.lease).await;
        (ask, lease)
    }

    /// A new key with an outcome.
    async fn done(&self) -> (Ask, Lease) {
        let (ask, lease) = self.running().await;
        let ack = self.store.complete(&lease, &outcome(1)).await.expect("the store answers a complete");
        assert!(ack.stands(), "the owner's complete was {ack:?}");
        (ask, lease)
    }

    /// A new key that was released.
    async fn released(&self) -> (Ask, Lease) {
        let (ask, lease) = self.running().await;
        let ack = self.store.release(&lease).await.expect("the store answers a release");
        assert!(ack.stands(), "the owner's release was {ack:?}");
        (ask, lease)
    }
}

/// The same request by another attempt.
fn again(ask: &Ask) -> Ask {
    Ask { token: Token::random(), ..ask.clone() }
}

/// The same request under `retry`.
fn retry(ask: Ask) -> Ask {
    Ask { terms: ask.terms.with_after_crash(AfterCrash::Retry), takeover: Takeover::WhenOver, ..ask }
}

/// The same request by another attempt, under `retry`: it takes over a lost attempt.
fn takeover(ask: &Ask) -> Ask {
    retry(again(ask))
}

/// A different request under the same key.
fn other_intent(ask: &Ask) -> Ask {
    Ask { intent: intent(2), ..again(ask) }
}

fn key() -> Key {
    scope().key(&Token::random().to_string()).expect("a token's text is a valid key")
}

fn scope() -> Scope {
    let realm = format!("conformance-{}", Token::random());
    Scope::new(&realm).and_then(|scope| scope.with_principal("tester")).expect("a valid scope")
}

fn intent(n: u8) -> Intent {
    Intent::of("charge", "invoice-42", &n).expect("a number has a fingerprint")
}

fn outcome(n: u8) -> Outcome {
    Outcome::json(&n).expect("a number has a JSON form")
}
