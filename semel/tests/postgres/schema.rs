//! The schema: its migration up and down, and its refusals.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use semel::admin::{Inspect, ListQuery, MigrationStatus, OperatorAck, Prune};
use semel::store::{Ack, Claim, Phase, PostgresOptions, Token};
use semel::{Lease, Outcome, PostgresStore, Store, StoreError};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::Place;
use tokio_postgres::Client;

/// A store whose schema is still missing, and a connection beside it.
async fn bare() -> (Place, PostgresStore, Client) {
    let place = Place::shared();
    let store = place.options().connect().await.unwrap();
    let client = place.client().await;
    (place, store, client)
}

async fn exists(client: &Client, place: &Place) -> bool {
    let question = "select to_regnamespace($1) is not null";
    client.query_one(question, &[&place.quoted()]).await.unwrap().get(0)
}

/// Runs a key from beginning to end.
async fn works(store: &PostgresStore) {
    let ask = ask(store, &Token::random().to_string()).await;
    let lease = granted(store, &ask).await;
    assert_eq!(store.complete(&lease, &Outcome::new(200).unwrap()).await.unwrap(), Ack::Applied);
    assert_eq!(store.list(&ListQuery::default()).await.unwrap().records.last().unwrap().owner, ask.owner);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0);
}

/// The answers of the verbs that depend on the schema.
async fn verbs(store: &PostgresStore) -> BTreeMap<&'static str, Result<(), StoreError>> {
    let ask = ask(store, "key").await;
    let (key, now) = (&ask.key, store.now().await.unwrap());
    let lease = Lease::new(key.clone(), ask.token, semel::Fence::new(1), 1, now);
    let (outcome, fence, query) = (Outcome::new(200).unwrap(), lease.fence(), ListQuery::default());
    BTreeMap::from([
        ("claim", store.claim(&ask).await.map(drop)),
        ("renew", store.renew(&lease, Duration::from_secs(1)).await.map(drop)),
        ("complete", store.complete(&lease, &outcome).await.map(drop)),
        ("release", store.release(&lease).await.map(drop)),
        ("abandon", store.abandon(&lease, "test").await.map(drop)),
        ("void", store.void(key, ask.token, now).await.map(drop)),
        ("find", store.find(key).await.map(drop)),
        (
            "find_many",
            store.find_many(std::slice::from_ref(key)).await.and_then(|mut found| found.remove(0)).map(drop),
        ),
        ("prune", store.prune(&Prune::default()).await.map(drop)),
        ("list", store.list(&query).await.map(drop)),
        ("stale", store.stale(&query).await.map(drop)),
        ("stats", store.stats().await.map(drop)),
        ("resolve", store.resolve(key, fence, &outcome, "test").await.map(drop)),
        ("reset", store.reset(key, fence, "test").await.map(drop)),
        ("forget", store.forget(key, fence, "test").await.map(drop)),
    ])
}

/// Checks that every verb is refused for good, with this advice.
async fn all_refused(store: &PostgresStore, advice: &str) {
    for (verb, answer) in verbs(store).await {
        let refused = answer.expect_err(verb);
        assert!(!refused.is_transient(), "{verb}: {refused}");
        assert!(refused.to_string().contains(advice), "{verb}: {refused}");
    }
}

/// The number of migrations.
const ALL: u32 = 4;

/// Enters a migration of a later version of semel.
async fn newer(client: &Client, needs: i32) {
    let note = "insert into migrations (version, name, checksum, needs) values (99, 'later', $1, $2)";
    client.execute(note, &[&[7_u8; 32].as_slice(), &needs]).await.unwrap();
}

#[tokio::test]
async fn the_way_up_is_gone_once_and_the_way_down_leaves_nothing() {
    let (place, store, client) = bare().await;
    assert_eq!(store.migrate_down(0).await.unwrap(), 0);
    for _ in 0..2 {
        assert_eq!(store.migrate().await.unwrap(), ALL);
        assert_eq!(store.migrate().await.unwrap(), 0);
        works(&store).await;
        assert_eq!(store.migrate_down(ALL).await.unwrap(), 0);
        works(&store).await;
        assert_eq!(store.migrate_down(0).await.unwrap(), ALL);
        assert!(!exists(&client, &place).await);
    }
    all_refused(&store, "apply the migrations").await;
}

#[tokio::test]
async fn a_foreign_table_keeps_the_schema() {
    let (place, store, client) = bare().await;
    store.migrate().await.unwrap();
    client.batch_execute("create table theirs as select 7 as seven").await.unwrap();
    assert_eq!(store.migrate_down(0).await.unwrap(), ALL);
    assert!(exists(&client, &place).await);
    let left = "select relname::text from pg_class where relnamespace = to_regnamespace($1)";
    let left = client.query(left, &[&place.quoted()]).await.unwrap();
    assert_eq!(left.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["theirs"]);
    assert_eq!(store.migrate().await.unwrap(), ALL);
    works(&store).await;
}

#[tokio::test]
async fn of_many_concurrent_migrations_one_is_applied() {
    let place = Place::shared();
    let stores = join_all((0..8).map(|_| place.options().connect())).await;
    let applied = join_all(stores.iter().map(|store| store.as_ref().unwrap().migrate())).await;
    let mut applied: Vec<u32> = applied.into_iter().map(Result::unwrap).collect();
    applied.sort_unstable();
    assert_eq!(applied, [0, 0, 0, 0, 0, 0, 0, ALL]);
    for store in stores {
        works(&store.unwrap()).await;
    }
}

#[tokio::test]
async fn the_status_tells_what_was_applied() {
    let (_, store, client) = bare().await;
    let fresh = |version, name: &str, breaking| {
        let mut status = MigrationStatus::new(version, name);
        status.breaking = breaking;
        status
    };
    let applied = |mut status: MigrationStatus, at| {
        status.applied_at = at;
        status
    };
    let ours = [
        fresh(1, "records", false),
        fresh(2, "retention", true),
        fresh(3, "upkeep", false),
        fresh(4, "secrets", false),
    ];
    assert_eq!(store.migration_status().await.unwrap(), ours);
    store.migrate().await.unwrap();
    newer(&client, 1).await;
    let status = store.migration_status().await.unwrap();
    let [first, second, third, fourth, later] = &status[..] else { panic!("{status:?}") };
    let at = first.applied_at.expect("it was applied");
    assert!(store.now().await.unwrap().since(at) < Duration::from_secs(60));
    let [records, retention, upkeep, secrets] = ours;
    assert_eq!(*first, applied(records, Some(at)));
    assert_eq!(*second, applied(retention, second.applied_at));
    assert_eq!(*third, applied(upkeep, third.applied_at));
    assert_eq!(*fourth, applied(secrets, fourth.applied_at));
    assert!(second.applied_at.is_some() && third.applied_at.is_some());
    assert_eq!((later.version, &*later.name, later.known), (99, "later", false));
}

#[tokio::test]
async fn the_printed_script_makes_a_schema_that_fits() {
    let (_, store, client) = bare().await;
    client.batch_execute(&store.print_migrations()).await.unwrap();
    works(&store).await;
    assert_eq!(store.migrate().await.unwrap(), 0);
    assert!(store.migration_status().await.unwrap()[0].unchanged);
}

#[tokio::test]
async fn verbs_before_the_migration_say_what_to_do_and_work_after_it() {
    let (_, store, _) = bare().await;
    all_refused(&store, "apply the migrations, with `PostgresStore::migrate` or `semel migrate up`").await;
    store.migrate().await.unwrap();
    works(&store).await;
    for (verb, answer) in verbs(&store).await {
        answer.expect(verb);
    }
}

#[tokio::test]
async fn a_schema_that_needs_newer_code_is_left_alone_by_every_verb() {
    let (place, store, client) = bare().await;
    store.migrate().await.unwrap();
    newer(&client, 99).await;
    all_refused(&store, "use a newer semel").await;
    all_refused(&place.options().connect().await.unwrap(), "use a newer semel").await;
    let records: i64 = client.query_one("select count(*) from records", &[]).await.unwrap().get(0);
    assert_eq!(records, 0);
    for refused in [store.migrate().await, store.migrate_down(0).await] {
        let refused = refused.expect_err("it does not know that version");
        assert!(!refused.is_transient() && refused.to_string().contains("use a newer semel"), "{refused}");
    }
}

#[tokio::test]
async fn a_newer_schema_that_this_code_can_run_beside_is_used() {
    let (place, store, client) = bare().await;
    store.migrate().await.unwrap();
    newer(&client, 1).await;
    works(&store).await;
    let fresh = place.options().connect().await.unwrap();
    assert_eq!(fresh.migrate().await.unwrap(), 0);
    works(&fresh).await;
    // This version cannot revert a migration that it does not know.
    fresh.migrate_down(0).await.expect_err("version 99 is not known");
    works(&fresh).await;
}

#[tokio::test]
async fn a_migration_in_another_form_is_refused_by_name() {
    let (_, store, client) = bare().await;
    store.migrate().await.unwrap();
    client.batch_execute("update migrations set checksum = sha256('other')").await.unwrap();
    for refused in [store.migrate().await, store.migrate_down(0).await] {
        let refused = refused.expect_err("somebody changed it");
        assert!(!refused.is_transient(), "{refused}");
        assert!(refused.to_string().contains("migration 1 (records)"), "{refused}");
    }
    assert!(!store.migration_status().await.unwrap()[0].unchanged);
}

#[tokio::test]
async fn a_schema_may_have_any_name_that_is_taken() {
    let url = Place::shared().url;
    let unique = &Token::random().to_string()[..12];
    let long = "x".repeat(63 - unique.len());
    for odd in [
        "UPPER",
        "semel.",
        "a.b.c",
        "two words",
        "a\"b",
        "\"",
        "ünï",
        "select",
        "a--b",
        "a/*b",
        "a;b",
        "%s",
        "$1",
        "{}",
        "-",
        "0",
        &long,
    ] {
        let place = Place { url: url.clone(), schema: format!("{odd}{unique}") };
        let store = place.store().await;
        works(&store).await;
        let client = place.client().await;
        let recorded: i64 = client.query_one("select count(*) from outcomes", &[]).await.unwrap().get(0);
        assert_eq!(recorded, 1, "{odd}");
        assert_eq!(store.migrate_down(0).await.unwrap(), ALL, "{odd}");
        assert!(!exists(&client, &place).await, "{odd}");
        client.batch_execute(&store.print_migrations()).await.unwrap();
        works(&store).await;
        assert_eq!(store.migrate_down(0).await.unwrap(), ALL, "{odd}");
    }
    // These would end a comment, a text or the body of a function in the scripts.
    for bad in ["o'clock", "a$$b", "a\nb", "a\\b", "a\u{85}b", "", "pg_semel"] {
        let refused = PostgresOptions::new(&url).unwrap().with_schema(bad).connect().await.err();
        assert!(refused.is_some_and(|refused| !refused.is_transient()), "{bad:?}");
    }
}

/// An older version could record an informational status. The attempt has run, and no repeat can be
/// answered with that.
#[tokio::test]
async fn a_recorded_status_that_is_no_answer_is_held_after_the_migration() {
    let (_place, store, client) = bare().await;
    store.migrate().await.unwrap();
    let asked = ask(&store, "key").await;
    let lease = granted(&store, &asked).await;
    let outcome = Outcome::new(200).unwrap().with_body("half").unwrap();
    assert_eq!(store.complete(&lease, &outcome).await.unwrap(), Ack::Applied);
    store.migrate_down(1).await.unwrap();
    client.batch_execute("update records set status = 101").await.unwrap();
    store.migrate().await.unwrap();
    let record = store.find(&asked.key).await.unwrap().expect("it is there");
    assert_eq!(record.phase(store.now().await.unwrap()), Phase::Held);
    let note = record.note.as_ref().map(|note| note.text.to_string()).unwrap_or_default();
    assert!(note.contains("101"), "{note}");
    let claim = store.claim(&asked.clone().with_token(Token::random())).await.unwrap();
    assert!(matches!(&claim, Claim::Held(held) if held.fence == record.fence), "{claim:?}");
    let settled = store.resolve(&asked.key, record.fence, &outcome, "seen").await.unwrap();
    assert_eq!(settled, OperatorAck::Applied);
}
