//! Runs: the start of work, and the recording of its outcome.

use std::sync::Arc;
use std::time::Duration;

use semel::error::OutcomeError;
use semel::store::{MemoryCache, Phase, Terms};
use semel::{
    Failure, Held, Intent, Lease, MemoryStore, Once, Outcome, Policy, Ran, Reconciled, RunError, Store,
    Tiered,
};
use testkit::gates::Fault;
use tokio::time::sleep;

use super::{Counter, LEASE, engine, intent, key, loses_its_lease, phase, record, take_over, with_lease};

#[tokio::test(start_paused = true)]
async fn a_repeat_gets_the_value_and_runs_nothing() {
    let (_, once) = engine();
    let counter = Counter::default();
    let first = once.run(&key(), &intent(), counter.quick()).await.unwrap();
    let again = once.run(&key(), &intent(), counter.quick()).await.unwrap();
    assert_eq!(first, Ran::new(1, false));
    assert_eq!(again, Ran::new(1, true));
    assert_eq!(counter.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_intent_is_refused_while_running_and_after() {
    let (_, once) = engine();
    let counter = Counter::default();
    let other = Intent::of("charge", "invoice-42", &2_000).unwrap();
    let running = tokio::spawn({
        let (once, work) = (once.clone(), counter.work(LEASE));
        async move { once.run(&key(), &intent(), work).await }
    });
    sleep(Duration::from_secs(1)).await;
    assert!(matches!(once.run(&key(), &other, counter.quick()).await, Err(RunError::Mismatch(_))));
    assert_eq!(running.await.unwrap().unwrap().value, 1);
    assert!(matches!(once.run(&key(), &other, counter.quick()).await, Err(RunError::Mismatch(_))));
    assert_eq!(counter.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_stops_nothing() {
    let (gate, once) = engine();
    let counter = Counter::default();
    let (key, intent) = (key(), intent());
    let run = once.run(&key, &intent, counter.work(Duration::from_secs(5)));
    assert!(tokio::time::timeout(Duration::from_secs(1), run).await.is_err());
    assert_eq!(phase(&gate).await, Some(Phase::Running));
    once.drain().await;
    assert_eq!(record(&gate).await.unwrap().outcome().unwrap().parse::<u32>().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_goes_away_before_its_claim_is_answered_stops_nothing_either() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::SlowAnswer(Duration::from_secs(2)));
    let counter = Counter::default();
    let (key, intent) = (key(), intent());
    let run = once.run(&key, &intent, counter.quick());
    assert!(tokio::time::timeout(Duration::from_secs(1), run).await.is_err());
    assert_eq!((phase(&gate).await, counter.count()), (Some(Phase::Running), 0));
    once.drain().await;
    assert_eq!((phase(&gate).await, counter.count()), (Some(Phase::Done), 1));
}

#[tokio::test(start_paused = true)]
async fn work_that_outlasts_its_lease_keeps_it_by_renewal() {
    let (_, once) = engine();
    let counter = Counter::default();
    let running = tokio::spawn({
        let (once, work) = (once.clone(), counter.work(LEASE * 5));
        async move { once.run(&key(), &intent(), work).await }
    });
    for _ in 0..4 {
        sleep(LEASE).await;
        let refused = once.run(&key(), &intent(), counter.quick()).await;
        assert!(
            matches!(refused, Err(RunError::Pending { retry_after, .. }) if retry_after > Duration::ZERO)
        );
    }
    assert_eq!(running.await.unwrap().unwrap().value, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_does_not_stop_the_renewal() {
    // The lease is long enough for a renewal to be in time on a busy machine.
    let lease = Duration::from_secs(3);
    let policy = Policy::hold().with_lease(lease);
    let once = Once::new(MemoryStore::new()).with_policy(policy);
    let (go, told) = std::sync::mpsc::channel();
    let blocking = |_lease| async move {
        told.recv().unwrap();
        Ok::<_, Failure>(1)
    };
    let running = tokio::spawn({
        let once = once.clone();
        async move { once.run(&key(), &intent(), blocking).await }
    });
    sleep(lease * 3 / 2).await;
    let refused = once.run(&key(), &intent(), |_| async { Ok::<_, Failure>(2) }).await;
    assert!(matches!(refused, Err(RunError::Pending { .. })), "{refused:?}");
    go.send(()).unwrap();
    assert_eq!(running.await.unwrap().unwrap().value, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_anything_happened_releases() {
    let (gate, once) = engine();
    let counter = Counter::default();
    let fails = |_lease| async { Err::<u32, _>(Failure::nothing_happened("no such account")) };
    let failed = once.run(&key(), &intent(), fails).await.unwrap_err();
    assert!(matches!(&failed, RunError::Failed { nothing_happened: true, .. }));
    assert_eq!(failed.to_string(), "the work failed before anything happened");
    assert_eq!(phase(&gate).await, Some(Phase::Released));
    assert_eq!(once.run(&key(), &intent(), counter.quick()).await.unwrap().value, 1);
}

#[tokio::test(start_paused = true)]
async fn any_other_failure_holds_the_key_with_its_reason() {
    let (gate, once) = engine();
    let counter = Counter::default();
    let fails = |_lease| async { Ok("timed out".parse::<u32>()?) };
    let failed = once.run(&key(), &intent(), fails).await.unwrap_err();
    assert!(matches!(failed, RunError::Failed { nothing_happened: false, .. }));
    let note = record(&gate).await.unwrap().note.unwrap();
    assert_eq!(&*note.text, "abandoned: invalid digit found in string");
    let held = once.run(&key(), &intent(), counter.quick()).await.unwrap_err();
    assert!(matches!(held, RunError::Held(Held { attempt: 1, .. })));
    assert_eq!(counter.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_holds_the_key_and_never_releases_it() {
    let (gate, once) = engine();
    let panics = |_lease| async {
        if true {
            panic!("out of cheese");
        }
        Ok::<u32, Failure>(1)
    };
    let failed = once.run(&key(), &intent(), panics).await.unwrap_err();
    assert!(matches!(failed, RunError::Failed { nothing_happened: false, .. }));
    assert_eq!(phase(&gate).await, Some(Phase::Held));
    assert!(record(&gate).await.unwrap().note.unwrap().text.contains("the work panicked: out of cheese"));
}

#[tokio::test(start_paused = true)]
async fn under_retry_the_next_attempt_takes_over() {
    let (_, once) = engine();
    let once = once.with_policy(with_lease(Policy::retry()));
    let fails = |_lease| async { Err::<u32, _>(Failure::unknown("timed out")) };
    once.run(&key(), &intent(), fails).await.unwrap_err();
    let takes_over = |lease: semel::Lease| async move {
        assert!(lease.is_takeover());
        Ok(lease.attempt())
    };
    assert_eq!(once.run(&key(), &intent(), takes_over).await.unwrap(), Ran::new(2, false));
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_signalled_and_the_loser_gets_the_winners_outcome() {
    let (gate, once) = engine();
    let store = gate.store.clone();
    let slow = move |lease: semel::Lease| async move {
        assert!(!lease.is_lost());
        store.memory_clock().advance(LEASE);
        let winner = take_over(&store).await;
        lease.lost().await;
        assert!(lease.is_lost());
        let ack = store.complete(&winner, &Outcome::json(&2).unwrap()).await?;
        assert!(ack.stands());
        Ok(1)
    };
    let ran = once.run(&key(), &intent(), slow).await.unwrap();
    assert_eq!(ran, Ran::new(2, true));
}

#[tokio::test(start_paused = true)]
async fn the_loser_of_a_takeover_is_never_told_its_own_outcome() {
    let (gate, once) = engine();
    let lost = once.run(&key(), &intent(), loses_its_lease(&gate)).await;
    assert!(matches!(lost, Err(RunError::Superseded)), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_late_owner_may_complete_without_a_takeover() {
    let (gate, once) = engine();
    let store = gate.store.clone();
    let late = move |_lease| async move {
        store.memory_clock().advance(LEASE * 3);
        Ok(1)
    };
    assert_eq!(once.run(&key(), &intent(), late).await.unwrap(), Ran::new(1, false));
}

#[tokio::test(start_paused = true)]
async fn a_transactional_handler_records_its_outcome_itself() {
    let (gate, once) = engine();
    let once = once.with_policy(with_lease(Policy::transactional()));
    let store = gate.store.clone();
    let commits = move |lease: semel::Lease| async move {
        let ack = store.complete(&lease, &Outcome::json("committed")?).await?;
        assert!(ack.stands());
        Err::<String, _>(Failure::unknown("the answer to the commit was lost"))
    };
    let ran = once.run(&key(), &intent(), commits).await.unwrap();
    assert_eq!(ran, Ran::new("committed".to_owned(), false));
}

/// Without this rule, every retry would repeat the effect of a handler that forgets to record its
/// outcome.
#[tokio::test(start_paused = true)]
async fn success_without_a_completion_is_an_error_under_transactional_and_the_key_is_held() {
    let (gate, once) = engine();
    let once = once.with_policy(with_lease(Policy::transactional()));
    let counter = Counter::default();
    let forgot = once.run(&key(), &intent(), counter.quick()).await.unwrap_err();
    assert!(matches!(forgot, RunError::CompletionMissing), "{forgot:?}");
    assert!(forgot.to_string().contains("`complete_in` or `semel.complete`"), "{forgot}");
    let held = record(&gate).await.unwrap();
    let why = "held: the handler succeeded without recording its outcome in its transaction";
    assert_eq!((phase(&gate).await, &*held.note.unwrap().text), (Some(Phase::Held), why));
    gate.store.memory_clock().advance(LEASE * 100);
    let again = once.run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(again, Err(RunError::Held(_))), "{again:?}");
    assert_eq!(counter.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_releases_or_loses_its_key_under_transactional_as_under_retry() {
    let (gate, once) = engine();
    let once = once.with_policy(with_lease(Policy::transactional()));
    let refuses = |_| async { Err::<u32, _>(Failure::nothing_happened("no such card")) };
    let refused = once.run(&key(), &intent(), refuses).await;
    assert!(matches!(refused, Err(RunError::Failed { nothing_happened: true, .. })), "{refused:?}");
    assert_eq!(phase(&gate).await, Some(Phase::Released));
    let breaks = |_| async { Err::<u32, _>(Failure::unknown("rolled back")) };
    let broken = once.run(&key(), &intent(), breaks).await;
    assert!(matches!(broken, Err(RunError::Failed { nothing_happened: false, .. })), "{broken:?}");
    assert_eq!(phase(&gate).await, Some(Phase::Lost));
}

#[tokio::test(start_paused = true)]
async fn a_missing_completion_is_found_when_the_store_is_back() {
    for completes in [true, false] {
        let (gate, once) = engine();
        let once = once.with_policy(with_lease(Policy::transactional()));
        for verb in ["find", "hold"] {
            gate.disturb(verb, Fault::Unavailable);
        }
        let store = gate.store.clone();
        let work = move |lease: Lease| async move {
            if completes {
                assert!(store.complete(&lease, &Outcome::json(&7)?).await?.stands());
            }
            Ok(7)
        };
        let pending = once.run(&key(), &intent(), work).await;
        assert!(matches!(pending, Err(RunError::OutcomePending(_))), "{pending:?}");
        gate.heal();
        once.drain().await;
        let expected = if completes { Phase::Done } else { Phase::Held };
        assert_eq!(phase(&gate).await, Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn the_finding_of_a_hook_is_recorded_under_transactional_too() {
    let (_, once) = engine();
    let once = once.with_policy(with_lease(Policy::transactional()));
    let counter = Counter::default();
    let forgot = once.run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(forgot, Err(RunError::CompletionMissing)), "{forgot:?}");
    let once = once.with_reconcile(|_, _, _| async { Reconciled::Happened(Outcome::json(&7).unwrap()) });
    for _ in 0..2 {
        let ran = once.run(&key(), &intent(), counter.quick()).await.unwrap();
        assert_eq!(ran, Ran::new(7, true));
    }
    assert_eq!(counter.count(), 1);
}

#[test]
fn transactional_is_refused_over_a_store_without_transactions_for_handlers() {
    let refusal = |once: Once| once.try_with_policy(Policy::transactional()).err().unwrap().to_string();
    let says = |store: &str| {
        format!(
            "the policy `transactional` needs a store in whose transactions handlers can record their outcome, and \
             `{store}` is none: use a Postgres store, or the policy `hold` or `retry`"
        )
    };
    let memory = MemoryStore::new();
    let shared: Arc<dyn Store> = Arc::new(memory.clone());
    let tiered = Tiered::new(MemoryCache::new(1 << 20), memory.clone());
    for once in [Once::new(memory.clone()), Once::new(shared)] {
        assert_eq!(refusal(once), says("memory"));
    }
    assert_eq!(refusal(Once::new(tiered)), says("tiered"));
    assert!(Once::new(memory).try_with_policy(Policy::retry()).is_ok());
}

#[test]
#[should_panic(expected = "and `memory` is none: use a Postgres store")]
fn an_engine_is_not_made_with_a_promise_that_its_store_cannot_keep() {
    let _once = Once::new(MemoryStore::new()).with_policy(Policy::transactional());
}

#[tokio::test(start_paused = true)]
async fn an_outcome_over_the_limit_is_recorded_without_its_body() {
    let (_, once) = engine();
    let once = once.with_policy(with_lease(Policy::hold()).with_max_body_bytes(100));
    let large = |_lease| async { Ok::<_, Failure>("x".repeat(99)) };
    let first = once.run(&key(), &intent(), large).await.unwrap();
    assert_eq!(first.value.len(), 99);
    let again = once.run(&key(), &intent(), large).await.unwrap_err();
    assert!(matches!(again, RunError::Outcome(OutcomeError::Omitted)));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_over_what_any_store_takes_is_an_error_that_names_the_limit() {
    let (gate, once) = engine();
    let huge = |_lease| async { Ok::<_, Failure>("x".repeat(Outcome::MAX_BODY_BYTES)) };
    let failed = once.run(&key(), &intent(), huge).await.unwrap_err();
    let cause = std::error::Error::source(&failed).unwrap().to_string();
    assert_eq!(cause, "body is 16777218 bytes long, the limit is 16777216");
    assert_eq!(phase(&gate).await, Some(Phase::Held));
}

#[tokio::test(start_paused = true)]
async fn a_value_of_another_type_is_an_error_not_a_run() {
    let (_, once) = engine();
    let counter = Counter::default();
    once.run(&key(), &intent(), counter.quick()).await.unwrap();
    let other = once.run(&key(), &intent(), |_| async { Ok::<_, Failure>("text".to_owned()) }).await;
    assert!(matches!(other, Err(RunError::Outcome(OutcomeError::Decode(_)))));
}

/// A key whose first attempt was lost.
async fn lost(once: &Once) {
    once.run(&key(), &intent(), |_| async { Err::<u32, _>(Failure::unknown("lost")) }).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn the_finding_of_a_hook_is_recorded() {
    let (gate, once) = engine();
    lost(&once).await;
    let hook = |asked, intent: Intent, held: Held| async move {
        assert_eq!((asked, intent.operation(), held.attempt), (key(), "charge", 1));
        Reconciled::Happened(Outcome::json(&7).unwrap())
    };
    let once = once.with_reconcile(hook);
    let counter = Counter::default();
    for _ in 0..2 {
        let ran = once.run(&key(), &intent(), counter.quick()).await.unwrap();
        assert_eq!(ran, Ran::new(7, true));
    }
    assert_eq!(counter.count(), 0);
    assert_eq!(record(&gate).await.unwrap().attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn an_effect_that_did_not_happen_runs() {
    let (_, once) = engine();
    lost(&once).await;
    let once = once.with_reconcile(|_, _, _| async { Reconciled::DidNotHappen });
    let counter = Counter::default();
    assert_eq!(once.run(&key(), &intent(), counter.quick()).await.unwrap(), Ran::new(1, false));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_does_not_know_panics_or_hangs_leaves_the_key_held() {
    let (gate, once) = engine();
    lost(&once).await;
    let counter = Counter::default();
    let engines = [
        once.clone().with_reconcile(|_, _, _| async { Reconciled::Unknown }),
        once.clone().with_reconcile(|_, _, _| async { panic!("the hook panics") }),
        once.clone().with_reconcile(|_, _, _| std::future::pending()),
    ];
    for once in engines {
        let held = once.run(&key(), &intent(), counter.quick()).await;
        assert!(matches!(held, Err(RunError::Held(_))));
    }
    assert_eq!((counter.count(), phase(&gate).await), (0, Some(Phase::Held)));
}

#[tokio::test(start_paused = true)]
async fn the_finding_about_one_attempt_does_not_count_for_the_next() {
    let (gate, once) = engine();
    lost(&once).await;
    let store = gate.store.clone();
    // While the hook examines the first attempt, another process takes over and is lost, too.
    let hook = move |_, _, held: Held| {
        let store = store.clone();
        async move {
            if held.attempt == 1 {
                let _second = take_over(&store).await;
                store.memory_clock().advance(Terms::DEFAULT.lease());
                return Reconciled::DidNotHappen;
            }
            Reconciled::Unknown
        }
    };
    let counter = Counter::default();
    let held = once.with_reconcile(hook).run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(held, Err(RunError::Held(Held { attempt: 2, .. }))), "{held:?}");
    assert_eq!(counter.count(), 0);
}
