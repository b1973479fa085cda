//! The ids of rows: SQL computes the same as the store.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use semel::store::Claim;
use semel::{Key, Scope, Store};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::Place;

/// Values with a time in front, and almost such values.
const VALUES: &[&str] = &[
    "8e03978e-40d5-43dd-bc93-6894a57f9324",
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "01890A5D-AC96-774B-BCCE-B302099A8057",
    "01890a5D-Ac96-774b-Bcce-b302099A8057",
    "ffffffff-ffff-7fff-bfff-ffffffffffff",
    "00000000-0000-7000-8000-000000000000",
    "01890a5d-ac96-774b-ccce-b302099a8057",
    "01890a5d-ac96-774b-7cce-b302099a8057",
    "01890a5d-ac96-674b-bcce-b302099a8057",
    "01890a5d-ac96-774b-bcce-b302099a805",
    "01890a5d-ac96-774b-bcce-b302099a80577",
    "01890a5dac96774bbcceb302099a8057",
    "{01890a5d-ac96-774b-bcce-b302099a8057}",
    "01890a5d ac96 774b bcce b302099a8057",
    "01890a5g-ac96-774b-bcce-b302099a8057",
    "01ARZ3NDEKTSV4RRFFQ69G5FAV",
    "01arz3ndektsv4rrffq69g5fav",
    "01aRz3NdEkTsV4RrFfQ69g5FaV",
    "7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
    "00000000000000000000000000",
    "80000000000000000000000000",
    "01ARZ3NDEKTSV4RRFFQ69G5FAU",
    "01ARZ3NDEKTSV4RRFFQ69G5FAI",
    "01ARZ3NDEKTSV4RRFFQ69G5FAl",
    "01ARZ3NDEKTSV4RRFFQ69G5FAo",
    "01ARZ3NDEKTSV4RRFFQ69G5FA",
    "01ARZ3NDEKTSV4RRFFQ69G5FAVV",
    "01ARZ3NDEKTSV4RRFFQ69G5FA-",
    "a",
    "order 42",
    "~!@#$%^&*()_+`'\"\\",
];

fn keys() -> Vec<Key> {
    let mut keys = Vec::new();
    for (realm, principal) in [("r", ""), ("r", "p"), ("pays des clés 🗝", "Иван"), ("İıſK", "ß")]
    {
        let scope = Scope::new(realm).unwrap().with_principal(principal).unwrap();
        keys.extend(VALUES.iter().map(|value| scope.key(value).unwrap()));
    }
    // The boundaries between the three texts count.
    for (realm, principal, value) in [("ab", "c", "d"), ("a", "bc", "d"), ("a", "b", "cd"), ("abc", "", "d")]
    {
        keys.push(Scope::new(realm).unwrap().with_principal(principal).unwrap().key(value).unwrap());
    }
    // Every character is tried in every place where one of a ULID is read.
    let ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for place in [0, 1, 9, 10, 25] {
        for character in '!'..='~' {
            let value = format!("{}{character}{}", &ulid[..place], &ulid[place + 1..]);
            keys.push(Key::new("every character", &value).unwrap());
        }
    }
    keys
}

#[tokio::test]
async fn sql_finds_a_record_by_the_id_that_the_store_gave_it() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let keys = keys();
    let asks = join_all(keys.iter().map(async |key| ask(&store, "-").await.with_key(key.clone()))).await;
    // Some values come twice; the second claim of a key is answered that it runs.
    for claimed in join_all(asks.iter().map(|ask| store.claim(ask))).await {
        assert!(matches!(claimed.unwrap(), Claim::Granted(_) | Claim::Running { .. }));
    }
    let unique: BTreeSet<_> = keys.iter().collect();
    let rows = client
        .query("select realm, principal, key, id = record_id(realm, principal, key) from records", &[])
        .await
        .unwrap();
    assert_eq!(rows.len(), unique.len());
    for row in rows {
        let (realm, principal, key): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
        assert!(row.get::<_, bool>(3), "{realm}/{principal}/{key}");
    }
}

#[tokio::test]
async fn keys_that_carry_their_time_are_neighbours_in_the_table() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    // Both forms count milliseconds in 48 bits: the ULIDs are of 2016, the UUIDs of 2023.
    let in_order = [
        "00000000-0001-7000-8000-000000000000",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "01arz3ndemtsv4rrffq69g5fav",
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "01890a5d-ac97-774b-bcce-b302099a8057",
    ];
    for value in in_order.iter().rev() {
        let _lease = granted(&store, &ask(&store, value).await).await;
    }
    let rows = client.query("select key from records order by id", &[]).await.unwrap();
    let found: Vec<&str> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(found, in_order);
}
