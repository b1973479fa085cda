//! The file of a schema, and the name of its application.

use rusqlite::Connection;
use testkit::stores::sqlite::Place;

fn application_id(client: &Connection) -> i32 {
    client.query_row("pragma application_id", [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_file_with_foreign_tables_stays_the_file_of_its_application() {
    let place = Place::new();
    let client = place.client();
    client.execute_batch("create table theirs as select 7 as seven").unwrap();
    let _store = place.store().await;
    assert_eq!(application_id(&client), 0);
}

#[tokio::test]
async fn a_new_file_names_its_application() {
    let place = Place::new();
    let _store = place.store().await;
    assert_eq!(&application_id(&place.client()).to_be_bytes(), b"seml");
}
