//! `semel health`.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::json;
use testkit::on_every_store;
use testkit::ports::Port;
use testkit::stores::postgres::database;

use crate::place::{Place, file};
use crate::process::semel;

on_every_store! {
    crate::place::Place [sqlite, postgres, redis, cached] {
        a_store_that_answers_is_healthy,
    }
}

async fn a_store_that_answers_is_healthy(place: Place) {
    let said = place.semel(&["health"]).ok();
    assert!(said.starts_with("healthy: the store ") && said.ends_with(" answers\n"), "{said}");
    let object = &place.semel(&["health", "--output", "json"]).json()[0];
    assert_eq!((&object["healthy"], &object["why"]), (&true.into(), &json!(null)));
}

#[tokio::test]
async fn a_store_that_cannot_serve_is_not_healthy() {
    let (missing, _folder) = file();
    for (url, why) in [
        (&*database().await, "semel migrate up"),
        (&*missing, "there is no file"),
        ("postgres://ann:secret@127.0.0.1:1/none", "store unavailable"),
        ("redis://:secret@127.0.0.1:1", "store unavailable"),
        ("nonsense:", "it is none of sqlite:FILE"),
    ] {
        let ran = semel(&["health", "--store", url]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
        assert!(ran.out.starts_with("unhealthy: the store ") && ran.out.contains(why), "{ran:?}");
        assert!(!ran.out.contains("secret") && !ran.err.contains("secret"), "{ran:?}");
        let ran = semel(&["health", "--store", url, "--output", "json"]);
        assert_eq!(ran.code, Some(1));
        let object: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        assert!(object["healthy"] == false && object["why"].as_str().unwrap().contains(why), "{object}");
    }
}

/// A gateway's admin listener that gives one answer, and the request that it received.
fn gateway(answer: &'static str) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = String::new();
        let mut lines = BufReader::new(stream.try_clone().unwrap());
        while !asked.ends_with("\r\n\r\n") {
            lines.read_line(&mut asked).unwrap();
        }
        if answer.is_empty() {
            // The read ends when the other end is gone.
            let _ = lines.read_line(&mut asked);
        }
        stream.write_all(answer.as_bytes()).unwrap();
        asked
    });
    (url, asked)
}

#[test]
fn a_gateway_says_whether_it_is_ready() {
    let (url, asked) = gateway("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
    let said = semel(&["health", "--gateway", &url]).ok();
    assert_eq!(said, format!("healthy: the gateway at {url}/ answers\n"));
    assert!(asked.join().unwrap().starts_with("GET /readyz HTTP/1.1\r\n"));

    let (url, _) =
        gateway("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 20\r\n\r\nthe store is \x1b[2Jout\n");
    let ran = semel(&["health", "--gateway", &url]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("it answered 503 Service Unavailable: the store is \\u{1b}[2Jout"), "{ran:?}");
}

#[test]
fn a_gateway_that_does_not_answer_is_not_waited_for() {
    let (url, _) = gateway("");
    let began = Instant::now();
    let ran = semel(&["health", "--gateway", &url, "--timeout", "200ms"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains("no answer within 200ms"), "{ran:?}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let down = Port::reserve().unwrap();
    let ran = semel(&["health", "--gateway", &format!("http://127.0.0.1:{down}")]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.out.contains(&format!("could not connect to 127.0.0.1:{down}")), "{ran:?}");
}

#[test]
fn an_address_that_is_not_a_gateway_is_a_wrong_argument() {
    for wrong in [&["--gateway", "ftp://a"][..], &["--gateway", "localhost"], &["--timeout", "soon"]] {
        semel(&[&["health", "--store", "memory:"], wrong].concat()).refused(2);
    }
    semel(&["health", "--store", "memory:"]).ok();
}
