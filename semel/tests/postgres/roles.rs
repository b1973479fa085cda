//! The rights that docs/postgres.md recommends for the role of a service.

use semel::store::Token;
use testkit::claims::{ask, granted};
use testkit::stores::postgres::Place;

/// The statements of the page that grant the rights.
fn grants(place: &Place, role: &str) -> String {
    let page = include_str!("../../../docs/postgres.md");
    let grants: Vec<&str> = page.lines().filter(|line| line.starts_with("grant ")).collect();
    assert_eq!(grants.len(), 3, "{grants:?}");
    let of_this_place = grants.join("\n").replace(" semel.", &format!(" {}.", place.quoted()));
    of_this_place.replace("schema semel", &format!("schema {}", place.quoted())).replace("service", role)
}

#[tokio::test]
async fn a_service_locks_and_completes_with_the_rights_of_the_page() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let role = format!("service_{}", Token::random());
    client.batch_execute(&format!("create role {role}; {}", grants(&place, &role))).await.unwrap();
    let lease = granted(&store, &ask(&store, "role").await).await;
    let (token, fence) = (lease.token().to_string(), lease.fence().get() as i64);
    client.batch_execute(&format!("set role {role}; begin")).await.unwrap();
    for statement in
        ["select lock('tests', '', 'role', $1, $2)", "select complete('tests', '', 'role', $1, $2, 200)"]
    {
        let answer: String = client.query_one(statement, &[&token, &fence]).await.unwrap().get(0);
        assert_eq!(answer, "applied", "{statement}");
    }
    let more = client.execute("delete from records", &[]).await.expect_err("it may not delete");
    assert_eq!(more.code().unwrap().code(), "42501");
    client.batch_execute("rollback; reset role").await.unwrap();
    client.batch_execute(&format!("drop owned by {role}; drop role {role}")).await.unwrap();
}
