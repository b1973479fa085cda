//! Claims: which attempt may run, and the answer to all other claims.

use std::time::Duration;

use futures_util::future::join_all;

use super::{Subject, again, intent, key, other_intent, outcome, retry, scope, takeover};
use crate::protocol::answer::{Ack, Claim, Void};
use crate::protocol::ask::{Ask, Takeover};
use crate::store::Prune;
use crate::words::lease::Fence;
use crate::words::record::Phase;
use crate::words::terms::AfterCrash;

const MANY: usize = 32;

/// A key without a record is granted as attempt 1.
pub async fn a_new_key_is_granted(on: &Subject) {
    let ask = on.ask(&key()).await;
    let lease = on.granted(&ask).await;
    assert_eq!((lease.key(), lease.token(), lease.attempt()), (&ask.key, ask.token, 1));
    let now = on.store.now().await.expect("the store tells its time");
    assert!(lease.deadline() <= now.after(on.lease), "the deadline is at most a lease away");
    assert!(lease.deadline() > now, "the deadline is ahead");
}

/// A repeat of a finished request gets the recorded outcome from any process, also after the lease
/// is over.
pub async fn a_done_key_is_replayed(on: &Subject) {
    let (ask, _) = on.done().await;
    for _ in 0..2 {
        for store in [&on.store, &on.peer] {
            let claim = store.claim(&takeover(&ask)).await.expect("the store answers a claim");
            assert!(matches!(&claim, Claim::Done(replayed) if replayed.outcome == outcome(1)), "{claim:?}");
        }
        on.pass(on.lease).await;
    }
}

/// While an attempt runs, every other claim is answered *running*, with the time that is left of
/// its lease.
pub async fn a_running_key_is_running(on: &Subject) {
    let (ask, lease) = on.running().await;
    let claim = on.peer.claim(&takeover(&ask)).await.expect("the store answers a claim");
    let Claim::Running { since, left } = claim else { panic!("{claim:?}") };
    assert!(left > Duration::ZERO && left <= on.lease, "{left:?} are left");
    assert!(since < lease.deadline());
}

/// A key that was used for one request refuses every other request, in each of its states.
pub async fn another_intent_is_a_mismatch(on: &Subject) {
    let held = on.held().await;
    for (ask, _) in [on.running().await, on.done().await, on.released().await, held] {
        let other = Ask { takeover: Takeover::WhenOver, ..other_intent(&ask) };
        assert!(matches!(on.claim(&other).await, Claim::Mismatch(_)));
    }
    let (ask, _) = on.running().await;
    let same_token = Ask { intent: intent(2), ..ask };
    assert!(matches!(on.claim(&same_token).await, Claim::Mismatch(_)));
}

/// A mismatch shows since when the key is in use, for which operation, and in which phase.
pub async fn a_mismatch_says_with_what(on: &Subject) {
    let (ask, lease) = on.running().await;
    let told = async || match on.claim(&other_intent(&ask)).await {
        Claim::Mismatch(with) => with,
        other => panic!("{other:?}"),
    };
    let with = told().await;
    let record = on.store.find(&ask.key).await.expect("the store answers a find").expect("there is a record");
    assert_eq!((with.since, &*with.operation, with.phase), (record.created_at, "charge", Phase::Running));
    let _done = on.store.complete(&lease, &outcome(1)).await.expect("the store answers a complete");
    assert_eq!(told().await.phase, Phase::Done);
}

/// A refused mismatch leaves the record as it was.
pub async fn a_mismatch_does_not_poison(on: &Subject) {
    let (ask, lease) = on.running().await;
    assert!(matches!(on.claim(&other_intent(&ask)).await, Claim::Mismatch(_)));
    let ack = on.store.complete(&lease, &outcome(1)).await.expect("the store answers a complete");
    assert_eq!(ack, Ack::Applied);
    assert!(matches!(on.claim(&other_intent(&ask)).await, Claim::Mismatch(_)));
    assert!(matches!(on.claim(&again(&ask)).await, Claim::Done(_)));
}

/// A claim that is sent again because its answer was lost gets the same grant, with the same fence.
pub async fn a_claim_sent_again_is_granted_with_the_same_fence(on: &Subject) {
    let (ask, lease) = on.running().await;
    for store in [&on.store, &on.peer] {
        let claim = store.claim(&ask).await.expect("the store answers a claim");
        let Claim::Granted(same) = claim else { panic!("{claim:?}") };
        assert_eq!((same.fence(), same.attempt()), (lease.fence(), lease.attempt()));
    }
    on.pass(on.lease).await;
    let late = on.granted(&ask).await;
    assert_eq!((late.fence(), late.deadline()), (lease.fence(), lease.deadline()));
}

/// A claim that reaches the store after its `not_after` neither creates nor replaces a record.
pub async fn a_late_claim_is_refused(on: &Subject) {
    let fresh = on.ask(&key()).await;
    let (released, _) = on.released().await;
    let (held, _) = on.retried().await;
    let not_after = on.store.now().await.expect("the store tells its time");
    on.pass(on.lease).await;
    for ask in [&fresh, &released, &held] {
        let late = Ask { not_after, ..takeover(ask) };
        assert!(matches!(on.claim(&late).await, Claim::Late));
    }
    let found = on.store.find(&fresh.key).await.expect("the store answers a find");
    assert!(found.is_none(), "a late claim has created {found:?}");
    assert_eq!(on.granted(&takeover(&released)).await.attempt(), 2);
    assert_eq!(on.granted(&takeover(&held)).await.attempt(), 2);
}

/// A released key is granted to the next attempt.
pub async fn a_released_key_is_granted_to_another_token(on: &Subject) {
    let (ask, first) = on.released().await;
    let next = on.granted(&again(&ask)).await;
    assert_eq!(next.attempt(), 2);
    assert!(next.fence() > first.fence());
}

/// A late copy of a claim whose attempt released the key is refused.
pub async fn a_released_token_never_claims_again(on: &Subject) {
    let (ask, _) = on.released().await;
    assert!(matches!(on.claim(&ask).await, Claim::Late));
    assert!(matches!(on.claim(&Ask { intent: intent(2), ..ask.clone() }).await, Claim::Late));
    let _next = on.granted(&again(&ask)).await;
}

/// A void withdraws an unanswered claim by its token alone, and the key is free.
pub async fn a_void_frees_an_unanswered_claim(on: &Subject) {
    let (ask, lease) = on.running().await;
    let void = on.peer.void(&ask.key, ask.token, ask.not_after).await.expect("the store answers a void");
    assert!(matches!(void, Void::Early(_)));
    let ack = on.store.complete(&lease, &outcome(1)).await.expect("the store answers a complete");
    assert_eq!(ack, Ack::Superseded);
    assert_eq!(on.granted(&again(&ask)).await.attempt(), 2);
}

/// A late copy of a voided claim is refused.
pub async fn a_voided_token_never_claims_again(on: &Subject) {
    let (ask, _) = on.running().await;
    let _early = on.store.void(&ask.key, ask.token, ask.not_after).await.expect("the store answers a void");
    assert!(matches!(on.claim(&takeover(&ask)).await, Claim::Granted(_)));
    let (ask, _) = on.running().await;
    let _early = on.store.void(&ask.key, ask.token, ask.not_after).await.expect("the store answers a void");
    assert!(matches!(on.claim(&ask).await, Claim::Late));
}

/// A void changes neither an attempt with another token nor a recorded outcome.
pub async fn a_void_touches_no_other_token(on: &Subject) {
    let (ask, lease) = on.running().await;
    let stranger = again(&ask);
    let _early =
        on.store.void(&ask.key, stranger.token, ask.not_after).await.expect("the store answers a void");
    let ack = on.store.complete(&lease, &outcome(1)).await.expect("the store answers a complete");
    assert_eq!(ack, Ack::Applied);
    let _early = on.store.void(&ask.key, ask.token, ask.not_after).await.expect("the store answers a void");
    assert!(matches!(on.claim(&again(&ask)).await, Claim::Done(_)));
}

/// A void is final only after the claim's `not_after`; an earlier void is answered with the time to
/// wait.
pub async fn a_void_before_not_after_is_early(on: &Subject) {
    let ask = on.ask(&key()).await;
    let now = on.store.now().await.expect("the store tells its time");
    let not_after = now.after(on.lease);
    let void = on.store.void(&ask.key, ask.token, not_after).await.expect("the store answers a void");
    assert!(matches!(void, Void::Early(left) if left <= on.lease + Duration::from_millis(1)), "{void:?}");
    on.pass(on.lease).await;
    let void = on.store.void(&ask.key, ask.token, not_after).await.expect("the store answers a void");
    assert_eq!(void, Void::Final);
}

/// A claim that asks for no takeover is answered *held* when the lease of the attempt is over.
pub async fn a_lost_attempt_is_held_for_a_claim_without_takeover(on: &Subject) {
    let (held, under_hold) = on.running().await;
    let (lost, under_retry) = on.retried().await;
    on.pass(on.lease).await;
    for (ask, lease) in [(&held, &under_hold), (&lost, &under_retry)] {
        for store in [&on.store, &on.peer] {
            let asked = Ask { takeover: Takeover::Never, ..again(ask) };
            let claim = store.claim(&asked).await.expect("the store answers a claim");
            let Claim::Held(held) = claim else { panic!("{claim:?}") };
            assert_eq!((held.fence, held.attempt), (lease.fence(), 1));
        }
    }
}

/// An attempt that ran under `hold` is taken over only by its fence, whatever the policy of the
/// claim.
pub async fn a_lost_attempt_under_hold_is_not_taken_over(on: &Subject) {
    let (ask, lease) = on.held().await;
    let under = |policy| Ask { terms: ask.terms.with_after_crash(policy), ..takeover(&ask) };
    for asked in [takeover(&ask), under(AfterCrash::Transactional), under(AfterCrash::Hold)] {
        for store in [&on.store, &on.peer] {
            let claim = store.claim(&asked).await.expect("the store answers a claim");
            assert!(matches!(&claim, Claim::Held(held) if held.fence == lease.fence()), "{claim:?}");
        }
    }
    let of = Ask { takeover: Takeover::Of(lease.fence()), ..again(&ask) };
    assert_eq!(on.granted(&of).await.attempt(), 2);
}

/// A granted takeover runs under the policy and the retention of its own claim.
pub async fn a_takeover_brings_its_own_policy_and_retention(on: &Subject) {
    let (ask, _) = on.lost().await;
    let terms = on.terms_kept(on.lease * 7);
    let next = on.granted(&Ask { terms, ..takeover(&ask) }).await;
    let record = on.peer.find(&ask.key).await.expect("the store answers a find").expect("there is a record");
    assert_eq!((record.after_crash, record.retention), (AfterCrash::Hold, on.lease * 7));
    on.pass(on.lease).await;
    let claim = on.claim(&takeover(&ask)).await;
    assert!(matches!(&claim, Claim::Held(held) if held.fence == next.fence()), "{claim:?}");
}

/// A claim that asks for a takeover gets the key of a lost attempt as the next attempt, with a
/// higher fence.
pub async fn a_lost_attempt_is_taken_over_when_asked_to(on: &Subject) {
    let (ask, first) = on.lost().await;
    let next = on.granted(&takeover(&ask)).await;
    assert!(next.fence() > first.fence());
    assert_eq!(next.attempt(), 2);
    assert!(next.deadline() > first.deadline());
    assert!(matches!(on.claim(&takeover(&ask)).await, Claim::Running { .. }));
}

/// A takeover that names a fence takes over only that attempt, and only when its lease is over.
pub async fn a_takeover_of_one_fence_leaves_others_alone(on: &Subject) {
    let of = |ask: &Ask, fence: Fence| Ask { takeover: Takeover::Of(fence), ..again(ask) };
    let (ask, first) = on.running().await;
    assert!(matches!(on.claim(&of(&ask, first.fence())).await, Claim::Running { .. }));
    on.pass(on.lease).await;
    let other = Fence::new(first.fence().get() - 1);
    assert!(matches!(on.claim(&of(&ask, other)).await, Claim::Held(_)));
    let second = on.granted(&of(&ask, first.fence())).await;
    on.pass(on.lease).await;
    assert!(matches!(on.claim(&of(&ask, first.fence())).await, Claim::Held(_)));
    assert_eq!(on.granted(&of(&ask, second.fence())).await.attempt(), 3);
}

/// One of many concurrent claims of one key, over two handles, is granted.
pub async fn one_of_many_claims_is_granted(on: &Subject) {
    let ask = on.ask(&key()).await;
    assert_eq!(granted_of_many(on, (0..MANY).map(|_| again(&ask))).await, 1);
}

/// One of many takeovers of a lost attempt is granted, and one of many claims of a released key.
pub async fn one_of_many_takeovers_is_granted(on: &Subject) {
    let (lost, _) = on.lost().await;
    assert_eq!(granted_of_many(on, (0..MANY).map(|_| takeover(&lost))).await, 1);
    let (released, _) = on.released().await;
    assert_eq!(granted_of_many(on, (0..MANY).map(|_| takeover(&released))).await, 1);
}

async fn granted_of_many(on: &Subject, asks: impl Iterator<Item = Ask>) -> usize {
    let claims = asks.enumerate().map(|(n, ask)| {
        let store = if n % 2 == 0 { on.store.clone() } else { on.peer.clone() };
        tokio::spawn(async move { store.claim(&ask).await })
    });
    let answers = join_all(claims).await;
    let answers =
        answers.into_iter().map(|claim| claim.expect("no claim panics").expect("the store answers"));
    answers.filter(|claim| matches!(claim, Claim::Granted(_))).count()
}

/// The same value in another realm or for another principal is another key.
pub async fn scopes_keep_keys_apart(on: &Subject) {
    let realm = scope();
    let principal = |name: &str| realm.clone().with_principal(name).expect("a valid principal");
    let scopes = [principal(""), principal("ann"), principal("bob"), scope()];
    let [unnamed, ann, bob, elsewhere] = scopes.map(|scope| scope.key("k").expect("a valid key"));
    for key in [&unnamed, &ann, &bob, &elsewhere] {
        assert_eq!(on.granted(&on.ask(key).await).await.attempt(), 1);
    }
    assert!(matches!(on.claim(&on.ask(&ann).await).await, Claim::Running { .. }));
}

/// Each grant of a key has a higher fence than every grant before it.
pub async fn fences_rise_over_release_takeover_and_prune(on: &Subject) {
    let key = key();
    let short = retry(Ask { terms: on.terms_kept(on.lease), ..on.ask(&key).await });
    let first = on.granted(&short).await;
    let _released = on.store.release(&first).await.expect("the store answers a release");
    let second = on.granted(&again(&short)).await;
    on.pass(on.lease / 2).await;
    let _renewed = on.store.renew(&second, on.lease).await.expect("the store answers a renewal");
    on.pass(on.lease).await;
    let third = on.granted(&takeover(&short)).await;
    on.pass(on.lease * 2).await;
    let prune = Prune { realm: Some(key.scope().realm().to_owned()), limit: 10, ..Prune::default() };
    assert_eq!(on.store.prune(&prune).await.expect("the store prunes"), 1);
    let fourth = on.granted(&again(&short)).await;
    let fences = [&first, &second, &third, &fourth].map(|lease| lease.fence());
    assert!(fences.is_sorted_by(|a, b| a < b), "{fences:?}");
}

/// A claim whose caller was dropped was applied or not; either way its token can claim again.
pub async fn a_dropped_claim_can_be_sent_again(on: &Subject) {
    for _ in 0..MANY {
        let ask = on.ask(&key()).await;
        let store = on.store.clone();
        let sent = ask.clone();
        let dropped = tokio::spawn(async move { store.claim(&sent).await });
        tokio::task::yield_now().await;
        dropped.abort();
        let _gone = dropped.await;
        assert_eq!(on.granted(&ask).await.attempt(), 1);
    }
}
