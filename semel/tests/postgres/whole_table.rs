//! A large table: no operation reads all of it.

use std::time::Duration;

use semel::admin::{Inspect, ListQuery, Prune};
use semel::store::{PostgresOptions, Token};
use semel::{PostgresStore, Store};
use testkit::stores::postgres::Place;
use tokio::time::timeout;
use tokio_postgres::Client;

const ROWS: i64 = 200_000;

/// No wait in these tests is longer, unless something is broken.
const PATIENCE: Duration = Duration::from_secs(120);

/// Adds done records of the last day; each tenth is kept for long, and each ten thousandth is held.
async fn fill(client: &Client) {
    let fill = format!(
        "
        alter table records set (autovacuum_enabled = false, fillfactor = 100);
        insert into records (
            id, version, token, fence, attempt, state, realm, principal, key, operation, resource, fingerprint,
            fingerprint_version, owner, lease_until, created_at, retention, after_crash, finished_at, status, headers
        )
        select
            record_id('large', '', 'key-' || n), 2, substr(sha256(int8send(n)), 1, 16), n, 1,
            case when held then 'running' else 'done' end, 'large', '', 'key-' || n, 'charge', '', sha256(int8send(n)), 1,
            'filler', at + interval '30 s', at, case when n % 10 = 0 then 30 else 2 end * 86400000000, 'hold',
            case when not held then at end, case when not held then 200 end, case when not held then ''::bytea end
        from (
            select n, n % 10000 = 0 as held, now() - interval '1 day' * ({ROWS} - n + 100) / {ROWS} as at
            from generate_series(1, {ROWS}) as n
        ) as row;
        update upkeep set watermark = '-infinity', candidate_at = now() - interval '1 min'"
    );
    client.batch_execute(&fill).await.unwrap();
    client.batch_execute("vacuum analyze records").await.unwrap();
}

/// The result of work with a store of its own, and the number of pages of the records and their
/// indexes that it read.
async fn reads<T>(place: &Place, work: impl AsyncFnOnce(&PostgresStore) -> T) -> (T, i64) {
    let client = place.client().await;
    let table = format!("{}.records", place.quoted());
    let read = async || {
        let read = "
            select (heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint
            from pg_statio_all_tables where relid = to_regclass($1)";
        client.query_one(read, &[&table]).await.unwrap().get::<_, i64>(0)
    };
    let before = read().await;
    let name = Token::random().to_string();
    let sign = if place.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{sign}application_name={name}", place.url);
    let store = PostgresOptions::new(&url).unwrap().with_schema(&place.schema);
    let store = store.connect().await.unwrap();
    let answer = work(&store).await;
    store.close().await;
    drop(store);
    // A server process reports its reads before it ends.
    gone(&client, &name).await;
    (answer, read().await - before)
}

async fn gone(client: &Client, name: &str) {
    let gone = async {
        let left = "select from pg_stat_activity where application_name = $1";
        while !client.query(left, &[&name]).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("its connections end");
}

async fn filled() -> (Place, Client, i64) {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let name = Token::random().to_string();
    let filler = place.client().await;
    filler.batch_execute(&format!("set application_name = '{name}'")).await.unwrap();
    fill(&filler).await;
    drop((filler, store));
    gone(&client, &name).await;
    let pages = "select pg_relation_size('records') / current_setting('block_size')::bigint";
    let pages = client.query_one(pages, &[]).await.unwrap().get(0);
    // The watermark passes the existing records, once.
    let store = place.store().await;
    let passed = async {
        let behind = "select watermark < now() - interval '3 min' from upkeep";
        while client.query_one(behind, &[]).await.unwrap().get(0) {
            client.batch_execute("update upkeep set sweep_at = now()").await.unwrap();
            store.prune(&Prune::default().with_paced(true).with_limit(1)).await.unwrap();
        }
    };
    timeout(PATIENCE, passed).await.expect("the watermark moves");
    (place, client, pages)
}

/// All matching records, and the number of pages that showed them.
async fn listed(store: &PostgresStore, mut query: ListQuery) -> (Vec<String>, usize) {
    let (mut names, mut pages) = (Vec::new(), 0);
    loop {
        let page = store.list(&query).await.unwrap();
        names.extend(page.records.iter().map(|record| record.key.value().to_owned()));
        pages += 1;
        match page.next {
            Some(next) => query.after = Some(next),
            None => return (names, pages),
        }
    }
}

#[tokio::test]
async fn a_large_table_is_never_read_as_a_whole() {
    let (place, client, pages) = filled().await;
    let few = pages / 10;
    let check = |what: &str, read: i64| assert!(read < few, "{what} read {read} of {pages} pages");

    let (stale, read) = reads(&place, async |store| store.stale(&ListQuery::default()).await.unwrap()).await;
    assert_eq!((stale.records.len(), stale.next), (20, None));
    check("stale", read);

    let (stats, read) = reads(&place, async |store| store.stats().await.unwrap()).await;
    assert_eq!([stats.running, stats.held, stats.lost], [0, 20, 0]);
    assert!(stats.estimated);
    assert!(stats.done.abs_diff(ROWS as u64) < ROWS as u64 / 10 && stats.released < 1_000, "{stats:?}");
    check("stats", read);

    let oldest = ListQuery::default().with_realm(Some("other".to_owned()));
    let (page, read) = reads(&place, async |store| store.list(&oldest).await.unwrap()).await;
    assert!(page.records.is_empty() && page.next.is_some());
    check("a page of a list", read);
    let only = ListQuery::default().with_value(Some("key-199999".to_owned()));
    let store = place.store().await;
    let (names, calls) = listed(&store, only).await;
    assert_eq!(names, ["key-199999"]);
    assert!((40..=60).contains(&calls), "{calls} pages");

    // Of two processes in one minute, one sweeps a part, and the other leaves the work to it.
    client.batch_execute("update upkeep set sweep_page = 0, sweep_at = now()").await.unwrap();
    let paced = Prune::default().with_paced(true);
    let at = async || client.query_one("select sweep_page from upkeep", &[]).await.unwrap().get::<_, i64>(0);
    for expected in [64, 64] {
        let (removed, read) = reads(&place, async |store| store.prune(&paced).await.unwrap()).await;
        assert_eq!((removed, at().await), (0, expected));
        check("a turn of pruning", read);
    }
    // A minute later another process continues there.
    client.batch_execute("update upkeep set sweep_at = now()").await.unwrap();
    let (removed, read) = reads(&place, async |store| store.prune(&paced).await.unwrap()).await;
    assert_eq!((removed, at().await), (0, 128));
    check("the next turn", read);

    // Where there is much to remove, it is removed at once, and records that are kept or held are
    // skipped.
    let over = "update records set finished_at = finished_at - interval '2 days' where key < 'key-15'";
    let over = client.execute(over, &[]).await.unwrap();
    let kept = "select count(*) from records where key < 'key-15' and (retention > 172800000000 or state = 'running')";
    let kept: i64 = client.query_one(kept, &[]).await.unwrap().get(0);
    client.batch_execute("update upkeep set sweep_page = 0, sweep_at = now()").await.unwrap();
    let mut removed = 0;
    loop {
        client.batch_execute("update upkeep set sweep_at = now()").await.unwrap();
        let some = store.prune(&paced).await.unwrap();
        removed += some;
        if at().await == 0 || removed >= over - kept as u64 {
            break;
        }
    }
    assert_eq!(removed, over - kept as u64);
    assert_eq!(store.stats().await.unwrap().held, 20);
}
