//! What is asked of a database about one key, and what it says.

use crate::ask::Ask;
use crate::backend::{Opened, Replaced, Written};
use crate::change::{Action, DraftState, Replace, Write};
use crate::id::Id;
use crate::key::Key;
use crate::record::Record;

/// What is asked of one key.
pub(crate) struct Question {
    pub(crate) id: Id,
    pub(crate) asked: Asked,
}

impl Question {
    pub(crate) fn new(asked: Asked) -> Self {
        Self { id: Id::of(asked.key()), asked }
    }
}

/// An item of one of the primitives.
pub(crate) enum Asked {
    Open(Ask),
    Replace(Replace),
    Write(Write),
    Read(Key),
}

impl Asked {
    pub(crate) fn key(&self) -> &Key {
        match self {
            Self::Open(ask) => &ask.key,
            Self::Replace(item) => &item.key,
            Self::Write(item) => &item.key,
            Self::Read(key) => key,
        }
    }

    /// About how many bytes it brings along: those of a body, beside which the rest is little.
    pub(crate) fn weight(&self) -> usize {
        let outcome = match self {
            Self::Write(Write { action: Action::Complete { outcome, .. }, .. }) => outcome,
            Self::Replace(Replace { draft, .. }) => match &draft.state {
                DraftState::Done(outcome) => outcome,
                DraftState::Running | DraftState::Released => return 0,
            },
            Self::Write(_) | Self::Open(_) | Self::Read(_) => return 0,
        };
        outcome.body().map_or(0, |body| body.len())
    }
}

/// What became of it.
pub(crate) enum What {
    Opened(Opened),
    Replaced(Replaced),
    Written(Written),
    Read(Option<Box<Record>>),
}
