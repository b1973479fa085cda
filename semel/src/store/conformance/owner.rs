//! Owners: which lease may write.

use std::time::Duration;

use super::{Subject, again, key, outcome, takeover};
use crate::protocol::answer::{Ack, Claim};
use crate::words::error::StoreError;
use crate::words::lease::{Fence, Lease, Token};
use crate::words::record::Record;
use crate::words::terms::AfterCrash;

/// The answers to every write of an owner with this lease.
async fn every_write(on: &Subject, lease: &Lease) -> [Ack; 5] {
    let answered = |ack: Result<Ack, StoreError>| ack.expect("the store answers the owner");
    [
        answered(on.store.renew(lease, on.lease).await),
        answered(on.store.complete(lease, &outcome(9)).await),
        answered(on.store.release(lease).await),
        answered(on.store.abandon(lease, "conformance").await),
        answered(on.store.hold(lease, "conformance").await),
    ]
}

fn with(lease: &Lease, token: Token, fence: Fence) -> Lease {
    Lease::new(lease.key().clone(), token, fence, lease.attempt(), lease.deadline())
}

/// A write with the right token and a wrong fence, or the right fence and a wrong token, changes
/// nothing.
pub async fn only_token_and_fence_together_write(on: &Subject) {
    let (ask, lease) = on.running().await;
    let before = on.store.find(&ask.key).await.expect("the store answers a find");
    let (token, fence) = (Token::random(), Fence::new(lease.fence().get() - 1));
    for wrong in [with(&lease, token, lease.fence()), with(&lease, lease.token(), fence)] {
        assert_eq!(every_write(on, &wrong).await, [Ack::Superseded; 5]);
    }
    assert_eq!(on.store.find(&ask.key).await.expect("the store answers a find"), before);
}

/// After a takeover the first owner can write nothing, whatever the new owner does.
pub async fn a_stale_lease_cannot_write(on: &Subject) {
    let (ask, stale) = on.lost().await;
    let owner = on.granted(&takeover(&ask)).await;
    assert_eq!(every_write(on, &stale).await, [Ack::Superseded; 5]);
    let ack = on.store.complete(&owner, &outcome(2)).await.expect("the store answers a complete");
    assert_eq!(ack, Ack::Applied);
    assert_eq!(every_write(on, &stale).await, [Ack::Finished; 5]);
    assert!(matches!(on.claim(&again(&ask)).await, Claim::Done(recorded) if recorded.outcome == outcome(2)));
}

/// An owner whose lease is over can still complete, unless another attempt took over.
pub async fn a_late_owner_may_complete(on: &Subject) {
    let (ask, late) = on.held().await;
    assert!(matches!(on.claim(&again(&ask)).await, Claim::Held(_)));
    assert_eq!(
        on.peer.complete(&late, &outcome(1)).await.expect("the store answers a complete"),
        Ack::Applied
    );
    assert!(matches!(on.claim(&takeover(&ask)).await, Claim::Done(_)));
}

/// A complete that is sent again because its answer was lost is acknowledged.
pub async fn a_complete_sent_again_is_repeated(on: &Subject) {
    let (_, lease) = on.done().await;
    for store in [&on.store, &on.peer] {
        let ack = store.complete(&lease, &outcome(1)).await.expect("the store answers a complete");
        assert_eq!(ack, Ack::Repeated);
    }
}

/// A recorded outcome never changes, not even by its owner.
pub async fn an_outcome_never_changes(on: &Subject) {
    let (ask, lease) = on.done().await;
    assert_eq!(every_write(on, &lease).await, [Ack::Finished; 5]);
    assert!(matches!(on.claim(&again(&ask)).await, Claim::Done(recorded) if recorded.outcome == outcome(1)));
}

/// A release that is sent again is acknowledged until another attempt has the key.
pub async fn a_release_sent_again_is_repeated(on: &Subject) {
    let (ask, lease) = on.released().await;
    assert_eq!(on.peer.release(&lease).await.expect("the store answers a release"), Ack::Repeated);
    let ack = on.store.complete(&lease, &outcome(1)).await.expect("the store answers a complete");
    assert_eq!(ack, Ack::Superseded);
    let _next = on.granted(&again(&ask)).await;
    assert_eq!(on.store.release(&lease).await.expect("the store answers a release"), Ack::Superseded);
}

/// A renewed lease has its whole length from the moment of the renewal.
pub async fn a_renewal_extends_the_lease(on: &Subject) {
    let (ask, lease) = on.running().await;
    on.pass(on.lease / 2).await;
    let ack = on.peer.renew(&lease, on.lease * 3).await.expect("the store answers a renewal");
    assert_eq!(ack, Ack::Applied);
    on.pass(on.lease).await;
    let claim = on.claim(&takeover(&ask)).await;
    assert!(matches!(claim, Claim::Running { left, .. } if left > Duration::ZERO), "{claim:?}");
    on.pass(on.lease * 2).await;
    assert!(matches!(on.claim(&again(&ask)).await, Claim::Held(_)));
}

/// A renewal after the lease is over revives it, unless another attempt took over.
pub async fn a_late_renewal_revives_the_lease(on: &Subject) {
    let (ask, lease) = on.held().await;
    let ack = on.store.renew(&lease, on.lease).await.expect("the store answers a renewal");
    assert_eq!(ack, Ack::Applied);
    assert!(matches!(on.claim(&takeover(&ask)).await, Claim::Running { .. }));
}

/// An abandoned key is held or lost at once, as its policy says, and its note has the reason.
pub async fn an_abandoned_key_is_over_at_once(on: &Subject) {
    let (held, under_hold) = on.running().await;
    let (lost, under_retry) = on.retried().await;
    for lease in [&under_hold, &under_retry] {
        let ack = on.store.abandon(lease, "the provider timed out").await;
        assert_eq!(ack.expect("the store answers an abandon"), Ack::Applied);
        let record = found(on, lease).await;
        assert_eq!(&*record.note.expect("the reason is kept").text, "abandoned: the provider timed out");
    }
    assert!(matches!(on.claim(&takeover(&held)).await, Claim::Held(_)));
    assert_eq!(on.granted(&takeover(&lost)).await.attempt(), 2);
}

/// An owner can leave its key held, with a reason, under every policy.
pub async fn a_key_can_be_held_whatever_its_policy(on: &Subject) {
    let (ask, lease) = on.retried().await;
    let ack = on.store.hold(&lease, "no outcome was recorded").await.expect("the store answers a hold");
    assert_eq!(ack, Ack::Applied);
    assert!(matches!(on.claim(&takeover(&ask)).await, Claim::Held(_)));
    let record = found(on, &lease).await;
    assert_eq!(record.after_crash, AfterCrash::Hold);
    assert_eq!(&*record.note.expect("the reason is kept").text, "held: no outcome was recorded");
}

async fn found(on: &Subject, lease: &Lease) -> Record {
    on.peer.find(lease.key()).await.expect("the store answers a find").expect("there is a record")
}

/// A write to a key without a record is answered *missing* and creates no record.
pub async fn a_write_without_a_record_is_missing(on: &Subject) {
    let (_, lease) = on.running().await;
    let nowhere = Lease::new(key(), lease.token(), lease.fence(), 1, lease.deadline());
    assert_eq!(every_write(on, &nowhere).await, [Ack::Missing; 5]);
    assert_eq!(on.store.find(nowhere.key()).await.expect("the store answers a find"), None);
}

/// When a late owner completes during a takeover, one of the two wins, and the other learns of it.
pub async fn one_of_owner_and_takeover_records(on: &Subject) {
    for _ in 0..8 {
        let (ask, late) = on.retried().await;
        let _abandoned = on.store.abandon(&late, "race").await.expect("the store answers an abandon");
        let next = takeover(&ask);
        let (store, peer) = (on.store.clone(), on.peer.clone());
        let completing = tokio::spawn(async move { store.complete(&late, &outcome(1)).await });
        let claiming = tokio::spawn(async move { peer.claim(&next).await });
        let ack = completing.await.expect("no panic").expect("the store answers a complete");
        match claiming.await.expect("no panic").expect("the store answers a claim") {
            Claim::Granted(_) => assert_eq!(ack, Ack::Superseded),
            Claim::Done(recorded) => assert_eq!((ack, recorded.outcome), (Ack::Applied, outcome(1))),
            other => panic!("{other:?}"),
        }
    }
}
