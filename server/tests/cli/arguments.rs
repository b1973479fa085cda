//! The store that a command uses, and the messages about wrong arguments.

use std::fs;

use testkit::stores::postgres::database;

use crate::place::{Place, file};
use crate::process::{command, end, semel};

/// The commands that need a store, with correct arguments.
const COMMANDS: [&[&str]; 10] = [
    &["list"],
    &["stale"],
    &["stats"],
    &["inspect", "k"],
    &["resolve", "k", "--fence", "1", "--status", "200", "--reason", "r"],
    &["reset", "k", "--fence", "1", "--reason", "r"],
    &["forget", "k", "--fence", "1", "--reason", "r"],
    &["prune"],
    &["migrate", "status"],
    &["migrate", "up"],
];

#[test]
fn an_unknown_kind_of_store_is_named_with_those_that_are_known() {
    for command in COMMANDS {
        for url in ["mysql://ann:secret@db", "semel.db", "sqlite:", ""] {
            let said = semel(&[command, &["--store", url]].concat()).refused(1);
            assert!(said.contains("could not open the store"), "{command:?} {url}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
        let said = semel(&[command, &["--store", "memory:", "--cache", "disk:"]].concat()).refused(1);
        assert!(said.contains("could not open the cache disk:"), "{said}");
    }
}

#[test]
fn a_mistyped_file_is_not_made() {
    let (url, folder) = file();
    for command in COMMANDS.iter().filter(|command| **command != ["migrate", "up"]) {
        let said = semel(&[command, &["--store", &url][..]].concat()).refused(1);
        assert!(said.contains("there is no file"), "{said}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let said = semel(&["migrate", "up", "--store", "sqlite:/no/where/semel.db"]).refused(1);
    assert!(said.contains("/no/where"), "{said}");
}

#[tokio::test]
async fn the_store_is_that_of_flags_then_variables_then_the_file() {
    let (place, other) = (Place::sqlite().await, Place::sqlite().await);
    place.done("k").await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("semel.toml");
    fs::write(&config, format!("upstream = 'http://127.0.0.1:1'\nstore = '{}'\n", place.url)).unwrap();
    let config = config.to_str().unwrap();
    assert!(semel(&["list", "--config", config]).ok().contains("\nk "));
    assert_eq!(semel(&["list", "--config", config, "--store", &other.url]).ok(), "no records\n");
    let with = |name: &str, value: &str, args: &[&str]| {
        let mut command = command(args);
        command.env(name, value);
        end(command).ok()
    };
    assert!(with("SEMEL_CONFIG", config, &["list"]).contains("\nk "));
    assert!(with("SEMEL_STORE", &place.url, &["list"]).contains("\nk "));
    assert_eq!(with("SEMEL_STORE", &other.url, &["list", "--config", config]), "no records\n");
    assert_eq!(with("SEMEL_STORE", &place.url, &["list", "--store", &other.url]), "no records\n");
}

#[test]
fn a_file_of_settings_that_cannot_be_read_is_named() {
    let said = semel(&["list", "--config", "/no/where.toml"]).refused(1);
    assert!(said.contains("could not read /no/where.toml"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("semel.toml");
    fs::write(&config, "shop = 'x'\n").unwrap();
    let said = semel(&["list", "--config", config.to_str().unwrap()]).refused(1);
    assert!(said.contains("there is no setting `shop`"), "{said}");
}

#[tokio::test]
async fn an_unreadable_record_is_reported_and_harmless() {
    let url = database().await;
    semel(&["migrate", "up", "--store", &url]).ok();
    let store = semel::PostgresStore::connect(&url).await.unwrap();
    let once = semel::Once::new(store);
    let (key, intent) = (semel::Key::new("r", "k").unwrap(), semel::Intent::of("charge", "", &1).unwrap());
    once.run(&key, &intent, |_| async { Ok::<_, semel::Failure>(1) }).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("update semel.records set operation = E'a\\x1b[2Jb'").await.unwrap();
    let said = semel(&["list", "--store", &url]).refused(1);
    assert!(said.contains("record not understood") && !said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn completions_know_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = semel(&["completions", shell]).ok();
        assert!(script.contains("inspect") && script.contains("older-than"), "{shell}");
    }
    semel(&["completions", "csh"]).refused(2);
}

#[test]
fn help_tells_the_exit_codes() {
    let help = semel(&["--help"]).ok();
    for line in ["0  done", "3  no such key", "5  the key is in several scopes"] {
        assert!(help.contains(line), "{help}");
    }
}
