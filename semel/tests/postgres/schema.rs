//! The name of the schema.

use semel::store::{PostgresOptions, Token};
use testkit::claims::done;
use testkit::stores::postgres::Place;
use tokio_postgres::Client;

async fn exists(client: &Client, place: &Place) -> bool {
    let question = "select to_regnamespace($1) is not null";
    client.query_one(question, &[&place.quoted()]).await.unwrap().get(0)
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
        done(&store, "key").await;
        let client = place.client().await;
        let recorded: i64 = client.query_one("select count(*) from outcomes", &[]).await.unwrap().get(0);
        assert_eq!(recorded, 1, "{odd}");
        store.migrate_down(0).await.unwrap();
        assert!(!exists(&client, &place).await, "{odd}");
        client.batch_execute(&store.print_migrations()).await.unwrap();
        done(&store, "key").await;
        assert_eq!(store.migrate().await.unwrap(), 0, "{odd}");
        store.migrate_down(0).await.unwrap();
    }
    // These would end a comment, a text or the body of a function in the scripts.
    for bad in ["o'clock", "a$$b", "a\nb", "a\\b", "a\u{85}b", "", "pg_semel"] {
        let refused = PostgresOptions::new(&url).unwrap().with_schema(bad).connect().await.err();
        assert!(refused.is_some_and(|refused| !refused.is_transient()), "{bad:?}");
    }
}
