//! Transactions of users that record an outcome: with either driver, and by SQL alone.

use std::error::Error;

use bytes::Bytes;
use semel::error::{ErrorKind, LeaseLost};
use semel::store::{Ack, Claim, RecordState};
use semel::{Lease, Outcome, PostgresStore, Store};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::{Place, pid, taken_over};
use tokio_postgres::Client;

type Anything = Box<dyn Error + Send + Sync>;

/// The way in which the outcome gets into the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    TokioPostgres,
    /// By the lease, in a transaction of tokio-postgres.
    Lease,
    #[cfg(feature = "sqlx")]
    Sqlx,
    #[cfg(feature = "sqlx")]
    SqlxConnection,
    #[cfg(feature = "sqlx08")]
    Sqlx08,
    Sql,
}

const WAYS: &[Way] = &[
    Way::TokioPostgres,
    Way::Lease,
    #[cfg(feature = "sqlx")]
    Way::Sqlx,
    #[cfg(feature = "sqlx")]
    Way::SqlxConnection,
    #[cfg(feature = "sqlx08")]
    Way::Sqlx08,
    Way::Sql,
];

/// The end of the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    Rollback,
    KilledBeforeCommit,
    KilledAfterCommit,
}

fn outcome() -> Outcome {
    let headers = [("link", Bytes::from_static(b"<b>")), ("link", Bytes::from_static("é".as_bytes()))];
    let plain = Outcome::new(201).unwrap().with_headers(headers).unwrap();
    plain.with_body(&b"{\"n\":\x00\xff"[..]).unwrap().with_subtype("already_exists").unwrap()
}

/// Like [`outcome`], for callers that have only SQL.
const COMPLETE: &str = r#"
    select complete('tests', '', $1, $2, $3, 201, '\x7b226e223a00ff', '[["link", "<b>"], ["link", "é"]]', 'already_exists')"#;

const PID: &str = "select pg_backend_pid()";

impl End {
    async fn strike(self, when: Self, place: &Place, pid: i32) {
        if self == when {
            place.kill(pid).await;
        }
    }
}

impl Way {
    /// Leaves an effect and records the outcome with it.
    async fn book(
        self,
        place: &Place,
        store: &PostgresStore,
        lease: &Lease,
        end: End,
    ) -> Result<(), Anything> {
        let key = lease.key().value();
        match self {
            Self::TokioPostgres | Self::Lease => {
                let mut client = place.client().await;
                let pid = pid(&client).await;
                let mut tx = client.transaction().await?;
                tx.execute("insert into effects values ($1)", &[&key]).await?;
                match self {
                    Self::Lease => lease.complete_in(&mut tx, outcome()).await?,
                    _ => store.complete_in(&mut tx, lease, &outcome()).await?.applied()?,
                }
                if end == End::Rollback {
                    return Ok(tx.rollback().await?);
                }
                end.strike(End::KilledBeforeCommit, place, pid).await;
                tx.commit().await?;
                end.strike(End::KilledAfterCommit, place, pid).await;
            }
            #[cfg(feature = "sqlx")]
            Self::Sqlx => {
                use sqlx::Connection as _;
                let mut connection = sqlx_connection(place).await?;
                let pid: i32 = sqlx::query_scalar(PID).fetch_one(&mut connection).await?;
                let mut tx = connection.begin().await?;
                sqlx::query("insert into effects values ($1)").bind(key).execute(&mut *tx).await?;
                store.complete_in(&mut tx, lease, &outcome()).await?.applied()?;
                if end == End::Rollback {
                    return Ok(tx.rollback().await?);
                }
                end.strike(End::KilledBeforeCommit, place, pid).await;
                tx.commit().await?;
                end.strike(End::KilledAfterCommit, place, pid).await;
            }
            #[cfg(feature = "sqlx")]
            Self::SqlxConnection => {
                let mut connection = sqlx_connection(place).await?;
                let pid: i32 = sqlx::query_scalar(PID).fetch_one(&mut connection).await?;
                sqlx::query("begin").execute(&mut connection).await?;
                sqlx::query("insert into effects values ($1)").bind(key).execute(&mut connection).await?;
                store.complete_in(&mut connection, lease, &outcome()).await?.applied()?;
                let last = if end == End::Rollback { "rollback" } else { "commit" };
                end.strike(End::KilledBeforeCommit, place, pid).await;
                sqlx::query(last).execute(&mut connection).await?;
                end.strike(End::KilledAfterCommit, place, pid).await;
            }
            #[cfg(feature = "sqlx08")]
            Self::Sqlx08 => {
                use sqlx08::Connection as _;
                let mut connection = sqlx08::PgConnection::connect(&place.url).await?;
                let path = format!("set search_path = {}", place.quoted());
                sqlx08::query(&path).execute(&mut connection).await?;
                let pid: i32 = sqlx08::query_scalar(PID).fetch_one(&mut connection).await?;
                let mut tx = connection.begin().await?;
                sqlx08::query("insert into effects values ($1)").bind(key).execute(&mut *tx).await?;
                store.complete_in(&mut tx, lease, &outcome()).await?.applied()?;
                if end == End::Rollback {
                    return Ok(tx.rollback().await?);
                }
                end.strike(End::KilledBeforeCommit, place, pid).await;
                tx.commit().await?;
                end.strike(End::KilledAfterCommit, place, pid).await;
            }
            Self::Sql => {
                let client = place.client().await;
                let pid: i32 = client.query_one(PID, &[]).await?.get(0);
                client.batch_execute("begin").await?;
                client.execute("insert into effects values ($1)", &[&key]).await?;
                let fence = lease.fence().get() as i64;
                let completed = client.execute(COMPLETE, &[&key, &lease.token().to_string(), &fence]).await;
                end.strike(End::KilledBeforeCommit, place, pid).await;
                // The end also follows an error: a client that commits regardless must not get its
                // effect through.
                client.batch_execute(if end == End::Rollback { "rollback" } else { "commit" }).await?;
                end.strike(End::KilledAfterCommit, place, pid).await;
                completed?;
            }
        }
        Ok(())
    }
}

#[cfg(feature = "sqlx")]
async fn sqlx_connection(place: &Place) -> Result<sqlx::PgConnection, sqlx::Error> {
    use sqlx::Connection as _;
    let mut connection = sqlx::PgConnection::connect(&place.url).await?;
    let path = format!("set search_path = {}", place.quoted());
    sqlx::query(sqlx::AssertSqlSafe(path)).execute(&mut connection).await?;
    Ok(connection)
}

/// A store, and a table for effects.
struct Shop {
    place: Place,
    store: PostgresStore,
    client: Client,
}

impl Shop {
    async fn open() -> Self {
        let place = Place::shared();
        let store = place.store().await;
        let client = place.client().await;
        client.batch_execute("create table effects (key text)").await.unwrap();
        Self { place, store, client }
    }

    async fn granted(&self, way: Way) -> Lease {
        granted(&self.store, &ask(&self.store, &format!("{way:?}")).await).await
    }

    async fn book(&self, way: Way, lease: &Lease, end: End) -> Result<(), Anything> {
        way.book(&self.place, &self.store, lease, end).await
    }

    /// Returns whether the key is recorded, and the number of its effects.
    async fn stands(&self, lease: &Lease) -> (bool, i64) {
        let count = "select count(*) from effects where key = $1";
        let effects = self.client.query_one(count, &[&lease.key().value()]).await.unwrap().get(0);
        match self.store.find(lease.key()).await.unwrap().unwrap().state {
            RecordState::Running => (false, effects),
            RecordState::Done { outcome: recorded, .. } => {
                assert_eq!(recorded, outcome());
                (true, effects)
            }
            other => panic!("nobody released it: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_commit_records_outcome_and_effect() {
    let shop = Shop::open().await;
    for way in WAYS {
        let lease = shop.granted(*way).await;
        shop.book(*way, &lease, End::Commit).await.unwrap();
        assert_eq!(shop.stands(&lease).await, (true, 1), "{way:?}");
        // The outcome is the same, recorded in a transaction or not.
        assert_eq!(shop.store.complete(&lease, &outcome()).await.unwrap(), Ack::Repeated, "{way:?}");
        let again = shop.store.claim(&ask(&shop.store, lease.key().value()).await).await.unwrap();
        assert!(matches!(again, Claim::Done(replayed) if replayed.outcome == outcome()), "{way:?}");
    }
}

#[tokio::test]
async fn a_rollback_leaves_the_key_running_and_its_owner_completes_later() {
    let shop = Shop::open().await;
    for way in WAYS {
        let lease = shop.granted(*way).await;
        shop.book(*way, &lease, End::Rollback).await.unwrap();
        assert_eq!(shop.stands(&lease).await, (false, 0), "{way:?}");
        shop.book(*way, &lease, End::Commit).await.unwrap();
        assert_eq!(shop.stands(&lease).await, (true, 1), "{way:?}");
    }
}

#[tokio::test]
async fn a_connection_that_dies_before_the_commit_leaves_nothing() {
    let shop = Shop::open().await;
    for way in WAYS {
        let lease = shop.granted(*way).await;
        shop.book(*way, &lease, End::KilledBeforeCommit).await.expect_err("nobody was there to commit");
        assert_eq!(shop.stands(&lease).await, (false, 0), "{way:?}");
        shop.book(*way, &lease, End::Commit).await.unwrap();
        assert_eq!(shop.stands(&lease).await, (true, 1), "{way:?}");
    }
}

#[tokio::test]
async fn a_connection_that_dies_after_the_commit_takes_nothing_back() {
    let shop = Shop::open().await;
    for way in WAYS {
        let lease = shop.granted(*way).await;
        shop.book(*way, &lease, End::KilledAfterCommit).await.unwrap();
        assert_eq!(shop.stands(&lease).await, (true, 1), "{way:?}");
        // A caller that did not learn of the commit books again, and must not have a second effect.
        shop.book(*way, &lease, End::Commit).await.expect_err("the outcome came with another effect");
        assert_eq!(shop.stands(&lease).await, (true, 1), "{way:?}");
    }
}

#[tokio::test]
async fn a_lease_of_another_store_is_refused() {
    let shop = Shop::open().await;
    let memory = semel::MemoryStore::new();
    let lease = granted(&memory, &ask(&memory, "key").await).await;
    let refused = shop.book(Way::Lease, &lease, End::Commit).await.expect_err("it is not of Postgres");
    assert_eq!(refused.downcast_ref::<semel::Error>().unwrap().kind(), ErrorKind::Refused);
    let effects = shop.client.query_one("select count(*) from effects", &[]).await.unwrap();
    assert_eq!(effects.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_stale_lease_leaves_without_effect() {
    let shop = Shop::open().await;
    for way in WAYS {
        let stale = shop.granted(*way).await;
        let winner = taken_over(&shop.client, &shop.store, stale.key()).await;
        let refused = shop.book(*way, &stale, End::Commit).await.expect_err("it has lost its lease");
        match way {
            Way::Sql => {
                let refused: &tokio_postgres::Error = refused.downcast_ref().unwrap();
                assert_eq!(refused.code().unwrap().code(), "SM409");
                assert!(refused.as_db_error().unwrap().message().contains("superseded"), "{refused:?}");
            }
            Way::Lease => {
                let refused: &semel::Error = refused.downcast_ref().unwrap();
                assert_eq!(refused.kind(), ErrorKind::LeaseLost);
            }
            _ => assert_eq!(refused.downcast_ref(), Some(&LeaseLost(Ack::Superseded)), "{way:?}"),
        }
        assert_eq!(shop.stands(&stale).await, (false, 0), "{way:?}");
        shop.book(*way, &winner, End::Commit).await.unwrap();
        assert_eq!(shop.stands(&stale).await, (true, 1), "{way:?}");
        shop.book(*way, &stale, End::Commit).await.expect_err("there is an outcome of another");
        assert_eq!(shop.stands(&stale).await, (true, 1), "{way:?}");
    }
}
