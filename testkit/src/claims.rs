//! Claims of new attempts, and their answers.

use std::time::Duration;

use semel::store::{Ask, Claim, Owner};
use semel::{AfterCrash, Intent, Key, Lease, Outcome, Store, Timestamp};

/// A claim of this key by a new attempt.
pub async fn ask(store: &impl Store, name: &str) -> Ask {
    ask_at(store.now().await.unwrap(), name)
}

/// A claim of this key by a new attempt, at this time of the store.
pub fn ask_at(now: Timestamp, name: &str) -> Ask {
    Ask::new(
        Key::new("tests", name).unwrap(),
        Intent::of("charge", "", &1).unwrap(),
        now.after(Duration::from_secs(100)),
    )
    .with_owner(Owner::new("tests"))
}

/// The same claim under `retry`, so that the attempt may be taken over when it is lost.
pub fn retried(ask: Ask) -> Ask {
    let terms = ask.terms.with_after_crash(AfterCrash::Retry);
    ask.with_terms(terms)
}

/// The lease of a claim that must be granted.
pub async fn granted(store: &impl Store, ask: &Ask) -> Lease {
    lease(store.claim(ask).await.unwrap())
}

/// The lease of a claim that must have been granted.
pub fn lease(claim: Claim) -> Lease {
    match claim {
        Claim::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}

/// An outcome that is unique to this key.
pub fn outcome(name: &str) -> Outcome {
    Outcome::json(name).unwrap()
}

/// A key that has an outcome.
pub async fn done(store: &impl Store, name: &str) -> Key {
    let lease = granted(store, &ask(store, name).await).await;
    store.complete(&lease, &outcome(name)).await.unwrap().applied().unwrap();
    lease.key().clone()
}

/// Returns `true` if a claim of a new attempt is answered from the record that [`done`] has left.
pub fn is_replayed(claim: &Claim, name: &str) -> bool {
    matches!(claim, Claim::Done(done) if done.outcome == outcome(name))
}
