//! A path to the store on which a test decides what goes wrong.

use std::future::{Future, pending};
use std::sync::{Arc, Mutex};

use semel::{MemoryStore, StoreError};

use crate::support::Path;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is not applied, and the caller knows.
    Unavailable,
    /// It is not applied, and the caller does not know.
    Lost,
    /// It is applied, and the caller does not know.
    AnswerLost,
    /// It is applied, and there is never an answer.
    Silence,
    /// The store will not have it, ever.
    Refused,
}

/// Faults by verb, and what was called.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) store: MemoryStore,
    faults: Arc<Mutex<Vec<(&'static str, Fault)>>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { store: MemoryStore::new(), faults: Arc::default(), calls: Arc::default() }
    }

    /// From now on, until [`Gate::heal`].
    pub(crate) fn disturb(&self, verb: &'static str, fault: Fault) {
        self.faults.lock().unwrap().push((verb, fault));
    }

    pub(crate) fn heal(&self) {
        self.faults.lock().unwrap().clear();
    }

    pub(crate) fn calls(&self, verb: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| **call == verb).count()
    }

    fn fault(&self, verb: &'static str) -> Option<Fault> {
        self.calls.lock().unwrap().push(verb);
        self.faults.lock().unwrap().iter().find(|(v, _)| *v == verb).map(|(_, fault)| *fault)
    }
}

impl Path for Gate {
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
            Some(Fault::Refused) => Err(StoreError::refused("not like this")),
        }
    }
}
