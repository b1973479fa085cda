//! The store of the model: a row becomes a record, the production code works on it, and it becomes
//! a row again.

use std::sync::LazyLock;
use std::time::Duration;

use semel::protocol::slot;
use semel::protocol::{decide, decide::OperatorChange};
use semel::protocol::{draft::Action, draft::Draft, draft::DraftState, draft::Replace, draft::Write};
use semel::store::{Ask, Claim, Owner, Record, RecordState, Takeover, Terms, Token};
use semel::store::{backend::Replaced, backend::Written};
use semel::store::{verbs, verbs::Claiming, verbs::Step};
use semel::{AfterCrash, Fence, Intent, Key, Outcome, Timestamp};

use super::mutants::Mutant;
use super::protocol::Config;
use super::state::{Message, Op, Reply, Row, Stage, State};

/// The token of an operator.
pub(crate) const OPERATOR: u8 = 99;

/// The moment from which fences count: number 1 is assigned a moment later.
const BEGINNING: u64 = 1_000;
/// A retention longer than everything that happens from the beginning on.
const RETENTION: Duration = Duration::from_micros(500);

/// A moment before the beginning, by more than a retention.
pub(crate) const LONG_AGO: Timestamp = Timestamp::from_micros(1);
/// A moment before everything that happens, by less than a retention.
const LATELY: Timestamp = Timestamp::from_micros(BEGINNING);
pub(crate) const FAR_AHEAD: Timestamp = Timestamp::from_micros(1 << 60);

pub(crate) static KEY: LazyLock<Key> = LazyLock::new(|| Key::new("model", "key").expect("a valid key"));
pub(crate) static INTENT: LazyLock<Intent> =
    LazyLock::new(|| Intent::of("run", "", &()).expect("a valid intent"));
pub(crate) static OWNER: LazyLock<Owner> = LazyLock::new(|| Owner::new("model"));

/// The clock: each fence is a moment later than the previous one.
fn now(state: &State) -> Timestamp {
    moment(state.last_fence + 1)
}

/// The moment at which this fence is assigned.
pub(crate) fn moment(fence: u8) -> Timestamp {
    Timestamp::from_micros(BEGINNING + u64::from(fence))
}

pub(crate) fn fence(number: u8) -> Fence {
    Fence::new(moment(number).as_micros())
}

pub(crate) fn fence_number(fence: Fence) -> u8 {
    u8::try_from(fence.get() - BEGINNING).expect("the model's numbers are small")
}

pub(crate) fn token(number: u8) -> Token {
    Token::from_bytes([number; 16])
}

pub(crate) fn outcome(number: u8) -> Outcome {
    let status = 200 + u16::from(number);
    Outcome::new(status).expect("a valid status")
}

pub(crate) fn record(row: Row) -> Record {
    let settled_at = if row.aged { LONG_AGO } else { LATELY };
    let mut record = Record::new(KEY.clone(), INTENT.clone(), token(row.token), fence(row.fence), LONG_AGO);
    record.state = match row.stage {
        Stage::Running => RecordState::Running,
        Stage::Done => RecordState::Done { outcome: outcome(row.outcome), finished_at: settled_at },
        Stage::Released => RecordState::Released,
    };
    record.version = row.version.into();
    record.owner = OWNER.clone();
    record.lease_until = if row.lease_over { settled_at } else { FAR_AHEAD };
    record.updated_at = settled_at;
    record.retention = RETENTION;
    record.after_crash = if row.hold { AfterCrash::Hold } else { AfterCrash::Retry };
    record
}

/// The record as the store of this configuration sees it, which a mutant distorts.
fn seen(config: &Config, row: Row, asked_by: Option<usize>) -> Box<Record> {
    let mut record = record(row);
    if config.mutated(Mutant::ExpiryFromClaim)
        && let RecordState::Done { finished_at, .. } = &mut record.state
    {
        *finished_at = if row.aged_since_claim { LONG_AGO } else { LATELY };
    }
    let by_asker = asked_by.is_some_and(|request| !config.is_under_hold(request));
    if config.mutated(Mutant::HeldExpires) || config.mutated(Mutant::TakeoverByAsker) && by_asker {
        record.after_crash = AfterCrash::Retry;
    }
    Box::new(record)
}

pub(crate) fn row(record: &Record, now: Timestamp) -> Row {
    let small = |number: u64| u8::try_from(number).expect("the model's numbers are small");
    Row {
        token: record.token.as_bytes()[0],
        fence: fence_number(record.fence),
        stage: match record.state {
            RecordState::Running => Stage::Running,
            RecordState::Done { .. } => Stage::Done,
            RecordState::Released => Stage::Released,
            _ => unreachable!("the model has no other state"),
        },
        lease_over: record.state != RecordState::Released && record.lease_until <= now,
        hold: record.after_crash == AfterCrash::Hold,
        aged: match record.state {
            RecordState::Running => record.lease_until == LONG_AGO,
            RecordState::Done { finished_at, .. } => finished_at == LONG_AGO,
            RecordState::Released => record.updated_at == LONG_AGO,
            _ => unreachable!("the model has no other state"),
        },
        aged_since_claim: false,
        outcome: record.outcome().map_or(0, |outcome| small(u64::from(outcome.status()) - 200)),
        version: small(record.version),
    }
}

fn ask(config: &Config, message: &Message, not_after: Timestamp) -> Ask {
    let hold = config.is_under_hold(message.from);
    Ask::new(KEY.clone(), INTENT.clone(), not_after)
        .with_token(token(message.token))
        .with_owner(OWNER.clone())
        .with_terms(Terms::DEFAULT.with_after_crash(if hold { AfterCrash::Hold } else { AfterCrash::Retry }))
        .with_takeover(if hold { Takeover::Never } else { Takeover::WhenOver })
}

/// Applies a message to the row, as the memory store would, and returns the reply that the verbs
/// derive.
pub(crate) fn apply(config: &Config, state: &mut State, message: Message) -> Reply {
    let (before, commits) = (state.row, state.commits);
    let now = now(state);
    let mut slot = state.row.map(|row| seen(config, row, Some(message.from)));
    let shown = slot.as_ref().map(|record| record.version);
    let reply = match message.op {
        Op::Claim => open(config, &mut slot, &message, now),
        Op::Replace { .. } => replace(config, &mut slot, &message, now),
        Op::Complete | Op::Release | Op::Void => write(config, &mut slot, &message, now),
    };
    // A record that was only read stays as it was.
    if slot.as_ref().map(|record| record.version) != shown {
        let same_claim = |after: &Row| before.filter(|before| before.token == after.token);
        state.row = slot.as_ref().map(|record| row(record, now)).map(|after| Row {
            aged_since_claim: same_claim(&after).is_some_and(|before| before.aged_since_claim),
            ..after
        });
    }
    if state.row != before {
        note(config, state, &message, before);
        if config.failovers > 0 {
            state.before_last_write = Some((before, commits));
        }
    }
    reply
}

/// Checks that the store refuses a claim and a replace after their `not_after`.
pub(crate) fn refuses_after_not_after(config: &Config, state: &State, message: &Message) -> bool {
    let now = now(state);
    let mut slot = state.row.map(|row| seen(config, row, Some(message.from)));
    let before = slot.clone();
    let refused = match message.op {
        Op::Claim => {
            let ask = ask(config, message, LONG_AGO);
            let opened = slot::open(&mut slot, &ask, now);
            matches!(Claiming::new(&ask, 1).opened(opened, now), Step::Answer(Claim::Late))
        }
        Op::Replace { expected_token, expected_version } => {
            let mut late = replacement(config, message, expected_token, expected_version);
            late.not_after = Some(LONG_AGO);
            !matches!(slot::replace(&mut slot, &late, now), Replaced::Applied { .. })
        }
        _ => false,
    };
    refused && slot == before
}

fn open(config: &Config, slot: &mut Option<Box<Record>>, message: &Message, now: Timestamp) -> Reply {
    let ask = ask(config, message, FAR_AHEAD);
    let existed = slot.is_some();
    let mut opened = slot::open(slot, &ask, now);
    if config.mutant == Some(Mutant::FenceRestarts)
        && !existed
        && let semel::store::backend::Opened::Created { fence, .. } = &mut opened
        && let Some(record) = slot
    {
        *fence = self::fence(1);
        record.fence = self::fence(1);
    }
    match Claiming::new(&ask, 1).opened(opened, now) {
        Step::Replace(replace) => Reply::Seen {
            token: replace.expected_token.as_bytes()[0],
            version: replace.expected_version as u8,
        },
        Step::Answer(claim) => claim_reply(&claim),
        step => unreachable!("an open is not followed by {step:?}"),
    }
}

fn claim_reply(claim: &Claim) -> Reply {
    match claim {
        Claim::Granted(lease) => Reply::Granted(fence_number(lease.fence())),
        Claim::Done(done) => Reply::Done((done.outcome.status() - 200) as u8),
        Claim::Running { .. } => Reply::Running,
        Claim::Held(_) | Claim::Late => Reply::HeldOrLate,
        other => unreachable!("no request of the model is answered {other:?}"),
    }
}

/// The replace that the claim of this message would send for a record with this token and version.
fn replacement(config: &Config, message: &Message, expected_token: u8, expected_version: u8) -> Replace {
    let free = Row {
        token: expected_token,
        fence: 0,
        stage: Stage::Released,
        lease_over: false,
        hold: true,
        aged: false,
        aged_since_claim: false,
        outcome: 0,
        version: 0,
    };
    let mut found = record(free);
    found.version = expected_version.into();
    let ask = ask(config, message, FAR_AHEAD);
    let opened = semel::store::backend::Opened::Found(Box::new(found));
    match Claiming::new(&ask, 1).opened(opened, LONG_AGO) {
        Step::Replace(replace) => *replace,
        // The token is the same: the replace was sent before that token released the record.
        _ => Replace {
            key: KEY.clone(),
            expected_token: token(expected_token),
            expected_version: expected_version.into(),
            draft: Draft {
                intent: INTENT.clone(),
                state: DraftState::Running,
                token: token(message.token),
                attempt: 2,
                owner: OWNER.clone(),
                lease: Terms::DEFAULT.lease(),
                retention: RETENTION,
                after_crash: ask.terms.after_crash(),
                fresh: false,
                note: None,
            },
            not_after: Some(FAR_AHEAD),
        },
    }
}

fn replace(config: &Config, slot: &mut Option<Box<Record>>, message: &Message, now: Timestamp) -> Reply {
    let Op::Replace { expected_token, expected_version } = message.op else { unreachable!() };
    let mut item = replacement(config, message, expected_token, expected_version);
    if let Some(found) = slot {
        if matches!(config.mutant, Some(Mutant::ReplaceExpectsNothing | Mutant::ReplaceExpectsVersionOnly)) {
            item.expected_token = found.token;
        }
        if config.mutant == Some(Mutant::ReplaceExpectsNothing) {
            item.expected_version = found.version;
        }
    }
    match slot::replace(slot, &item, now) {
        Replaced::Applied { fence, .. } => Reply::Granted(fence_number(fence)),
        Replaced::Changed | Replaced::Locked | Replaced::Late => Reply::Changed,
    }
}

fn write(config: &Config, slot: &mut Option<Box<Record>>, message: &Message, now: Timestamp) -> Reply {
    let fence = fence(message.fence);
    let action = match message.op {
        Op::Complete => Action::Complete { fence, outcome: outcome(message.from as u8 + 1) },
        Op::Release => Action::Release { fence },
        _ => Action::Void,
    };
    let mut item = Write { key: KEY.clone(), token: token(message.token), action };
    mutate(config, slot.as_deref(), &mut item, now);
    let written = slot::write(slot, &item, now);
    let applied = matches!(written, Written::Applied);
    if config.mutant.is_some_and(Mutant::releases_by_deleting) && applied && message.op == Op::Release {
        *slot = None;
    }
    let ack = verbs::acknowledge(&item, &written).expect("no record of the model is locked");
    // The sender of a release or a void needs only the answer, not its content.
    let stands = if message.op == Op::Complete { ack.stands() } else { applied };
    if stands { Reply::Stands } else { Reply::Lost }
}

/// Lets a write match what it should not match.
fn mutate(config: &Config, found: Option<&Record>, item: &mut Write, now: Timestamp) {
    let Some(found) = found else { return };
    let Some(mutant) = config.mutant else { return };
    let lease_alive = found.lease_until > now;
    let any_owner = match item.action {
        Action::Complete { .. } => {
            mutant == Mutant::CompleteWithoutToken || (mutant == Mutant::CompleteByLease && lease_alive)
        }
        Action::Release { .. } => mutant == Mutant::ReleaseWithoutToken,
        _ => false,
    };
    let any_fence = mutant == Mutant::CompleteWithoutFence && item.token == found.token;
    if any_owner && found.state == RecordState::Running {
        item.token = found.token;
    }
    if (any_owner || any_fence) && found.state == RecordState::Running {
        match &mut item.action {
            Action::Complete { fence, .. } => *fence = found.fence,
            Action::Release { fence } if any_owner => *fence = found.fence,
            _ => {}
        }
    }
}

/// Updates the counters after a write that changed the row.
fn note(config: &Config, state: &mut State, message: &Message, before: Option<Row>) {
    let owner_write = matches!(message.op, Op::Complete | Op::Release | Op::Void);
    let retires = matches!(message.op, Op::Release | Op::Void);
    let bit = 1 << message.from;
    match before {
        Some(found) if owner_write && found.stage == Stage::Running && found.token != message.token => {
            state.broken.foreign_write = true;
        }
        Some(found) if matches!(message.op, Op::Replace { .. }) => {
            let live = found.stage == Stage::Running && !found.lease_over;
            let done = found.stage == Stage::Done && !found.aged;
            state.broken.live_or_done_replaced |= live || done;
        }
        _ => {}
    }
    if owner_write {
        if message.op == Op::Complete {
            state.outcomes += 1;
            state.commits += u8::from(config.transactional);
        }
        if config.watch_retired && retires {
            state.retired |= bit;
        }
    } else {
        let fence = state.row.map_or(0, |row| row.fence);
        state.broken.retired_token_granted |= state.retired & bit != 0;
        grant(state, fence);
    }
}

fn grant(state: &mut State, fence: u8) {
    state.broken.fence_not_rising |= fence <= state.last_fence;
    state.last_fence = state.last_fence.max(fence);
}

/// Records the finding of an operator or a hook about a lost attempt: an outcome by `owner`, or
/// that the effect did not happen.
pub(crate) fn reconcile(state: &mut State, happened: Option<u8>) {
    let now = now(state);
    let mut slot = state.row.map(record).map(Box::new);
    let found = slot.clone().expect("there is something to reconcile");
    let change = happened.map_or(OperatorChange::Reset, |by| OperatorChange::Resolve(outcome(by)));
    let draft = decide::operator_change(Some(&found), found.fence, &change, "model", token(OPERATOR), now)
        .expect("a held key can be settled");
    let item = Replace {
        key: KEY.clone(),
        expected_token: found.token,
        expected_version: found.version,
        draft,
        not_after: None,
    };
    let replaced = slot::replace(&mut slot, &item, now);
    assert!(matches!(replaced, Replaced::Applied { .. }), "nothing came between");
    state.row = slot.as_ref().map(|record| row(record, now));
    grant(state, state.row.map_or(0, |row| row.fence));
    state.outcomes += u8::from(happened.is_some());
}

/// Returns `true` if the store would prune this record.
pub(crate) fn is_expired(config: &Config, state: &State, row: Row) -> bool {
    seen(config, row, None).is_expired(now(state))
}
