//! The real servers that `cargo xtask test` starts, which exist and answer.

use testkit::servers::{postgres_url, redis_url};

#[tokio::test]
async fn postgres_answers_and_is_durable() {
    let (client, connection) = tokio_postgres::connect(&postgres_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for setting in ["fsync", "synchronous_commit"] {
        let row = client.query_one(&format!("show {setting}"), &[]).await.unwrap();
        assert_eq!(row.get::<_, String>(0), "on", "{setting}");
    }
    let row = client.query_one("select 40 + 2", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 42);
}

#[tokio::test]
async fn redis_answers_and_evicts_nothing() {
    let client = redis::Client::open(redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let policy: Vec<String> =
        redis::cmd("CONFIG").arg("GET").arg("maxmemory-policy").query_async(&mut connection).await.unwrap();
    assert_eq!(policy[1], "noeviction");
    let pong: String = redis::cmd("PING").query_async(&mut connection).await.unwrap();
    assert_eq!(pong, "PONG");
}
