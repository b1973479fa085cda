//! Operations that cannot be sent are withdrawn in time: nothing of them is applied.

use super::*;
use crate::store::shared::group_commit::job::MAX_WAIT;

/// The time after which the engine gives up on an answer and has to treat it as unknown.
const ENGINE_LIMIT: Duration = Duration::from_secs(5);

async fn withdrawn(pending: Pending<Stage>) {
    let began = Instant::now();
    let error = pending.answer().await.expect_err("it cannot be sent");
    assert!(error.is_transient() && !error.is_unknown(), "{error}");
    assert!((MAX_WAIT..ENGINE_LIMIT).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_batch_that_hangs_is_withdrawn() {
    let (stage, batcher, first) = Stage::busy().await;
    let waiting = [(Lane::Claim, 1), (Lane::Owner, 2), (Lane::Claim, 0)];
    let waiting = waiting.map(async |(lane, number)| batcher.ask(lane, || plain(number)).await.unwrap());
    let waiting = futures_util::future::join_all(waiting).await;
    futures_util::future::join_all(waiting.into_iter().map(withdrawn)).await;
    stage.go_on();
    assert_eq!(first.answer().await.unwrap(), 0);
    let later = batcher.ask(Lane::Claim, || plain(3)).await.unwrap();
    assert_eq!(later.answer().await.unwrap(), 30);
    assert_eq!(stage.sent(), [[0], [3]]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_while_a_lost_batch_is_looked_for_is_withdrawn() {
    let (stage, batcher) = Stage::open();
    stage.fates([Fate::Lost { applied: true }; MAX_TRIES as usize]);
    let lost = batcher.ask(Lane::Claim, || plain(0)).await.unwrap();
    let mut sent = stage.0.sent.subscribe();
    sent.wait_for(|sent| sent.len() == MAX_TRIES as usize).await.unwrap();
    *stage.0.delay.lock().unwrap() = Duration::from_secs(30);
    assert!(lost.answer().await.expect_err("there was no answer").is_unknown());
    withdrawn(batcher.ask(Lane::Claim, || plain(1)).await.unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_but_finds_no_connection_is_withdrawn() {
    let (stage, batcher) = Stage::open();
    *stage.0.delay.lock().unwrap() = Duration::from_secs(30);
    withdrawn(batcher.ask(Lane::Claim, || plain(1)).await.unwrap()).await;
    // The connection is made nevertheless, and serves the next operation.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let next = batcher.ask(Lane::Claim, || plain(2)).await.unwrap();
    assert_eq!(next.answer().await.unwrap(), 20);
    assert_eq!(stage.sent(), [[2]]);
}
