//! A gate to the store at which a test decides which calls fail, and how.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use semel::{MemoryStore, StoreError};
use tokio::time::sleep;

use crate::gates::Path;

/// The fault of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The call is not applied, and the caller knows.
    Unavailable,
    /// The call is not applied, and the caller does not know.
    Lost,
    /// The call is applied, and the caller does not know.
    AnswerLost,
    /// The call is applied, and never answered.
    Silence,
    /// The call never arrives, and is never answered.
    Hang,
    /// The call arrives late.
    Slow(Duration),
    /// The answer arrives late.
    SlowAnswer(Duration),
    /// The call is lost, but a copy of it arrives later.
    CopyLater(Duration),
    /// The store refuses the call for good.
    Refused,
    /// The store has a bug.
    Panic,
}

/// A gate with faults by verb, which counts the calls.
#[derive(Clone)]
pub struct Gate {
    /// The store behind it.
    pub store: MemoryStore,
    faults: Arc<Mutex<Vec<Disturbance>>>,
    calls: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

/// The calls of a verb that fail, and their fault.
struct Disturbance {
    verb: &'static str,
    calls: RangeInclusive<usize>,
    fault: Fault,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// A gate to a store of its own, without faults.
    pub fn new() -> Self {
        Self::to(&MemoryStore::new())
    }

    /// Another gate to the same store.
    pub fn to(store: &MemoryStore) -> Self {
        Self { store: store.clone(), faults: Arc::default(), calls: Arc::default() }
    }

    /// Disturbs a verb until [`Gate::heal`].
    pub fn disturb(&self, verb: &'static str, fault: Fault) {
        self.disturb_calls(verb, 1..=usize::MAX, fault);
    }

    /// Disturbs only these calls of a verb, counted from 1.
    pub fn disturb_calls(&self, verb: &'static str, calls: RangeInclusive<usize>, fault: Fault) {
        self.faults.lock().unwrap().push(Disturbance { verb, calls, fault });
    }

    /// Lets every call through again.
    pub fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    /// The number of calls of a verb.
    pub fn calls(&self, verb: &str) -> usize {
        self.calls.lock().unwrap().get(verb).copied().unwrap_or_default()
    }

    fn fault(&self, verb: &'static str) -> Option<Fault> {
        *self.calls.lock().unwrap().entry(verb).or_default() += 1;
        let number = self.calls(verb);
        let faults = self.faults.lock().unwrap();
        let fits = |fault: &&Disturbance| fault.verb == verb && fault.calls.contains(&number);
        faults.iter().find(fits).map(|disturbance| disturbance.fault)
    }
}

impl Path for Gate {
    type End = MemoryStore;

    async fn pass<T, F>(
        &self,
        verb: &'static str,
        call: impl Fn(MemoryStore) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        match self.fault(verb) {
            None => call(self.store.clone()).await,
            Some(Fault::Unavailable) => Err(StoreError::unavailable("the gate is shut")),
            Some(Fault::Lost) => Err(StoreError::unknown("lost on the way")),
            Some(Fault::AnswerLost) => {
                let _applied = call(self.store.clone()).await;
                Err(StoreError::unknown("lost on the way back"))
            }
            Some(Fault::Silence) => {
                let _applied = call(self.store.clone()).await;
                pending().await
            }
            Some(Fault::Hang) => pending().await,
            Some(Fault::Slow(time)) => {
                sleep(time).await;
                call(self.store.clone()).await
            }
            Some(Fault::SlowAnswer(time)) => {
                let answer = call(self.store.clone()).await;
                sleep(time).await;
                answer
            }
            Some(Fault::CopyLater(time)) => {
                let store = self.store.clone();
                tokio::spawn(async move {
                    sleep(time).await;
                    let _applied = call(store).await;
                });
                Err(StoreError::unknown("lost on the way, and found later"))
            }
            Some(Fault::Panic) => panic!("the store panics"),
            Some(Fault::Refused) => Err(StoreError::refused("not like this")),
        }
    }
}
