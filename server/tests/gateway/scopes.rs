//! The scope of a key, and the route of a request.

use serde_json::Value;

use crate::process::Setup;
use crate::upstream::Upstream;

#[tokio::test]
async fn two_callers_with_the_same_key_are_independent() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let callers = [
        "",
        "Authorization: Bearer ann\r\n",
        "Authorization: Bearer bob\r\n",
        "X-Api-Key: ann\r\n",
        "X-Auth-Token: ann\r\n",
    ];
    for replayed in [false, true] {
        for (number, caller) in callers.iter().enumerate() {
            let reply = gateway.ask("POST /charges", &format!("Idempotency-Key: k\r\n{caller}"), "{}").await;
            assert_eq!(reply.told(), (200, format!("run {}", number + 1), replayed), "{caller}");
        }
    }
    let principal = upstream.seen()[1].header("semel-principal").map(str::to_owned);
    assert_eq!(principal.as_deref().map(str::len), Some(64));
    assert!(!gateway.log().contains("ann"));
}

#[tokio::test]
async fn a_header_may_identify_the_caller() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--scope", "header:X-User").start().await;
    for (user, run, replayed) in [("ann", 1, false), ("bob", 2, false), ("ann", 1, true)] {
        // The credentials do not matter then.
        let fields = format!("Idempotency-Key: k\r\nX-User: {user}\r\nAuthorization: {run}{replayed}\r\n");
        let reply = gateway.ask("POST /charges", &fields, "{}").await;
        assert_eq!(reply.told(), (200, format!("run {run}"), replayed));
    }
    assert_eq!(upstream.seen()[0].header("semel-principal"), Some("ann"));
    for fields in ["", "X-User:\r\n", "X-User: ann\r\nX-User: ann\r\n"] {
        let reply = gateway.ask("POST /charges", &format!("Idempotency-Key: k\r\n{fields}"), "{}").await;
        reply.problem(400, "idempotency_scope_missing");
    }
    // Without a key the scope does not matter.
    assert_eq!(gateway.ask("POST /charges", "", "{}").await.status, 200);
    assert_eq!(upstream.count(), 3);
}

/// Regression: `--anonymous share`, which these gateways have, made all clients that had bypassed
/// the proxy one caller.
#[tokio::test]
async fn a_header_that_is_a_secret_is_needed_whatever_anonymous_callers_get() {
    let upstream = Upstream::counting().await;
    for scope in ["header:X-Session", "header:X-User:secret"] {
        let mut gateway = Setup::before(upstream.address).with("--scope", scope).start().await;
        gateway.line("callers_without=\"refused\"").await;
        gateway.post("k", "{}").await.problem(400, "idempotency_scope_missing");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_scope_may_be_everybodys() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--scope", "none").start().await;
    for (caller, replayed) in [("ann", false), ("bob", true)] {
        let fields = format!("Idempotency-Key: k\r\nAuthorization: {caller}\r\n");
        assert_eq!(
            gateway.ask("POST /charges", &fields, "{}").await.told(),
            (200, "run 1".to_owned(), replayed)
        );
    }
}

#[tokio::test]
async fn routes_have_terms_of_their_own_and_the_rest_passes() {
    let (all, other) = (Upstream::counting().await, Upstream::counting().await);
    let file = format!(
        "upstream = 'http://{}'
        uncovered = 'pass'
        [[route]]
        path = '/charges/{{id}}/refunds'
        required = true
        [[route]]
        path = '/v1/*'
        upstream = 'http://{}'
        policy = 'retry'
        methods = ['PUT']",
        all.address, other.address
    );
    let gateway = Setup::new().with_file(&file).start().await;
    let key = "Idempotency-Key: ";
    for (line, fields, status, replays) in [
        ("POST /charges/7/refunds", "", 400, false),
        ("POST /charges/7/refunds", key, 200, true),
        ("PUT /v1/a/b", key, 200, true),
        ("POST /v1/a/b", key, 200, false),
        ("POST /charges//refunds", key, 200, false),
        ("POST /charges/7/refunds/", key, 200, false),
        ("POST //charges/7/refunds", key, 200, false),
        ("POST /charges/7/%72efunds", key, 200, false),
        ("POST /elsewhere", key, 200, false),
    ] {
        for again in [false, true] {
            // Routes share their keys, so each of these requests has its own.
            let fields = if fields.is_empty() { String::new() } else { format!("{key}\"{line}\"\r\n") };
            let reply = gateway.ask(line, &fields, "{}").await;
            assert_eq!((reply.status, reply.is_replay()), (status, again && replays), "{line}");
        }
    }
    let lines =
        |upstream: &Upstream| upstream.seen().iter().map(|seen| seen.line().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&other), ["PUT /v1/a/b HTTP/1.1", "POST /v1/a/b HTTP/1.1", "POST /v1/a/b HTTP/1.1"]);
    assert_eq!(all.count(), 11);
    let published: Value =
        serde_json::from_slice(&gateway.ask("GET /.well-known/idempotency", "", "").await.body).unwrap();
    assert_eq!(published["routes"][0]["path"], "/charges/{id}/refunds");
    assert_eq!(published["routes"][0]["required_on"][0], "POST");
    assert_eq!(published["routes"][1]["after_crash"], "retry");
    assert_eq!(all.count(), 11);
}

#[tokio::test]
async fn a_path_without_an_upstream_is_not_found() {
    let upstream = Upstream::counting().await;
    let file = format!("[[route]]\npath = '/charges'\nupstream = 'http://{}'", upstream.address);
    let gateway = Setup::new().with_file(&file).start().await;
    gateway.ask("POST /orders", "Idempotency-Key: k\r\n", "{}").await.problem(404, "no_route");
    gateway.ask("GET /", "", "").await.problem(404, "no_route");
    assert_eq!(gateway.post("k", "{}").await.status, 200);
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn the_policy_of_the_gateway_is_published() {
    let upstream = Upstream::counting().await;
    let gateway =
        Setup::before(upstream.address).with("--retention", "2h").with("--lease", "10s").start().await;
    let reply = gateway.ask("GET /.well-known/idempotency", "", "").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let published: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(published["header"], "idempotency-key");
    assert_eq!(published["after_crash"], "hold");
    assert_eq!((&published["retention_seconds"], &published["lease_seconds"]), (&7_200.into(), &10.0.into()));
    let codes = codes(&published);
    assert!(codes.contains("upgrade_refused") && codes.contains("gateway_busy"), "{codes}");
    assert!(!codes.contains("token_"), "{codes}");
    assert_eq!(upstream.count(), 0);
}

fn codes(published: &Value) -> String {
    let problems = published["problems"].as_array().expect("a list");
    problems.iter().map(|problem| format!("{} ", problem["code"].as_str().expect("a code"))).collect()
}

#[tokio::test]
async fn codes_of_tokens_are_published_where_tokens_are_verified() {
    let upstream = Upstream::counting().await;
    let setup = Setup::before(upstream.address).with("--scope", "jwt").with("--issuer", "i");
    // No server listens there, which does not matter before a token arrives.
    let setup = setup.with("--audience", "a").with("--jwks", "http://127.0.0.1:9/keys");
    let gateway = setup.start().await;
    let reply = gateway.ask("GET /.well-known/idempotency", "", "").await;
    let codes = codes(&serde_json::from_slice(&reply.body).expect("JSON"));
    for code in ["token_missing", "token_invalid", "token_keys_unavailable"] {
        assert!(codes.contains(code), "{code}: {codes}");
    }
}
