//! A damaged page of the file.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use futures_util::future::join_all;
use semel::store::Ack;
use semel::{Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;

const PAGE_BYTES: usize = 4_096;

/// Damages the pages that hold the record of a key, or did.
fn damage(place: &Place, key: &str) {
    let client = place.client();
    client.execute_batch("pragma wal_checkpoint(truncate)").unwrap();
    drop(client);
    let file = OpenOptions::new().read(true).write(true).open(place.path()).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    for (number, page) in (0..).zip(bytes.chunks(PAGE_BYTES)) {
        if page.windows(key.len()).any(|window| window == key.as_bytes()) {
            file.write_all_at(&[0x55; 8], number * PAGE_BYTES as u64).unwrap();
        }
    }
}

#[tokio::test]
async fn damaged_page_is_an_error_of_its_keys_and_no_others() {
    let place = Place::new();
    let store = place.store().await;
    let outcome = Outcome::new(200).unwrap().with_body(vec![7; 3_000]).unwrap();
    let keys: Vec<String> = (0..40).map(|number| format!("key-number-{number:03}")).collect();
    for key in &keys {
        let lease = granted(&store, &ask(&store, key).await).await;
        store.complete(&lease, &outcome).await.unwrap().applied().unwrap();
    }
    store.close().await;
    damage(&place, "key-number-007");

    let store = place.options().open().await.unwrap();
    let damaged = store.claim(&ask(&store, "key-number-007").await).await.expect_err("its page is damaged");
    assert!(damaged.to_string().contains("is damaged"), "{damaged}");
    assert!(!damaged.is_transient());
    for turn in 0..3 {
        let new = (0..20).map(async |number| {
            let lease = granted(&store, &ask(&store, &format!("new-{turn}-{number}")).await).await;
            store.complete(&lease, &outcome).await
        });
        let repeats = keys.iter().map(async |key| store.claim(&ask(&store, key).await).await.is_ok());
        let (acks, readable) = tokio::join!(join_all(new), join_all(repeats));
        assert!(acks.into_iter().all(|ack| ack.is_ok_and(|ack| ack == Ack::Applied)), "turn {turn}");
        let damaged = readable.into_iter().filter(|readable| !readable).count();
        assert!((1..=20).contains(&damaged), "{damaged} keys of a page or two");
    }
}
