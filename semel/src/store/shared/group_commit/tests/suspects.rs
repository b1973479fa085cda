//! Suspects: operations that fail by themselves go alone, and do not fail others.

use super::*;

fn bad(number: u32) -> Question {
    Question { bad: true, ..plain(number) }
}

fn poison(number: u32) -> Question {
    Question { poison: true, ..plain(number) }
}

async fn error(pending: Pending<Stage>) -> StoreError {
    pending.answer().await.expect_err("it fails")
}

#[tokio::test(start_paused = true)]
async fn what_fails_every_try_is_halved_and_fails_alone() {
    for count in [2, 7, 64] {
        let (stage, batcher) = Stage::open();
        let mut questions = numbered(0..count);
        questions[1] = poison(1);
        let began = Instant::now();
        let mut pending = ask(&batcher, Lane::Claim, &questions).await;
        let failed = error(pending.remove(1)).await;
        assert!(failed.is_transient() && !failed.is_unknown(), "{failed}");
        let good: Vec<u32> = (0..count).filter(|number| *number != 1).collect();
        assert_eq!(answers(pending).await, good.iter().map(|number| number * 10).collect::<Vec<_>>());
        assert!(began.elapsed() <= 2 * MAX_TRYING, "{:?}", began.elapsed());
        assert_eq!(stage.applied(), good, "each once");
        let whole = stage.sent().iter().filter(|sent| sent.len() == count as usize).count();
        assert_eq!(whole, MAX_TRIES as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspect_goes_alone_until_it_is_answered() {
    for at_fault in [bad(1), poison(1)] {
        let (stage, batcher) = Stage::open();
        let mut pending = ask(&batcher, Lane::Claim, &[plain(0), at_fault, plain(2)]).await;
        error(pending.remove(1)).await;
        assert_eq!(answers(pending).await, [0, 20]);

        let before = stage.sent().len();
        let mut pending = ask(&batcher, Lane::Claim, &[plain(3), at_fault, plain(4)]).await;
        error(pending.remove(1)).await;
        assert_eq!(answers(pending).await, [30, 40]);
        let mut sent = stage.sent().split_off(before);
        sent.sort();
        assert_eq!(sent, [vec![1], vec![3, 4]], "one try alone, and nothing is halved");

        // The subject is well again: its operation is sent once more alone, and then within
        // batches.
        let pending = ask(&batcher, Lane::Claim, &[plain(5), plain(1)]).await;
        assert_eq!(answers(pending).await, [50, 10]);
        let before = stage.sent().len();
        let pending = ask(&batcher, Lane::Claim, &[plain(6), plain(1)]).await;
        assert_eq!(answers(pending).await, [60, 10]);
        assert_eq!(stage.sent().split_off(before), [[6, 1]]);
    }
}

#[tokio::test(start_paused = true)]
async fn operations_about_a_suspect_keep_their_order_and_the_rest_go_on() {
    let (stage, batcher, first) = Stage::busy().await;
    let mut pending = ask(&batcher, Lane::Claim, &[bad(1), plain(2)]).await;
    stage.go_on_once();
    first.answer().await.unwrap();
    stage.0.sent.subscribe().wait_for(|sent| sent.len() == 2).await.unwrap();
    // These wait while the batch with the faulty one is in flight.
    pending.extend(ask(&batcher, Lane::Claim, &[bad(1), plain(1), plain(3)]).await);
    stage.go_on();
    let mut results = Vec::new();
    for pending in pending {
        results.push(pending.answer().await.ok());
    }
    assert_eq!(results, [None, Some(20), None, Some(10), Some(30)]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_everything_makes_no_suspect() {
    let (stage, batcher) = Stage::open();
    let all: Vec<_> = (0..200).map(poison).collect();
    for _ in 0..2 {
        let began = Instant::now();
        for pending in ask(&batcher, Lane::Claim, &all).await {
            assert!(error(pending).await.is_transient());
        }
        assert!(began.elapsed() <= 2 * MAX_TRYING + MAX_PAUSE, "{:?}", began.elapsed());
    }
    let before = stage.sent().len();
    let pending = ask(&batcher, Lane::Claim, &numbered(0..200)).await;
    assert_eq!(answers(pending).await.len(), 200);
    assert_eq!(stage.sent().len() - before, 1, "they go together");
}

#[tokio::test(start_paused = true)]
async fn the_oldest_suspect_is_forgotten_when_there_are_too_many() {
    let (stage, batcher) = Stage::open();
    for number in 0..=MAX_SUSPECTS as u32 {
        error(ask(&batcher, Lane::Claim, &[bad(number)]).await.remove(0)).await;
    }
    let before = stage.sent().len();
    let pending = ask(&batcher, Lane::Claim, &[plain(0), plain(2_000), plain(1)]).await;
    assert_eq!(answers(pending).await, [0, 20_000, 10]);
    let mut sent = stage.sent().split_off(before);
    sent.sort();
    assert_eq!(sent, [vec![0, 2_000], vec![1]]);
}
