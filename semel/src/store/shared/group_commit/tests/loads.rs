//! Batches that are too large: for their answers, or to be answered in time.

use super::untaken::MAX_UNTAKEN_WAIT;
use super::*;

const HALF: usize = MAX_ANSWER_BYTES / 2;

fn heavy(number: u32) -> Question {
    Question { answer_bytes: HALF, ..plain(number) }
}

#[tokio::test(start_paused = true)]
async fn answers_of_a_batch_are_bounded_and_light_ones_need_not_wait() {
    let (stage, batcher, first) = Stage::busy().await;
    let mut questions: Vec<Question> = (1..=6).map(heavy).collect();
    questions.push(plain(7));
    let pending = ask(&batcher, Lane::Claim, &questions).await;
    stage.go_on_once();
    assert_eq!(first.answer().await.unwrap(), 0);
    // The sizes of the answers are known only from here on.
    stage.go_on_once();
    stage.0.sent.subscribe().wait_for(|sent| sent.len() == 3).await.unwrap();
    let late = ask(&batcher, Lane::Claim, &numbered([8])).await;
    stage.go_on();
    assert_eq!(answers(pending).await, [10, 20, 30, 40, 50, 60, 70]);
    assert_eq!(answers(late).await, [80]);
    assert_eq!(stage.sent()[1..], [vec![1, 2, 3, 4, 5, 6, 7], vec![3, 4], vec![5, 6, 8]]);
}

#[tokio::test(start_paused = true)]
async fn answer_that_several_get_counts_once_and_their_order_stays() {
    let (stage, batcher, first) = Stage::busy().await;
    let pending = ask(&batcher, Lane::Claim, &[1, 2, 3, 4, 3, 4, 4].map(heavy)).await;
    stage.go_on();
    assert_eq!(first.answer().await.unwrap(), 0);
    assert_eq!(answers(pending).await, [10, 20, 30, 40, 30, 40, 40]);
    assert_eq!(stage.sent()[1..], [vec![1, 2, 3, 4, 3, 4, 4], vec![3, 4, 3, 4, 4]]);
}

/// Regression: answers that were on their way to their callers were in no limit, so that many
/// replays at once took memory without end.
#[tokio::test(start_paused = true)]
async fn the_next_batch_waits_until_callers_have_taken_large_answers_but_not_for_long() {
    let (stage, batcher, first) = Stage::busy().await;
    let mut large = ask(&batcher, Lane::Claim, &[1, 2, 3, 4, 5, 6].map(heavy)).await;
    stage.go_on();
    assert_eq!(first.answer().await.unwrap(), 0);
    let mut sent = stage.0.sent.subscribe();
    sent.wait_for(|sent| sent.len() == 3).await.unwrap();
    let began = Instant::now();
    tokio::time::sleep(MAX_UNTAKEN_WAIT / 2).await;
    assert_eq!(stage.sent()[1..], [vec![1, 2, 3, 4, 5, 6], vec![3, 4]]);
    assert_eq!(answers(large.drain(..2).collect()).await, [10, 20]);
    sent.wait_for(|sent| sent.len() == 4).await.unwrap();
    assert_eq!(began.elapsed(), MAX_UNTAKEN_WAIT / 2);
    // The other callers are not polled.
    assert_eq!(answers(ask(&batcher, Lane::Claim, &numbered([7])).await).await, [70]);
    assert_eq!(began.elapsed(), MAX_UNTAKEN_WAIT * 3 / 2);
    drop(large);
    assert_eq!(answers(ask(&batcher, Lane::Claim, &numbered([8])).await).await, [80]);
    assert_eq!(began.elapsed(), MAX_UNTAKEN_WAIT * 3 / 2);
}

#[tokio::test(start_paused = true)]
async fn question_waits_for_an_earlier_one_whose_answer_has_no_room() {
    let (stage, batcher, first) = Stage::busy().await;
    let pending = ask(&batcher, Lane::Claim, &[1, 2, 3, 4, 5, 6].map(heavy)).await;
    stage.go_on_once();
    assert_eq!(first.answer().await.unwrap(), 0);
    stage.0.sent.subscribe().wait_for(|sent| sent.len() == 2).await.unwrap();
    let behind = ask(&batcher, Lane::Claim, &numbered([5, 7])).await;
    stage.go_on();
    assert_eq!(answers(pending).await, [10, 20, 30, 40, 50, 60]);
    assert_eq!(answers(behind).await, [50, 70]);
    assert_eq!(stage.sent()[2..], [vec![3, 4, 7], vec![5, 6, 5]]);
}

#[tokio::test(start_paused = true)]
async fn batch_that_is_not_answered_in_time_is_sent_in_halves() {
    let (stage, batcher, first) = Stage::busy().await;
    let pending = ask(&batcher, Lane::Claim, &numbered([1, 2, 3, 4])).await;
    stage.go_on_once();
    assert_eq!(first.answer().await.unwrap(), 0);
    stage.fates([Fate::Slow, Fate::Slow]);
    stage.go_on();
    assert_eq!(answers(pending).await, [10, 20, 30, 40]);
    assert_eq!(stage.sent()[1..], [vec![1, 2, 3, 4], vec![1, 2], vec![1], vec![2], vec![3, 4]]);
}

#[tokio::test(start_paused = true)]
async fn half_of_a_lost_batch_whose_callers_are_gone_is_settled_before_its_keys_are_asked_again() {
    let (stage, batcher, first) = Stage::busy().await;
    let mut pending = ask(&batcher, Lane::Claim, &numbered([1, 2])).await;
    stage.go_on_once();
    assert_eq!(first.answer().await.unwrap(), 0);
    stage.0.sent.subscribe().wait_for(|sent| sent.len() == 2).await.unwrap();
    stage.fates([Fate::Slow]);
    drop(pending.pop());
    let connects = *stage.0.connects.lock().unwrap();
    stage.go_on();
    assert_eq!(answers(pending).await, [10]);
    let again = ask(&batcher, Lane::Claim, &numbered([2])).await;
    assert_eq!(answers(again).await, [20]);
    assert_eq!(*stage.0.connects.lock().unwrap(), connects + 3, "the half, the settling, and the key again");
}
