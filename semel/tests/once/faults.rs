//! A store that does not answer.

use std::time::Duration;

use semel::admin::{Inspect, OperatorAck, Prune};
use semel::store::{Phase, Terms};
use semel::{Failure, Policy, Ran, RunError, Store};
use testkit::gates::{Fault, Gate};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::{Counter, LEASE, engine, intent, key, loses_its_lease, phase, record, take_over, with_lease};

/// A time longer than every background task and every lease here.
const LONG: Duration = Duration::from_secs(60);

fn heal_in_a_second(gate: &Gate) -> JoinHandle<()> {
    let gate = gate.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(1)).await;
        gate.heal();
    })
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_out_nothing_runs() {
    for verb in ["now", "claim"] {
        for fault in [Fault::Unavailable, Fault::Lost, Fault::Refused] {
            let (gate, once) = engine();
            gate.disturb(verb, fault);
            let counter = Counter::default();
            let refused = once.run(&key(), &intent(), counter.quick()).await;
            assert!(matches!(refused, Err(RunError::Unavailable(_))), "{verb} {fault:?}: {refused:?}");
            gate.heal();
            assert_eq!(once.run(&key(), &intent(), counter.quick()).await.unwrap().value, 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_is_sent_again_and_runs_once() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::AnswerLost);
    let healing = heal_in_a_second(&gate);
    let counter = Counter::default();
    assert_eq!(once.run(&key(), &intent(), counter.quick()).await.unwrap().value, 1);
    assert!(gate.calls("claim") > 2);
    assert_eq!(record(&gate).await.unwrap().attempt, 1);
    healing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_given_up_is_voided_so_that_the_key_is_not_stuck() {
    for fault in [Fault::AnswerLost, Fault::Silence] {
        let (gate, once) = engine();
        gate.disturb("claim", fault);
        let counter = Counter::default();
        let refused = once.run(&key(), &intent(), counter.quick()).await;
        assert!(matches!(refused, Err(RunError::Unavailable(_))));
        assert_eq!(phase(&gate).await, Some(Phase::Running));
        gate.heal();
        once.drain().await;
        assert_eq!(phase(&gate).await, Some(Phase::Released));
        assert_eq!(once.run(&key(), &intent(), counter.quick()).await.unwrap().value, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_void_gets_through_in_the_end() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::AnswerLost);
    gate.disturb("void", Fault::Unavailable);
    let counter = Counter::default();
    once.run(&key(), &intent(), counter.quick()).await.unwrap_err();
    sleep(LONG).await;
    assert_eq!(phase(&gate).await, Some(Phase::Held));
    gate.heal();
    once.drain().await;
    assert_eq!(phase(&gate).await, Some(Phase::Released));
}

#[tokio::test(start_paused = true)]
async fn no_caller_gets_an_outcome_before_it_is_recorded() {
    for fault in [Fault::Unavailable, Fault::Lost, Fault::Silence] {
        let (gate, once) = engine();
        gate.disturb("complete", fault);
        let counter = Counter::default();
        let pending = once.run(&key(), &intent(), counter.quick()).await;
        assert!(matches!(pending, Err(RunError::OutcomePending(_))), "{fault:?}: {pending:?}");
        sleep(LONG).await;
        gate.heal();
        once.drain().await;
        let ran = once.run(&key(), &intent(), counter.quick()).await.unwrap();
        assert_eq!((ran, counter.count()), (Ran::new(1, true), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_complete_whose_answer_was_lost_counts() {
    let (gate, once) = engine();
    gate.disturb("complete", Fault::AnswerLost);
    let healing = heal_in_a_second(&gate);
    let ran = once.run(&key(), &intent(), Counter::default().quick()).await.unwrap();
    assert_eq!(ran, Ran::new(1, false));
    healing.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_the_store_refuses_holds_the_key() {
    let (gate, once) = engine();
    gate.disturb("complete", Fault::Refused);
    let counter = Counter::default();
    let refused = once.run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(refused, Err(RunError::Unrecorded(_))), "{refused:?}");
    once.drain().await;
    assert_eq!(phase(&gate).await, Some(Phase::Held));
    assert!(record(&gate).await.unwrap().note.unwrap().text.contains("the outcome was refused"));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_is_not_answered_is_followed_up() {
    let (gate, once) = engine();
    gate.disturb("release", Fault::Unavailable);
    let fails = |_lease| async { Err::<u32, _>(Failure::nothing_happened("no such account")) };
    let failed = once.run(&key(), &intent(), fails).await;
    assert!(matches!(failed, Err(RunError::Failed { nothing_happened: true, .. })));
    gate.heal();
    once.drain().await;
    assert_eq!(phase(&gate).await, Some(Phase::Released));
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_key_stays_held_although_its_claim_was_sent_twice() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::AnswerLost);
    let healing = heal_in_a_second(&gate);
    let fails = |_lease| async { Err::<u32, _>(Failure::unknown("timed out")) };
    once.run(&key(), &intent(), fails).await.unwrap_err();
    healing.await.unwrap();
    once.drain().await;
    sleep(LONG).await;
    assert_eq!(phase(&gate).await, Some(Phase::Held));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_is_signalled() {
    let (gate, once) = engine();
    gate.disturb("renew", Fault::Unavailable);
    let once = once.with_policy(with_lease(Policy::retry()));
    let started = tokio::time::Instant::now();
    let waits = |lease: semel::Lease| async move {
        lease.lost().await;
        Ok::<_, Failure>(1)
    };
    let ran = once.run(&key(), &intent(), waits).await.unwrap();
    assert_eq!(ran.value, 1);
    assert!(started.elapsed() >= LEASE && started.elapsed() < LEASE * 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_out_is_not_asked_more_often_for_more_refused_requests() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::Lost);
    gate.disturb("void", Fault::Unavailable);
    let refused: Vec<_> = (0..1_000)
        .map(|number| {
            let once = once.clone();
            let key = semel::Key::new("tests", &number.to_string()).unwrap();
            tokio::spawn(async move { once.run(&key, &intent(), Counter::default().quick()).await })
        })
        .collect();
    for request in refused {
        request.await.unwrap().unwrap_err();
    }
    sleep(Duration::from_secs(300)).await;
    let before = gate.calls("void");
    sleep(Duration::from_secs(60)).await;
    let voids = gate.calls("void") - before;
    assert!(voids <= 60, "{voids} voids in a minute for 1,000 requests");
}

/// Regression: a key with a known outcome was running for up to a minute after the store had
/// recovered.
#[tokio::test(start_paused = true)]
async fn an_outcome_is_recorded_within_two_seconds_of_the_stores_return() {
    let (gate, once) = engine();
    gate.disturb("complete", Fault::Unavailable);
    let ran = once.run(&key(), &intent(), Counter::default().quick()).await;
    assert!(matches!(ran, Err(RunError::OutcomePending(_))), "{ran:?}");
    sleep(Duration::from_secs(600)).await;
    gate.heal();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(phase(&gate).await, Some(Phase::Done));
}

#[tokio::test(start_paused = true)]
async fn a_loser_that_cannot_find_the_winner_is_told_that_it_lost() {
    let (gate, once) = engine();
    gate.disturb("find", Fault::Unavailable);
    let lost = once.run(&key(), &intent(), loses_its_lease(&gate)).await;
    assert!(matches!(lost, Err(RunError::Superseded)), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stray_copy_of_a_claim_that_lost_is_voided() {
    let (gate, once) = engine();
    gate.disturb_calls("claim", 1..=1, Fault::CopyLater(Duration::from_secs(3)));
    let store = gate.store.clone();
    let slow = move |_lease| async move {
        store.memory_clock().advance(LEASE);
        let winner = take_over(&store).await;
        assert!(store.release(&winner).await?.stands());
        Ok(1)
    };
    let lost = once.run(&key(), &intent(), slow).await;
    assert!(matches!(lost, Err(RunError::Superseded)), "{lost:?}");
    once.drain().await;
    assert!(gate.calls("void") >= 1);
    assert_eq!(phase(&gate).await, Some(Phase::Released));
}

#[tokio::test(start_paused = true)]
async fn a_void_that_came_early_by_the_stores_clock_is_sent_again() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::AnswerLost);
    once.run(&key(), &intent(), Counter::default().quick()).await.unwrap_err();
    gate.heal();
    gate.store.memory_clock().set_back(Duration::from_secs(30));
    sleep(Duration::from_secs(15)).await;
    assert_eq!(gate.calls("void"), 1);
    sleep(Duration::from_secs(30)).await;
    // It was early, then settled, and then confirmed.
    assert_eq!(gate.calls("void"), 3);
}

/// Regression: a copy of a claim that had arrived in time was in its commit when the void read the
/// record, and the key was held without an attempt. Here the clock makes such a copy.
#[tokio::test(start_paused = true)]
async fn a_copy_that_the_void_did_not_see_is_voided_by_its_confirmation() {
    let (gate, once) = engine();
    gate.disturb_calls("claim", 1..=1, Fault::CopyLater(Duration::from_secs(10)));
    gate.disturb("claim", Fault::Lost);
    once.run(&key(), &intent(), Counter::default().quick()).await.unwrap_err();
    sleep(Duration::from_millis(7_500)).await;
    assert_eq!(gate.calls("void"), 1);
    gate.store.memory_clock().set_back(Duration::from_secs(8));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(phase(&gate).await, Some(Phase::Running));
    sleep(Duration::from_secs(30)).await;
    assert_eq!(phase(&gate).await, Some(Phase::Released));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_whose_record_is_gone_is_not_told_its_own_outcome() {
    let (gate, once) = engine();
    let once = once.with_policy(with_lease(Policy::retry()));
    let store = gate.store.clone();
    let forgotten = move |_lease| async move {
        store.memory_clock().advance(LEASE + Terms::DEFAULT.retention());
        assert_eq!(store.prune(&Prune::default()).await?, 1);
        Ok(1)
    };
    let lost = once.run(&key(), &intent(), forgotten).await;
    assert!(matches!(lost, Err(RunError::Superseded)), "{lost:?}");
}

/// Regression: a copy that outlived the record of its claim found nothing, and claimed the key
/// again without an attempt.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_claim_is_refused_before_the_record_that_it_made_expires() {
    let (gate, once) = engine();
    let kept = Duration::from_secs(1);
    let policy = Policy::retry().with_lease(kept).with_retention(kept);
    let once = once.with_policy(policy);
    gate.disturb_calls("claim", 1..=1, Fault::CopyLater(kept * 2));
    assert_eq!(once.run(&key(), &intent(), Counter::default().quick()).await.unwrap().value, 1);
    sleep(kept * 3).await;
    assert_eq!(gate.calls("claim"), 2);
    assert_eq!(phase(&gate).await, None);
}

/// An operator may forget an outcome while a copy of its claim is still in flight.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_claim_that_has_run_is_voided() {
    let (gate, once) = engine();
    gate.disturb_calls("claim", 1..=1, Fault::CopyLater(Duration::from_secs(3)));
    once.run(&key(), &intent(), Counter::default().quick()).await.unwrap();
    let fence = record(&gate).await.unwrap().fence;
    assert_eq!(gate.store.forget(&key(), fence, "test").await.unwrap(), OperatorAck::Applied);
    sleep(Duration::from_secs(4)).await;
    assert_eq!(phase(&gate).await, Some(Phase::Running));
    once.drain().await;
    assert_eq!(phase(&gate).await, Some(Phase::Released));
}
