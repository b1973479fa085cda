//! The limits that a request passes before its key is claimed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use semel::admin::{Ceiling, Prune};
use semel::store::Terms;
use semel::{Failure, Intent, Key, Lease, Once, Policy, Ran, Reconciled, RunError, Store};
use testkit::gates::Fault;
use tokio::sync::Semaphore;
use tokio::time::sleep;

use super::{Counter, LEASE, Running, engine, intent, key, with_lease};

fn numbered(number: usize) -> Key {
    Key::new("tests", &format!("key-{number}")).unwrap()
}

fn of(caller: &str, number: usize) -> Key {
    let scope = semel::Scope::new("tests").unwrap().with_principal(caller).unwrap();
    scope.key(&format!("key-{number}")).unwrap()
}

fn secs(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// Work that continues until released, and the number of concurrent runs.
#[derive(Clone)]
struct Load {
    go: Arc<Semaphore>,
    running: Arc<AtomicU32>,
    most: Arc<AtomicU32>,
}

impl Load {
    fn new() -> Self {
        Self { go: Arc::new(Semaphore::new(0)), running: Arc::default(), most: Arc::default() }
    }

    fn work(&self) -> impl FnOnce(Lease) -> Running + use<> {
        let load = self.clone();
        move |_lease| {
            Box::pin(async move {
                let running = load.running.fetch_add(1, Ordering::SeqCst) + 1;
                load.most.fetch_max(running, Ordering::SeqCst);
                load.go.acquire().await.unwrap().forget();
                load.running.fetch_sub(1, Ordering::SeqCst);
                Ok(1)
            })
        }
    }

    /// Starts this many runs, each with a caller that leaves at once.
    async fn abandoned(&self, once: &Once, numbers: std::ops::Range<usize>) {
        for number in numbers {
            let (key, intent) = (numbered(number), intent());
            let run = once.run(&key, &intent, self.work());
            assert!(tokio::time::timeout(Duration::from_millis(1), run).await.is_err());
        }
    }

    fn let_go(&self) {
        self.go.add_permits(1_000);
    }
}

#[tokio::test(start_paused = true)]
async fn callers_that_go_away_leave_no_more_attempts_than_may_run() {
    let (gate, once) = engine();
    let once = once.with_max_attempts(3);
    let (load, other) = (Load::new(), once.clone().with_policy(with_lease(Policy::retry())));
    load.abandoned(&once, 0..3).await;
    for number in 3..20 {
        let engine = if number % 2 == 0 { &once } else { &other };
        let refused = engine.run(&numbered(number), &intent(), load.work()).await;
        assert!(matches!(refused, Err(RunError::TooManyAttempts)), "{refused:?}");
    }
    assert_eq!(gate.calls("claim"), 3, "nothing is claimed that may not run");
    load.let_go();
    once.drain().await;
    assert_eq!(load.most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_succeeds_says_nothing_about_ends_that_fail() {
    let (gate, once) = engine();
    gate.disturb("complete", Fault::Unavailable);
    let counter = Counter::default();
    for number in 0..3 {
        once.run(&numbered(number), &intent(), counter.quick()).await.unwrap_err();
    }
    let health = once.store_health();
    assert_eq!((health.failed_writes, health.failed_settlements), (3, 3), "each of them was claimed");
    gate.heal();
    once.drain().await;
    assert_eq!(once.store_health().failed_writes, 0);
}

#[tokio::test(start_paused = true)]
async fn with_no_attempt_left_what_is_recorded_is_still_answered() {
    let (_, once) = engine();
    let held = |_lease| async { Err::<u32, _>(Failure::unknown("what it did is not known")) };
    let counter = Counter::default();
    once.run(&numbered(100), &intent(), counter.quick()).await.unwrap();
    once.run(&numbered(101), &intent(), held).await.unwrap_err();
    let once = once.with_max_attempts(2);
    let load = Load::new();
    load.abandoned(&once, 0..2).await;

    let ask = async |number, intent: &Intent| once.run(&numbered(number), intent, counter.quick()).await;
    assert_eq!(ask(100, &intent()).await.unwrap(), Ran::new(1, true));
    let other = Intent::of("charge", "invoice-42", &2_000).unwrap();
    assert!(matches!(ask(100, &other).await, Err(RunError::Mismatch(_))));
    assert!(matches!(ask(0, &intent()).await, Err(RunError::Pending { .. })));
    assert!(matches!(ask(101, &intent()).await, Err(RunError::Held(_))));
    assert!(matches!(ask(102, &intent()).await, Err(RunError::TooManyAttempts)));
    load.let_go();
    while load.running.load(Ordering::SeqCst) > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(ask(102, &intent()).await.unwrap().value, 2);
}

#[tokio::test(start_paused = true)]
async fn a_repeat_that_waits_needs_no_attempt_left() {
    let (_, once) = engine();
    let policy = with_lease(Policy::hold()).with_wait(secs(60));
    let once = once.with_policy(policy).with_max_attempts(1);
    let load = Load::new();
    load.abandoned(&once, 0..1).await;
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let (once, work) = (once.clone(), load.work());
            tokio::spawn(async move { once.run(&numbered(0), &intent(), work).await })
        })
        .collect();
    sleep(secs(5)).await;
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()));
    load.let_go();
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap().unwrap(), Ran::new(1, true));
    }
}

#[tokio::test(start_paused = true)]
async fn takeovers_and_hooks_need_an_attempt_left() {
    let (gate, once) = engine();
    let asked = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&asked);
    let hooked = once.clone().with_policy(with_lease(Policy::hold())).with_reconcile(move |_, _, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Reconciled::DidNotHappen }
    });
    let retried = once.with_policy(with_lease(Policy::retry()));
    let lost = |_lease| async { Err::<u32, _>(Failure::unknown("what it did is not known")) };
    hooked.run(&numbered(1), &intent(), lost).await.unwrap_err();
    retried.run(&numbered(2), &intent(), lost).await.unwrap_err();
    let claims = gate.calls("claim");
    let (hooked, retried) = (hooked.with_max_attempts(0), retried.with_max_attempts(0));
    for (once, number) in [(&hooked, 1), (&retried, 2)] {
        let refused = once.run(&numbered(number), &intent(), Counter::default().quick()).await;
        assert!(matches!(refused, Err(RunError::TooManyAttempts)), "{refused:?}");
    }
    assert_eq!((asked.load(Ordering::SeqCst), gate.calls("claim")), (0, claims));
    let hooked = hooked.with_max_attempts(1);
    let ran = hooked.run(&numbered(1), &intent(), Counter::default().quick()).await.unwrap();
    assert_eq!((ran.replayed, asked.load(Ordering::SeqCst)), (false, 1));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_counts_until_its_caller_is_told() {
    let (gate, once) = engine();
    let once = once.with_max_attempts(1);
    gate.disturb("complete", Fault::SlowAnswer(secs(1)));
    let counter = Counter::default();
    let (first_key, first_intent) = (numbered(0), intent());
    let first = once.run(&first_key, &first_intent, counter.quick());
    let other = async {
        sleep(Duration::from_millis(500)).await;
        assert_eq!((counter.count(), gate.calls("complete")), (1, 1), "the work is over");
        once.run(&numbered(1), &intent(), counter.quick()).await
    };
    let (first, other) = tokio::join!(first, other);
    assert_eq!(first.unwrap().value, 1);
    assert!(matches!(other, Err(RunError::TooManyAttempts)), "{other:?}");
    assert_eq!(once.run(&numbered(1), &intent(), counter.quick()).await.unwrap().value, 2);
}

#[tokio::test(start_paused = true)]
async fn attempts_that_settle_in_the_background_leave_room_up_to_a_limit() {
    let (gate, once) = engine();
    let once = once.with_max_attempts(3);
    gate.disturb("complete", Fault::Unavailable);
    let counter = Counter::default();
    let run = async |number| once.run(&numbered(number), &intent(), counter.quick()).await;
    for number in 0..3 {
        let pending = run(number).await;
        assert!(matches!(pending, Err(RunError::OutcomePending(_))), "{pending:?}");
    }
    assert_eq!(once.store_health().failed_settlements, 3);
    // This holds until as many attempts settle in the background as may run: each keeps its outcome
    // in memory.
    assert!(matches!(run(3).await, Err(RunError::TooManyAttempts)));
    gate.heal();
    while once.store_health().failed_settlements > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    while matches!(run(3).await, Err(RunError::TooManyAttempts)) {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(once.store_health().failed_writes, 0);
    once.drain().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_with_too_many_unsettled_keys_is_refused_until_some_are_settled() {
    let (_, once) = engine();
    let once = once.with_max_unsettled_per_caller(2);
    let load = Load::new();
    let held = |_lease| async { Err::<u32, _>(Failure::unknown("what it did is not known")) };
    once.run(&of("ann", 0), &intent(), held).await.unwrap_err();
    let (ann, running) = (of("ann", 1), intent());
    let run = once.run(&ann, &running, load.work());
    assert!(tokio::time::timeout(Duration::from_millis(1), run).await.is_err());

    let counter = Counter::default();
    let ask = async |caller: &str, number| once.run(&of(caller, number), &intent(), counter.quick()).await;
    let refused = ask("ann", 2).await;
    assert!(
        matches!(refused, Err(RunError::QuotaExceeded { retry_after }) if retry_after > Duration::ZERO),
        "{refused:?}"
    );
    assert!(matches!(ask("ann", 0).await, Err(RunError::Held(_))), "it is only looked at");
    assert!(ask("ben", 2).await.is_ok(), "others are not affected");
    load.let_go();
    while load.running.load(Ordering::SeqCst) > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(ask("ann", 1).await.unwrap(), Ran::new(1, true));
    for number in 2..10 {
        assert!(ask("ann", number).await.is_ok(), "what is settled does not count");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_left_held_counts_for_an_hour_at_most() {
    let (_, once) = engine();
    let once = once.with_max_unsettled_per_caller(1);
    let held = |_lease| async { Err::<u32, _>(Failure::unknown("what it did is not known")) };
    once.run(&of("ann", 0), &intent(), held).await.unwrap_err();
    let ask = async || once.run(&of("ann", 1), &intent(), Counter::default().quick()).await;
    assert!(matches!(ask().await, Err(RunError::QuotaExceeded { .. })));
    sleep(secs(29 * 60)).await;
    assert!(matches!(ask().await, Err(RunError::QuotaExceeded { .. })));
    sleep(secs(31 * 60)).await;
    assert!(ask().await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_key_that_was_abandoned_under_retry_is_lost_and_does_not_count() {
    let (_, once) = engine();
    let once = once.with_policy(with_lease(Policy::retry())).with_max_unsettled_per_caller(2);
    let lost = |_lease| async { Err::<u32, _>(Failure::unknown("what it did is not known")) };
    for attempt in 0..5 {
        let failed = once.run(&of("ann", 0), &intent(), lost).await;
        assert!(matches!(failed, Err(RunError::Failed { .. })), "attempt {attempt}: {failed:?}");
    }
    assert!(once.run(&of("ann", 1), &intent(), Counter::default().quick()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_held_key_counts_once_until_it_is_settled() {
    let (_, once) = engine();
    let once = once.with_reconcile(|_, _, _| async { Reconciled::DidNotHappen });
    let once = once.with_max_unsettled_per_caller(2);
    let held = |_lease| async { Err::<u32, _>(Failure::unknown("what it did is not known")) };
    let counter = Counter::default();
    for attempt in 0..5 {
        let failed = once.run(&of("ann", 0), &intent(), held).await;
        assert!(matches!(failed, Err(RunError::Failed { .. })), "attempt {attempt}: {failed:?}");
    }
    assert!(once.run(&of("ann", 1), &intent(), counter.quick()).await.is_ok());
    once.run(&of("ann", 2), &intent(), held).await.unwrap_err();
    let refused = once.run(&of("ann", 3), &intent(), counter.quick()).await;
    assert!(matches!(refused, Err(RunError::QuotaExceeded { .. })), "{refused:?}");
    // With the quota used up, not even a held key runs; after an hour it does, and is settled then.
    sleep(secs(61 * 60)).await;
    assert!(once.run(&of("ann", 0), &intent(), counter.quick()).await.is_ok());
    assert!(once.run(&of("ann", 3), &intent(), counter.quick()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_held_key_is_reconciled_while_new_keys_are_refused() {
    let held = |_lease| async { Err::<u32, _>(Failure::unknown("what it did is not known")) };
    let counter = Counter::default();
    for by_ceiling in [true, false] {
        let (_, once) = engine();
        let once = once.with_reconcile(|_, _, _| async { Reconciled::DidNotHappen });
        let ceiling = Ceiling::new();
        let once = match by_ceiling {
            true => once.with_ceiling(ceiling.clone()),
            false => once.with_max_new_per_caller(1, secs(3_600)),
        };
        once.run(&of("ann", 0), &intent(), held).await.unwrap_err();
        ceiling.set_reached(true);
        let refused = once.run(&of("ann", 1), &intent(), counter.quick()).await;
        assert!(matches!(refused, Err(RunError::StoreFull | RunError::QuotaExceeded { .. })), "{refused:?}");
        assert!(!once.run(&of("ann", 0), &intent(), counter.quick()).await.unwrap().replayed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_caller_of_too_many_new_keys_is_told_when_to_come_back() {
    let (gate, once) = engine();
    let once = once.with_max_new_per_caller(3, secs(60));
    let counter = Counter::default();
    let ask = async |number| once.run(&of("ann", number), &intent(), counter.quick()).await;
    for number in 0..3 {
        assert!(ask(number).await.is_ok());
    }
    let claims = gate.calls("claim");
    let Err(RunError::QuotaExceeded { retry_after }) = ask(3).await else { panic!("it is refused") };
    assert!(retry_after > secs(19) && retry_after <= secs(20), "{retry_after:?}");
    assert_eq!(gate.calls("claim"), claims);
    assert!(ask(0).await.unwrap().replayed, "replays cost nothing");
    sleep(retry_after).await;
    assert!(ask(3).await.is_ok());
    assert!(matches!(ask(4).await, Err(RunError::QuotaExceeded { .. })));
}

#[tokio::test(start_paused = true)]
async fn replays_refusals_and_attempts_after_a_release_cost_nothing_of_the_new_keys() {
    let (_, once) = engine();
    let once = once.with_max_new_per_caller(2, secs(3_600));
    let counter = Counter::default();
    let released = |_lease| async { Err::<u32, _>(Failure::nothing_happened("no such account")) };
    for _ in 0..5 {
        once.run(&of("ann", 0), &intent(), released).await.unwrap_err();
    }
    for _ in 0..5 {
        assert!(once.run(&of("ann", 1), &intent(), counter.quick()).await.is_ok());
    }
    // With no new keys left, an existing key may still run.
    assert!(once.run(&of("ann", 0), &intent(), counter.quick()).await.is_ok());
    let refused = once.run(&of("ann", 2), &intent(), counter.quick()).await;
    assert!(matches!(refused, Err(RunError::QuotaExceeded { .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn under_a_ceiling_only_new_keys_are_refused() {
    let (gate, once) = engine();
    let ceiling = Ceiling::new();
    let once = once.with_policy(with_lease(Policy::retry())).with_ceiling(ceiling.clone());
    let counter = Counter::default();
    let lost = |_lease| async { Err::<u32, _>(Failure::unknown("what it did is not known")) };
    once.run(&numbered(0), &intent(), counter.quick()).await.unwrap();
    once.run(&numbered(1), &intent(), lost).await.unwrap_err();
    let load = Load::new();
    load.abandoned(&once, 2..3).await;
    assert!(!ceiling.set_reached(true));
    let records = gate.store.size().records;
    let refused = once.run(&numbered(3), &intent(), counter.quick()).await;
    assert!(matches!(refused, Err(RunError::StoreFull)), "{refused:?}");
    assert_eq!(gate.store.size().records, records);
    assert!(once.run(&numbered(0), &intent(), counter.quick()).await.unwrap().replayed);
    // A lost key is taken over, because it already has a record. A running attempt is renewed and
    // completes.
    assert!(!once.run(&numbered(1), &intent(), counter.quick()).await.unwrap().replayed);
    sleep(LEASE * 2).await;
    load.let_go();
    while load.running.load(Ordering::SeqCst) > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(once.run(&numbered(2), &intent(), counter.quick()).await.unwrap().replayed);
    ceiling.set_reached(false);
    assert!(once.run(&numbered(3), &intent(), counter.quick()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_leaves_its_record_for_two_minutes() {
    let (gate, once) = engine();
    let refused = |_lease| async { Err::<u32, _>(Failure::nothing_happened("not allowed")) };
    for number in 0..10 {
        once.run(&numbered(number), &intent(), refused).await.unwrap_err();
    }
    let clock = gate.store.memory_clock();
    clock.advance(Terms::RELEASED_RETENTION - secs(1));
    assert_eq!(gate.store.prune(&Prune::default()).await.unwrap(), 0);
    clock.advance(secs(2));
    assert_eq!(gate.store.prune(&Prune::default()).await.unwrap(), 10);
}

#[tokio::test(start_paused = true)]
async fn writes_that_fail_are_told_until_one_succeeds() {
    let (gate, once) = engine();
    let counter = Counter::default();
    once.run(&key(), &intent(), counter.quick()).await.unwrap();
    assert_eq!(once.store_health().failed_writes, 0);
    gate.disturb("claim", Fault::Unavailable);
    for number in 0..3 {
        once.run(&numbered(number), &intent(), counter.quick()).await.unwrap_err();
    }
    assert_eq!(once.store_health().failed_writes, 3);
    assert!(once.store_health().since_write >= secs(1));
    gate.heal();
    assert!(once.run(&key(), &intent(), counter.quick()).await.unwrap().replayed);
    assert_eq!(once.store_health().failed_writes, 3, "a replay writes nothing");
    once.run(&numbered(0), &intent(), counter.quick()).await.unwrap();
    let health = once.store_health();
    assert!(health.failed_writes == 0 && health.since_write < secs(1), "{health:?}");
}
