//! The prepared statements and their parameters.

use std::time::Duration;

use bytes::BytesMut;
use tokio_postgres::types::{IsNull, Kind, ToSql, Type, to_sql_checked};
use tokio_postgres::{Client, Error, Statement};

use crate::protocol::ask::Ask;
use crate::protocol::draft::{Action, DraftState, Replace, Write};
use crate::store::postgres::schema::Schema;
use crate::store::postgres::values::{Moment, Span};
use crate::store::shared::record_id::Id;
use crate::words::intent::Intent;
use crate::words::outcome::Outcome;
use crate::words::terms::Terms;

/// The statements, prepared on one connection. Each is a file of `sql/`.
pub(crate) struct Statements {
    /// Creates records, and fails if a concurrent transaction creates one of them.
    pub(crate) create: Forms,
    /// Creates records, except those that a concurrent transaction creates.
    pub(crate) create_carefully: Statement,
    /// Completes and creates, as most batches do under load: one statement, one commit.
    pub(crate) complete_and_create: Statement,
    pub(crate) replace: Statement,
    /// Completes records, and waits a moment for a locked row.
    pub(crate) complete: Forms,
    /// Makes any write of an owner, to rows that are not locked.
    pub(crate) write: Statement,
    pub(crate) read: Statement,
}

/// A statement over arrays, and its form for a single item, which Postgres runs in less time.
pub(crate) struct Forms {
    many: Statement,
    one: Statement,
}

impl Forms {
    /// The form for this number of items.
    pub(crate) fn of(&self, count: usize) -> &Statement {
        if count == 1 { &self.one } else { &self.many }
    }
}

impl Statements {
    pub(crate) async fn prepare(client: &Client, schema: &Schema) -> Result<Self, Error> {
        let prepare = async |file: &str| client.prepare(&schema.statement(file)).await;
        let forms = async |many: &str, one: &str| {
            let (many, one) = tokio::try_join!(prepare(many), prepare(one))?;
            Ok(Forms { many, one })
        };
        let (create, create_carefully, complete_and_create, replace, complete, write, read) = tokio::try_join!(
            forms(include_str!("sql/create.sql"), include_str!("sql/create_one.sql")),
            prepare(include_str!("sql/create_carefully.sql")),
            prepare(include_str!("sql/complete_and_create.sql")),
            prepare(include_str!("sql/replace.sql")),
            forms(include_str!("sql/complete.sql"), include_str!("sql/complete_one.sql")),
            prepare(include_str!("sql/write.sql")),
            prepare(include_str!("sql/read.sql")),
        )?;
        Ok(Self { create, create_carefully, complete_and_create, replace, complete, write, read })
    }
}

/// A value for each item: an array, or in a form for one item only its value.
#[derive(Debug)]
struct Values<T>(Vec<T>);

impl<T: ToSql> ToSql for Values<T> {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match (kind.kind(), &*self.0) {
            (Kind::Array(_), values) => values.to_sql(kind, out),
            (_, [value]) => value.to_sql(kind, out),
            _ => Err("a single value cannot stand for several items".into()),
        }
    }

    fn accepts(kind: &Type) -> bool {
        <Vec<T>>::accepts(kind) || T::accepts(kind)
    }

    to_sql_checked!();
}

/// One parameter of a statement: a value for each item.
pub(crate) type Column<'a> = Box<dyn ToSql + Sync + Send + 'a>;

fn column<'a, I, T>(items: &'a [(Id, &'a I)], value: impl Fn(&'a I) -> T) -> Column<'a>
where
    T: ToSql + Sync + Send + 'a,
{
    Box::new(Values(items.iter().map(|(_, item)| value(item)).collect()))
}

fn ids<'a, I>(items: &'a [(Id, I)]) -> Column<'a> {
    Box::new(Values(items.iter().map(|(id, _)| id.as_bytes()).collect()))
}

/// The parameters of `read.sql`: the ids, and the largest number of bytes to show of each outcome.
pub(crate) fn read(ids: &[Id], limit: usize) -> Vec<Column<'_>> {
    let ids = ids.iter().map(Id::as_bytes).collect();
    vec![Box::new(Values::<&[u8]>(ids)), Box::new(i32::try_from(limit).unwrap_or(i32::MAX))]
}

/// The parameters of `create.sql`.
pub(crate) fn create<'a>(items: &'a [(Id, &'a Ask)]) -> Vec<Column<'a>> {
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
        column(items, |ask| micros(ask.terms.retention())),
        column(items, |ask| ask.terms.after_crash().as_str()),
        column(items, |ask| Moment(ask.not_after)),
    ]
}

/// The parameters of `replace.sql`.
pub(crate) fn replace<'a>(items: &'a [(Id, &'a Replace)]) -> Vec<Column<'a>> {
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
        column(items, |item| micros(item.draft.retention)),
        column(items, |item| item.draft.after_crash.as_str()),
        column(items, |item| item.draft.fresh),
        column(items, |item| item.draft.note.as_deref()),
    ];
    columns.extend(outcomes(items, outcome));
    columns
}

/// The parameters of `write.sql`.
pub(crate) fn write<'a>(items: &'a [(Id, &'a Write)]) -> Vec<Column<'a>> {
    let action = |item: &Write| match item.action {
        Action::Renew { .. } => "renew",
        Action::Complete { .. } => "complete",
        Action::Release { .. } => "release",
        Action::Abandon { .. } => "abandon",
        Action::Hold { .. } => "hold",
        Action::Void => "void",
    };
    let lease = |item: &Write| match item.action {
        Action::Renew { lease, .. } => Some(Span(lease)),
        _ => None,
    };
    let kept = |item: &Write| match item.action {
        Action::Release { .. } | Action::Void => Some(micros(Terms::RELEASED_RETENTION)),
        _ => None,
    };
    fn note(item: &Write) -> Option<&str> {
        match &item.action {
            Action::Abandon { note, .. } | Action::Hold { note, .. } => Some(note),
            _ => None,
        }
    }
    let mut columns = vec![
        ids(items),
        column(items, token),
        column(items, fence),
        column(items, action),
        column(items, lease),
        column(items, note),
    ];
    columns.extend(outcomes(items, completed));
    columns.push(column(items, kept));
    columns
}

/// The parameters of `complete.sql`.
pub(crate) fn complete<'a>(items: &'a [(Id, &'a Write)]) -> Vec<Column<'a>> {
    let mut columns = vec![ids(items), column(items, token), column(items, fence)];
    columns.extend(outcomes(items, completed));
    columns
}

fn token(item: &Write) -> &[u8] {
    item.token.as_bytes()
}

fn fence(item: &Write) -> Option<i64> {
    item.action.fence().map(|fence| signed(fence.get()))
}

fn completed(item: &Write) -> Option<&Outcome> {
    match &item.action {
        Action::Complete { outcome, .. } => Some(outcome),
        _ => None,
    }
}

/// The status, subtype, headers and body of the items that have an outcome.
fn outcomes<'a, I>(items: &'a [(Id, &'a I)], of: impl Fn(&I) -> Option<&Outcome> + Copy) -> [Column<'a>; 4] {
    [
        column(items, move |item| of(item).map(status)),
        column(items, move |item| of(item).and_then(Outcome::subtype)),
        column(items, move |item| of(item).map(Outcome::stored_headers)),
        column(items, move |item| of(item).and_then(|outcome| outcome.body().map(|body| &**body))),
    ]
}

fn fingerprint(intent: &Intent) -> &[u8] {
    intent.fingerprint().as_bytes()
}

/// A status has three digits.
pub(crate) fn status(outcome: &Outcome) -> i16 {
    i16::try_from(outcome.status()).unwrap_or(i16::MAX)
}

/// A retention as it is stored; the longest is far within 63 bits.
fn micros(retention: Duration) -> i64 {
    i64::try_from(retention.as_micros()).unwrap_or(i64::MAX)
}

/// Fences and versions count microseconds and writes: they stay far within 63 bits.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
