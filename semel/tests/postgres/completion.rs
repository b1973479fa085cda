//! Completion by SQL: the functions answer as the rule does.

use semel::protocol::{decide, slot};
use semel::protocol::{draft::Action, draft::Write};
use semel::store::verbs;
use semel::store::{Ack, Record, Token};
use semel::{Fence, Lease, Outcome, PostgresStore, Store};
use testkit::claims::{ask, granted};
use testkit::stores::postgres::{Place, taken_over};
use tokio_postgres::Client;

const TRY: &str = "select try_complete('tests', '', $1, $2, $3, 200, $4)";

fn outcome(body: &'static str) -> Outcome {
    Outcome::new(200).unwrap().with_body(body).unwrap()
}

/// The same completion for SQL and for the rule.
async fn completed(client: &Client, lease: &Lease, body: &str) -> String {
    let fence = lease.fence().get() as i64;
    let row = client
        .query_one(TRY, &[&lease.key().value(), &lease.token().to_string(), &fence, &body.as_bytes()])
        .await;
    row.unwrap().get(0)
}

/// The answer of the rule to a completion of the record as it is.
fn ruled(found: Option<Record>, lease: &Lease, body: &'static str, now: semel::Timestamp) -> String {
    let write = Write::by(lease, |fence| Action::Complete { fence, outcome: outcome(body) });
    let mut slot = found.clone().map(Box::new);
    let written = slot::write(&mut slot, &write, now);
    let ack = verbs::acknowledge(&write, &written).unwrap();
    if ack != Ack::Applied {
        assert_eq!(decide::unapplied(found.as_ref(), &write), Some(ack));
    }
    format!("{ack:?}").to_lowercase()
}

/// Brings a key into one of the states that a completion can find.
async fn prepared(store: &PostgresStore, client: &Client, state: &str) -> Lease {
    let lease = granted(store, &ask(store, state).await).await;
    let ack = match state {
        "running" => Ack::Applied,
        "released" => store.release(&lease).await.unwrap(),
        "done" => store.complete(&lease, &outcome("mine")).await.unwrap(),
        "taken over" => {
            let _winner = taken_over(client, store, lease.key()).await;
            Ack::Applied
        }
        "done by another" => {
            let winner = taken_over(client, store, lease.key()).await;
            store.complete(&winner, &outcome("mine")).await.unwrap()
        }
        "missing" => {
            client.execute("delete from records where key = 'missing'", &[]).await.unwrap();
            Ack::Applied
        }
        other => panic!("{other}"),
    };
    assert_eq!(ack, Ack::Applied);
    lease
}

#[tokio::test]
async fn try_complete_answers_as_the_rule_does() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let mut answers = std::collections::BTreeSet::new();
    for state in ["missing", "running", "released", "done", "taken over", "done by another"] {
        let mine = prepared(&store, &client, state).await;
        let with = |token, fence| Lease::new(mine.key().clone(), token, fence, 1, mine.deadline());
        let whom = [
            with(Token::random(), mine.fence()),
            with(mine.token(), Fence::new(mine.fence().get() + 1)),
            with(mine.token(), Fence::new(0)),
            with(Token::random(), Fence::new(0)),
            // This lease is the last, because it may be applied.
            mine.clone(),
        ];
        for lease in whom {
            for body in ["other", "mine"] {
                let found = store.find(lease.key()).await.unwrap();
                let ruled = ruled(found, &lease, body, store.now().await.unwrap());
                let answer = completed(&client, &lease, body).await;
                assert_eq!(answer, ruled, "{state}, {body}, {lease:?}");
                answers.insert(answer);
            }
        }
    }
    let every = ["applied", "finished", "missing", "repeated", "superseded"];
    assert!(answers.iter().eq(every), "{answers:?}");
}

#[tokio::test]
async fn sql_compares_outcomes_as_the_rule_does() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let lease = granted(&store, &ask(&store, "same").await).await;
    let plain = || Outcome::new(200).unwrap();
    assert_eq!(store.complete(&lease, &plain()).await.unwrap(), Ack::Applied);
    let mut client = client;
    let header = ("a", bytes::Bytes::from_static(b"b"));
    for (other, ack) in [
        (plain(), Ack::Repeated),
        (plain().without_body(), Ack::Finished),
        (plain().with_body("x").unwrap(), Ack::Finished),
        (plain().with_subtype("x").unwrap(), Ack::Finished),
        (plain().with_headers([header]).unwrap(), Ack::Finished),
        (Outcome::new(201).unwrap(), Ack::Finished),
    ] {
        let mut tx = client.transaction().await.unwrap();
        assert_eq!(store.complete_in(&mut tx, &lease, &other).await.unwrap(), ack, "{other:?}");
        assert_eq!(store.complete(&lease, &other).await.unwrap(), ack, "{other:?}");
    }
}

#[tokio::test]
async fn an_outcome_that_breaks_a_limit_is_refused_and_the_key_stays_running() {
    let place = Place::shared();
    let (store, client) = (place.store().await, place.client().await);
    let lease = granted(&store, &ask(&store, "limits").await).await;
    let (token, fence) = (lease.token().to_string(), lease.fence().get() as i64);
    let long = format!("[[\"a\", \"{}\"]]", "x".repeat(65_536));
    let odd = |headers: &str| format!("200, '', '{headers}'");
    for (arguments, code) in [
        ("42".to_owned(), "23514"),
        ("1000".to_owned(), "23514"),
        ("70000".to_owned(), "22003"),
        (odd("{}"), "22023"),
        (odd("null"), "22023"),
        (odd("[1]"), "22023"),
        (odd("[[\"a\"]]"), "22023"),
        (odd("[[\"a\", \"b\", \"c\"]]"), "22023"),
        (odd("[[\"a\", 1]]"), "22023"),
        (odd("[[\"\", \"b\"]]"), "22023"),
        (odd("[[\"a \", \"b\"]]"), "22023"),
        (odd("[[\"é\", \"b\"]]"), "22023"),
        (odd(&long), "22023"),
        ("200, '', null".to_owned(), "22023"),
        ("200, '', '[]', ' x'".to_owned(), "22023"),
        ("200, '', '[]', ''".to_owned(), "22023"),
    ] {
        let statement = format!("select complete('tests', '', 'limits', '{token}', {fence}, {arguments})");
        let shown = &arguments[..arguments.len().min(60)];
        let refused = client.batch_execute(&statement).await.expect_err(shown);
        assert_eq!(refused.code().unwrap().code(), code, "{shown}");
        assert_eq!(store.find(lease.key()).await.unwrap().unwrap().outcome(), None, "{shown}");
    }
    // A value of exactly the limit is accepted, and read back.
    let most = format!("[[\"a\", \"{}\"]]", "x".repeat(65_535));
    let statement =
        format!("select complete('tests', '', 'limits', '{token}', {fence}, 200, null, '{most}')");
    client.batch_execute(&statement).await.unwrap();
    let recorded = store.find(lease.key()).await.unwrap().unwrap();
    let recorded = recorded.outcome().unwrap();
    assert_eq!(recorded.headers().map(|(name, value)| name.len() + value.len()).sum::<usize>(), 65_536);
    assert_eq!(recorded.body(), None);
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_an_error() {
    let place = Place::shared();
    let (store, mut client) = (place.store().await, place.client().await);
    let lease = granted(&store, &ask(&store, "unreadable").await).await;
    for (kind, answer) in [("text", "null"), ("integer", "7"), ("text", "'perhaps'")] {
        let others = format!(
            "drop function complete_record, lock_record;
            create function complete_record(bytea, bytea, bigint, integer, text, bytea, bytea)
            returns {kind} language sql as $$ select {answer} $$;
            create function lock_record(bytea, bytea, bigint)
            returns {kind} language sql as $$ select {answer} $$"
        );
        client.batch_execute(&others).await.unwrap();
        let mut answers = Vec::new();
        let mut tx = client.transaction().await.unwrap();
        answers.push(store.lock_in(&mut tx, &lease).await);
        answers.push(store.complete_in(&mut tx, &lease, &outcome("mine")).await);
        drop(tx);
        #[cfg(feature = "sqlx")]
        {
            use sqlx::Connection as _;
            let mut connection = sqlx::PgConnection::connect(&place.url).await.unwrap();
            let mut tx = connection.begin().await.unwrap();
            answers.push(store.lock_in(&mut tx, &lease).await);
            answers.push(store.complete_in(&mut tx, &lease, &outcome("mine")).await);
        }
        for refused in answers {
            let refused = refused.expect_err(answer);
            assert!(!refused.is_transient(), "{kind} {answer}: {refused}");
            assert!(refused.to_string().contains("a function of the schema"), "{kind} {answer}: {refused}");
        }
    }
}
