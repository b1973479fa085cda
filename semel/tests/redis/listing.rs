//! The views of operators, while other processes write. The tests have servers of their own: on the
//! shared one, a walk over all names would meet those of all other tests.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use semel::admin::{Cursor, Inspect, ListQuery};
use semel::store::Phase;
use semel::{Key, RedisStore, Scope, Store};
use testkit::claims::{ask, granted};
use testkit::stores::redis::{Place, Server};

/// All listed keys, page by page.
pub(crate) async fn listed(store: &RedisStore, mut query: ListQuery) -> Vec<Key> {
    let mut seen = Vec::new();
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.records.len() <= query.limit as usize);
        seen.extend(page.records.into_iter().map(|record| record.key));
        query.after = page.next;
        if query.after.is_none() {
            return seen;
        }
    }
}

/// Claims each of these keys.
pub(crate) async fn claim_all(store: &RedisStore, keys: impl IntoIterator<Item = Key>) {
    let now = ask(store, "key").await;
    join_all(keys.into_iter().map(async |key| {
        granted(store, &now.clone().with_key(key).with_token(semel::store::Token::random())).await;
    }))
    .await;
}

fn key(number: usize) -> Key {
    Key::new("tests", &format!("key-{number}")).unwrap()
}

#[tokio::test]
async fn every_key_is_on_exactly_one_page_whatever_their_length() {
    const KEYS: usize = 2_000;
    let server = Server::start("");
    let store = server.place().store().await;
    claim_all(&store, (0..KEYS).map(key)).await;
    let all: BTreeSet<Key> = (0..KEYS).map(key).collect();
    for limit in [1, 10, 17, 100, 499, 1_000, 5_000] {
        let seen = listed(&store, ListQuery::default().with_limit(limit)).await;
        assert_eq!(seen.len(), KEYS, "in pages of {limit}");
        assert!(seen.into_iter().collect::<BTreeSet<_>>() == all, "in pages of {limit}");
    }
}

#[tokio::test]
async fn pages_of_different_lengths_follow_each_other() {
    const KEYS: usize = 600;
    let server = Server::start("");
    let store = server.place().store().await;
    claim_all(&store, (0..KEYS).map(key)).await;
    let mut seen = Vec::new();
    let mut query = ListQuery::default();
    for limit in [100, 1, 40, 3, 250, 16].into_iter().cycle() {
        query.limit = limit;
        let page = store.list(&query).await.unwrap();
        seen.extend(page.records.into_iter().map(|record| record.key));
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), KEYS);
    assert_eq!(seen.into_iter().collect::<BTreeSet<_>>().len(), KEYS);
}

#[tokio::test]
async fn pages_hold_each_record_once_while_others_are_added() {
    let server = Server::start("");
    let store = server.place().store().await;
    let before: BTreeSet<Key> = (0..400).map(key).collect();
    claim_all(&store, before.iter().cloned()).await;

    let (done, added) = (AtomicBool::new(false), AtomicUsize::new(0));
    let adding = async {
        while !done.load(Ordering::Relaxed) && added.load(Ordering::Relaxed) < 1_000 {
            let from = added.fetch_add(20, Ordering::Relaxed);
            let new = (from..from + 20).map(|n| Key::new("tests", &format!("meanwhile-{n}")).unwrap());
            claim_all(&store, new).await;
        }
    };
    let paging = async {
        let seen = listed(&store, ListQuery::default().with_limit(7)).await;
        done.store(true, Ordering::Relaxed);
        seen
    };
    let ((), seen) = tokio::join!(adding, paging);
    let once: BTreeSet<Key> = seen.iter().cloned().collect();
    assert_eq!(once.len(), seen.len(), "some were on two pages");
    assert!(once.is_superset(&before));
    assert!(added.load(Ordering::Relaxed) > 20, "nothing was added meanwhile");
}

#[tokio::test]
async fn a_realm_is_taken_literally_whatever_its_name() {
    let server = Server::start("");
    let store = server.place().store().await;
    let realms = [
        "*", "?", "[a]", "[a-z]", "[^a]", "a", "b", "ab", "a:", "a:b", "\\", "\\*", "%", "%3A", ":", "{a}",
        "{", "}", "a*", "a-b", "é", "a b", "^", "-",
    ];
    let of = |realm: &str, principal: &str| {
        Scope::new(realm).unwrap().with_principal(principal).unwrap().key("key").unwrap()
    };
    for realm in realms {
        claim_all(&store, [of(realm, ""), of(realm, "a:*{b}%")]).await;
    }
    for realm in realms {
        let query = ListQuery::default().with_realm(Some(realm.into())).with_limit(1);
        let seen: BTreeSet<Key> = listed(&store, query.clone()).await.into_iter().collect();
        assert_eq!(seen, BTreeSet::from([of(realm, ""), of(realm, "a:*{b}%")]), "{realm}");
        let one = query.clone().with_principal(Some("a:*{b}%".into()));
        assert_eq!(listed(&store, one.clone()).await, [of(realm, "a:*{b}%")], "{realm}");
        let whole = one.with_value(Some("key".into()));
        assert_eq!(listed(&store, whole).await, [of(realm, "a:*{b}%")], "{realm}");
    }
    assert_eq!(listed(&store, ListQuery::default()).await.len(), 2 * realms.len());
    let nobody = ListQuery::default().with_realm(Some("nobody".into()));
    assert!(listed(&store, nobody).await.is_empty());
}

#[tokio::test]
async fn stores_with_prefixes_of_which_one_begins_with_the_other_see_their_own() {
    let server = Server::start("");
    let place = server.place();
    let longer = Place { url: place.url.clone(), prefix: format!("{}-2", place.prefix) };
    let (one, two) = (place.store().await, longer.store().await);
    claim_all(&one, (0..3).map(key)).await;
    claim_all(&two, (0..5).map(key)).await;
    assert_eq!(listed(&one, ListQuery::default()).await.len(), 3);
    assert_eq!(listed(&two, ListQuery::default()).await.len(), 5);
}

#[tokio::test]
async fn stale_shows_what_is_held_and_nothing_else() {
    let server = Server::start("");
    let store = server.place().store().await;
    claim_all(&store, (0..50).map(key)).await;
    for number in 0..20 {
        let lease = granted(&store, &ask(&store, &format!("held-{number}")).await).await;
        store.abandon(&lease, "lost").await.unwrap().applied().unwrap();
    }
    let mut query = ListQuery::default().with_limit(3);
    let mut held = BTreeSet::new();
    loop {
        let page = store.stale(&query).await.unwrap();
        for record in page.records {
            assert_eq!(record.phase(page.now), Phase::Held);
            assert!(held.insert(record.key));
        }
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    assert_eq!(held.len(), 20);
    let stats = Inspect::stats(&store).await.unwrap();
    assert_eq!((stats.running, stats.held), (50, 20));
}

#[tokio::test]
async fn a_page_of_nothing_is_the_last() {
    let server = Server::start("");
    let store = server.place().store().await;
    claim_all(&store, (0..50).map(key)).await;
    let page = store.list(&ListQuery::default().with_limit(0)).await.unwrap();
    // A caller that requests no records would ask for ever.
    assert!(page.records.is_empty() && page.next.is_none(), "{page:?}");
}

#[tokio::test]
async fn a_cursor_of_another_store_is_refused() {
    let server = Server::start("");
    let store = server.place().store().await;
    for foreign in ["", "tests\n\nkey-1", "0", "0.x", "0.-1", "0.0.", "é.1", "0.10000000000000000"] {
        let query = ListQuery::default().with_after(Some(Cursor::new(foreign)));
        let error = store.list(&query).await.expect_err(foreign);
        assert!(!error.is_transient() && error.to_string().contains("cursor"), "{foreign}: {error}");
    }
    // A cursor that leads nowhere shows nothing, and ends the listing.
    let query = ListQuery::default().with_after(Some(Cursor::new("ffff.0")));
    assert!(store.list(&query).await.unwrap().next.is_none());
}

#[tokio::test]
async fn the_size_is_what_the_server_says() {
    let server = Server::start("");
    let store = server.place().store().await;
    let before = store.size().await.unwrap();
    assert!(before.records == Some(0) && before.bytes > Some(100_000), "{before:?}");
    for number in 0..20 {
        let _lease = granted(&store, &ask(&store, &format!("key-{number}")).await).await;
    }
    assert_eq!(store.size().await.unwrap().records, Some(20));
}
