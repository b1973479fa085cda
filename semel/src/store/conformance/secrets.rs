//! The secret that is stored beside the records.

use futures_util::future::join_all;

use super::Subject;
use crate::words::lease::Token;

fn random() -> Vec<u8> {
    Token::random().as_bytes().to_vec()
}

/// All handles find the same secret, and only a caller that knows the current secret can change it.
pub async fn a_secret_is_the_same_for_all(on: &Subject) {
    // The secret from before the test is restored at the end: principals may be derived from it.
    let keep = async |store: &dyn crate::admin::Inspect, expected: Option<&[u8]>, value: &[u8]| {
        store.keep_secret(expected, value).await.expect("the store keeps a secret")
    };
    let kept = keep(&*on.store, None, &random()).await;
    assert_eq!(keep(&*on.peer, None, &random()).await, kept, "another handle finds it");
    assert_eq!(keep(&*on.peer, Some(&random()), &random()).await, kept, "another one was expected");
    let offers: Vec<_> = (0..8).map(|_| random()).collect();
    let changed = join_all(offers.iter().enumerate().map(|(n, offer)| {
        let store = if n % 2 == 0 { &*on.store } else { &*on.peer };
        keep(store, Some(&kept), offer)
    }));
    let changed = changed.await;
    let now = keep(&*on.peer, None, &random()).await;
    assert!(offers.contains(&now), "one of them has changed it");
    assert!(changed.iter().all(|found| *found == now), "all others find that one");
    assert_eq!(keep(&*on.store, Some(&now), &kept).await, kept, "it is put back");
    assert_eq!(keep(&*on.peer, None, &random()).await, kept);
}
