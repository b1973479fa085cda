//! Leases: renewal, and the notice of a loss.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use semel::store::{Phase, Terms};
use semel::{Failure, Lease, MemoryStore, Once, Outcome, Policy, Ran, Reconciled, RunError, Store};
use testkit::gates::{Fault, Gate, Through};
use tokio::time::{Instant, sleep, timeout};

use super::{Counter, LEASE, engine, intent, key, phase, record, take_over, with_lease};

fn secs(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn over(gate: &Gate, policy: Policy) -> Once {
    Once::new(Through(gate.clone())).with_policy(with_lease(policy))
}

#[tokio::test(start_paused = true)]
async fn one_lost_renewal_does_not_cost_the_lease() {
    // The store has a latency of 50 ms, and a waiter in another process would take over at once.
    let gate = Gate::new();
    gate.disturb_calls("renew", 1..=1, Fault::Hang);
    gate.disturb("renew", Fault::Slow(Duration::from_millis(50)));
    let owner = over(&gate, Policy::retry());
    let other = over(&Gate::to(&gate.store), Policy::retry().with_wait(secs(60)));
    let counter = Counter::default();
    let running = tokio::spawn({
        let work = counter.work(LEASE * 3);
        async move { owner.run(&key(), &intent(), work).await }
    });
    sleep(secs(1)).await;
    assert!(other.run(&key(), &intent(), counter.quick()).await.unwrap().replayed);
    assert!(!running.await.unwrap().unwrap().replayed);
    assert_eq!(counter.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_to_one_that_has_finished_is_signalled() {
    let (gate, once) = engine();
    let store = gate.store.clone();
    let partitioned = move |lease: Lease| async move {
        store.memory_clock().advance(LEASE);
        let winner = take_over(&store).await;
        assert!(store.complete(&winner, &Outcome::json(&2)?).await?.stands());
        assert!(timeout(LEASE, lease.lost()).await.is_ok(), "the loss was not signalled");
        Ok(1)
    };
    assert_eq!(once.run(&key(), &intent(), partitioned).await.unwrap(), Ran::new(2, true));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_work_recorded_itself_is_no_loss() {
    let (gate, once) = engine();
    let store = gate.store.clone();
    let commits = move |lease: Lease| async move {
        assert!(store.complete(&lease, &Outcome::json(&1)?).await?.stands());
        assert!(timeout(LEASE * 3, lease.lost()).await.is_err(), "a loss was signalled");
        Ok(1)
    };
    let once = once.with_policy(with_lease(Policy::transactional()));
    assert!(!once.run(&key(), &intent(), commits).await.unwrap().replayed);
}

#[tokio::test(start_paused = true)]
async fn work_that_outlasts_its_retention_keeps_its_key() {
    let (_, once) = engine();
    let once = once.with_policy(with_lease(Policy::hold()).with_retention(LEASE * 2));
    let counter = Counter::default();
    let running = tokio::spawn({
        let (once, work) = (once.clone(), counter.work(LEASE * 6));
        async move { once.run(&key(), &intent(), work).await }
    });
    sleep(LEASE * 5).await;
    let second = once.run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(second, Err(RunError::Pending { .. })), "{second:?}");
    assert_eq!(running.await.unwrap().unwrap().value, 1);
    assert_eq!(counter.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_alarm_comes_when_the_lease_is_over_and_not_later() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::SlowAnswer(LEASE / 4));
    gate.disturb("renew", Fault::Hang);
    let store = gate.store.clone();
    let late = move |lease: Lease| async move {
        lease.lost().await;
        let now = store.memory_clock().now();
        Ok(u64::try_from(now.since(lease.deadline()).as_millis())?)
    };
    let late_ms = once.run(&key(), &intent(), late).await.unwrap().value;
    assert!(late_ms <= 1, "{late_ms} ms after the lease was over");
}

#[tokio::test(start_paused = true)]
async fn work_does_not_start_under_a_lease_that_was_lost_on_the_way() {
    // The claim is granted, but its answer takes longer than the lease. In that time another
    // process learns, correctly, that nothing happened.
    let did_not_happen = |_, _, _| async { Reconciled::DidNotHappen };
    let short = || Policy::hold().with_lease(secs(3));
    let gate = Gate::new();
    gate.disturb("claim", Fault::SlowAnswer(secs(4)));
    let slow = Once::new(Through(gate.clone())).with_policy(short());
    let fast = Once::new(gate.store.clone()).with_policy(short()).with_reconcile(did_not_happen);
    let counter = Counter::default();
    let running = tokio::spawn({
        let work = counter.quick();
        async move { slow.run(&key(), &intent(), work).await }
    });
    sleep(Duration::from_millis(3_500)).await;
    let first = fast.run(&key(), &intent(), counter.quick()).await.unwrap();
    let other = running.await.unwrap().unwrap();
    assert_eq!((first.value, other.value, counter.count()), (1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn work_does_not_start_under_a_lease_that_was_lost_while_it_was_confirmed() {
    // Each answer takes longer than the lease, and no renewal by the background task gets through.
    let short = || Policy::hold().with_lease(secs(3));
    let gate = Gate::new();
    gate.disturb("claim", Fault::SlowAnswer(secs(4)));
    gate.disturb_calls("renew", 1..=1, Fault::SlowAnswer(secs(4)));
    gate.disturb_calls("renew", 3..=3, Fault::SlowAnswer(secs(4)));
    gate.disturb("renew", Fault::Hang);
    let slow = Once::new(Through(gate.clone())).with_policy(short());
    let did_not_happen = |_, _, _| async { Reconciled::DidNotHappen };
    let fast = Once::new(gate.store.clone()).with_policy(short()).with_reconcile(did_not_happen);
    let counter = Counter::default();
    let running = tokio::spawn({
        let work = counter.quick();
        async move { slow.run(&key(), &intent(), work).await }
    });
    sleep(Duration::from_millis(11_500)).await;
    assert_eq!(fast.run(&key(), &intent(), counter.quick()).await.unwrap().value, 1);
    let late = running.await.unwrap();
    assert!(matches!(late, Err(RunError::Unavailable(_))), "{late:?}");
    assert_eq!(counter.count(), 1);
}

/// The finding of a hook is true of an attempt that has not started. That attempt starts, is lost,
/// and is held again.
#[tokio::test(start_paused = true)]
async fn hook_is_asked_again_about_an_attempt_that_ran_meanwhile() {
    let gate = Gate::new();
    let owner = take_over(&gate.store).await;
    gate.store.memory_clock().advance(Terms::DEFAULT.lease());
    let asked = Arc::new(AtomicU32::new(0));
    let hook = {
        let (asked, store) = (Arc::clone(&asked), gate.store.clone());
        move |_, _, _| {
            let (first, store, owner) =
                (asked.fetch_add(1, Ordering::Relaxed) == 0, store.clone(), owner.clone());
            async move {
                if first {
                    assert!(store.renew(&owner, LEASE).await.unwrap().stands());
                }
                if first { Reconciled::DidNotHappen } else { Reconciled::Unknown }
            }
        }
    };
    let once = over(&gate, Policy::hold().with_wait(LEASE * 2)).with_reconcile(hook);
    let held = once.run(&key(), &intent(), Counter::default().quick()).await;
    assert!(matches!(held, Err(RunError::Held(_))), "{held:?}");
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn work_starts_under_a_lease_that_came_late_but_is_still_there() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::SlowAnswer(LEASE / 2 - secs(1)));
    let store = gate.store.clone();
    let fresh = move |lease: Lease| async move {
        let now = store.memory_clock().now();
        let until = store.find(lease.key()).await?.map(|record| record.lease_until);
        Ok(until == Some(now.after(LEASE)))
    };
    assert!(once.run(&key(), &intent(), fresh).await.unwrap().value, "the lease was not begun anew");
}

#[tokio::test(start_paused = true)]
async fn work_does_not_start_if_a_late_lease_cannot_be_confirmed() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::SlowAnswer(LEASE / 2 - secs(1)));
    gate.disturb("renew", Fault::Unavailable);
    let counter = Counter::default();
    let refused = once.run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(refused, Err(RunError::Unavailable(_))), "{refused:?}");
    once.drain().await;
    assert_eq!((counter.count(), phase(&gate).await), (0, Some(Phase::Released)));
}

#[tokio::test(start_paused = true)]
async fn no_renewal_revives_an_abandoned_key() {
    let (gate, once) = engine();
    gate.disturb("abandon", Fault::SlowAnswer(LEASE / 3 + Duration::from_millis(500)));
    let fails = |_| async { Err::<u8, _>(Failure::unknown("timed out")) };
    once.run(&key(), &intent(), fails).await.unwrap_err();
    assert_eq!(phase(&gate).await, Some(Phase::Held));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_is_pending_keeps_its_lease() {
    let (gate, once) = engine();
    let once = once.with_policy(with_lease(Policy::retry()));
    gate.disturb("complete", Fault::Unavailable);
    let counter = Counter::default();
    let pending = once.run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(pending, Err(RunError::OutcomePending(_))));
    sleep(LEASE * 3).await;
    assert_eq!(phase(&gate).await, Some(Phase::Running));
    gate.heal();
    sleep(secs(60)).await;
    assert_eq!(record(&gate).await.unwrap().outcome().unwrap().parse::<u32>().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_not_asked_about_an_attempt_that_lives_here() {
    let (gate, once) = engine();
    gate.disturb("renew", Fault::Unavailable);
    let asked = Arc::new(AtomicBool::new(false));
    let hook = {
        let asked = Arc::clone(&asked);
        move |_, _, _| {
            asked.store(true, Ordering::Relaxed);
            async { Reconciled::DidNotHappen }
        }
    };
    let once = once.with_reconcile(hook);
    let counter = Counter::default();
    let running = tokio::spawn({
        let (once, work) = (once.clone(), counter.work(LEASE * 3));
        async move { once.run(&key(), &intent(), work).await }
    });
    sleep(LEASE * 2).await;
    let second = once.run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(second, Err(RunError::Pending { .. })), "{second:?}");
    assert_eq!(running.await.unwrap().unwrap().value, 1);
    assert!(!asked.load(Ordering::Relaxed) && counter.count() == 1);
}

#[tokio::test(start_paused = true)]
async fn drain_ends_for_every_caller() {
    let once = Once::new(MemoryStore::new());
    let counter = Counter::default();
    for number in 0..20 {
        let key = semel::Key::new("tests", &number.to_string()).unwrap();
        let running = tokio::spawn({
            let (once, work) = (once.clone(), counter.work(secs(1)));
            async move { once.run(&key, &intent(), work).await }
        });
        tokio::task::yield_now().await;
        let drains = [once.clone(), once.clone()].map(|once| tokio::spawn(async move { once.drain().await }));
        running.await.unwrap().unwrap();
        for drain in drains {
            timeout(secs(10), drain).await.expect("drain ends").unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn drain_ends_although_the_store_is_out() {
    let (gate, once) = engine();
    for verb in ["complete", "void"] {
        gate.disturb(verb, Fault::Unavailable);
    }
    gate.disturb_calls("claim", 1..=1, Fault::AnswerLost);
    let counter = Counter::default();
    let pending = once.run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(pending, Err(RunError::OutcomePending(_))));
    let started = Instant::now();
    timeout(secs(60), once.drain()).await.expect("drain ends");
    assert!(started.elapsed() < secs(20), "{:?}", started.elapsed());
}
