//! Workers with a connection on demand.

use super::*;

/// A stage whose commits wait for the test, with two workers that share a load, and additional ones.
fn with_additional(additional: usize) -> (Stage, Batcher<Stage>) {
    let stage = Stage::new(Some(Semaphore::new(0)));
    let batcher = Batcher::start(vec![stage.clone(), stage.clone()], vec![stage.clone(); additional]);
    (stage, batcher)
}

async fn ask(batcher: &Batcher<Stage>, numbers: impl IntoIterator<Item = u32>) -> Vec<Pending<Stage>> {
    let mut pending = Vec::new();
    for number in numbers {
        pending.push(batcher.ask(Lane::Claim, || plain(number)).await.unwrap());
    }
    pending
}

async fn answered(pending: Vec<Pending<Stage>>) {
    for pending in pending {
        pending.answer().await.unwrap();
    }
}

impl Stage {
    /// Waits until so many batches were sent, and returns their sizes.
    async fn sizes(&self, count: usize) -> Vec<usize> {
        let mut sent = self.0.sent.subscribe();
        let sent = sent.wait_for(|sent| sent.len() >= count).await.unwrap();
        sent.iter().map(Vec::len).collect()
    }

    /// The number of batches that were sent once everything has come to rest.
    async fn at_rest(&self) -> usize {
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.sent().len()
    }
}

#[tokio::test(start_paused = true)]
async fn a_few_operations_go_alone_and_at_once() {
    let (stage, batcher) = with_additional(6);
    let pending = ask(&batcher, 0..8).await;
    assert_eq!(stage.sizes(8).await, [1; 8]);
    stage.go_on();
    answered(pending).await;
}

#[tokio::test(start_paused = true)]
async fn more_operations_than_a_few_form_batches() {
    let (stage, batcher) = with_additional(6);
    let mut pending = ask(&batcher, 0..8).await;
    stage.sizes(8).await;
    pending.extend(ask(&batcher, 8..30).await);
    assert_eq!(stage.at_rest().await, 8);
    stage.go_on();
    answered(pending).await;
    assert_eq!(stage.sizes(9).await[8], 22);
}

#[tokio::test(start_paused = true)]
async fn additional_connections_are_opened_on_demand_and_closed_without_work() {
    let (stage, batcher) = with_additional(6);
    stage.go_on();
    answered(ask(&batcher, 0..1).await).await;
    assert_eq!(*stage.0.connects.lock().unwrap(), 1);
    let (stage, batcher) = with_additional(6);
    let pending = ask(&batcher, 0..4).await;
    stage.sizes(4).await;
    assert_eq!(*stage.0.connects.lock().unwrap(), 2 + 2 * 2);
    stage.go_on();
    answered(pending).await;
    assert_eq!(*stage.0.disconnects.lock().unwrap(), 0);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert_eq!(*stage.0.disconnects.lock().unwrap(), 2);
    // They come back.
    let (before, pending) = (stage.sent().len(), ask(&batcher, 10..14).await);
    stage.sizes(before + 4).await;
    answered(pending).await;
}

#[tokio::test(start_paused = true)]
async fn an_additional_connection_that_is_refused_disturbs_nothing() {
    let (stage, batcher) = with_additional(1);
    let mut pending = ask(&batcher, 0..2).await;
    stage.sizes(2).await;
    stage.unreachable([StoreError::unavailable("too many clients")]);
    pending.extend(ask(&batcher, 2..4).await);
    assert_eq!(stage.at_rest().await, 2);
    stage.go_on();
    answered(pending).await;
    assert_eq!(stage.applied().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_additional_connection_that_broke_loses_nothing() {
    let (stage, batcher) = with_additional(1);
    let mut pending = ask(&batcher, 0..2).await;
    stage.sizes(2).await;
    *stage.0.broken.lock().unwrap() = true;
    pending.extend(ask(&batcher, 2..3).await);
    stage.sizes(3).await;
    assert_eq!(*stage.0.disconnects.lock().unwrap(), 1);
    stage.go_on();
    answered(pending).await;
    assert_eq!(stage.applied().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn workers_that_hang_do_not_stop_the_others() {
    let (stage, batcher) = with_additional(2);
    let hanging = ask(&batcher, 0..2).await;
    stage.sizes(2).await;
    // Both that share the load hang; an additional one takes over.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let later = ask(&batcher, 20..40).await;
    let sizes = stage.sizes(3).await;
    assert_eq!(sizes[2..].iter().sum::<usize>(), 20);
    drop((hanging, later));
    stage.go_on();
}

#[tokio::test(start_paused = true)]
async fn all_workers_take_part_while_answers_take_long() {
    let (stage, batcher) = with_additional(6);
    let first = ask(&batcher, 0..1).await;
    stage.sizes(1).await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    stage.go_on_once();
    answered(first).await;
    let mut pending = ask(&batcher, 1..9).await;
    stage.sizes(9).await;
    // More than a few, so they wait; with one answer, a worker takes them, and others the next ones.
    pending.extend(ask(&batcher, 10..14).await);
    stage.go_on_once();
    stage.sizes(10).await;
    stage.go_on_once();
    pending.extend(ask(&batcher, 14..16).await);
    stage.sizes(11).await;
    stage.go_on();
    answered(pending).await;
}

#[tokio::test(start_paused = true)]
async fn closing_ends_a_worker_that_waits_for_a_connection() {
    let (stage, batcher) = with_additional(1);
    let pending = ask(&batcher, 0..2).await;
    stage.sizes(2).await;
    *stage.0.delay.lock().unwrap() = Duration::from_secs(3_600);
    let waiting = ask(&batcher, 2..3).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    stage.go_on();
    tokio::time::timeout(Duration::from_secs(60), batcher.close()).await.unwrap();
    answered(pending).await;
    answered(waiting).await;
}

#[tokio::test(start_paused = true)]
async fn additional_workers_stay_away_while_answers_are_large() {
    let (stage, batcher) = with_additional(6);
    stage.go_on();
    let large = Question { answer_bytes: 1 << 20, ..plain(0) };
    batcher.ask(Lane::Claim, || large).await.unwrap().answer().await.unwrap();
    let before = *stage.0.connects.lock().unwrap();
    answered(ask(&batcher, 1..9).await).await;
    // Each worker that shares a load checks its connection before each batch.
    assert!(stage.sizes(2).await[1..].iter().any(|size| *size > 1), "{:?}", stage.sent());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sent = stage.sent().len();
    answered(ask(&batcher, 10..14).await).await;
    assert_eq!(stage.sizes(sent + 4).await[sent..], [1; 4]);
    assert!(*stage.0.connects.lock().unwrap() > before);
}
