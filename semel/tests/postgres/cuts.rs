//! Connections that are cut between a request and its answer.

use std::time::Duration;

use futures_util::poll;
use semel::store::{Ack, Claim, RecordState, Takeover};
use semel::{Lease, Outcome, PostgresStore, Store, StoreError};
use testkit::claims::{ask, granted, retried};
use testkit::gates::{Cut, Proxy};
use testkit::stores::postgres::{Backends, Place, end_lease};
use testkit::until::until;

const CUTS: [Cut; 4] = [Cut::BeforeRequest, Cut::BeforeAnswer, Cut::InAnswer, Cut::Unnoticed];

/// A store behind a proxy, and another one with a direct connection.
struct Cuttable {
    store: PostgresStore,
    other: PostgresStore,
    proxy: Proxy,
    backends: Backends,
    place: Place,
}

impl Cuttable {
    async fn start() -> Self {
        let (named, backends) = Backends::on(&Place::shared().url).await;
        let (behind, proxy) = Proxy::to(&named);
        let store =
            behind.options().with_connections(1).with_additional_connections(0).connect().await.unwrap();
        let place = Place { url: Place::shared().url, schema: named.schema };
        let other = place.store().await;
        granted(&store, &ask(&store, "before").await).await;
        Self { store, other, proxy, backends, place }
    }

    /// Calls with every kind of cut at every request that it takes, each time with a new key.
    async fn with_each_cut<S, T>(
        &self,
        mut prepare: impl AsyncFnMut(String) -> S,
        mut ask: impl AsyncFnMut(&S) -> Result<T, StoreError>,
        mut judge: impl AsyncFnMut(S, T),
    ) {
        for cut in CUTS {
            for after in 0.. {
                let before = prepare(format!("{cut:?}-{after}")).await;
                self.proxy.cut(cut, after);
                let answer = ask(&before).await;
                if !self.proxy.heal() {
                    assert!(after > 0, "no request was seen");
                    break;
                }
                let answer = answer.unwrap_or_else(|error| panic!("{cut:?} after {after}: {error}"));
                judge(before, answer).await;
                if cut == Cut::Unnoticed {
                    self.proxy.deliver().await;
                }
            }
        }
    }

    /// The answer once the connection works again.
    async fn settled<T>(&self, mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
        let mut answer = None;
        until("the store has found back", async || {
            match ask().await {
                Ok(some) => answer = Some(some),
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            answer.is_some()
        })
        .await;
        answer.unwrap()
    }

    async fn owns(&self, lease: &Lease) -> bool {
        let record = self.other.find(lease.key()).await.unwrap();
        record.is_some_and(|record| record.is_owned_by(lease.token(), lease.fence()))
    }
}

fn outcome() -> Outcome {
    Outcome::json("charged").unwrap()
}

fn lease(claim: Claim) -> Lease {
    match claim {
        Claim::Granted(lease) => lease,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn claim_whose_connection_is_cut_is_granted() {
    let way = Cuttable::start().await;
    way.with_each_cut(
        async |name| ask(&way.store, &name).await,
        async |ask| way.store.claim(ask).await,
        async |ask, claim| {
            let lease = lease(claim);
            assert!(way.owns(&lease).await && lease.attempt() == 1);
            // The same token gets the same answer.
            let again = granted(&way.other, &ask).await;
            assert_eq!(again.fence(), lease.fence());
        },
    )
    .await;
}

#[tokio::test]
async fn takeover_whose_connection_is_cut_is_granted_once() {
    let way = Cuttable::start().await;
    let client = way.place.client().await;
    way.with_each_cut(
        async |name| {
            let lost = granted(&way.other, &retried(ask(&way.other, &name).await)).await;
            end_lease(&client, lost.key()).await;
            let ask = ask(&way.store, &name).await;
            (lost, ask.with_takeover(Takeover::WhenOver))
        },
        async |(_, ask)| way.store.claim(ask).await,
        async |(lost, ask), claim| {
            let lease = lease(claim);
            assert!(way.owns(&lease).await);
            assert!(lease.attempt() == 2 && lease.fence() > lost.fence() && lease.token() == ask.token);
        },
    )
    .await;
}

#[tokio::test]
async fn write_of_an_owner_whose_connection_is_cut_is_applied() {
    let way = Cuttable::start().await;
    let owned = async |name: String| granted(&way.other, &ask(&way.other, &name).await).await;
    let state = async |lease: &Lease| way.other.find(lease.key()).await.unwrap().unwrap().state;
    way.with_each_cut(
        async |name| owned(format!("complete-{name}")).await,
        async |lease| way.store.complete(lease, &outcome()).await,
        async |lease, ack| {
            assert!(ack.stands(), "{ack:?}");
            assert!(
                matches!(state(&lease).await, RecordState::Done { outcome: done, .. } if done == outcome())
            );
        },
    )
    .await;
    way.with_each_cut(
        async |name| owned(format!("release-{name}")).await,
        async |lease| way.store.release(lease).await,
        async |lease, ack| {
            assert!(ack.stands(), "{ack:?}");
            assert_eq!(state(&lease).await, RecordState::Released);
        },
    )
    .await;
    way.with_each_cut(
        async |name| owned(format!("renew-{name}")).await,
        async |lease| way.store.renew(lease, Duration::from_secs(600)).await,
        async |lease, ack| {
            assert!(ack.stands(), "{ack:?}");
            let record = way.other.find(lease.key()).await.unwrap().unwrap();
            assert!(record.lease_until > lease.deadline() && way.owns(&lease).await);
        },
    )
    .await;
}

#[tokio::test]
async fn nothing_is_said_of_what_went_out_while_there_is_no_way() {
    let way = Cuttable::start().await;
    for cut in [Cut::BeforeAnswer, Cut::InAnswer, Cut::Unnoticed] {
        let asked = ask(&way.store, &format!("claim-{cut:?}")).await;
        way.proxy.cut_for_good(cut, 0);
        let error = way.store.claim(&asked).await.expect_err("there is no way");
        assert!(error.is_unknown(), "{cut:?}: {error}");
        // The result for this key is unknown. For another key it is known that nothing was sent.
        let error = way.store.claim(&ask(&way.other, "another").await).await.expect_err("there is no way");
        assert!(error.is_transient() && !error.is_unknown(), "{cut:?}: {error}");
        assert!(way.proxy.heal());
        let granted = lease(way.settled(async || way.store.claim(&asked).await).await);
        assert!(way.owns(&granted).await && granted.attempt() == 1);

        way.proxy.cut_for_good(cut, 0);
        let error = way.store.complete(&granted, &outcome()).await.expect_err("there is no way");
        assert!(error.is_unknown(), "{cut:?}: {error}");
        assert!(way.proxy.heal());
        let ack = way.settled(async || way.store.complete(&granted, &outcome()).await).await;
        assert_eq!(ack, if cut == Cut::Unnoticed { Ack::Applied } else { Ack::Repeated });
    }
}

/// The record that blocked the claim is removed, as after its retention. A copy of the claim that
/// arrived now would be granted.
#[tokio::test]
async fn claim_that_was_answered_has_no_copy_on_its_way() {
    let way = Cuttable::start().await;
    let client = way.place.client().await;
    for (name, is_there) in [("granted", false), ("running", true)] {
        let asked = ask(&way.store, name).await;
        if is_there {
            granted(&way.other, &ask(&way.other, name).await).await;
        }
        let before = way.backends.that("true").await;
        way.proxy.cut(Cut::Unnoticed, 0);
        let claim = way.store.claim(&asked).await.unwrap();
        assert!(way.proxy.heal());
        assert!(matches!(claim, Claim::Running { .. }) == is_there, "{claim:?}");
        // One connection stays that is not used for claims; the server process of the lost one must
        // not outlive its connection.
        let now = way.backends.that("true").await;
        assert_eq!(before.iter().filter(|pid| now.contains(pid)).count(), 1, "{before:?} {now:?}");
        assert_eq!(client.execute("delete from records where key = $1", &[&name]).await.unwrap(), 1);
        way.proxy.deliver().await;
        assert_eq!(way.other.find(&asked.key).await.unwrap(), None);
    }
}

#[tokio::test]
async fn caller_that_goes_away_cancels_nothing_and_costs_nothing() {
    let way = Cuttable::start().await;
    let asked = ask(&way.store, "key").await;
    way.proxy.cut_for_good(Cut::BeforeAnswer, 0);
    tokio::select! {
        claim = way.store.claim(&asked) => panic!("{claim:?}"),
        () = way.proxy.is_cut() => {}
    }
    // These are more than the queue has room for: a dropped caller frees its place soon.
    for number in 0..5_000 {
        let asked = asked.clone().with_key(semel::Key::new("tests", &format!("gone-{number}")).unwrap());
        let claim = way.store.claim(&asked);
        assert!(poll!(claim).is_pending());
    }
    assert!(way.proxy.heal());
    let another = ask(&way.other, "another").await;
    lease(way.settled(async || way.store.claim(&another).await).await);
    let again = granted(&way.other, &asked).await;
    assert!(way.owns(&again).await && again.attempt() == 1);
    let client = way.place.client().await;
    let gone = "select count(*) from records where key like 'gone-%'";
    assert_eq!(client.query_one(gone, &[]).await.unwrap().get::<_, i64>(0), 0);
}
