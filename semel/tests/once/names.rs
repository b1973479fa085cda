//! Keys and intents from plain values, and work that borrows from its caller.

use std::time::Duration;

use semel::error::{ErrorKind, IntentError};
use semel::store::Phase;
use semel::{Error, Failure, RunError};
use testkit::gates::Fault;
use tokio::time::{sleep, timeout};

use super::{engine, phase, record};

#[tokio::test(start_paused = true)]
async fn a_tuple_is_the_key_and_the_payload_is_the_intent() {
    let (gate, once) = engine();
    let order = ("ann".to_owned(), 1_000);
    let first =
        once.run(("tests", "key"), &order, |_lease| async { Ok("receipt".to_owned()) }).await.unwrap();
    assert_eq!((first.value.as_str(), first.replayed), ("receipt", false));
    let again =
        once.run(("tests", "", "key"), &order, |_lease| async { Ok("other".to_owned()) }).await.unwrap();
    assert_eq!((again.value.as_str(), again.replayed), ("receipt", true));
    assert_eq!(record(&gate).await.unwrap().intent.operation(), "tests");
    let other = once.run(("tests", "key"), &("ann", 1), |_lease| async { Ok("other".to_owned()) }).await;
    assert!(matches!(other, Err(RunError::Mismatch(_))), "{other:?}");
}

#[tokio::test(start_paused = true)]
async fn a_key_that_breaks_a_limit_runs_nothing() {
    let (gate, once) = engine();
    let run = once.run(("tests", ""), &1, |_lease| async { Ok(1) }).await.unwrap_err();
    assert!(matches!(&run, RunError::Key(error) if *error == semel::Key::new("tests", "").unwrap_err()));
    assert_eq!((run.to_string(), Error::from(run).kind()), ("key is empty".to_owned(), ErrorKind::Invalid));
    let no_json = std::collections::HashMap::from([((1, 2), 3)]);
    let run = once.run(("tests", "key"), &no_json, |_lease| async { Ok(1) }).await.unwrap_err();
    assert!(matches!(run, RunError::Intent(IntentError::Fingerprint(_))), "{run:?}");
    assert!(record(&gate).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn borrowed_work_runs_once_and_is_recorded() {
    let (_, once) = engine();
    let (name, mut ledger) = ("invoice".to_owned(), Vec::new());
    for replayed in [false, true] {
        let ran = once
            .run_borrowed(("tests", "key"), &name, async |lease| {
                sleep(Duration::from_secs(60)).await;
                assert!(!lease.is_lost());
                ledger.push(&name);
                Ok(name.len())
            })
            .await
            .unwrap();
        assert_eq!((ran.value, ran.replayed), (7, replayed));
    }
    assert_eq!(ledger, [&name]);
}

#[tokio::test(start_paused = true)]
async fn borrowed_work_that_fails_releases_or_holds_as_any_other() {
    let (gate, once) = engine();
    let run = async |failure: fn(&'static str) -> Failure| {
        let ran = once.run_borrowed(("tests", "key"), &1, async |_lease| Err::<u32, _>(failure("no"))).await;
        (ran.unwrap_err().to_string(), phase(&gate).await)
    };
    let released = run(Failure::nothing_happened).await;
    assert_eq!(released, ("the work failed before anything happened".to_owned(), Some(Phase::Released)));
    let held = run(Failure::unknown).await;
    assert_eq!(held, ("the work failed".to_owned(), Some(Phase::Held)));
}

#[tokio::test(start_paused = true)]
async fn borrowed_work_stops_with_its_caller_and_its_key_is_held() {
    let (gate, once) = engine();
    let mut finished = false;
    let run = once.run_borrowed(("tests", "key"), &1, async |_lease| {
        sleep(Duration::from_secs(5)).await;
        finished = true;
        Ok(1)
    });
    assert!(timeout(Duration::from_secs(1), run).await.is_err());
    once.drain().await;
    assert!(!finished);
    assert_eq!(phase(&gate).await, Some(Phase::Held));
    let note = record(&gate).await.unwrap().note.unwrap();
    assert!(note.text.contains("the caller was dropped"), "{note:?}");
}

#[tokio::test(start_paused = true)]
async fn the_key_of_borrowed_work_that_never_began_is_free() {
    let (gate, once) = engine();
    gate.disturb("claim", Fault::SlowAnswer(Duration::from_millis(300)));
    let run =
        once.run_borrowed(("tests", "key"), &1, async |_lease| -> Result<u32, Failure> { panic!("it ran") });
    assert!(timeout(Duration::from_millis(100), run).await.is_err());
    once.drain().await;
    assert_eq!(phase(&gate).await, Some(Phase::Released));
}

#[tokio::test(start_paused = true)]
async fn borrowed_work_that_panics_holds_its_key() {
    let (gate, once) = engine();
    let run = {
        let once = once.clone();
        tokio::spawn(async move {
            let work = async |_lease| -> Result<u32, Failure> { panic!("a bug") };
            once.run_borrowed(("tests", "key"), &1, work).await
        })
    };
    assert!(run.await.unwrap_err().is_panic());
    once.drain().await;
    assert_eq!(phase(&gate).await, Some(Phase::Held));
}
