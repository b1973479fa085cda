//! Workers that end without an answer: the callers that wait for them are told.

use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::*;

/// A limit longer than any answer takes, unless it never comes.
const SOON: Duration = Duration::from_secs(30);

async fn answer(pending: Pending<Stage>) -> Result<u32, StoreError> {
    timeout(SOON, pending.answer()).await.expect("it waits for ever")
}

async fn refused(batcher: &Batcher<Stage>, number: u32) -> StoreError {
    let refused = batcher.ask(Lane::Claim, || plain(number)).await.err().expect("no worker can answer");
    assert!(!refused.is_transient(), "{refused}");
    refused
}

#[tokio::test]
async fn panic_of_the_only_worker_refuses_what_waits_and_what_comes() {
    let (stage, batcher, first) = Stage::busy().await;
    let waiting = ask(&batcher, Lane::Owner, &[plain(0), plain(1)]).await;
    stage.fates([Fate::Panic]);
    stage.go_on();
    let lost = answer(first).await.expect_err("the worker is gone");
    assert!(lost.is_unknown(), "{lost}");
    for waiting in waiting {
        let error = answer(waiting).await.expect_err("the worker is gone");
        assert!(!error.is_unknown() && error.to_string().contains("no worker"), "{error}");
    }
    assert!(refused(&batcher, 2).await.to_string().contains("no worker"));
    timeout(SOON, batcher.close()).await.expect("nothing is left to wait for");
}

#[tokio::test]
async fn panic_of_one_worker_of_two_refuses_only_what_it_was_about() {
    let stage = Stage::new(Some(Semaphore::new(0)));
    let batcher = Batcher::start(vec![stage.clone(), stage.clone()], Vec::new());
    let first = batcher.ask(Lane::Claim, || plain(0)).await.unwrap();
    stage.0.sent.subscribe().wait_for(|sent| !sent.is_empty()).await.unwrap();
    let same = batcher.ask(Lane::Claim, || plain(0)).await.unwrap();
    stage.fates([Fate::Panic]);
    stage.go_on();
    assert!(answer(first).await.expect_err("the worker is gone").is_unknown());
    let error = answer(same).await.expect_err("the result of the first is unknown");
    assert!(error.to_string().contains("panicked during an operation on this key"), "{error}");
    assert!(refused(&batcher, 0).await.to_string().contains("operation on this key"));
    for number in 1..100 {
        let pending = batcher.ask(Lane::Claim, || plain(number)).await.unwrap();
        assert_eq!(answer(pending).await.unwrap(), number * 10);
    }
}

#[test]
fn queue_whose_runtime_has_ended_refuses() {
    let (first, second) = (Runtime::new().unwrap(), Runtime::new().unwrap());
    let (_stage, batcher, pending) = first.block_on(Stage::busy());
    let waiting = first.block_on(ask(&batcher, Lane::Claim, &[plain(1)])).remove(0);
    drop(first);
    second.block_on(async {
        assert!(answer(pending).await.expect_err("the runtime is gone").is_unknown());
        let error = answer(waiting).await.expect_err("the runtime is gone");
        assert!(!error.is_unknown() && error.to_string().contains("the runtime"), "{error}");
        refused(&batcher, 2).await;
        timeout(SOON, batcher.close()).await.expect("nothing is left to wait for");
    });
}
