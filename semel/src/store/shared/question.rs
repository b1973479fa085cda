//! One operation of a database about one key, and its answer.

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Action, DraftState, Replace, Write};
use crate::store::backend::{Opened, Replaced, Written};
use crate::store::shared::group_commit::Lane;
use crate::store::shared::record_id::Id;
use crate::words::key::Key;
use crate::words::record::{Record, RecordState};

/// One operation about one key.
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
    /// The replace is boxed because it is rare and larger than the other items.
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

    /// The approximate size of its data: that of the body, next to which the rest is small.
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

/// The answer to one item.
pub(crate) enum What {
    Opened(Opened),
    Replaced(Replaced),
    Written(Written),
    Read(Option<Box<Record>>),
}

impl What {
    /// The approximate size of its data: that of the body, next to which the rest is small.
    pub(crate) fn size(&self) -> usize {
        let record = match self {
            Self::Opened(Opened::Found(record)) => record,
            Self::Written(Written::Unapplied(Some(record))) | Self::Read(Some(record)) => record,
            Self::Opened(_) | Self::Replaced(_) | Self::Written(_) | Self::Read(None) => return 0,
        };
        let RecordState::Done { outcome, .. } = &record.state else { return 0 };
        outcome.body().map_or(0, |body| body.len())
    }
}

/// An item of one of the primitives, with its form as a question and the matching form of its
/// answer.
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
