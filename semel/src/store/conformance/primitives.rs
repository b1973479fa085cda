//! The primitives of a backend, one by one.
//!
//! The verbs hide most mistakes in them: a `replace` that ignores the version would show only in a
//! race.

use std::time::Duration;

use futures_util::future::join_all;

use super::{intent, key, outcome};
use crate::protocol::ask::{Ask, Takeover};
use crate::protocol::draft::{Action, Draft, DraftState, Replace, Write};
use crate::store::backend::{Backend, Opened, Replaced, Written};
use crate::words::error::StoreError;
use crate::words::lease::{Fence, Token};
use crate::words::record::{Owner, Record, RecordState};
use crate::words::terms::{AfterCrash, Terms};
use crate::words::time::Timestamp;

async fn now(on: &dyn Backend) -> Timestamp {
    on.clock().await.expect("the backend tells its time")
}

async fn ask(on: &dyn Backend) -> Ask {
    Ask {
        key: key(),
        intent: intent(1),
        token: Token::random(),
        owner: Owner::new("conformance"),
        terms: Terms::DEFAULT,
        takeover: Takeover::Never,
        not_after: now(on).await.after(Duration::from_secs(100)),
    }
}

fn only<T>(items: Vec<Result<T, StoreError>>) -> T {
    let [item]: [_; 1] = items.try_into().unwrap_or_else(|_| panic!("one item, one answer"));
    item.expect("the backend answers")
}

/// A record that was just created.
async fn created(on: &dyn Backend) -> Record {
    let ask = ask(on).await;
    let opened = only(on.open(std::slice::from_ref(&ask)).await.expect("the backend answers").items);
    assert!(matches!(opened, Opened::Created { .. }), "{opened:?}");
    found(on, &ask.key).await
}

async fn found(on: &dyn Backend, key: &crate::words::key::Key) -> Record {
    let read = only(on.read(std::slice::from_ref(key)).await.expect("the backend answers").items);
    read.expect("there is a record")
}

/// A replace of this record, in the name of another token.
async fn replacing(on: &dyn Backend, record: &Record) -> Replace {
    Replace {
        key: record.key.clone(),
        expected_token: record.token,
        expected_version: record.version,
        draft: Draft {
            intent: record.intent.clone(),
            state: DraftState::Running,
            token: Token::random(),
            attempt: record.attempt + 1,
            owner: Owner::new("another"),
            lease: Duration::from_secs(30),
            retention: record.retention,
            after_crash: record.after_crash,
            fresh: false,
            note: None,
        },
        not_after: Some(now(on).await.after(Duration::from_secs(100))),
    }
}

async fn replaced(on: &dyn Backend, item: &Replace) -> Replaced {
    only(on.replace(std::slice::from_ref(item)).await.expect("the backend answers").items)
}

/// An open shows the existing record and does not change it.
pub async fn an_open_shows_what_is_there(on: &dyn Backend) {
    let record = created(on).await;
    let again = Ask { key: record.key.clone(), ..ask(on).await };
    let opened = only(on.open(&[again]).await.expect("the backend answers").items);
    assert!(matches!(opened, Opened::Found(there) if *there == record));
    assert_eq!(found(on, &record.key).await, record);
}

/// An open after its `not_after` creates nothing.
pub async fn a_late_open_creates_nothing(on: &dyn Backend) {
    let late = Ask { not_after: Timestamp::from_micros(1), ..ask(on).await };
    let opened = only(on.open(std::slice::from_ref(&late)).await.expect("the backend answers").items);
    assert!(matches!(opened, Opened::Late), "{opened:?}");
    assert!(only(on.read(&[late.key]).await.expect("the backend answers").items).is_none());
}

/// A replace raises version and fence and writes the whole draft.
pub async fn a_replace_writes_the_whole_record(on: &dyn Backend) {
    let record = created(on).await;
    let mut item = replacing(on, &record).await;
    (item.draft.retention, item.draft.after_crash) = (Duration::from_secs(77), AfterCrash::Transactional);
    let Replaced::Applied { fence, lease_until } = replaced(on, &item).await else { panic!("not applied") };
    let after = found(on, &record.key).await;
    assert!(fence > record.fence && after.version > record.version);
    assert_eq!((after.fence, after.lease_until), (fence, lease_until));
    assert_eq!((after.token, after.attempt, &after.owner), (item.draft.token, 2, &item.draft.owner));
    assert_eq!((after.retention, after.after_crash), (item.draft.retention, item.draft.after_crash));
    assert_eq!(after.created_at, record.created_at);
    assert!(after.updated_at >= record.updated_at && after.heartbeat_at == after.updated_at);
    assert_eq!(after.lease_until, after.updated_at.after(item.draft.lease));
}

/// A replace keeps the note unless it brings one; a record with a fresh life begins without a note.
pub async fn a_replace_keeps_the_note_until_a_new_life(on: &dyn Backend) {
    let record = created(on).await;
    let step = async |note: Option<&str>, fresh| {
        let mut item = replacing(on, &found(on, &record.key).await).await;
        (item.draft.note, item.draft.fresh) = (note.map(Into::into), fresh);
        assert!(matches!(replaced(on, &item).await, Replaced::Applied { .. }));
        let after = found(on, &record.key).await;
        (after.note.clone().map(|note| note.text.to_string()), after)
    };
    assert_eq!(step(Some("one"), false).await.0.as_deref(), Some("one"));
    assert_eq!(step(None, false).await.0.as_deref(), Some("one"));
    let (note, old) = step(Some("two"), false).await;
    assert_eq!((note.as_deref(), old.created_at), (Some("two"), record.created_at));
    let (note, fresh) = step(None, true).await;
    assert_eq!((note, fresh.created_at), (None, fresh.updated_at));
}

/// A replace can record an outcome and the moment at which it was recorded.
pub async fn a_replace_can_record_an_outcome(on: &dyn Backend) {
    let record = created(on).await;
    let mut item = replacing(on, &record).await;
    item.draft.state = DraftState::Done(outcome(1));
    assert!(matches!(replaced(on, &item).await, Replaced::Applied { .. }));
    let after = found(on, &record.key).await;
    assert_eq!(after.state, RecordState::Done { outcome: outcome(1), finished_at: after.updated_at });
}

/// A complete keeps the note of the record.
pub async fn a_complete_keeps_the_note(on: &dyn Backend) {
    let record = created(on).await;
    let write = |action| Write { key: record.key.clone(), token: record.token, action };
    let abandon = write(Action::Abandon { fence: record.fence, note: "slow".into() });
    let complete = write(Action::Complete { fence: record.fence, outcome: outcome(1) });
    for item in [abandon, complete] {
        let written = only(on.write(&[item]).await.expect("the backend answers").items);
        assert!(matches!(written, Written::Applied));
    }
    let after = found(on, &record.key).await;
    assert_eq!(after.note.as_ref().map(|note| &*note.text), Some("slow"));
    assert_eq!(after.heartbeat_at, record.heartbeat_at, "only a renewal is a heartbeat");
}

/// A replace that expects another version changes nothing.
pub async fn a_replace_expects_the_version(on: &dyn Backend) {
    let record = created(on).await;
    for expected_version in [record.version - 1, record.version + 1] {
        let item = Replace { expected_version, ..replacing(on, &record).await };
        assert_eq!(replaced(on, &item).await, Replaced::Changed);
    }
    assert_eq!(found(on, &record.key).await, record);
}

/// A replace that expects another token changes nothing.
pub async fn a_replace_expects_the_token(on: &dyn Backend) {
    let record = created(on).await;
    let item = Replace { expected_token: Token::random(), ..replacing(on, &record).await };
    assert_eq!(replaced(on, &item).await, Replaced::Changed);
    assert_eq!(found(on, &record.key).await, record);
}

/// A replace after its `not_after` changes nothing.
pub async fn a_late_replace_changes_nothing(on: &dyn Backend) {
    let record = created(on).await;
    let item = Replace { not_after: Some(Timestamp::from_micros(1)), ..replacing(on, &record).await };
    assert_eq!(replaced(on, &item).await, Replaced::Late);
    assert_eq!(found(on, &record.key).await, record);
}

/// A replace where there is no record creates none.
pub async fn a_replace_creates_nothing(on: &dyn Backend) {
    let record = created(on).await;
    let item = Replace { key: key(), ..replacing(on, &record).await };
    assert_eq!(replaced(on, &item).await, Replaced::Changed);
    assert!(only(on.read(&[item.key]).await.expect("the backend answers").items).is_none());
}

/// One of many replaces that expect the same record is applied.
pub async fn one_of_many_replaces_is_applied(on: &dyn Backend) {
    let record = created(on).await;
    let items = join_all((0..16).map(|_| replacing(on, &record))).await;
    let answers = join_all(items.iter().map(|item| replaced(on, item))).await;
    let applied = answers.iter().filter(|answer| matches!(answer, Replaced::Applied { .. })).count();
    assert_eq!(applied, 1);
}

/// The items of one call are answered in order, and an item that is not applied does not hinder the
/// others.
pub async fn items_of_one_call_are_on_their_own(on: &dyn Backend) {
    let (one, two, three) = (created(on).await, created(on).await, created(on).await);
    let release = |record: &Record, fence: Fence| Write {
        key: record.key.clone(),
        token: record.token,
        action: Action::Release { fence },
    };
    let wrong = Fence::new(two.fence.get() - 1);
    let complete = Action::Complete { fence: three.fence, outcome: outcome(1) };
    let items = [
        release(&one, one.fence),
        release(&two, wrong),
        Write { key: three.key.clone(), token: three.token, action: complete },
        Write { key: key(), token: one.token, action: Action::Void },
    ];
    let answers = on.write(&items).await.expect("the backend answers").items;
    let answers: Vec<Written> =
        answers.into_iter().map(|answer| answer.expect("the backend answers")).collect();
    assert!(matches!(&answers[0], Written::Applied));
    assert!(matches!(&answers[1], Written::Unapplied(Some(there)) if there.key == two.key));
    assert!(matches!(&answers[2], Written::Applied));
    assert!(matches!(&answers[3], Written::Unapplied(None)));
    assert_eq!(found(on, &one.key).await.state, RecordState::Released);
    assert_eq!(found(on, &two.key).await, two);
    assert_eq!(found(on, &three.key).await.outcome(), Some(&outcome(1)));
}
