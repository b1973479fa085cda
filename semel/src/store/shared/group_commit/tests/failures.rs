//! Failures: which callers see them, after how many tries, and with which error.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_bad_question_never_fails_its_neighbours() {
    for count in 1..=9_u32 {
        // Every set of bad operations, as the bits of a number.
        for bad in 1..1_u32 << count {
            let (stage, batcher) = Stage::open();
            let is_bad = |number: u32| bad >> number & 1 == 1;
            let questions: Vec<_> =
                (0..count).map(|number| Question { bad: is_bad(number), ..plain(number) }).collect();
            let pending = ask(&batcher, Lane::Owner, &questions).await;
            for (number, pending) in (0..count).zip(pending) {
                match pending.answer().await {
                    Ok(answer) => assert!(!is_bad(number) && answer == number * 10, "{number} of {bad:b}"),
                    Err(error) => assert!(is_bad(number) && !error.is_transient(), "{number} of {bad:b}"),
                }
            }
            assert_eq!(stage.sent()[0].len(), count as usize, "all go together first");
            let good: Vec<u32> = (0..count).filter(|number| !is_bad(*number)).collect();
            assert_eq!(stage.applied(), good, "each good one of {bad:b} once, in their order");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_be_sent_again_is() {
    let (stage, batcher) = Stage::open();
    stage.fates([Fate::Again; MAX_TRIES as usize - 1]);
    let pending = ask(&batcher, Lane::Claim, &numbered([1, 2])).await;
    assert_eq!(answers(pending).await, [10, 20]);
    assert_eq!(stage.sent(), vec![vec![1, 2]; MAX_TRIES as usize]);
    assert_eq!(stage.applied(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn tries_are_bounded_and_fewer_while_the_other_side_is_down() {
    let (stage, batcher) = Stage::open();
    let down = async |number: u32, tries: usize| {
        let (began, before) = (Instant::now(), stage.sent().len());
        let pending = batcher.ask(Lane::Claim, || plain(number)).await.unwrap();
        let failed = pending.answer().await.expect_err("it is down");
        assert!(failed.is_transient() && !failed.is_unknown(), "{failed}");
        assert!(began.elapsed() <= MAX_TRYING + MAX_PAUSE, "{:?}", began.elapsed());
        assert_eq!(stage.sent().len() - before, tries);
    };
    stage.fates([Fate::Again; 9]);
    down(1, 6).await;
    down(2, 1).await;
    down(3, 1).await;
    down(4, 1).await;
    let up = batcher.ask(Lane::Claim, || plain(5)).await.unwrap();
    assert_eq!(up.answer().await.unwrap(), 50);
    // The server was up in between, so that the batch is worth as many tries as before.
    stage.fates([Fate::Again; 6]);
    down(6, 6).await;
    assert_eq!(stage.applied(), [5]);
}

#[tokio::test(start_paused = true)]
async fn without_a_connection_nothing_is_sent() {
    let (stage, batcher) = Stage::open();
    stage.unreachable((0..MAX_TRIES).map(|_| StoreError::unavailable("no server there")));
    let failed = ask(&batcher, Lane::Claim, &[plain(1)]).await.remove(0).answer().await;
    let failed = failed.expect_err("no server was there");
    assert!(failed.is_transient() && !failed.is_unknown(), "{failed}");
    assert_eq!(*stage.0.connects.lock().unwrap(), MAX_TRIES);
    assert_eq!(stage.sent(), Vec::<Vec<u32>>::new());
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_refused_for_good_is_told_as_it_is() {
    let (stage, batcher) = Stage::open();
    stage.unreachable([StoreError::refused("no such schema")]);
    for pending in ask(&batcher, Lane::Claim, &numbered([1, 2])).await {
        let refused = pending.answer().await.expect_err("it was refused");
        assert!(!refused.is_transient());
        assert_eq!(refused.to_string(), "store refused: no such schema");
    }
    assert_eq!(*stage.0.connects.lock().unwrap(), 1);
    let pending = batcher.ask(Lane::Claim, || plain(3)).await.unwrap();
    assert_eq!(pending.answer().await.unwrap(), 30);
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_is_sent_again_over_a_new_connection() {
    for applied in [false, true] {
        let (stage, batcher) = Stage::open();
        stage.fates([Fate::Lost { applied }]);
        let pending = ask(&batcher, Lane::Owner, &numbered([1, 2])).await;
        assert_eq!(answers(pending).await, [10, 20]);
        assert_eq!(stage.sent(), [[1, 2], [1, 2]]);
        assert_eq!(*stage.0.connects.lock().unwrap(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_is_unknown_until_it_is_answered() {
    const LOST: Fate = Fate::Lost { applied: true };
    for fates in [
        vec![LOST; 6],
        vec![LOST, Fate::Again, Fate::Again, Fate::Again, Fate::Again, Fate::Again],
        // An operation that is refused now may have been applied before.
        vec![LOST, Fate::Refused],
    ] {
        let (stage, batcher) = Stage::open();
        stage.fates(fates.iter().copied());
        let pending = batcher.ask(Lane::Owner, || plain(1)).await.unwrap();
        let lost = pending.answer().await.expect_err("there was no answer");
        assert!(lost.is_unknown(), "{fates:?}: {lost}");
        assert_eq!(stage.sent().len(), fates.len());
    }

    let (stage, batcher) = Stage::open();
    stage.fates([LOST]);
    // The first connection is made, the second is not.
    let first = batcher.ask(Lane::Owner, || plain(1)).await.unwrap();
    stage.0.sent.subscribe().wait_for(|sent| !sent.is_empty()).await.unwrap();
    stage.unreachable([StoreError::refused("the password was changed")]);
    let lost = first.answer().await.expect_err("there was no answer");
    assert!(lost.is_unknown(), "{lost}");
    assert!(lost.to_string().contains("the password was changed"), "{lost}");
}

#[tokio::test(start_paused = true)]
async fn what_was_lost_together_is_unknown_to_each_when_it_is_sent_apart() {
    let (stage, batcher) = Stage::open();
    let lost = Fate::Lost { applied: true };
    stage.fates([lost, Fate::Refused].into_iter().chain([Fate::Again; 6]));
    let mut pending = ask(&batcher, Lane::Owner, &numbered([1, 2])).await;
    let second = pending.remove(1);
    let first = pending.remove(0).answer().await.expect_err("there was no answer");
    assert!(first.is_unknown(), "{first}");
    assert_eq!(second.answer().await.unwrap(), 20);
}
