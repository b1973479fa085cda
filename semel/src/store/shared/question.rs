//! What is asked of a database about one key, and what it says.

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Action, DraftState, Replace, Write};
use crate::store::backend::{Opened, Replaced, Written};
use crate::store::shared::group_commit::Lane;
use crate::store::shared::record_id::Id;
use crate::words::key::Key;
use crate::words::record::Record;

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
    /// Rare, and larger than all others.
    Replace(Box<Replace>),
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
            Self::Replace(item) => match &item.draft.state {
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

/// An item of one of the primitives: how it is asked, and what of all that can be said is its answer.
pub(crate) trait Item {
    type Answer;
    const LANE: Lane;

    fn asked(&self) -> Asked;

    fn answer(what: What) -> Option<Self::Answer>;
}

impl Item for Ask {
    type Answer = Opened;
    const LANE: Lane = Lane::Claim;

    fn asked(&self) -> Asked {
        Asked::Open(self.clone())
    }

    fn answer(what: What) -> Option<Opened> {
        if let What::Opened(opened) = what { Some(opened) } else { None }
    }
}

impl Item for Replace {
    type Answer = Replaced;
    const LANE: Lane = Lane::Claim;

    fn asked(&self) -> Asked {
        Asked::Replace(Box::new(self.clone()))
    }

    fn answer(what: What) -> Option<Replaced> {
        if let What::Replaced(replaced) = what { Some(replaced) } else { None }
    }
}

impl Item for Write {
    type Answer = Written;
    const LANE: Lane = Lane::Owner;

    fn asked(&self) -> Asked {
        Asked::Write(self.clone())
    }

    fn answer(what: What) -> Option<Written> {
        if let What::Written(written) = what { Some(written) } else { None }
    }
}

impl Item for Key {
    type Answer = Option<Record>;
    const LANE: Lane = Lane::Claim;

    fn asked(&self) -> Asked {
        Asked::Read(self.clone())
    }

    fn answer(what: What) -> Option<Option<Record>> {
        if let What::Read(record) = what { Some(record.map(|record| *record)) } else { None }
    }
}
