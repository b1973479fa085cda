//! A path to a store that counts the answered calls.

use std::future::Future;

use semel::{Store, StoreError};
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::time::timeout;

use crate::gates::{Path, Through};
use crate::until::LONG;

/// A path on which nothing is lost.
pub struct Counted<S> {
    store: S,
    answered: Sender<usize>,
}

/// The count of a [`Counted`] path.
pub struct Calls(Receiver<usize>);

impl<S: Store + Clone> Counted<S> {
    /// The store behind such a path, and its count.
    pub fn to(store: S) -> (Through<Self>, Calls) {
        let (answered, calls) = watch::channel(0);
        (Through(Self { store, answered }), Calls(calls))
    }
}

impl Calls {
    /// Waits until one more call than so far is answered.
    pub async fn next(&self) {
        let mut answered = self.0.clone();
        let so_far = *answered.borrow();
        let more = answered.wait_for(|answered| *answered > so_far);
        timeout(LONG, more).await.expect("a call is answered").expect("the store is in use");
    }

    /// Returns `true` if nothing can call the store any more.
    pub fn are_over(&self) -> bool {
        self.0.has_changed().is_err()
    }
}

impl<S: Store + Clone> Path for Counted<S> {
    type End = S;

    async fn pass<T, F>(
        &self,
        _: &'static str,
        call: impl Fn(S) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let answer = call(self.store.clone()).await;
        self.answered.send_modify(|answered| *answered += 1);
        answer
    }
}
