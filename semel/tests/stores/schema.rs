//! The schema: its migration up and down, and its refusals.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use semel::admin::{Inspect, ListQuery, MigrationStatus, OperatorAck, Prune};
use semel::store::{Ack, AnyStore, Claim, Phase, Token};
use semel::{Lease, Outcome, Store, StoreError};
use testkit::claims::{ask, granted};
use testkit::on_every_store;
use testkit::stores::Place;

on_every_store! {
    testkit::stores::Place [sqlite, postgres] {
        the_way_up_is_gone_once_and_the_way_down_leaves_nothing,
        foreign_tables_are_left_alone,
        of_many_concurrent_migrations_one_is_applied,
        the_status_tells_what_was_applied,
        the_printed_script_makes_a_schema_that_fits,
        verbs_before_the_migration_say_what_to_do_and_work_after_it,
        a_schema_that_needs_newer_code_is_left_alone_by_every_verb,
        a_newer_schema_that_this_code_can_run_beside_is_used,
        a_migration_in_another_form_is_refused_by_name,
        a_recorded_status_that_is_no_answer_is_held_after_the_migration,
    }
}

/// The migrations of a store, with a flag for those beside which older code cannot run.
fn migrations(place: &Place) -> &'static [(&'static str, bool)] {
    match place {
        Place::Postgres(_) => {
            &[("records", false), ("retention", true), ("upkeep", false), ("secrets", false)]
        }
        _ => &[("records", false), ("retention", true), ("secrets", false)],
    }
}

/// The version of the newest migration.
fn newest(place: &Place) -> u32 {
    migrations(place).len() as u32
}

async fn status(store: &AnyStore) -> Vec<MigrationStatus> {
    store.migration_status().await.unwrap().expect("it has a schema")
}

/// Runs a key from beginning to end.
async fn works(store: &AnyStore) {
    let ask = ask(store, &Token::random().to_string()).await;
    let lease = granted(store, &ask).await;
    assert_eq!(store.complete(&lease, &Outcome::new(200).unwrap()).await.unwrap(), Ack::Applied);
    assert_eq!(store.list(&ListQuery::default()).await.unwrap().records.last().unwrap().owner, ask.owner);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0);
}

/// The answers of the verbs that depend on the schema.
async fn verbs(store: &AnyStore) -> BTreeMap<&'static str, Result<(), StoreError>> {
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
async fn all_refused(store: &AnyStore, advice: &str) {
    for (verb, answer) in verbs(store).await {
        let refused = answer.expect_err(verb);
        assert!(!refused.is_transient(), "{verb}: {refused}");
        assert!(refused.to_string().contains(advice), "{verb}: {refused}");
    }
}

/// Enters a migration of a later version of semel.
async fn newer(place: &Place, needs: i32) {
    // Like every migration, this one changes the schema.
    place.execute("create table semel_later (x int)").await;
    let checksum = match place {
        Place::Sqlite(_) => "zeroblob(32)",
        _ => "sha256('later')",
    };
    let columns = "version, name, checksum, needs";
    place
        .execute(&format!("insert into {{migrations}} ({columns}) values (99, 'later', {checksum}, {needs})"))
        .await;
}

async fn the_way_up_is_gone_once_and_the_way_down_leaves_nothing(place: Place) {
    let (store, all) = (place.opened().await, newest(&place));
    assert_eq!(store.migrate_down(0).await.unwrap(), 0);
    for _ in 0..2 {
        assert_eq!(store.migrate().await.unwrap(), all);
        assert_eq!(store.migrate().await.unwrap(), 0);
        works(&store).await;
        assert_eq!(store.migrate_down(all).await.unwrap(), 0);
        works(&store).await;
        assert_eq!(store.migrate_down(0).await.unwrap(), all);
        assert!(!place.has_schema().await);
    }
    all_refused(&store, "apply the migrations").await;
}

async fn foreign_tables_are_left_alone(place: Place) {
    let (store, all) = (place.opened().await, newest(&place));
    store.migrate().await.unwrap();
    place.execute("create table theirs as select 7 as seven").await;
    works(&store).await;
    assert_eq!(store.migrate_down(0).await.unwrap(), all);
    assert_eq!(place.tables().await, ["theirs"]);
    assert_eq!(store.migrate().await.unwrap(), all);
    works(&store).await;
    assert_eq!(place.texts("select cast(seven as text) from theirs").await, ["7"]);
}

async fn of_many_concurrent_migrations_one_is_applied(place: Place) {
    let stores = join_all((0..8).map(|_| place.opened())).await;
    let applied = join_all(stores.iter().map(|store| store.migrate())).await;
    let mut applied: Vec<u32> = applied.into_iter().map(Result::unwrap).collect();
    applied.sort_unstable();
    assert_eq!(applied, [0, 0, 0, 0, 0, 0, 0, newest(&place)]);
    for store in stores {
        works(&store).await;
    }
}

async fn the_status_tells_what_was_applied(place: Place) {
    let store = place.opened().await;
    let ours = migrations(&place).iter().zip(1..).map(|((name, breaking), version)| {
        let mut status = MigrationStatus::new(version, *name);
        status.breaking = *breaking;
        status
    });
    let mut ours: Vec<MigrationStatus> = ours.collect();
    assert_eq!(status(&store).await, ours);
    store.migrate().await.unwrap();
    newer(&place, 1).await;
    let mut found = status(&store).await;
    let later = found.pop().expect("a migration");
    assert_eq!((later.version, &*later.name, later.known), (99, "later", false));
    let now = store.now().await.unwrap();
    for (ours, found) in ours.iter_mut().zip(&found) {
        let at = found.applied_at.expect("it was applied");
        let is_fresh = now.since(at) < Duration::from_secs(60) && at.since(now) < Duration::from_secs(1);
        assert!(is_fresh, "{at} {now}");
        ours.applied_at = Some(at);
    }
    assert_eq!(found, ours);
}

async fn the_printed_script_makes_a_schema_that_fits(place: Place) {
    let store = place.opened().await;
    place.execute(&place.script()).await;
    works(&store).await;
    assert_eq!(store.migrate().await.unwrap(), 0);
    assert!(status(&store).await[0].unchanged);
}

async fn verbs_before_the_migration_say_what_to_do_and_work_after_it(place: Place) {
    let store = place.opened().await;
    let name = match place {
        Place::Postgres(_) => "PostgresStore",
        _ => "SqliteStore",
    };
    all_refused(&store, &format!("apply the migrations, with `{name}::migrate` or `semel migrate up`")).await;
    store.migrate().await.unwrap();
    works(&store).await;
    for (verb, answer) in verbs(&store).await {
        answer.expect(verb);
    }
}

async fn a_schema_that_needs_newer_code_is_left_alone_by_every_verb(place: Place) {
    let store = place.opened().await;
    store.migrate().await.unwrap();
    // SQLite tells every connection of a new schema; a store on Postgres looks when it connects.
    let other = place.opened().await;
    works(if matches!(place, Place::Sqlite(_)) { &store } else { &other }).await;
    newer(&place, 99).await;
    all_refused(&store, "use a newer semel").await;
    all_refused(&place.opened().await, "use a newer semel").await;
    assert_eq!(place.names().await.len(), 1);
    for refused in [store.migrate().await, store.migrate_down(0).await] {
        let refused = refused.expect_err("it does not know that version");
        assert!(!refused.is_transient() && refused.to_string().contains("use a newer semel"), "{refused}");
    }
}

async fn a_newer_schema_that_this_code_can_run_beside_is_used(place: Place) {
    let store = place.opened().await;
    store.migrate().await.unwrap();
    newer(&place, 1).await;
    works(&store).await;
    let fresh = place.opened().await;
    assert_eq!(fresh.migrate().await.unwrap(), 0);
    works(&fresh).await;
    // This version cannot revert a migration that it does not know.
    fresh.migrate_down(0).await.expect_err("version 99 is not known");
    works(&fresh).await;
}

async fn a_migration_in_another_form_is_refused_by_name(place: Place) {
    let store = place.opened().await;
    store.migrate().await.unwrap();
    let other = match place {
        Place::Sqlite(_) => "zeroblob(32)",
        _ => "sha256('other')",
    };
    place.execute(&format!("update {{migrations}} set checksum = {other}")).await;
    for refused in [store.migrate().await, store.migrate_down(0).await] {
        let refused = refused.expect_err("somebody changed it");
        assert!(!refused.is_transient(), "{refused}");
        assert!(refused.to_string().contains("migration 1 (records)"), "{refused}");
    }
    assert!(!status(&store).await[0].unchanged);
}

/// An older version could record an informational status. The attempt has run, and no repeat can be
/// answered with that.
async fn a_recorded_status_that_is_no_answer_is_held_after_the_migration(place: Place) {
    let store = place.opened().await;
    store.migrate().await.unwrap();
    let asked = ask(&store, "key").await;
    let lease = granted(&store, &asked).await;
    let outcome = Outcome::new(200).unwrap().with_body("half").unwrap();
    assert_eq!(store.complete(&lease, &outcome).await.unwrap(), Ack::Applied);
    store.migrate_down(1).await.unwrap();
    place.execute("update {records} set status = 101").await;
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
