//! The remains of a body in the files after its record was removed.

use semel::admin::{Inspect, OperatorAck, Prune};
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
    let page = store.list(&semel::admin::ListQuery::default()).await.unwrap();
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
