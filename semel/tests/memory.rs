//! The memory store, which keeps the contract and its own limits.

use std::sync::Arc;
use std::time::Duration;

use semel::admin::{Inspect, Prune};
use semel::store::{Ask, Claim, Owner, Terms, Token};
use semel::store::{conformance, conformance::Subject};
use semel::{Failure, Intent, Key, MemoryStore, Once, Store};

fn moved_by(subject: Subject, store: &MemoryStore) -> Subject {
    let store = store.clone();
    subject.with_passing(move |time| {
        store.memory_clock().advance(time);
        async {}
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_keeps_every_promise_when_its_clock_is_moved() {
    let store = MemoryStore::new();
    let subject = moved_by(Subject::new(store.clone()).with_peer(store.clone()), &store);
    conformance::check(&subject).await.unwrap_or_else(|broken| panic!("{broken}"));
}

#[tokio::test]
async fn a_shared_dyn_store_keeps_every_promise() {
    let store = MemoryStore::new();
    let shared: Arc<dyn Inspect> = Arc::new(store.clone());
    let subject = moved_by(Subject::new(shared), &store);
    conformance::check(&subject).await.unwrap_or_else(|broken| panic!("{broken}"));
}

#[tokio::test]
async fn an_engine_runs_over_a_shared_dyn_store() {
    let shared: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let once = Once::new(Arc::clone(&shared));
    let (key, intent) = (Key::new("tests", "key").unwrap(), Intent::of("charge", "", &1).unwrap());
    once.run(&key, &intent, |_| async { Ok::<_, Failure>(1) }).await.unwrap();
    assert!(shared.find(&key).await.unwrap().unwrap().outcome().is_some());
}

fn ask(store: &MemoryStore, name: &str) -> Ask {
    Ask::new(
        Key::new("tests", name).unwrap(),
        Intent::of("charge", "", &1).unwrap(),
        store.memory_clock().now().after(Duration::from_secs(100)),
    )
    .with_owner(Owner::new("tests"))
}

#[tokio::test]
async fn a_full_store_refuses_new_keys_and_still_answers_old_ones() {
    let store = MemoryStore::with_capacity(2);
    let (one, two, three) = (ask(&store, "one"), ask(&store, "two"), ask(&store, "three"));
    assert!(matches!(store.claim(&one).await.unwrap(), Claim::Granted(_)));
    assert!(matches!(store.claim(&two).await.unwrap(), Claim::Granted(_)));
    let full = store.claim(&three).await.unwrap_err();
    assert!(full.is_transient() && !full.is_unknown());
    assert_eq!(full.to_string(), "store unavailable: memory holds 2 records, the limit; prune or raise it");
    let granted = store.claim(&one).await.unwrap();

    for lease in [granted, store.claim(&two).await.unwrap()] {
        let Claim::Granted(lease) = lease else { panic!("not granted") };
        assert!(store.release(&lease).await.unwrap().stands());
    }
    store.memory_clock().advance(Terms::DEFAULT.retention());
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 2);
    let three = ask(&store, "three");
    assert!(matches!(store.claim(&three).await.unwrap(), Claim::Granted(_)));
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_lower_a_fence() {
    let store = MemoryStore::new();
    let one = ask(&store, "one");
    let Claim::Granted(first) = store.claim(&one).await.unwrap() else { panic!("not granted") };
    store.memory_clock().set_back(Duration::from_secs(3_600));
    assert!(store.release(&first).await.unwrap().stands());
    let again = ask(&store, "one").with_token(Token::random());
    let Claim::Granted(second) = store.claim(&again).await.unwrap() else { panic!("not granted") };
    assert!(second.fence() > first.fence());
}
