//! Queries that Postgres runs in several processes.

use semel::{Outcome, Store};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::Place;
use tokio_postgres::Client;

const ROWS: i64 = 50_000;

/// Copies of one record, with bodies of their own.
const COPIES: &str = r#"
    insert into records
    select copy.*
    from records as record
    cross join generate_series(2, 50000) as n
    cross join lateral jsonb_populate_record(record, jsonb_build_object(
        'key', 'copy-' || n,
        'id', sha256(int4send(n)),
        'body', convert_to(format('{"n": "%s"}', n), 'UTF8')
    )) as copy"#;

/// Settings that make Postgres use several processes wherever it can.
const EAGER: &str = "
    set parallel_setup_cost = 0;
    set parallel_tuple_cost = 0;
    set min_parallel_table_scan_size = 0;
    set max_parallel_workers_per_gather = 2;
    set max_parallel_maintenance_workers = 2;
    alter table records set (parallel_workers = 2)";

/// A session that runs everything in parallel, and many records that have an outcome.
async fn many() -> Client {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let lease = granted(&store, &ask(&store, "first").await).await;
    store.complete(&lease, &Outcome::json("first").unwrap()).await.unwrap().applied().unwrap();
    client.batch_execute(COPIES).await.unwrap();
    client.batch_execute("analyze records").await.unwrap();
    client.batch_execute(EAGER).await.unwrap();
    client
}

async fn plan(client: &Client, question: &str) -> String {
    let lines = client.query(&format!("explain {question}"), &[]).await.unwrap();
    lines.iter().map(|line| line.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_view_shows_all_outcomes_of_a_large_table() {
    let client = many().await;
    let shown = client.query("select body::text, key from outcomes order by created_at", &[]).await.unwrap();
    assert_eq!(shown.len() as i64, ROWS);
    for row in shown {
        let (body, key): (String, String) = (row.get(0), row.get(1));
        let expected = match key.strip_prefix("copy-") {
            Some(n) => format!(r#"{{"n": "{n}"}}"#),
            None => "\"first\"".to_owned(),
        };
        assert_eq!(body, expected);
    }
}

#[tokio::test]
async fn an_index_of_bodies_is_built_on_a_large_table_and_found_through_the_view() {
    let client = many().await;
    client.batch_execute("create index on records ((json_body(body) ->> 'n'))").await.unwrap();
    client.batch_execute("analyze records").await.unwrap();
    let question = "select key from outcomes where body ->> 'n' = '4711'";
    let found = client.query(question, &[]).await.unwrap();
    assert_eq!(found.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["copy-4711"]);
    let plan = plan(&client, question).await;
    assert!(plan.contains("Index"), "{plan}");
}

#[tokio::test]
async fn functions_that_are_marked_parallel_safe_run_in_parallel_workers() {
    let client = many().await;
    let marked = "
        select proname::text
        from pg_proc
        where pronamespace = quote_ident(current_schema)::regnamespace and proparallel <> 'u'
        order by 1";
    let marked = client.query(marked, &[]).await.unwrap();
    assert_eq!(marked.iter().map(|row| row.get(0)).collect::<Vec<String>>(), ["expires_at", "record_id"]);
    let question = "
        select count(record_id(realm, principal, key))
            + count(expires_at(state, after_crash, lease_until, coalesce(finished_at, updated_at), retention))
        from records";
    let plan = plan(&client, question).await;
    assert!(plan.contains("Gather"), "{plan}");
    let counted: i64 = client.query_one(question, &[]).await.unwrap().get(0);
    assert_eq!(counted, 2 * ROWS);
}
