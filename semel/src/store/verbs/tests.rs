//! Tests of the verbs with answers that the memory store never gives.

use std::sync::Mutex;

use super::*;
use crate::protocol::ask::Takeover;
use crate::protocol::slot;
use crate::store::backend::Opened;
use crate::store::memory::MemoryStore;
use crate::words::intent::Intent;
use crate::words::lease::Transactions;
use crate::words::record::{Owner, RecordState};
use crate::words::terms::Terms;

const NOW: Timestamp = Timestamp::from_micros(1_000_000);

fn ask() -> Ask {
    Ask {
        key: Key::new("r", "k").unwrap(),
        intent: Intent::of("charge", "", &1).unwrap(),
        token: Token::random(),
        owner: Owner::new("tests"),
        terms: Terms::DEFAULT,
        takeover: Takeover::Never,
        not_after: NOW.after(Duration::from_secs(1)),
    }
}

/// A record of another attempt of the same key.
fn record(state: RecordState) -> Record {
    let mut slot = None;
    slot::open(&mut slot, &ask(), NOW);
    Record { state, ..*slot.expect("it was created") }
}

fn found(state: RecordState) -> Opened {
    Opened::Found(Box::new(record(state)))
}

/// A backend that gives scripted answers in turn and remembers the calls.
#[derive(Default)]
struct Script {
    opens: Mutex<Vec<Opened>>,
    replaces: Mutex<Vec<Replaced>>,
    reads: Mutex<Vec<Option<Record>>>,
    writes: Mutex<Vec<Written>>,
    replaced: Mutex<Vec<Replace>>,
}

fn next<T>(answers: &Mutex<Vec<T>>) -> Result<Answers<T>, StoreError> {
    let mut answers = answers.lock().unwrap();
    assert!(!answers.is_empty(), "asked more often than expected");
    Ok(Answers { now: NOW, items: vec![Ok(answers.remove(0))] })
}

#[async_trait]
impl Backend for Script {
    fn name(&self) -> &'static str {
        "script"
    }

    async fn clock(&self) -> Result<Timestamp, StoreError> {
        Ok(NOW)
    }

    fn known_clock(&self) -> Option<Timestamp> {
        Some(NOW)
    }

    fn transactions(&self) -> Option<Transactions> {
        None
    }

    fn needs_pruning(&self) -> bool {
        false
    }

    async fn open(&self, _: &[Ask]) -> Result<Answers<Opened>, StoreError> {
        next(&self.opens)
    }

    async fn replace(&self, items: &[Replace]) -> Result<Answers<Replaced>, StoreError> {
        self.replaced.lock().unwrap().extend_from_slice(items);
        next(&self.replaces)
    }

    async fn write(&self, _: &[Write]) -> Result<Answers<Written>, StoreError> {
        next(&self.writes)
    }

    async fn read(&self, _: &[Key]) -> Result<Answers<Option<Record>>, StoreError> {
        next(&self.reads)
    }

    async fn scan(&self, _: &ListQuery) -> Result<Page, StoreError> {
        unreachable!("no test scans")
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        unreachable!("no test counts")
    }

    async fn prune(&self, _: &Prune) -> Result<u64, StoreError> {
        unreachable!("no test prunes")
    }

    async fn keep_secret(&self, _: Option<&[u8]>, _: &[u8]) -> Result<Vec<u8>, StoreError> {
        unreachable!("no test keeps a secret")
    }
}

fn script(opens: Vec<Opened>, replaces: Vec<Replaced>) -> Script {
    Script { opens: Mutex::new(opens), replaces: Mutex::new(replaces), ..Script::default() }
}

const CREATED: Opened = Opened::Created { fence: Fence::new(7), lease_until: NOW };
const APPLIED: Replaced = Replaced::Applied { fence: Fence::new(9), lease_until: NOW };

#[tokio::test]
async fn a_record_that_was_not_seen_is_looked_for_again() {
    let store = script(vec![Opened::Unseen, Opened::Unseen, CREATED], vec![]);
    assert!(matches!(store.claim(&ask()).await, Ok(Claim::Granted(lease)) if lease.fence() == Fence::new(7)));
}

#[tokio::test]
async fn a_record_that_is_never_seen_is_an_error_and_nothing_was_applied() {
    let store = script(vec![Opened::Unseen; TRIES as usize + 1], vec![]);
    let error = store.claim(&ask()).await.unwrap_err();
    assert!(error.is_transient() && !error.is_unknown());
}

#[tokio::test]
async fn a_replace_carries_the_claims_not_after_and_what_was_seen() {
    let store = script(vec![found(RecordState::Released)], vec![APPLIED]);
    let (ask, seen) = (ask(), record(RecordState::Released));
    let claim = store.claim(&ask).await.unwrap();
    assert!(matches!(claim, Claim::Granted(lease) if (lease.fence(), lease.attempt()) == (Fence::new(9), 2)));
    let sent = store.replaced.lock().unwrap().remove(0);
    assert_eq!((sent.not_after, sent.expected_version), (Some(ask.not_after), seen.version));
    assert_eq!(sent.draft.token, ask.token);
}

#[tokio::test]
async fn a_record_that_changed_is_looked_at_again() {
    let store =
        script(vec![found(RecordState::Released), found(RecordState::Running)], vec![Replaced::Changed]);
    assert!(matches!(store.claim(&ask()).await, Ok(Claim::Running { .. })));
}

#[tokio::test]
async fn a_record_that_changes_every_time_is_in_use() {
    let opens = vec![found(RecordState::Released); TRIES as usize + 1];
    let store = script(opens, vec![Replaced::Changed; TRIES as usize]);
    assert!(matches!(store.claim(&ask()).await, Ok(Claim::Running { .. })));
}

#[tokio::test]
async fn a_last_replace_whose_answer_was_lost_is_granted() {
    let ask = ask();
    let mut opens = vec![found(RecordState::Released); TRIES as usize];
    opens.push(Opened::Found(Box::new(Record {
        token: ask.token,
        attempt: 2,
        ..record(RecordState::Running)
    })));
    let store = script(opens, vec![Replaced::Changed; TRIES as usize]);
    let claim = store.claim(&ask).await.unwrap();
    assert!(matches!(&claim, Claim::Granted(lease) if lease.attempt() == 2), "{claim:?}");
}

#[tokio::test]
async fn a_record_that_is_locked_is_in_use_and_is_not_asked_for_again() {
    let store = script(vec![found(RecordState::Released)], vec![Replaced::Locked]);
    assert!(matches!(store.claim(&ask()).await, Ok(Claim::Running { .. })));
}

#[tokio::test]
async fn a_replace_that_came_late_is_late() {
    let store = script(vec![found(RecordState::Released)], vec![Replaced::Late]);
    assert!(matches!(store.claim(&ask()).await, Ok(Claim::Late)));
}

#[tokio::test]
async fn a_write_to_a_locked_record_is_not_applied_and_can_be_sent_again() {
    let locked = record(RecordState::Running);
    let lease = locked.lease();
    let writes = || Mutex::new(vec![Written::Unapplied(Some(Box::new(locked.clone())))]);
    let store = || Script { writes: writes(), ..Script::default() };
    let error = store().release(&lease).await.unwrap_err();
    assert!(error.is_transient() && !error.is_unknown());
    let error = store().void(lease.key(), lease.token(), NOW).await.unwrap_err();
    assert!(error.is_transient(), "a locked record may still become this token's");
    assert_eq!(store().renew(&lease, Duration::from_secs(1)).await.unwrap(), Ack::Repeated);
}

#[test]
fn a_void_is_final_only_after_not_after() {
    assert_eq!(voided(NOW, NOW.after(Duration::from_micros(1))), Void::Final);
    let Void::Early(left) = voided(NOW, NOW) else { panic!("settled at its not_after") };
    assert!(NOW.after(left) > NOW, "coming again after {left:?} would be early again");
}

#[tokio::test]
async fn an_operators_change_is_made_only_if_it_was_applied() {
    let lost = Record { lease_until: NOW, ..record(RecordState::Running) };
    let fence = lost.fence;
    let store = Script {
        reads: Mutex::new(vec![Some(lost.clone()), Some(lost.clone())]),
        replaces: Mutex::new(vec![Replaced::Changed, APPLIED]),
        ..Script::default()
    };
    assert_eq!(store.reset(&lost.key, fence, "why").await.unwrap(), OperatorAck::Applied);
    assert_eq!(store.replaced.lock().unwrap().len(), 2);
    let store = Script {
        reads: Mutex::new(vec![Some(lost.clone()); TRIES as usize + 1]),
        replaces: Mutex::new(vec![Replaced::Locked; TRIES as usize]),
        ..Script::default()
    };
    let error = store.reset(&lost.key, fence, "why").await.unwrap_err();
    assert!(error.to_string().contains("changed 8 times"), "{error}");
}

/// A store that sends every replace twice, as if the first answer had been lost.
struct Twice(MemoryStore);

#[async_trait]
impl Backend for Twice {
    fn name(&self) -> &'static str {
        "twice"
    }

    async fn clock(&self) -> Result<Timestamp, StoreError> {
        self.0.clock().await
    }

    fn known_clock(&self) -> Option<Timestamp> {
        self.0.known_clock()
    }

    fn transactions(&self) -> Option<Transactions> {
        None
    }

    fn needs_pruning(&self) -> bool {
        false
    }

    async fn open(&self, asks: &[Ask]) -> Result<Answers<Opened>, StoreError> {
        self.0.open(asks).await
    }

    async fn replace(&self, items: &[Replace]) -> Result<Answers<Replaced>, StoreError> {
        let _lost = self.0.replace(items).await;
        self.0.replace(items).await
    }

    async fn write(&self, items: &[Write]) -> Result<Answers<Written>, StoreError> {
        self.0.write(items).await
    }

    async fn read(&self, keys: &[Key]) -> Result<Answers<Option<Record>>, StoreError> {
        self.0.read(keys).await
    }

    async fn scan(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.0.scan(query).await
    }

    async fn stats(&self) -> Result<Stats, StoreError> {
        Backend::stats(&self.0).await
    }

    async fn prune(&self, prune: &Prune) -> Result<u64, StoreError> {
        Backend::prune(&self.0, prune).await
    }

    async fn keep_secret(&self, expected: Option<&[u8]>, value: &[u8]) -> Result<Vec<u8>, StoreError> {
        Backend::keep_secret(&self.0, expected, value).await
    }
}

#[tokio::test]
async fn an_operators_change_that_was_sent_twice_is_made() {
    for change in ["resolve", "reset", "forget"] {
        let store = Twice(MemoryStore::new());
        let not_after = store.now().await.unwrap().after(Duration::from_secs(1));
        let Ok(Claim::Granted(lease)) = store.claim(&Ask { not_after, ..ask() }).await else {
            panic!("a new key is granted")
        };
        store.abandon(&lease, "why").await.unwrap().applied().unwrap();
        let (key, fence) = (lease.key(), lease.fence());
        let changed = match change {
            "resolve" => store.resolve(key, fence, &Outcome::json(&1).unwrap(), "seen").await,
            "reset" => store.reset(key, fence, "seen").await,
            _ => store.forget(key, fence, "seen").await,
        };
        assert_eq!(changed.unwrap(), OperatorAck::Applied, "{change}");
    }
}

#[test]
fn one_item_has_one_answer() {
    let answers = |count| Answers { now: NOW, items: (0..count).map(Ok).collect() };
    assert!(one(answers(1)).is_ok());
    for wrong in [0, 2] {
        assert!(one(answers(wrong)).is_err_and(|error| error.is_unknown()));
    }
}

#[tokio::test]
async fn a_claim_that_may_arrive_after_a_released_record_is_gone_is_refused() {
    let ahead = |duration| Ask { not_after: NOW.after(duration), ..ask() };
    let script = Script::default();
    let refused = script.claim(&ahead(Terms::RELEASED_RETENTION + Duration::from_millis(1))).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "store refused: the claim's `not_after` is 120.001s ahead of the store's clock, and 120s is the most: take it from \
         `Store::now`"
    );
    script.opens.lock().unwrap().push(Opened::Late);
    assert!(matches!(script.claim(&ahead(Terms::RELEASED_RETENTION)).await, Ok(Claim::Late)));
}
