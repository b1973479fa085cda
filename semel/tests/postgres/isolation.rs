//! Transactions that see the database as it was when they began: they lock the record first.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use semel::store::{Ack, Ask, Claim, Takeover, Terms};
use semel::{AfterCrash, Failure, Lease, Once, Outcome, Policy, PostgresStore, Ran, Store, StoreError};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::{Place, end_lease, taken_over};
use tokio::time::sleep;
use tokio_postgres::{Client, IsolationLevel};

type Anything = Box<dyn Error + Send + Sync>;

const LEASE: Duration = Duration::from_secs(30);

/// The way in which the statements get into the transaction.
#[derive(Debug, Clone, Copy)]
enum Way {
    TokioPostgres,
    #[cfg(feature = "sqlx")]
    Sqlx,
    Sql,
}

const WAYS: &[Way] = &[
    Way::TokioPostgres,
    #[cfg(feature = "sqlx")]
    Way::Sqlx,
    Way::Sql,
];

const LEVELS: [IsolationLevel; 2] = [IsolationLevel::RepeatableRead, IsolationLevel::Serializable];

fn begin(level: IsolationLevel) -> &'static str {
    match level {
        IsolationLevel::RepeatableRead => "begin isolation level repeatable read",
        _ => "begin isolation level serializable",
    }
}

fn outcome() -> Outcome {
    Outcome::json("charged").unwrap()
}

/// A table for effects, a store, and a separate connection.
struct Shop {
    place: Place,
    store: PostgresStore,
    client: Client,
}

impl Shop {
    async fn open() -> Self {
        let place = Place::shared();
        let (store, client) = (place.store().await, place.client().await);
        client.batch_execute("create table effects (key text)").await.unwrap();
        Self { place, store, client }
    }

    async fn granted(&self, name: &str) -> Lease {
        let terms = Terms::DEFAULT.with_after_crash(AfterCrash::Transactional);
        granted(&self.store, &ask(&self.store, name).await.with_terms(terms)).await
    }

    async fn effects(&self, lease: &Lease) -> i64 {
        let count = "select count(*) from effects where key = $1";
        self.client.query_one(count, &[&lease.key().value()]).await.unwrap().get(0)
    }

    /// Leaves an effect, runs a step in between, and records the outcome. The caller chooses
    /// whether it locks the record first.
    async fn book(
        &self,
        way: Way,
        level: IsolationLevel,
        lease: &Lease,
        locks: bool,
        meanwhile: impl AsyncFnOnce(),
    ) -> Result<(), Anything> {
        let Self { place, store, .. } = self;
        let key = lease.key().value();
        let insert = "insert into effects values ($1)";
        match way {
            Way::TokioPostgres => {
                let mut client = place.client().await;
                let mut tx = client.build_transaction().isolation_level(level).start().await?;
                if locks {
                    store.lock_in(&mut tx, lease).await?.applied()?;
                }
                tx.execute(insert, &[&key]).await?;
                meanwhile().await;
                store.complete_in(&mut tx, lease, &outcome()).await?.applied()?;
                tx.commit().await?;
            }
            #[cfg(feature = "sqlx")]
            Way::Sqlx => {
                use sqlx::Connection as _;
                let mut connection = sqlx::PgConnection::connect(&place.url).await?;
                let path = sqlx::AssertSqlSafe(format!("set search_path = {}", place.quoted()));
                sqlx::query(path).execute(&mut connection).await?;
                let mut tx = connection.begin_with(begin(level)).await?;
                if locks {
                    store.lock_in(&mut tx, lease).await?.applied()?;
                }
                sqlx::query(insert).bind(key).execute(&mut *tx).await?;
                meanwhile().await;
                store.complete_in(&mut tx, lease, &outcome()).await?.applied()?;
                tx.commit().await?;
            }
            Way::Sql => {
                let client = place.client().await;
                client.batch_execute(begin(level)).await?;
                let (token, fence) = (lease.token().to_string(), lease.fence().get() as i64);
                if locks {
                    client.execute("select lock('tests', '', $1, $2, $3)", &[&key, &token, &fence]).await?;
                }
                client.execute(insert, &[&key]).await?;
                meanwhile().await;
                let complete = r#"
                    select complete('tests', '', $1, $2, $3, 200, '"charged"', '[["content-type", "application/json"]]')"#;
                client.execute(complete, &[&key, &token, &fence]).await?;
                client.batch_execute("commit").await?;
            }
        }
        Ok(())
    }
}

/// The code of a database error, whatever it is wrapped in.
fn code(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(error) = error.downcast_ref::<tokio_postgres::Error>() {
        return error.code().map(|code| code.code().to_owned());
    }
    #[cfg(feature = "sqlx")]
    if let Some(error) = error.downcast_ref::<sqlx::Error>() {
        return error.as_database_error()?.code().map(|code| code.into_owned());
    }
    code(error.source()?)
}

#[tokio::test]
async fn a_renewal_defeats_a_transaction_that_did_not_lock_its_record() {
    let shop = Shop::open().await;
    for way in WAYS {
        for level in LEVELS {
            let lease = shop.granted(&format!("{way:?} {level:?}")).await;
            let renewing = async || {
                assert_eq!(shop.store.renew(&lease, LEASE).await.unwrap(), Ack::Applied);
            };
            let refused = shop.book(*way, level, &lease, false, renewing).await.unwrap_err();
            assert_eq!(code(&*refused).as_deref(), Some("40001"), "{way:?} {level:?}: {refused}");
            if let Some(refused) = refused.downcast_ref::<StoreError>() {
                assert!(refused.is_transient(), "{way:?} {level:?}: {refused}");
            }
            assert_eq!(shop.effects(&lease).await, 0, "{way:?} {level:?}");
        }
    }
}

#[tokio::test]
async fn a_transaction_that_locked_its_record_completes_whatever_is_renewed_or_asked_meanwhile() {
    let shop = Shop::open().await;
    let other = shop.place.store().await;
    for way in WAYS {
        for level in LEVELS {
            let lease = shop.granted(&format!("{way:?} {level:?}")).await;
            end_lease(&shop.client, lease.key()).await;
            let takeover = ask(&other, lease.key().value()).await;
            let takeover = takeover.with_takeover(Takeover::WhenOver);
            let meanwhile = async || {
                assert_eq!(shop.store.renew(&lease, LEASE).await.unwrap(), Ack::Repeated);
                let claimed = other.claim(&takeover).await.unwrap();
                assert!(matches!(claimed, Claim::Running { .. }), "{claimed:?}");
            };
            shop.book(*way, level, &lease, true, meanwhile).await.unwrap();
            assert_eq!(shop.effects(&lease).await, 1, "{way:?} {level:?}");
            let claimed = other.claim(&takeover).await.unwrap();
            let Claim::Done(done) = claimed else { panic!("{way:?} {level:?}: {claimed:?}") };
            assert_eq!((done.outcome, done.fence), (outcome(), lease.fence()), "{way:?} {level:?}");
        }
    }
}

/// Work that takes longer than its lease.
async fn slow(shop: Arc<Shop>, lease: Lease, takeover: Ask) -> Result<String, Failure> {
    let mut client = shop.place.client().await;
    let serializable = client.build_transaction().isolation_level(IsolationLevel::Serializable);
    let mut tx = serializable.start().await?;
    shop.store.lock_in(&mut tx, &lease).await?.applied()?;
    tx.execute("insert into effects values ($1)", &[&lease.key().value()]).await?;
    while shop.store.now().await? <= lease.deadline() {
        sleep(Duration::from_millis(5)).await;
    }
    let claimed = shop.store.claim(&takeover).await?;
    assert!(matches!(claimed, Claim::Running { .. }), "{claimed:?}");
    shop.store.complete_in(&mut tx, &lease, &outcome()).await?.applied()?;
    tx.commit().await?;
    Ok("charged".to_owned())
}

#[tokio::test]
async fn work_that_locked_its_record_outlasts_the_lease_that_the_engine_renews() {
    let shop = Arc::new(Shop::open().await);
    let policy = Policy::transactional().with_lease(Duration::from_secs(1));
    let once = Once::new(shop.store.clone()).with_policy(policy);
    let takeover = ask(&shop.store, "engine").await.with_takeover(Takeover::WhenOver);
    let (key, intent) = (takeover.key.clone(), takeover.intent.clone());
    let working = Arc::clone(&shop);
    let ran = once.run(&key, &intent, move |lease| slow(working, lease, takeover)).await.unwrap();
    assert_eq!(ran, Ran::new("charged".to_owned(), false));
}

#[tokio::test]
async fn a_lock_that_is_rolled_back_leaves_the_key_to_the_next_attempt() {
    let shop = Shop::open().await;
    let lease = shop.granted("rolled back").await;
    end_lease(&shop.client, lease.key()).await;
    let mut client = shop.place.client().await;
    let mut tx = client.transaction().await.unwrap();
    assert_eq!(shop.store.lock_in(&mut tx, &lease).await.unwrap(), Ack::Applied);
    tx.rollback().await.unwrap();
    let takeover = ask(&shop.store, "rolled back").await.with_takeover(Takeover::WhenOver);
    let winner = granted(&shop.store, &takeover).await;
    assert!(winner.fence() > lease.fence());
}

#[tokio::test]
async fn a_lock_says_that_the_lease_is_lost_before_anything_is_done() {
    let shop = Shop::open().await;
    for way in WAYS {
        let name = |state: &str| format!("{way:?} {state}");
        let superseded = shop.granted(&name("superseded")).await;
        let _winner = taken_over(&shop.client, &shop.store, superseded.key()).await;
        let released = shop.granted(&name("released")).await;
        shop.store.release(&released).await.unwrap().applied().unwrap();
        let finished = shop.granted(&name("finished")).await;
        shop.store.complete(&finished, &outcome()).await.unwrap().applied().unwrap();
        let missing = shop.granted(&name("missing")).await;
        let forget = "delete from records where key = $1";
        shop.client.execute(forget, &[&missing.key().value()]).await.unwrap();
        for (lease, ack) in [
            (superseded, Ack::Superseded),
            (released, Ack::Superseded),
            (finished, Ack::Finished),
            (missing, Ack::Missing),
        ] {
            let nothing = async || panic!("{way:?}: it went on though {ack:?}");
            let refused = shop.book(*way, IsolationLevel::Serializable, &lease, true, nothing).await;
            let refused = refused.unwrap_err();
            match way {
                Way::Sql => {
                    assert_eq!(code(&*refused).as_deref(), Some("SM409"), "{ack:?}: {refused}");
                    let said =
                        refused.downcast_ref::<tokio_postgres::Error>().unwrap().as_db_error().unwrap();
                    assert!(said.message().contains(&format!("{ack:?}").to_lowercase()), "{said}");
                }
                _ => assert_eq!(refused.downcast_ref(), Some(&semel::error::LeaseLost(ack)), "{way:?}"),
            }
        }
    }
}

#[tokio::test]
async fn serializable_transactions_of_different_keys_do_not_disturb_each_other() {
    let shop = Shop::open().await;
    let leases = [shop.granted("one").await, shop.granted("other").await];
    // Postgres would rather read a table of this size whole, and all of it would then count as
    // read.
    shop.client.batch_execute("vacuum analyze records").await.unwrap();
    let mut clients = [shop.place.client().await, shop.place.client().await];
    let [one, other] = &mut clients;
    let begin = |client| Client::build_transaction(client).isolation_level(IsolationLevel::Serializable);
    let mut transactions = [begin(one).start().await.unwrap(), begin(other).start().await.unwrap()];
    for (tx, lease) in transactions.iter_mut().zip(&leases) {
        assert_eq!(shop.store.lock_in(tx, lease).await.unwrap(), Ack::Applied);
    }
    for (tx, lease) in transactions.iter_mut().zip(&leases) {
        assert_eq!(shop.store.complete_in(tx, lease, &outcome()).await.unwrap(), Ack::Applied);
    }
    for tx in transactions {
        tx.commit().await.unwrap();
    }
}
