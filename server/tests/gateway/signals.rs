//! Signals of operators to a running gateway: stop, and reload.

use std::time::Duration;

use tokio::time::sleep;

use crate::process::Setup;
use crate::upstream::Upstream;
use crate::wire::{Wire, request};

#[tokio::test]
async fn told_to_stop_it_finishes_what_is_under_way_and_takes_no_more() {
    let (upstream, stop) = Upstream::stopping().await;
    let setup = Setup::before(upstream.address);
    let mut gateway = setup.start().await;
    let mut idle = gateway.wire().await;
    stop.go();
    idle.send(request("GET /", "", b"")).await;
    assert_eq!(idle.reply().await.status, 200);
    stop.arrival().await;
    let mut under_way = gateway.wire().await;
    under_way.send(request("POST /charges", "Idempotency-Key: k\r\n", b"{}")).await;
    let gone = gateway.posting("gone", "{}");
    stop.arrival().await;
    stop.arrival().await;
    // The client of this request does not wait for the end.
    gone.abort();
    gateway.signal("TERM");
    gateway.line("stopping").await;
    assert_eq!(gateway.admin("/readyz").await.told(), (503, "not ready: stopping\n".to_owned(), false));
    assert_eq!(gateway.admin("/livez").await.status, 200);
    assert_eq!(idle.hear_all().await, "", "a connection without a request is closed");
    assert!(gateway.try_ask("GET /", "", "").await.is_none(), "no new client is served");
    assert!(!gateway.has_ended());
    stop.go();
    stop.go();
    let reply = under_way.reply().await;
    assert_eq!((reply.status, reply.is_replay()), (200, false));
    assert_eq!(under_way.hear_all().await, "", "it was the last one of its connection");
    assert_eq!(gateway.ended().await, Some(0));
    let gateway = setup.start().await;
    for key in ["k", "gone"] {
        assert!(gateway.post(key, "{}").await.is_replay(), "{key}");
    }
    assert_eq!(upstream.count(), 3);
}

#[tokio::test]
async fn told_to_stop_it_finishes_what_has_no_key_too() {
    let (upstream, stop) = Upstream::stopping().await;
    let mut gateway = Setup::before(upstream.address).start().await;
    let mut under_way = gateway.wire().await;
    under_way.send(request("POST /charges", "", b"{}")).await;
    stop.arrival().await;
    gateway.signal("TERM");
    gateway.line("stopping").await;
    assert!(under_way.is_quiet_for(Duration::from_millis(200)).await, "it is not cut off");
    stop.go();
    assert_eq!(under_way.reply().await.told(), (200, "run 1".to_owned(), false));
    assert_eq!(gateway.ended().await, Some(0));
}

#[tokio::test]
async fn a_request_that_does_not_end_in_time_is_left_to_its_lease() {
    let (upstream, stop) = Upstream::stopping().await;
    let setup = Setup::before(upstream.address).with("--drain", "200ms").with("--lease", "1s");
    let mut gateway = setup.start().await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await, Some(0));
    assert!(first.await.unwrap().is_none());
    assert!(gateway.log().contains("left to their leases"), "{}", gateway.log());
    let gateway = setup.start().await;
    let after = gateway.post_until_settled("k", "{}").await;
    after.problem(409, "idempotency_outcome_unknown");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_repeat_that_waits_is_let_go_when_it_is_told_to_stop() {
    let (upstream, stop) = Upstream::stopping().await;
    let setup = Setup::before(upstream.address).with("--drain", "1h").with("--wait", "5m");
    let mut gateway = setup.start().await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    let waits = gateway.posting("k", "{}");
    while gateway.metric(&["semel_claims_total", "running"]).await < 1.0 {
        sleep(Duration::from_millis(5)).await;
    }
    gateway.signal("TERM");
    waits.await.unwrap().expect("it is answered").problem(409, "idempotency_key_pending");
    stop.go();
    assert_eq!(first.await.unwrap().expect("it is answered").told(), (200, "run 1".to_owned(), false));
    assert_eq!(gateway.ended().await, Some(0));
}

#[tokio::test]
async fn told_twice_it_ends_at_once() {
    let (upstream, stop) = Upstream::stopping().await;
    for signals in [["TERM", "TERM"], ["INT", "TERM"], ["TERM", "INT"]] {
        let mut gateway = Setup::before(upstream.address).with("--drain", "1h").start().await;
        let first = gateway.posting("k", "{}");
        stop.arrival().await;
        gateway.signal(signals[0]);
        gateway.line("stopping").await;
        gateway.signal(signals[1]);
        // The gateway ends long before its drain limit.
        assert_eq!(gateway.ended().await, Some(0));
        assert!(first.await.unwrap().is_none());
    }
}

#[tokio::test]
async fn a_client_that_says_nothing_does_not_keep_it_from_stopping() {
    let upstream = Upstream::counting().await;
    let mut gateway = Setup::before(upstream.address).with("--drain", "1h").start().await;
    let _silent = gateway.wire().await;
    // The request is served after the silent connection was accepted.
    assert_eq!(gateway.ask("GET /", "Connection: close\r\n", "").await.status, 200);
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await, Some(0));
}

#[tokio::test]
async fn a_reload_changes_routes_for_new_requests_and_what_is_broken_changes_nothing() {
    let (old, new) = (Upstream::counting().await, Upstream::counting().await);
    let file = |upstream: &Upstream, more: &str| format!("upstream = 'http://{}'\n{more}", upstream.address);
    let setup = Setup::new().with_file(&file(&old, ""));
    let mut gateway = setup.start().await;
    let mut wire = gateway.wire().await;
    let get = || request("GET /", "", b"");
    wire.send(get()).await;
    assert_eq!(wire.reply().await.status, 200);
    for (number, broken) in [
        file(&new, "leese = '1s'"),
        file(&new, "listen = "),
        file(&new, "scope = 'everybody'"),
        "[[route]]\npath = '/a'".to_owned(),
        file(&new, "upstream-ca = '/no/where.pem'"),
    ]
    .iter()
    .enumerate()
    {
        setup.write("semel.toml", broken);
        gateway.signal("HUP");
        while gateway.log().matches("the old one stays in force").count() <= number {
            sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(gateway.ask("GET /", "", "").await.status, 200);
    }
    assert_eq!((old.count(), new.count()), (6, 0));
    setup.write("semel.toml", &file(&new, "[[route]]\npath = '/charges'\nrequired = true"));
    gateway.signal("HUP");
    gateway.line("was reloaded").await;
    // A connection from before the reload uses the new configuration, too.
    wire.send(get()).await;
    assert_eq!(wire.reply().await.status, 200);
    gateway.ask("POST /charges", "", "{}").await.problem(400, "idempotency_key_missing");
    assert_eq!((old.count(), new.count()), (6, 1));
    let shown = gateway.admin("/config").await.text();
    assert!(shown.contains("/charges") && shown.contains(&new.address.to_string()), "{shown}");
}

#[tokio::test]
async fn a_setting_that_cannot_change_is_refused_and_named() {
    let upstream = Upstream::counting().await;
    for (name, before, after) in [
        ("listen", "127.0.0.1:0", "127.0.0.1:1"),
        ("admin", "127.0.0.1:0", "off"),
        ("store", "memory:", "sqlite:other.db"),
        ("cache", "memory:1MiB", "memory:2MiB"),
        ("log-format", "text", "json"),
    ] {
        let file = |value: &str| format!("upstream = 'http://{}'\n{name} = '{value}'", upstream.address);
        let setup = Setup::new().without(&format!("--{name}")).with_file(&file(before));
        let mut gateway = setup.start().await;
        setup.write("semel.toml", &file(after));
        gateway.signal("HUP");
        let line = gateway.line("the old one stays in force").await;
        assert!(line.contains(&format!("{name} cannot change without a restart")), "{line}");
        assert_eq!(gateway.ask("GET /", "", "").await.status, 200);
    }
}

#[tokio::test]
async fn an_attempt_from_before_a_reload_ends_under_its_own_terms() {
    let (upstream, stop) = Upstream::stopping().await;
    let file =
        |policy: &str| format!("upstream = 'http://{}'\npolicy = '{policy}'\nwait = '20s'", upstream.address);
    let setup = Setup::new().with_file(&file("hold"));
    let mut gateway = setup.start().await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    setup.write("semel.toml", &file("retry"));
    gateway.signal("HUP");
    gateway.line("was reloaded").await;
    let repeat = gateway.posting("k", "{}");
    stop.go();
    assert_eq!(first.await.unwrap().unwrap().told(), (200, "run 1".to_owned(), false));
    assert_eq!(repeat.await.unwrap().unwrap().told(), (200, "run 1".to_owned(), true));
    assert!(Wire::try_to(gateway.address).await.is_some());
}
