//! An engine whose runtimes come and go.

use std::time::Duration;

use semel::{Key, Once, Policy};
use testkit::gates::{Gate, Through};
use tokio::runtime::{Builder, Runtime};

use crate::{Counter, intent};

fn alone() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// An engine whose leases are short, and the way to its store.
fn shared() -> (Gate, Once) {
    let gate = Gate::new();
    let policy = Policy::retry().with_lease(Duration::from_millis(300));
    (gate.clone(), Once::new(Through(gate)).with_policy(policy))
}

#[test]
fn a_lease_is_renewed_in_its_own_runtime_whatever_became_of_others() {
    let (gate, once) = shared();
    let key = |name: &str| Key::new("tests", name).unwrap();
    let (idle, dropped, counter) = (alone(), alone(), Counter::default());
    // One runtime is no longer driven, another is gone.
    idle.block_on(once.run(&key("idle"), &intent(), counter.quick())).unwrap();
    dropped.block_on(once.run(&key("dropped"), &intent(), counter.quick())).unwrap();
    drop(dropped);
    let third = alone();
    let work = counter.work(Duration::from_millis(1_200));
    third.block_on(once.run(&key("long"), &intent(), work)).unwrap();
    assert!(gate.calls("renew") >= 3, "renewed {} times", gate.calls("renew"));
    drop(idle);
}
