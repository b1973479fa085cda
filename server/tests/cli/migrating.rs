//! `semel migrate`.

use semel::PostgresStore;
use testkit::servers::redis_url;
use testkit::stores::postgres::database;
use tokio_postgres::NoTls;

use crate::place::{Place, file};
use crate::process::{Ran, semel};

fn migrate(url: &str, args: &[&str]) -> Ran {
    semel(&[&["migrate"], args, &["--store", url]].concat())
}

/// The names of all steps in messages, such as `1 (records)`.
fn steps(url: &str) -> Vec<String> {
    let steps = migrate(url, &["status", "--output", "json"]).json();
    steps.iter().map(|step| format!("{} ({})", step["version"], step["name"].as_str().unwrap())).collect()
}

/// Migrates up and down again.
fn there_and_back(url: &str) {
    let steps = steps(url);
    let count = steps.len();
    let missing = semel(&["list", "--store", url]).refused(1);
    assert!(missing.contains("semel migrate up"), "{missing}");
    assert_eq!(migrate(url, &["up"]).ok(), format!("applied {count} migrations\n"));
    assert_eq!(migrate(url, &["up"]).ok(), "the schema is up to date\n");
    let table = migrate(url, &["status"]).ok();
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["VERSION", "NAME", "APPLIED", "AT", "KNOWN", "UNCHANGED"]);
    assert_eq!((&lines[1][..2], &lines[1][3..]), (&["1", "records"][..], &["yes", "yes"][..]));
    let step = &migrate(url, &["status", "--output", "json"]).json()[0];
    assert_eq!(
        (&step["version"], &step["name"], &step["known"], &step["unchanged"]),
        (&1.into(), &"records".into(), &true.into(), &true.into())
    );
    assert!(step["applied_at"].as_str().unwrap().ends_with('Z'), "{step}");

    assert_eq!(
        migrate(url, &["down", "--to", &count.to_string()]).ok(),
        format!("no migration above version {count} is applied\n")
    );
    migrate(url, &["down"]).refused(2);
    let said = migrate(url, &["down", "--to", "0"]).refused(2);
    assert!(
        said.contains(&format!("takes back {count} migrations: {}", steps.join(", ")))
            && said.contains("in all 0 records; say --yes"),
        "{said}"
    );
    assert_eq!(semel(&["list", "--store", url]).ok(), "no records\n", "nothing was taken back");
    assert_eq!(migrate(url, &["down", "--to", "0", "--yes"]).ok(), format!("took back {count} migrations\n"));
    assert!(migrate(url, &["status"]).ok().contains("not yet"));
    assert_eq!(
        migrate(url, &["down", "--to", "0", "--yes"]).ok(),
        "no migration above version 0 is applied\n"
    );
    assert_eq!(migrate(url, &["up"]).ok(), format!("applied {count} migrations\n"));
}

#[tokio::test]
async fn the_schema_of_postgres_goes_there_and_back() {
    there_and_back(&database().await);
}

#[test]
fn the_schema_of_sqlite_goes_there_and_back() {
    let (url, _folder) = file();
    let said = semel(&["list", "--store", &url]).refused(1);
    assert!(said.contains("there is no file") && said.contains("semel migrate up"), "{said}");
    migrate(&url, &["status"]).refused(1);
    migrate(&url, &["up"]).ok();
    migrate(&url, &["down", "--to", "0", "--yes"]).ok();
    there_and_back(&url);
}

#[tokio::test]
async fn older_processes_have_to_be_stopped_first() {
    let (file, _folder) = file();
    for url in [file, database().await] {
        migrate(&url, &["up"]).ok();
        let above = steps(&url).len() - 1;
        assert_eq!(
            migrate(&url, &["down", "--to", "1", "--yes"]).ok(),
            format!("took back {above} migrations\n")
        );
        let said = migrate(&url, &["up"]).refused(2);
        let advice =
            "older version cannot run beside migration 2 (retention): stop them first, then say --yes";
        assert!(said.contains(advice), "{said}");
        let steps = migrate(&url, &["status", "--output", "json"]).json();
        assert!(steps[1]["applied_at"].is_null() && steps[1]["breaking"] == true, "{steps:?}");
        assert_eq!(migrate(&url, &["up", "--yes"]).ok(), format!("applied {above} migrations\n"));
    }
}

#[tokio::test]
async fn the_records_that_would_be_removed_are_counted() {
    for place in [Place::sqlite().await, Place::postgres().await] {
        place.done("a").await;
        place.held("b").await;
        let said = place.semel(&["migrate", "down", "--to", "0"]).refused(2);
        assert!(said.contains("in all 2 records; say --yes"), "{said}");
        assert_eq!(place.of_realm(&["list", "--output", "json"]).json().len(), 2);
    }
}

#[tokio::test]
async fn a_printed_schema_is_the_schema() {
    let url = database().await;
    let script = migrate(&url, &["print"]).ok();
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&script).await.unwrap();
    let store = PostgresStore::connect(&url).await.unwrap();
    assert_eq!(store.migrate().await.unwrap(), 0);
    assert_eq!(semel(&["list", "--store", &url]).ok(), "no records\n");
}

#[test]
fn printing_reaches_for_nothing() {
    let script = migrate("postgres://ghost@256.0.0.1/none", &["print"]).ok();
    assert!(script.contains("create schema if not exists \"semel\""), "{script}");
    let (url, folder) = file();
    let script = migrate(&url, &["print"]).ok();
    assert!(script.contains("semel_records"), "{script}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_store_without_a_schema_has_nothing_to_migrate() {
    for url in ["memory:", &redis_url()] {
        for command in [
            &["up"][..],
            &["down", "--to", "0", "--yes"],
            &["status"],
            &["status", "--output", "json"],
            &["print"],
        ] {
            let ran = migrate(url, command);
            assert_eq!((ran.code, &*ran.out), (Some(0), ""), "{ran:?}");
            assert!(ran.err.contains("has no schema"), "{ran:?}");
        }
    }
}
