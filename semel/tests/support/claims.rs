//! Claims as somebody new would make them, and what becomes of them.

use std::time::Duration;

use semel::store::{Ask, Claim, Owner, Takeover, Terms, Token};
use semel::{AfterCrash, Intent, Key, Lease, Store, Timestamp};

/// A claim of this key by somebody new.
pub(crate) async fn ask(store: &impl Store, name: &str) -> Ask {
    ask_at(store.now().await.unwrap(), name)
}

/// The same, if this is the store's time.
pub(crate) fn ask_at(now: Timestamp, name: &str) -> Ask {
    Ask {
        key: Key::new("tests", name).unwrap(),
        intent: Intent::of("charge", "", &1).unwrap(),
        token: Token::random(),
        owner: Owner::new("tests"),
        terms: Terms::DEFAULT,
        takeover: Takeover::Never,
        not_after: now.after(Duration::from_secs(100)),
    }
}

/// The same claim by one whose lost attempt may be taken over.
pub(crate) fn retried(ask: Ask) -> Ask {
    Ask { terms: ask.terms.with_after_crash(AfterCrash::Retry), ..ask }
}

/// The lease of a claim that must be granted.
pub(crate) async fn granted(store: &impl Store, ask: &Ask) -> Lease {
    match store.claim(ask).await.unwrap() {
        Claim::Granted(lease) => lease,
        other => panic!("not granted: {other:?}"),
    }
}
