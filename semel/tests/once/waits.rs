//! Concurrent requests, and waiting for the running attempt.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use semel::{Failure, Once, Outcome, Policy, RunError, Scope, Store};
use testkit::gates::{Fault, Gate, Through};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Counter, LEASE, engine, intent, key, take_over, with_lease};

const MANY: usize = 64;

fn waiting(policy: Policy, wait: Duration) -> Policy {
    with_lease(policy).with_wait(wait)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_concurrent_requests_one_runs_and_the_rest_are_refused() {
    let (_, once) = engine();
    let others_are_refused = Arc::new(Notify::new());
    let mut runs = JoinSet::new();
    for _ in 0..MANY {
        let (once, may_end) = (once.clone(), Arc::clone(&others_are_refused));
        let work = move |_lease| async move {
            may_end.notified().await;
            Ok::<_, Failure>(1)
        };
        runs.spawn(async move { once.run(&key(), &intent(), work).await });
    }
    for _ in 1..MANY {
        let refused = runs.join_next().await.unwrap().unwrap();
        assert!(matches!(refused, Err(RunError::Pending { .. })), "{refused:?}");
    }
    others_are_refused.notify_one();
    assert!(!runs.join_next().await.unwrap().unwrap().unwrap().replayed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_concurrent_requests_one_runs_and_the_rest_wait_for_it() {
    let (gate, once) = engine();
    let once = once.with_policy(waiting(Policy::hold(), Duration::from_secs(10)));
    let counter = Counter::default();
    let runs = (0..MANY).map(|_| {
        let (once, work) = (once.clone(), counter.work(Duration::from_millis(300)));
        tokio::spawn(async move { once.run(&key(), &intent(), work).await })
    });
    let answers: Vec<_> = join_all(runs).await.into_iter().map(|a| a.unwrap().unwrap()).collect();
    assert_eq!(counter.count(), 1);
    assert!(answers.iter().all(|ran| ran.value == 1));
    assert_eq!(answers.iter().filter(|ran| !ran.replayed).count(), 1);
    // One question for all waiters each time, not one for each.
    let polls = gate.calls("find_many");
    assert!((1..MANY * 4).contains(&polls), "{polls} polls by {MANY} waiters");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_in_another_process_hears_of_the_end() {
    let gate = Gate::new();
    let owner = Once::new(Through(gate.clone())).with_policy(with_lease(Policy::hold()));
    let other =
        Once::new(Through(gate.clone())).with_policy(waiting(Policy::hold(), Duration::from_secs(10)));
    let counter = Counter::default();
    let running = tokio::spawn({
        let work = counter.work(Duration::from_secs(3));
        async move { owner.run(&key(), &intent(), work).await }
    });
    sleep(Duration::from_secs(1)).await;
    let started = Instant::now();
    let ran = other.run(&key(), &intent(), counter.quick()).await.unwrap();
    assert!(ran.replayed);
    assert!(started.elapsed() < Duration::from_millis(2_100), "{:?}", started.elapsed());
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_is_bounded() {
    let (_, once) = engine();
    let counter = Counter::default();
    let running = tokio::spawn({
        let (once, work) = (once.clone(), counter.work(LEASE * 6));
        async move { once.run(&key(), &intent(), work).await }
    });
    sleep(Duration::from_secs(1)).await;
    let patient = once.clone().with_policy(waiting(Policy::hold(), LEASE * 2));
    let started = Instant::now();
    let refused = patient.run(&key(), &intent(), counter.quick()).await;
    assert!(matches!(refused, Err(RunError::Pending { .. })));
    assert!(started.elapsed() >= LEASE * 2 && started.elapsed() < LEASE * 2 + Duration::from_secs(1));
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_runs_when_the_one_before_it_releases() {
    let (_, once) = engine();
    let once = once.with_policy(waiting(Policy::hold(), Duration::from_secs(10)));
    let running = tokio::spawn({
        let once = once.clone();
        let fails = |_lease| async {
            sleep(Duration::from_secs(2)).await;
            Err::<u32, _>(Failure::nothing_happened("no such account"))
        };
        async move { once.run(&key(), &intent(), fails).await }
    });
    sleep(Duration::from_secs(1)).await;
    let ran = once.run(&key(), &intent(), Counter::default().quick()).await.unwrap();
    assert!(!ran.replayed);
    running.await.unwrap().unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_takes_over_when_the_lease_of_a_dead_owner_is_over() {
    let (gate, once) = engine();
    let dead = Once::new(Through(gate.clone())).with_policy(with_lease(Policy::retry()));
    let gone = tokio::spawn({
        let gate = gate.clone();
        let hangs = move |_lease| async move {
            gate.disturb("renew", Fault::Unavailable);
            std::future::pending::<Result<u32, Failure>>().await
        };
        async move { dead.run(&key(), &intent(), hangs).await }
    });
    sleep(Duration::from_millis(10)).await;
    let once = once.with_policy(waiting(Policy::retry(), LEASE * 3));
    let started = Instant::now();
    let ran = once.run(&key(), &intent(), Counter::default().quick()).await.unwrap();
    assert!(!ran.replayed);
    assert!(started.elapsed() <= LEASE + Duration::from_millis(100), "{:?}", started.elapsed());
    gone.abort();
}

#[tokio::test(start_paused = true)]
async fn too_many_waiters_for_one_key_are_refused_at_once() {
    let (_, once) = engine();
    let once = once.with_policy(waiting(Policy::hold(), Duration::from_secs(60)));
    let counter = Counter::default();
    let runs: Vec<_> = (0..1_010)
        .map(|_| {
            let (once, work) = (once.clone(), counter.work(Duration::from_secs(30)));
            tokio::spawn(async move { once.run(&key(), &intent(), work).await })
        })
        .collect();
    sleep(Duration::from_secs(1)).await;
    let refused = runs.iter().filter(|run| run.is_finished()).count();
    assert_eq!(refused, 9);
    let answers: Vec<_> = join_all(runs).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1_001);
    assert_eq!(counter.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_key_do_not_disturb_another() {
    let (_, once) = engine();
    let once = once.with_policy(waiting(Policy::hold(), Duration::from_secs(60)));
    let scope = Scope::new("tests").unwrap();
    let runs = (0..100).map(|number| {
        let (once, key) = (once.clone(), scope.key(&(number % 10).to_string()).unwrap());
        let takes = Duration::from_secs(1 + number % 10);
        tokio::spawn(async move {
            let work = move |_lease| async move {
                sleep(takes).await;
                Ok::<_, Failure>(number)
            };
            (number % 10, once.run(&key, &intent(), work).await.unwrap().value)
        })
    });
    for answer in join_all(runs).await {
        let (asked, value) = answer.unwrap();
        assert_eq!(value % 10, asked);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_caller_has_left_gives_up_its_place() {
    let (gate, once) = engine();
    let _elsewhere = take_over(&gate.store).await;
    let once = once.with_policy(waiting(Policy::hold(), Duration::from_secs(20)));
    let (key, intent) = (key(), intent());
    for _ in 0..1_000 {
        let run = once.run(&key, &intent, Counter::default().quick());
        assert!(timeout(Duration::from_millis(1), run).await.is_err());
    }
    let started = Instant::now();
    once.run(&key, &intent, Counter::default().quick()).await.unwrap_err();
    assert!(started.elapsed() >= Duration::from_secs(20), "refused after {:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn drain_does_not_wait_for_attempts_of_others() {
    let (gate, once) = engine();
    let _elsewhere = take_over(&gate.store).await;
    let once = once.with_policy(waiting(Policy::hold(), Duration::from_secs(300)));
    let waiter = tokio::spawn({
        let once = once.clone();
        async move { once.run(&key(), &intent(), Counter::default().quick()).await }
    });
    sleep(Duration::from_secs(1)).await;
    let started = Instant::now();
    once.drain().await;
    assert!(started.elapsed() < Duration::from_secs(1));
    assert!(matches!(waiter.await.unwrap(), Err(RunError::Pending { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_poll_that_died_is_started_again() {
    let (gate, once) = engine();
    gate.disturb_calls("find_many", 1..=1, Fault::Panic);
    let once = once.with_policy(waiting(Policy::hold(), Duration::from_secs(20)));
    let elsewhere = take_over(&gate.store).await;
    let first = once.run(&key(), &intent(), Counter::default().quick()).await;
    assert!(matches!(first, Err(RunError::Pending { .. })));
    let store = gate.store.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(1)).await;
        store.complete(&elsewhere, &Outcome::json(&1).unwrap()).await
    });
    let started = Instant::now();
    assert!(once.run(&key(), &intent(), Counter::default().quick()).await.unwrap().replayed);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_hears_of_an_abandon_in_another_process() {
    let (gate, once) = engine();
    let once = once.with_policy(waiting(Policy::retry(), Duration::from_secs(60)));
    let elsewhere = take_over(&gate.store).await;
    let store = gate.store.clone();
    tokio::spawn(async move {
        sleep(Duration::from_secs(1)).await;
        store.abandon(&elsewhere, "timed out").await
    });
    let started = Instant::now();
    assert!(!once.run(&key(), &intent(), Counter::default().quick()).await.unwrap().replayed);
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn waiters_leave_the_asking_to_one_task() {
    let (gate, once) = engine();
    let policy = Policy::hold().with_lease(Duration::from_secs(1));
    let once = once.with_policy(policy.with_wait(Duration::from_secs(60)));
    let counter = Counter::default();
    let runs = (0..500).map(|_| {
        let (once, work) = (once.clone(), counter.work(Duration::from_secs(30)));
        tokio::spawn(async move { once.run(&key(), &intent(), work).await })
    });
    for answer in join_all(runs).await {
        answer.unwrap().unwrap();
    }
    assert!(gate.calls("claim") <= 1_000, "{} claims of 500 callers", gate.calls("claim"));
}

/// The renewals do not get through, so that the lease is over; but the attempt lives, and is worth
/// waiting for.
#[tokio::test(start_paused = true)]
async fn waiters_of_an_attempt_without_a_lease_leave_the_asking_to_one() {
    let (gate, once) = engine();
    gate.disturb("renew", Fault::Unavailable);
    let once = once.with_policy(waiting(Policy::hold(), LEASE * 6));
    let counter = Counter::default();
    let runs = (0..MANY).map(|_| {
        let (once, work) = (once.clone(), counter.work(LEASE * 3));
        tokio::spawn(async move { once.run(&key(), &intent(), work).await })
    });
    for answer in join_all(runs).await {
        assert_eq!(answer.unwrap().unwrap().value, 1);
    }
    // Each caller claims once at the beginning and once at the end, and a few claim on behalf of
    // all.
    assert!(gate.calls("claim") <= MANY * 2 + 100, "{} claims of {MANY} callers", gate.calls("claim"));
}

/// The first waiter that is refused tells the rest, which do not wait for their turns.
#[tokio::test(start_paused = true)]
async fn all_waiters_hear_at_once_that_a_key_is_held() {
    let (gate, once) = engine();
    let elsewhere = take_over(&gate.store).await;
    let once = once.with_policy(waiting(Policy::hold(), Duration::from_secs(200)));
    let runs: Vec<_> = (0..MANY)
        .map(|_| {
            let once = once.clone();
            tokio::spawn(async move { once.run(&key(), &intent(), Counter::default().quick()).await })
        })
        .collect();
    sleep(Duration::from_secs(1)).await;
    assert!(gate.store.abandon(&elsewhere, "timed out").await.unwrap().stands());
    sleep(Duration::from_millis(100)).await;
    for run in runs {
        assert!(run.is_finished());
        assert!(matches!(run.await.unwrap(), Err(RunError::Held(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn waits_can_be_ended_while_work_goes_on() {
    let (_, once) = engine();
    let once = once.with_policy(waiting(Policy::hold(), Duration::from_secs(300)));
    let counter = Counter::default();
    let [running, waiter] = [(); 2].map(|()| {
        let (once, work) = (once.clone(), counter.work(Duration::from_secs(60)));
        tokio::spawn(async move { once.run(&key(), &intent(), work).await })
    });
    sleep(Duration::from_secs(1)).await;
    once.end_waits();
    assert!(matches!(waiter.await.unwrap(), Err(RunError::Pending { .. })));
    assert!(!running.is_finished());
    assert_eq!(running.await.unwrap().unwrap().value, 1);
}
