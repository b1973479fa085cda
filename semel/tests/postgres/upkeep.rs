//! Unsettled records behind the watermark: each is found, whatever its origin.

use std::time::Duration;

use semel::admin::{Inspect, ListQuery, OperatorAck, Prune};
use semel::store::{Ack, Phase, PostgresOptions};
use semel::{Outcome, PostgresStore, Store, Timestamp};
use testkit::claims::{ask, granted, retried};
use testkit::stores::postgres::{Place, end_lease};
use tokio::time::timeout;
use tokio_postgres::Client;

/// No wait in these tests is longer, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets the next turn of the upkeep begin.
async fn due(client: &Client) {
    client.batch_execute("update upkeep set sweep_at = now()").await.unwrap();
}

/// Lets ten minutes pass: all records and all knowledge about them become older by that.
async fn pass(client: &Client) {
    let shift = "
        update records set created_at = created_at - interval '10 min', lease_until = lease_until - interval '10 min';
        update unsettled set created_at = created_at - interval '10 min';
        update upkeep
        set watermark = watermark - interval '10 min',
            candidate_at = candidate_at - interval '10 min',
            checked_at = checked_at - interval '10 min'";
    client.batch_execute(shift).await.unwrap();
}

/// Waits until the watermark is ahead of all records that were created ten minutes ago. It also
/// waits for transactions of other tests.
async fn passed(store: &PostgresStore, client: &Client) {
    let behind = "select watermark < now() - interval '5 min' from upkeep";
    let moved = async {
        loop {
            due(client).await;
            store.prune(&Prune::default().with_paced(true)).await.unwrap();
            if !client.query_one(behind, &[]).await.unwrap().get::<_, bool>(0) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, moved).await.expect("the watermark moves");
}

/// The unsettled keys, on which all ways of finding them agree.
async fn unsettled(store: &PostgresStore) -> Vec<(String, Phase)> {
    let page = store.stale(&ListQuery::default()).await.unwrap();
    assert!(page.next.is_none());
    let shown = page.records.iter().map(|record| (record.key.value().to_owned(), record.phase(page.now)));
    let shown: Vec<_> = shown.collect();
    for phase in [Phase::Held, Phase::Lost] {
        let query = ListQuery::default().with_phase(Some(phase));
        let listed = store.list(&query).await.unwrap().records;
        let listed: Vec<_> = listed.iter().map(|record| (record.key.value().to_owned(), phase)).collect();
        let among: Vec<_> = shown.iter().filter(|(_, is)| *is == phase).cloned().collect();
        assert_eq!(listed, among);
    }
    shown
}

async fn entries(client: &Client) -> Vec<String> {
    let entries = "
        select coalesce(record.key, 'gone')
        from unsettled as entry
        left join records as record on record.id = entry.id
        order by 1";
    client.query(entries, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

fn held(name: &str) -> (String, Phase) {
    (name.to_owned(), Phase::Held)
}

#[tokio::test]
async fn unsettled_records_that_the_watermark_passes_are_entered_and_found() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    for name in ["held", "works long", "done"] {
        let lease = granted(&store, &ask(&store, name).await).await;
        match name {
            "held" => assert_eq!(store.abandon(&lease, "test").await.unwrap(), Ack::Applied),
            "done" => store.complete(&lease, &Outcome::new(200).unwrap()).await.unwrap().applied().unwrap(),
            _ => {}
        }
    }
    let lost = granted(&store, &retried(ask(&store, "lost").await)).await;
    assert_eq!(store.abandon(&lost, "test").await.unwrap(), Ack::Applied);
    pass(&client).await;
    let works = store.find(&ask(&store, "works long").await.key).await.unwrap().unwrap();
    assert_eq!(store.renew(&works.lease(), Duration::from_secs(600)).await.unwrap(), Ack::Applied);
    passed(&store, &client).await;

    assert_eq!(entries(&client).await, ["held", "lost", "works long"]);
    assert_eq!(unsettled(&store).await, [held("held"), ("lost".to_owned(), Phase::Lost)]);
    let stats = store.stats().await.unwrap();
    assert_eq!([stats.running, stats.held, stats.lost, stats.done], [1, 1, 1, 1]);
    let running = ListQuery::default().with_phase(Some(Phase::Running));
    assert_eq!(store.list(&running).await.unwrap().records[0].key.value(), "works long");

    // A change of their state is seen at once.
    end_lease(&client, &works.key).await;
    assert_eq!(unsettled(&store).await.len(), 3);
    store.complete(&works.lease(), &Outcome::new(200).unwrap()).await.unwrap().applied().unwrap();
    assert_eq!(unsettled(&store).await, [held("held"), ("lost".to_owned(), Phase::Lost)]);
    assert_eq!(entries(&client).await, ["held", "lost"]);
    let key = &ask(&store, "held").await.key;
    let fence = store.find(key).await.unwrap().unwrap().fence;
    let change = store.resolve(key, fence, &Outcome::new(200).unwrap(), "test").await.unwrap();
    assert_eq!(change, OperatorAck::Applied);
    assert_eq!(unsettled(&store).await, [("lost".to_owned(), Phase::Lost)]);
}

#[tokio::test]
async fn of_two_pruners_one_at_a_time_looks_for_unsettled_records() {
    let place = Place::shared();
    let (pruners, client) = ([place.store().await, place.store().await], place.client().await);
    let lease = granted(&pruners[0], &ask(&pruners[0], "held").await).await;
    assert_eq!(pruners[0].abandon(&lease, "test").await.unwrap(), Ack::Applied);
    // One call checks 500 of the entries.
    let more = "
        insert into records
        select (jsonb_populate_record(record, jsonb_build_object(
            'key', 'held-' || n, 'id', record_id(realm, principal, 'held-' || n)
        ))).*
        from records as record, generate_series(1, 1200) as n;
        insert into unsettled (created_at, id, after_crash, is_over)
        select created_at, id, after_crash, true from records";
    client.batch_execute(more).await.unwrap();
    let checked = async || {
        let checked =
            "select count(*) from unsettled, upkeep where (created_at, id) <= (checked_at, checked_id)";
        client.query_one(checked, &[]).await.unwrap().get::<_, i64>(0)
    };
    for expected in [500, 1_000] {
        due(&client).await;
        for pruner in &pruners {
            assert_eq!(pruner.prune(&Prune::default().with_paced(true)).await.unwrap(), 0);
            assert_eq!(checked().await, expected);
        }
    }
}

#[tokio::test]
async fn a_key_that_runs_again_behind_the_watermark_is_found() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let lease = granted(&store, &ask(&store, "again").await).await;
    assert_eq!(store.release(&lease).await.unwrap(), Ack::Applied);
    pass(&client).await;
    passed(&store, &client).await;
    assert_eq!(entries(&client).await, [""; 0]);

    let lease = granted(&store, &ask(&store, "again").await).await;
    assert_eq!(lease.attempt(), 2);
    assert_eq!(store.abandon(&lease, "test").await.unwrap(), Ack::Applied);
    assert_eq!(unsettled(&store).await, [held("again")]);
}

#[tokio::test]
async fn a_key_in_a_new_life_is_found_once() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let first = granted(&store, &ask(&store, "lives").await).await;
    assert_eq!(store.abandon(&first, "test").await.unwrap(), Ack::Applied);
    pass(&client).await;
    passed(&store, &client).await;
    let change = store.forget(first.key(), first.fence(), "test").await.unwrap();
    assert_eq!(change, OperatorAck::Applied);
    assert_eq!(unsettled(&store).await, []);
    let second = granted(&store, &ask(&store, "lives").await).await;
    assert_eq!(second.attempt(), 1);
    assert_eq!(store.abandon(&second, "test").await.unwrap(), Ack::Applied);
    assert_eq!(unsettled(&store).await, [held("lives")]);
    pass(&client).await;
    passed(&store, &client).await;
    assert_eq!(unsettled(&store).await, [held("lives")]);
    assert_eq!(entries(&client).await, ["lives"]);
}

#[tokio::test]
async fn the_watermark_waits_for_transactions_that_may_still_commit_a_record() {
    let place = Place::shared();
    let (store, client, late) = (place.store().await, place.client().await, place.client().await);
    let lease = granted(&store, &ask(&store, "early").await).await;
    assert_eq!(store.abandon(&lease, "test").await.unwrap(), Ack::Applied);
    let copy = "
        begin;
        insert into records
        select (jsonb_populate_record(record, jsonb_build_object(
            'key', 'late', 'id', record_id(realm, principal, 'late'), 'created_at', now() - interval '7 min'
        ))).*
        from records as record";
    late.batch_execute(copy).await.unwrap();
    let candidate = "
        update upkeep
        set watermark = now() - interval '10 min', candidate_at = now() - interval '2 min',
            candidate_xid = pg_current_xact_id()";
    client.batch_execute(candidate).await.unwrap();
    for _ in 0..3 {
        assert_eq!(unsettled(&store).await, [held("early")]);
    }
    late.batch_execute("commit").await.unwrap();
    assert_eq!(unsettled(&store).await, [held("late"), held("early")]);
    passed(&store, &client).await;
    assert_eq!(unsettled(&store).await, [held("late"), held("early")]);
    assert_eq!(entries(&client).await, ["late"]);
}

#[tokio::test]
async fn records_created_behind_the_watermark_are_entered_by_a_sweep() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let lease = granted(&store, &ask(&store, "restored").await).await;
    assert_eq!(store.abandon(&lease, "test").await.unwrap(), Ack::Applied);
    client.batch_execute("update records set created_at = now() - interval '7 min'").await.unwrap();
    assert_eq!(entries(&client).await, [""; 0]);
    assert_eq!(store.prune(&Prune::default()).await.unwrap(), 0);
    assert_eq!(entries(&client).await, ["restored"]);
    assert_eq!(unsettled(&store).await, [held("restored")]);
}

#[tokio::test]
async fn a_clock_that_was_set_back_takes_the_watermark_along() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    // The watermark is moved as if a clock or a server of its own had made it an hour from now.
    let future = "
        update upkeep
        set watermark = now() + interval '1 hour', candidate_at = now() + interval '1 hour',
            candidate_xid = '9000000000000000000', sweep_at = now() + interval '1 hour'";
    client.batch_execute(future).await.unwrap();
    let lease = granted(&store, &ask(&store, "now").await).await;
    assert_eq!(store.abandon(&lease, "test").await.unwrap(), Ack::Applied);
    assert_eq!(unsettled(&store).await, [held("now")]);
    pass(&client).await;
    passed(&store, &client).await;
    assert_eq!(unsettled(&store).await, [held("now")]);
}

#[tokio::test]
async fn a_read_only_role_lists_and_counts() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    for name in ["before", "since"] {
        let lease = granted(&store, &ask(&store, name).await).await;
        assert_eq!(store.abandon(&lease, "test").await.unwrap(), Ack::Applied);
        if name == "before" {
            pass(&client).await;
            passed(&store, &client).await;
        }
    }
    let sign = if place.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{sign}options=-c%20default_transaction_read_only%3Don", place.url);
    let reader = PostgresOptions::new(&url).unwrap().with_schema(&place.schema);
    let reader = reader.connect().await.unwrap();
    assert_eq!(unsettled(&reader).await, [held("before"), held("since")]);
    assert_eq!(reader.stats().await.unwrap().held, 2);
    reader.prune(&Prune::default()).await.expect_err("it may not remove anything");
}

#[tokio::test]
async fn the_migration_enters_what_is_there() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    for name in ["held", "done"] {
        let lease = granted(&store, &ask(&store, name).await).await;
        match name {
            "held" => assert_eq!(store.abandon(&lease, "test").await.unwrap(), Ack::Applied),
            _ => store.complete(&lease, &Outcome::new(200).unwrap()).await.unwrap().applied().unwrap(),
        }
    }
    pass(&client).await;
    let taken_back = store.migrate_down(2).await.unwrap();
    assert_eq!(store.migrate().await.unwrap(), taken_back);
    assert_eq!(entries(&client).await, ["held"]);
    assert_eq!(unsettled(&store).await, [held("held")]);
    let now: Timestamp = store.now().await.unwrap();
    assert!(
        store.list(&ListQuery::default()).await.unwrap().records[0].created_at
            < now.before(Duration::from_secs(500))
    );
}

#[tokio::test]
async fn completion_is_a_heap_only_update() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    for number in 0..20 {
        let lease = granted(&store, &ask(&store, &format!("key-{number}")).await).await;
        store.complete(&lease, &Outcome::json(&number).unwrap()).await.unwrap().applied().unwrap();
    }
    let hot = async {
        let share = "
            select n_tup_upd, n_tup_hot_upd from pg_stat_all_tables
            where relid = to_regclass($1) and n_tup_upd >= 20";
        let table = format!("{}.records", place.quoted());
        loop {
            if let Some(row) = client.query_opt(share, &[&table]).await.unwrap() {
                return (row.get::<_, i64>(0), row.get::<_, i64>(1));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(timeout(PATIENCE, hot).await.expect("the server counts updates"), (20, 20));
}
