//! The ledger of a history: the real events, recorded apart from the store, and the properties that
//! must hold of them.

use std::sync::{Arc, Mutex};

use semel::store::RecordState;
use semel::{AfterCrash, RunError};

/// All events of clients and runs, in order.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Vec<(usize, Event)>>>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The work began under this fence.
    Started { fence: u64 },
    /// The effect happened, for good.
    Effect { fence: u64 },
    /// The work ended before anything happened.
    Nothing,
    /// The work, or its process, ended with unknown effects.
    Unknown,
    /// A client got this value, which names the fence of the run that made it.
    Told { value: u64, intent: u8, replayed: bool },
    /// A client was refused.
    Refused(Refusal),
    /// The answer to the last client, long after all faults ended.
    Last(Result<u64, Refusal>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Pending,
    Held,
    Mismatch,
    Superseded,
    Unavailable,
    OutcomePending,
    Failed,
    Other,
}

impl From<&RunError> for Refusal {
    fn from(error: &RunError) -> Self {
        match error {
            RunError::Pending { .. } => Self::Pending,
            RunError::Held(_) => Self::Held,
            RunError::Mismatch(_) => Self::Mismatch,
            RunError::Superseded => Self::Superseded,
            RunError::Unavailable(_) => Self::Unavailable,
            RunError::OutcomePending(_) => Self::OutcomePending,
            RunError::Failed { .. } => Self::Failed,
            _ => Self::Other,
        }
    }
}

impl Ledger {
    pub(crate) fn write(&self, key: usize, event: Event) {
        self.0.lock().unwrap().push((key, event));
    }

    pub(crate) fn all(&self) -> Vec<(usize, Event)> {
        self.0.lock().unwrap().clone()
    }

    /// Returns `true` if the work began under this fence.
    pub(crate) fn has_started(&self, fence: u64) -> bool {
        self.all().iter().any(|(_, event)| *event == Event::Started { fence })
    }

    /// The violation of a property by one key, if any. With a hook, a lost attempt under hold may
    /// be taken over.
    pub(crate) fn violation(
        &self,
        key: usize,
        policy: AfterCrash,
        hook: bool,
        recorded: Option<(&RecordState, u64)>,
    ) -> Option<String> {
        let events: Vec<Event> = self.all().into_iter().filter(|(k, _)| *k == key).map(|(_, e)| e).collect();
        let of = |pick: &dyn Fn(&Event) -> Option<u64>| events.iter().filter_map(pick).collect::<Vec<u64>>();
        let starts = of(&|e| {
            if let Event::Started { fence } = e { Some(*fence) } else { None }
        });
        let effects = of(&|e| {
            if let Event::Effect { fence } = e { Some(*fence) } else { None }
        });
        let mut told = of(&|e| {
            if let Event::Told { value, .. } = e { Some(*value) } else { None }
        });
        let last = events.iter().find_map(|e| if let Event::Last(last) = e { Some(last) } else { None });
        told.extend(last.and_then(|last| last.as_ref().ok()));
        let refused = |what| events.contains(&Event::Refused(what)) || last == Some(&Err(what));
        let unknown = events.contains(&Event::Unknown);
        let ended_before_anything = events.iter().filter(|event| **event == Event::Nothing).count();
        let once = policy != AfterCrash::Retry;
        let value = recorded.and_then(|(state, _)| match state {
            RecordState::Done { outcome, .. } => outcome.parse::<u64>().ok(),
            _ => None,
        });

        let mut fences = starts.clone();
        fences.sort_unstable();
        fences.dedup();
        let wrong = [
            (fences.len() != starts.len(), "two runs had the same fence"),
            (once && effects.len() > 1, "more than one effect"),
            (
                policy == AfterCrash::Hold && starts.len() > 1 + ended_before_anything,
                "the work was started twice under hold",
            ),
            (told.iter().any(|told| Some(*told) != value), "a client was told what is not recorded"),
            (value.is_some_and(|v| !effects.contains(&v)), "an outcome without its effect is recorded"),
            (
                value.is_some() && recorded.map(|(_, fence)| fence) != value,
                "the recorded outcome is not of the fence that owns the record",
            ),
            (
                policy == AfterCrash::Hold && !hook && refused(Refusal::Superseded),
                "somebody was superseded under hold",
            ),
            (refused(Refusal::Other), "an error that no fault explains"),
            (last.is_none(), "the last client got no answer"),
            (
                last.is_some_and(|last| match (last, policy) {
                    (Ok(_), _) | (Err(Refusal::Mismatch), _) => false,
                    (Err(Refusal::Held), AfterCrash::Hold) => !unknown,
                    (Err(_), _) => true,
                }),
                "the key is stuck after everything was well again",
            ),
            (intents_mixed(&events), "requests with two intents got an outcome"),
        ];
        wrong.into_iter().find_map(|(wrong, what)| wrong.then(|| format!("key {key}: {what}")))
    }
}

fn intents_mixed(events: &[Event]) -> bool {
    let mut intents = events.iter().filter_map(|e| match e {
        Event::Told { intent, .. } => Some(*intent),
        _ => None,
    });
    let first = intents.next();
    intents.any(|intent| Some(intent) != first)
}
