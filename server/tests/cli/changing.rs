//! `semel resolve`, `semel reset` and `semel forget`.

use std::sync::Arc;
use std::time::Duration;

use semel::store::{Claim, Hot, RedisOptions};
use semel::{Fence, Store, Tiered};
use testkit::on_every_store;

use crate::place::Place;
use crate::process::{Ran, objects, semel, semel_reading};

on_every_store! {
    crate::place::Place [sqlite, postgres, redis, cached] {
        a_resolved_key_answers_repeats,
        a_reset_key_can_be_claimed_again,
        a_forgotten_key_is_as_new,
        another_fence_changes_nothing,
        a_running_key_is_not_changed,
        only_a_held_key_is_resolved_or_reset,
        an_unknown_or_expired_key_is_missing,
        a_body_comes_from_a_file_or_a_pipe_byte_for_byte,
        a_change_is_told_to_programs,
    }
}

const VERBS: [&str; 3] = ["resolve", "reset", "forget"];

impl Place {
    fn change(&self, verb: &str, key: &str, fence: Fence, more: &[&str]) -> Ran {
        let fence = fence.get().to_string();
        let status: &[&str] = if verb == "resolve" { &["--status", "200"] } else { &[] };
        self.of_realm(
            &[&[verb, key, "--fence", &fence, "--reason", "seen at the bank"], status, more].concat(),
        )
    }

    fn record(&self, key: &str) -> serde_json::Value {
        let mut objects = self.of_realm(&["inspect", key, "--body", "--output", "json"]).json();
        objects.remove(0)
    }
}

async fn a_resolved_key_answers_repeats(place: Place) {
    let lease = place.held("k").await;
    let headers = ["--header", "Content-Type: text/plain", "--header", "X-A:  b", "--body", "paid"];
    let said = place.change("resolve", "k", lease.fence(), &headers).ok();
    assert_eq!(said, format!("k (realm {}) was resolved\n", place.realm));
    let record = place.store.find(lease.key()).await.unwrap().unwrap();
    let outcome = record.outcome().unwrap();
    assert_eq!((outcome.status(), &outcome.body().unwrap()[..]), (200, &b"paid"[..]));
    let headers: Vec<_> = outcome.headers().collect();
    assert_eq!(headers, [("content-type", "text/plain".into()), ("x-a", "b".into())]);
    assert_eq!(&*record.note.unwrap().text, "resolved: seen at the bank");
}

async fn a_reset_key_can_be_claimed_again(place: Place) {
    let lease = place.held("k").await;
    place.change("reset", "k", lease.fence(), &[]).ok();
    assert_eq!(place.record("k")["note"]["text"], "reset: seen at the bank");
    assert_eq!(place.running("k").await.attempt(), 2);
}

async fn a_forgotten_key_is_as_new(place: Place) {
    for (key, lease) in [
        ("k-held", place.held("k-held").await),
        ("k-done", place.done("k-done").await),
        ("k-free", place.released("k-free").await),
    ] {
        place.change("forget", key, lease.fence(), &[]).ok();
        assert!(place.store.find(lease.key()).await.unwrap().is_none());
        let again = place.new_key(key).to("something else").claimed().await;
        assert_eq!(again.attempt(), 1);
    }
}

async fn another_fence_changes_nothing(place: Place) {
    let lease = place.held("k").await;
    let before = place.record("k");
    let other = Fence::new(lease.fence().get() - 1);
    for verb in VERBS {
        let said = place.change(verb, "k", other, &[]).refused(4);
        let now = format!("now it is held, fence {}, attempt 1, owner host-1, since ", lease.fence());
        assert!(said.contains(&format!("its fence is not {other}; {now}")), "{said}");
    }
    assert_eq!(place.record("k"), before);
}

async fn a_running_key_is_not_changed(place: Place) {
    let lease = place.running("k").await;
    let before = place.record("k");
    for verb in VERBS {
        let said = place.change(verb, "k", lease.fence(), &[]).refused(4);
        let now = format!("now it is running, fence {}, attempt 1, owner host-1, since ", lease.fence());
        assert!(said.contains(&format!("an attempt runs under a live lease; {now}")), "{said}");
    }
    assert_eq!(place.record("k"), before);
}

async fn only_a_held_key_is_resolved_or_reset(place: Place) {
    let (done, released) = (place.done("k-done").await, place.released("k-free").await);
    for verb in ["resolve", "reset"] {
        let said = place.change(verb, "k-done", done.fence(), &[]).refused(4);
        assert!(said.contains("there is an outcome already; now it is done, "), "{said}");
        let said = place.change(verb, "k-free", released.fence(), &[]).refused(4);
        assert!(said.contains("it is neither held nor lost; now it is released, "), "{said}");
    }
    let record = place.store.find(done.key()).await.unwrap().unwrap();
    assert_eq!(record.outcome(), Some(&crate::records::outcome()));
}

async fn an_unknown_or_expired_key_is_missing(place: Place) {
    let expired = place.expired("k-expired").await;
    for verb in VERBS {
        for more in [&[][..], &["--principal", ""]] {
            let said = place.change(verb, "nobody", Fence::new(1), more).refused(3);
            assert!(said.contains("there is no record of the key nobody"), "{said}");
            let said = place.change(verb, "k-expired", expired.fence(), more).refused(3);
            assert!(said.contains("or its retention is over"), "{said}");
        }
    }
}

async fn a_body_comes_from_a_file_or_a_pipe_byte_for_byte(place: Place) {
    let body = b"a\0\xff\r\n".to_vec();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("body");
    std::fs::write(&file, &body).unwrap();
    let lease = place.held("k-file").await;
    place.change("resolve", "k-file", lease.fence(), &["--body-file", file.to_str().unwrap()]).ok();
    let piped = place.held("k-pipe").await;
    let fence = piped.fence().to_string();
    let args =
        ["resolve", "k-pipe", "--fence", &fence, "--status", "200", "--reason", "r", "--body-file", "-"];
    semel_reading(&place.args(&args), &body).ok();
    for lease in [lease, piped] {
        let record = place.store.find(lease.key()).await.unwrap().unwrap();
        assert_eq!(record.outcome().unwrap().body().unwrap()[..], body);
    }
}

async fn a_change_is_told_to_programs(place: Place) {
    for (verb, state, expired) in
        [("resolve", "done", false), ("reset", "released", false), ("forget", "released", true)]
    {
        let lease = place.held(verb).await;
        let json = ["--output", "json"];
        let refused = place.change(verb, verb, Fence::new(7), &json);
        let record = &objects(&refused.out)[0];
        assert_eq!(
            (&record["changed"], &record["state"], &record["fence"]),
            (&false.into(), &"held".into(), &lease.fence().get().into())
        );
        refused.refused(4);
        let applied = &place.change(verb, verb, lease.fence(), &json).json()[0];
        assert_eq!(
            (&applied["changed"], &applied["state"], &applied["expired"]),
            (&true.into(), &state.into(), &expired.into())
        );
        assert!(applied["fence"].as_u64() > Some(lease.fence().get()), "{applied}");
    }
}

#[tokio::test]
async fn the_lost_owner_of_a_reset_key_can_no_longer_write() {
    let place = Place::sqlite().await;
    let lease = place.held("k").await;
    place.change("reset", "k", lease.fence(), &[]).ok();
    assert!(!place.store.complete(&lease, &crate::records::outcome()).await.unwrap().stands());
}

#[tokio::test]
async fn a_key_that_is_live_in_one_scope_only_needs_no_scope() {
    let place = Place::sqlite().await;
    place.expired("k").await;
    let lease = place.new_key("k").of_principal("ann").held("lost").await;
    place.change("reset", "k", lease.fence(), &[]).ok();
}

#[tokio::test]
async fn a_cache_forgets_with_its_store() {
    let place = Place::cached().await;
    let hot = RedisOptions::new(place.cache.as_ref().unwrap())
        .unwrap()
        .with_eviction_allowed()
        .connect()
        .await
        .unwrap();
    let tiered = Tiered::new(hot.clone(), Arc::clone(&place.store));
    let lease = place.done("k").await;
    let claim = || async { tiered.claim(&place.new_key("k").ask().await).await.unwrap() };
    // The first repeat plants the outcome in the cache, in the background.
    assert!(matches!(claim().await, Claim::Done(_)));
    while hot.recall(lease.key()).await.unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    place.change("forget", "k", lease.fence(), &[]).ok();
    assert!(matches!(claim().await, Claim::Granted(_)));
}

#[test]
fn wrong_arguments_of_a_change_are_told_before_the_store_is_opened() {
    let with = |args: &[&str]| semel(&[args, &["--store", "postgres://ghost@256.0.0.1/none"]].concat());
    let reset = ["reset", "k", "--fence", "1"];
    let resolve = ["resolve", "k", "--fence", "1", "--reason", "r"];
    for wrong in [
        &[][..],
        &["--reason", ""],
        &["--reason", " \t"],
        &["--reason", "r", "--fence", "2"],
        &["--reason", "r", "--status", "200"],
    ] {
        with(&[&reset, wrong].concat()).refused(2);
    }
    with(&["reset", "k", "--reason", "r"]).refused(2);
    with(&["reset", "k", "--reason", "r", "--fence", "-1"]).refused(2);
    with(&["reset", "k", "--reason", "r", "--fence", "x"]).refused(2);
    for wrong in [
        &[][..],
        &["--status", "99"],
        &["--status", "1000"],
        &["--status", "ok"],
        &["--status", "200", "--header", "no colon"],
        &["--status", "200", "--header", "a b: c"],
        &["--status", "200", "--header", "a: b\u{1b}"],
        &["--status", "200", "--body", "a", "--body-file", "b"],
    ] {
        let said = with(&[&resolve, wrong].concat()).refused(2);
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    let said = with(&[&resolve[..], &["--status", "200", "--body-file", "/no/where"]].concat()).refused(1);
    assert!(said.contains("could not read /no/where"), "{said}");
}

#[test]
fn a_body_over_the_limit_is_refused() {
    let resolve = ["resolve", "k", "--fence", "1", "--reason", "r", "--status", "200", "--store", "memory:"];
    let large = semel(&[&resolve[..], &["--body-file", "/dev/zero"]].concat()).refused(2);
    assert!(large.contains("the limit is 16777216"), "{large}");
}
