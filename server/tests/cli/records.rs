//! Records in every state.

use std::time::Duration;

use bytes::Bytes;
use semel::admin::ListQuery;
use semel::store::{Ask, Claim, Owner, Terms};
use semel::{AfterCrash, Intent, Key, Lease, Outcome, Scope};

use crate::place::Place;

/// A claim of a key by a new attempt.
pub(crate) struct New<'a> {
    place: &'a Place,
    key: Key,
    operation: &'a str,
    owner: &'a str,
    terms: Terms,
}

impl Place {
    /// A key of this test's realm.
    pub(crate) fn new_key<'a>(&'a self, value: &str) -> New<'a> {
        let key = Key::new(&self.realm, value).unwrap();
        New { place: self, key, operation: "POST /charges", owner: "host-1", terms: Terms::DEFAULT }
    }

    /// A record whose outcome is a small JSON value.
    pub(crate) async fn done(&self, value: &str) -> Lease {
        self.new_key(value).done(&outcome()).await
    }

    /// A record whose attempt has unknown effects.
    pub(crate) async fn held(&self, value: &str) -> Lease {
        self.new_key(value).held("the connection was lost").await
    }

    /// A record whose attempt is lost, and which the next one takes over.
    pub(crate) async fn lost(&self, value: &str) -> Lease {
        self.new_key(value).under(AfterCrash::Retry).held("the connection was lost").await
    }

    pub(crate) async fn running(&self, value: &str) -> Lease {
        self.new_key(value).claimed().await
    }

    pub(crate) async fn released(&self, value: &str) -> Lease {
        let lease = self.new_key(value).claimed().await;
        self.store.release(&lease).await.unwrap().applied().unwrap();
        lease
    }

    /// A record whose retention is over.
    pub(crate) async fn expired(&self, value: &str) -> Lease {
        let lease = self.new_key(value).for_a_moment().done(&outcome()).await;
        let over = ListQuery::default()
            .with_realm(Some(self.realm.clone()))
            .with_principal(Some(String::new()))
            .with_value(Some(value.to_owned()))
            .with_expired(Some(true));
        while self.store.list(&over).await.unwrap().records.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        lease
    }
}

pub(crate) fn outcome() -> Outcome {
    let headers = [
        ("content-type", Bytes::from_static(b"application/json")),
        ("x-trace", Bytes::from_static(b"a\xffb")),
    ];
    let outcome = Outcome::new(201).unwrap().with_headers(headers).unwrap();
    outcome.with_subtype("created").unwrap().with_body(&b"{\"id\":\n 7}"[..]).unwrap()
}

impl<'a> New<'a> {
    pub(crate) fn of_principal(self, principal: &str) -> Self {
        let scope = Scope::new(self.key.scope().realm()).unwrap().with_principal(principal).unwrap();
        Self { key: scope.key(self.key.value()).unwrap(), ..self }
    }

    pub(crate) fn to(self, operation: &'a str) -> Self {
        Self { operation, ..self }
    }

    pub(crate) fn by(self, owner: &'a str) -> Self {
        Self { owner, ..self }
    }

    pub(crate) fn under(self, policy: AfterCrash) -> Self {
        Self { terms: self.terms.with_after_crash(policy), ..self }
    }

    fn for_a_moment(self) -> Self {
        Self { terms: Terms::new(Terms::MIN_LEASE, Terms::MIN_LEASE).unwrap(), ..self }
    }

    /// The claim as it is sent.
    pub(crate) async fn ask(self) -> Ask {
        Ask::new(
            self.key,
            Intent::of(self.operation, "charges/7", &1).unwrap(),
            self.place.store.now().await.unwrap().after(Duration::from_secs(100)),
        )
        .with_owner(Owner::new(self.owner))
        .with_terms(self.terms)
    }

    pub(crate) async fn claimed(self) -> Lease {
        let store = &self.place.store;
        match store.claim(&self.ask().await).await.unwrap() {
            Claim::Granted(lease) => lease,
            other => panic!("not granted: {other:?}"),
        }
    }

    pub(crate) async fn done(self, outcome: &Outcome) -> Lease {
        let store = &self.place.store;
        let lease = self.claimed().await;
        store.complete(&lease, outcome).await.unwrap().applied().unwrap();
        lease
    }

    pub(crate) async fn held(self, note: &str) -> Lease {
        let store = &self.place.store;
        let lease = self.claimed().await;
        store.abandon(&lease, note).await.unwrap().applied().unwrap();
        lease
    }
}
