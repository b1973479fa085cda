//! The statements with what they are given.

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Statement};

use super::id::Id;
use super::sql::Schema;
use super::values::{Moment, Span};
use crate::ask::Ask;
use crate::change::{Action, DraftState, Replace, Write};
use crate::codec;
use crate::intent::Intent;
use crate::outcome::Outcome;

/// The statements, prepared on one connection.
pub(super) struct Statements {
    pub(super) open: Statement,
    pub(super) replace: Statement,
    pub(super) write: Statement,
    pub(super) read: Statement,
}

impl Statements {
    pub(super) async fn prepare(client: &Client, schema: &Schema) -> Result<Self, Error> {
        let prepare = async |file| client.prepare(&schema.statement(file)).await;
        let (open, replace, write, read) = tokio::try_join!(
            prepare(include_str!("sql/open.sql")),
            prepare(include_str!("sql/replace.sql")),
            prepare(include_str!("sql/write.sql")),
            prepare(include_str!("sql/read.sql")),
        )?;
        Ok(Self { open, replace, write, read })
    }
}

/// One parameter of a statement: a value for each item.
pub(super) type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

fn column<'a, I, T>(items: &'a [(Id, &'a I)], value: impl Fn(&'a I) -> T) -> Column<'a>
where
    T: ToSql + Sync + Send + 'a,
{
    Box::new(items.iter().map(|(_, item)| value(item)).collect::<Vec<T>>())
}

pub(super) fn ids<'a, I>(items: &'a [(Id, I)]) -> Column<'a> {
    Box::new(items.iter().map(|(id, _)| id.as_bytes()).collect::<Vec<&[u8]>>())
}

/// What `open.sql` is given.
pub(super) fn open<'a>(items: &'a [(Id, &'a Ask)]) -> Vec<Column<'a>> {
    vec![
        ids(items),
        column(items, |ask| ask.token.as_bytes().as_slice()),
        column(items, |ask| ask.key.scope().realm()),
        column(items, |ask| ask.key.scope().principal()),
        column(items, |ask| ask.key.value()),
        column(items, |ask| ask.intent.operation()),
        column(items, |ask| ask.intent.resource()),
        column(items, |ask| fingerprint(&ask.intent)),
        column(items, |ask| i16::from(ask.intent.fingerprint().version())),
        column(items, |ask| ask.owner.as_str()),
        column(items, |ask| Span(ask.terms.lease())),
        column(items, |ask| Span(ask.terms.retention())),
        column(items, |ask| Moment(ask.not_after)),
    ]
}

/// What `replace.sql` is given.
pub(super) fn replace<'a>(items: &'a [(Id, &'a Replace)]) -> Vec<Column<'a>> {
    let state = |item: &Replace| match item.draft.state {
        DraftState::Running => "running",
        DraftState::Done(_) => "done",
        DraftState::Released => "released",
    };
    fn outcome(item: &Replace) -> Option<&Outcome> {
        match &item.draft.state {
            DraftState::Done(outcome) => Some(outcome),
            DraftState::Running | DraftState::Released => None,
        }
    }
    let mut columns = vec![
        ids(items),
        column(items, |item| item.expected_token.as_bytes().as_slice()),
        column(items, |item| signed(item.expected_version)),
        column(items, |item| item.not_after.map(Moment)),
        column(items, |item| item.draft.token.as_bytes().as_slice()),
        column(items, |item| i32::try_from(item.draft.attempt).unwrap_or(i32::MAX)),
        column(items, state),
        column(items, |item| item.draft.intent.operation()),
        column(items, |item| item.draft.intent.resource()),
        column(items, |item| fingerprint(&item.draft.intent)),
        column(items, |item| i16::from(item.draft.intent.fingerprint().version())),
        column(items, |item| item.draft.owner.as_str()),
        column(items, |item| Span(item.draft.lease)),
        column(items, |item| item.draft.retention.map(Span)),
        column(items, |item| item.draft.fresh),
        column(items, |item| item.draft.note.as_deref()),
    ];
    columns.extend(outcomes(items, outcome));
    columns
}

/// What `write.sql` is given.
pub(super) fn write<'a>(items: &'a [(Id, &'a Write)]) -> Vec<Column<'a>> {
    let action = |item: &Write| match item.action {
        Action::Renew { .. } => "renew",
        Action::Complete { .. } => "complete",
        Action::Release { .. } => "release",
        Action::Abandon { .. } => "abandon",
        Action::Void => "void",
    };
    fn outcome(item: &Write) -> Option<&Outcome> {
        match &item.action {
            Action::Complete { outcome, .. } => Some(outcome),
            _ => None,
        }
    }
    let lease = |item: &Write| match item.action {
        Action::Renew { lease, .. } => Some(Span(lease)),
        _ => None,
    };
    fn note(item: &Write) -> Option<&str> {
        match &item.action {
            Action::Abandon { note, .. } => Some(note),
            _ => None,
        }
    }
    let mut columns = vec![
        ids(items),
        column(items, |item| item.token.as_bytes().as_slice()),
        column(items, |item| item.action.fence().map(|fence| signed(fence.get()))),
        column(items, action),
        column(items, lease),
        column(items, note),
    ];
    columns.extend(outcomes(items, outcome));
    columns
}

/// Status, subtype, headers and body of the items that have an outcome.
fn outcomes<'a, I>(items: &'a [(Id, &'a I)], of: impl Fn(&I) -> Option<&Outcome> + Copy) -> [Column<'a>; 4] {
    [
        column(items, move |item| of(item).map(status)),
        column(items, move |item| of(item).and_then(Outcome::subtype)),
        column(items, move |item| of(item).map(codec::encode)),
        column(items, move |item| of(item).and_then(|outcome| outcome.body().map(|body| &**body))),
    ]
}

fn fingerprint(intent: &Intent) -> Vec<u8> {
    intent.fingerprint().as_bytes().to_vec()
}

/// A status has three digits.
pub(super) fn status(outcome: &Outcome) -> i16 {
    i16::try_from(outcome.status()).unwrap_or(i16::MAX)
}

/// Fences and versions count microseconds and writes: they stay far within 63 bits.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
