//! Files that can be opened, and files that cannot.

use std::fs;
use std::path::Path;

use semel::store::Claim;
use semel::{Once, Outcome, Policy, SqliteStore, Store, StoreError};
use testkit::claims::{ask, granted};
use testkit::stores::sqlite::Place;
use testkit::until::until;

use crate::child;

async fn refused(path: &Path) -> String {
    let error = SqliteStore::open(path).await.err().expect("it was opened");
    assert!(!error.is_transient(), "{error}");
    let (said, name) = (error.to_string(), path.display().to_string());
    assert!(said.contains(&name), "{said} does not name {name}");
    said
}

#[tokio::test]
async fn a_folder_that_is_not_there_is_refused() {
    let place = Place::new();
    let path = place.path().with_file_name("missing").join("file.db");
    let said = refused(&path).await;
    assert!(said.starts_with("store refused: could not create"), "{said}");
    assert!(!path.parent().unwrap().exists());
}

#[tokio::test]
async fn a_file_that_is_not_a_database_is_refused_and_left_as_it_is() {
    let place = Place::new();
    let text = "These are words, and no database. ".repeat(200);
    fs::write(place.path(), &text).unwrap();
    let said = refused(place.path()).await;
    assert!(said.starts_with("store refused") && said.ends_with("is no SQLite database"), "{said}");
    assert_eq!(fs::read_to_string(place.path()).unwrap(), text);
}

#[tokio::test]
async fn a_folder_is_no_file() {
    let place = Place::new();
    let error = SqliteStore::open(place.path().parent().unwrap()).await.err().expect("it was opened");
    assert!(error.to_string().contains(&place.path().parent().unwrap().display().to_string()), "{error}");
}

#[tokio::test]
async fn a_database_without_a_shared_file_is_refused() {
    for name in ["", ":memory:", "file:semel.db?mode=memory"] {
        let error = SqliteStore::open(name).await.err().expect("it was opened");
        assert!(!error.is_transient() && error.to_string().contains(&format!("{name:?}")), "{error}");
        assert!(name.is_empty() || !Path::new(name).exists());
    }
}

#[tokio::test]
async fn an_empty_file_becomes_a_database() {
    let place = Place::new();
    fs::write(place.path(), "").unwrap();
    let store = place.store().await;
    granted(&store, &ask(&store, "key").await).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_new_file_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    let store = place.store().await;
    granted(&store, &ask(&store, "key").await).await;
    for end in ["", "-wal", "-shm"] {
        let mode = fs::metadata(place.beside(end)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{end:?}");
    }
}

/// This test needs an account other than root, which can write to read-only files.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_cannot_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let place = Place::new();
    place.store().await.close().await;
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(place.path().parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
    let said = child::start_unprivileged("opens", &place).line().await;
    assert!(said.starts_with("store refused"), "{said}");
    assert!(
        said.contains("cannot be written") && said.contains(&place.path().display().to_string()),
        "{said}"
    );
}

/// SQLite would go on with the removed file, and everything that it acknowledged would be lost with
/// the process.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_was_replaced_is_noticed() {
    let (place, backup) = (Place::new(), Place::new());
    let store = place.store().await;
    granted(&store, &ask(&store, "old").await).await;
    let other = backup.store().await;
    let lease = granted(&other, &ask(&other, "new").await).await;
    let outcome = Outcome::json("new").unwrap();
    other.complete(&lease, &outcome).await.unwrap().applied().unwrap();
    other.close().await;

    for end in ["", "-wal", "-shm"] {
        fs::remove_file(place.beside(end)).unwrap();
    }
    let error: StoreError = store.claim(&ask(&store, "old").await).await.expect_err("the file is gone");
    assert!(error.is_transient() && !error.is_unknown(), "{error}");
    assert!(!place.path().exists(), "it was created again, with nothing in it");

    fs::rename(backup.path(), place.path()).unwrap();
    until("the other file is used", async || {
        let ask = ask(&store, "new").await;
        matches!(store.claim(&ask).await, Ok(Claim::Done(done)) if done.outcome == outcome)
    })
    .await;
}

#[tokio::test]
async fn transactional_is_refused_over_sqlite() {
    let place = Place::new();
    let once = Once::new(place.store().await);
    let refused = once.try_with_policy(Policy::transactional()).err().unwrap().to_string();
    assert!(refused.contains("`sqlite` is none: use a Postgres store"), "{refused}");
}
