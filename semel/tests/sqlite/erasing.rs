//! The remains of a body in the files after its record was removed.

use semel::admin::{Inspect, ListQuery, OperatorAck, Prune};
use semel::store::Ack;
use semel::{Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;

/// A pattern for each record, long enough for pages of its own or for a cell within a page.
fn secret(number: usize, bytes: usize) -> Vec<u8> {
    format!("secret-{number:04}-").into_bytes().into_iter().cycle().take(bytes).collect()
}

/// The number of places in the file, and in the files beside it, that contain the beginning of any
/// secret.
fn traces(place: &Place) -> usize {
    let folder = std::fs::read_dir(place.path().parent().unwrap()).unwrap();
    let files = folder.map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    files.map(|bytes| bytes.windows(7).filter(|found| found == b"secret-").count()).sum()
}

/// Regression: an operator who was asked to erase an answer forgot and pruned it, and its body was
/// still in free pages and in the write-ahead log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forgotten_and_pruned_body_is_in_none_of_the_files() {
    let place = Place::new();
    let store = place.store().await;
    for number in 0..40 {
        let ask = ask(&store, &format!("k{number}")).await;
        let lease = granted(&store, &ask).await;
        let body = secret(number, [40, 300, 3_000, 50_000][number % 4]);
        let outcome = Outcome::new(200).unwrap().with_body(body).unwrap();
        assert_eq!(store.complete(&lease, &outcome).await.unwrap(), Ack::Applied);
    }
    assert!(traces(&place) > 40, "the search finds what is there");
    let page = store.list(&ListQuery::default()).await.unwrap();
    assert_eq!(page.records.len(), 40);
    for record in &page.records {
        let change = store.forget(&record.key, record.fence, "asked to").await.unwrap();
        assert_eq!(change, OperatorAck::Applied);
    }
    let mut removed = 0;
    while removed < 40 {
        removed += store.prune(&Prune::default()).await.unwrap();
    }
    // The store is not closed, which would remove the log, but continues.
    assert_eq!(traces(&place), 0);
    drop(store);
}

/// Regression: bytes stayed in the unused parts of pages that other records still used: copies of
/// rows that SQLite had moved to other pages, which is rare, and rows that were deleted without
/// `secure_delete`, which this test makes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_erased_body_is_in_none_of_the_files_though_its_neighbours_stay() {
    let place = Place::new();
    let store = place.store().await;
    let gateway = place.store().await;
    let sizes = [40, 300, 700, 3_000, 9_000];
    for batch in 0..25 {
        // They run at the same time, so they are neighbours that grow later.
        let numbers = batch * 16..(batch + 1) * 16;
        let mut leases = Vec::new();
        for number in numbers.clone() {
            leases.push(granted(&gateway, &ask(&gateway, &format!("k{number}")).await).await);
        }
        for (number, lease) in numbers.zip(leases) {
            let name = if number % 2 == 1 { "secret" } else { "public" };
            let body = format!("{name}-{number:04}-").into_bytes().into_iter().cycle();
            let body: Vec<u8> = body.take(sizes[number * 7 % 5]).collect();
            let outcome = Outcome::new(200).unwrap().with_body(body).unwrap();
            assert_eq!(gateway.complete(&lease, &outcome).await.unwrap(), Ack::Applied);
        }
    }
    assert!(traces(&place) > 200, "the search finds what is there");
    let deleted = place.client();
    deleted.execute_batch("pragma secure_delete = off").unwrap();
    for number in (3..400).step_by(4) {
        let delete = "delete from semel_records where key = ?1";
        assert_eq!(deleted.execute(delete, [format!("k{number}")]).unwrap(), 1);
    }
    drop(deleted);
    let mut query = ListQuery::default();
    loop {
        let page = store.list(&query).await.unwrap();
        for record in &page.records {
            let number: usize = record.key.value()[1..].parse().unwrap();
            if number % 2 == 1 {
                let change = store.forget(&record.key, record.fence, "asked to").await.unwrap();
                assert_eq!(change, OperatorAck::Applied);
            }
        }
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let mut removed = 0;
    while removed < 100 {
        removed += store.prune(&Prune::default()).await.unwrap();
    }
    store.erase_pruned().await.unwrap();
    assert_eq!(traces(&place), 0);
    let kept = gateway.find(&ask(&gateway, "k2").await.key).await.unwrap().expect("it stays");
    assert!(kept.outcome().is_some_and(|outcome| outcome.body().unwrap().starts_with(b"public-0002-")));
}

/// A connection that reads all the time keeps the log; the operator is told so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_in_use_is_reported_and_emptied_later() {
    let place = Place::new();
    let first = place.options().with_busy_timeout(std::time::Duration::from_millis(200));
    let store = first.open().await.unwrap();
    store.migrate().await.unwrap();
    let lease = granted(&store, &ask(&store, "k").await).await;
    let outcome = Outcome::new(200).unwrap().with_body(secret(1, 300)).unwrap();
    assert_eq!(store.complete(&lease, &outcome).await.unwrap(), Ack::Applied);
    let reader = place.client();
    reader.execute_batch("begin; select count(*) from semel_records").unwrap();
    let fence = lease.fence();
    assert_eq!(store.forget(lease.key(), fence, "asked to").await.unwrap(), OperatorAck::Applied);
    while store.prune(&Prune::default()).await.unwrap() == 0 {}
    assert!(!store.empty_log().await.unwrap());
    let told = store.erase_pruned().await.expect_err("the log is in use");
    assert!(told.is_transient() && told.to_string().contains("in use"), "{told}");
    reader.execute_batch("commit").unwrap();
    assert!(store.empty_log().await.unwrap());
    store.erase_pruned().await.unwrap();
    assert_eq!(traces(&place), 0);
}
