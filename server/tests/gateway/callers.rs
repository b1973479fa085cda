//! Callers that the gateway distinguishes by their credentials, and callers without known ones.

use semel::http::PROXY_HEADERS;

use crate::process::{Gateway, Setup};
use crate::upstream::Upstream;
use crate::wire::Reply;

/// The headers in which services look for tokens. The gateway knows only some of them.
const NAMES: [&str; 18] = [
    "Authorization",
    "Proxy-Authorization",
    "X-Api-Key",
    "Api-Key",
    "X-Auth-Token",
    "X-Access-Token",
    "X-Api-Token",
    "Token",
    "X-Token",
    "X-Session",
    "X-Session-Token",
    "X-Amz-Security-Token",
    "Cookie",
    "X-Csrf-Token",
    "X-Auth",
    "X-User-Token",
    "X-Vault-Token",
    "Private-Token",
];

async fn pay(gateway: &Gateway, fields: &str) -> Reply {
    gateway.ask("POST /charges", &format!("Idempotency-Key: k\r\n{fields}"), "{}").await
}

/// A gateway without `--anonymous`, on this address.
async fn by_default(upstream: &Upstream, listen: &str) -> Gateway {
    let setup = Setup::before(upstream.address).without("--anonymous").with("--listen", listen);
    let mut gateway = setup.start().await;
    gateway.address.set_ip([127, 0, 0, 1].into());
    gateway
}

/// Regression: a caller without a token was given another caller's recorded answer when the
/// service's token was in any header but three.
#[tokio::test]
async fn no_caller_gets_the_answer_of_another_whatever_header_has_the_token() {
    for listen in ["0.0.0.0:0", "127.0.0.1:0"] {
        let upstream = Upstream::counting().await;
        let gateway = by_default(&upstream, listen).await;
        for name in NAMES {
            let key = format!("Idempotency-Key: {name}\r\n");
            let ask = async |token: &str| gateway.ask("POST /charges", &format!("{key}{token}"), "{}").await;
            let first = ask(&format!("{name}: session=ann\r\n")).await;
            for other in [format!("{name}: session=bob\r\n"), format!("{name}: \r\n")] {
                let reply = ask(&other).await;
                assert!(!reply.is_replay(), "{name} on {listen}: {other}");
                assert!(reply.status != 200 || reply.body != first.body, "{name} on {listen}: {other}");
            }
            // On loopback, a request without any sign of a caller shares only with its like.
            let unnamed = ask("").await;
            assert!(!unnamed.is_replay(), "{name} on {listen}");
            // The same caller gets the answer again, if the gateway knows the header.
            let again = ask(&format!("{name}: session=ann\r\n")).await;
            assert_eq!(again.is_replay(), first.status == 200, "{name} on {listen}");
            assert!(first.status == 200 || first.text().contains("idempotency_scope_missing"), "{name}");
        }
    }
}

#[tokio::test]
async fn a_request_without_credentials_is_refused_and_told_what_to_do() {
    let upstream = Upstream::counting().await;
    let mut gateway = by_default(&upstream, "0.0.0.0:0").await;
    gateway.line("callers are told apart").await;
    assert!(gateway.log().contains("callers_without=\"refused\""), "{}", gateway.log());
    let problem = pay(&gateway, "").await.problem(400, "idempotency_scope_missing");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("authorization, x-api-key") && detail.contains("--anonymous share"), "{detail}");
    let problem = pay(&gateway, "Cookie: sid=ann\r\n").await.problem(400, "idempotency_scope_missing");
    assert!(problem["detail"].as_str().unwrap().contains("cookie:NAME"), "{problem}");
    assert_eq!(upstream.count(), 0, "nothing ran");
    // Requests without a key are not affected.
    assert_eq!(gateway.ask("POST /charges", "", "{}").await.status, 200);
}

#[tokio::test]
async fn a_local_caller_without_credentials_is_let_in_unless_a_proxy_sends_it() {
    let upstream = Upstream::counting().await;
    let mut gateway = by_default(&upstream, "127.0.0.1:0").await;
    gateway.line("callers without credentials are one caller").await;
    assert_eq!(pay(&gateway, "").await.told(), (200, "run 1".to_owned(), false));
    assert_eq!(pay(&gateway, "").await.told(), (200, "run 1".to_owned(), true));
    let of_callers = ["x-user-id", "x-tenant", "x-session-id"].map(str::to_owned);
    for sign in PROXY_HEADERS.map(|listed| listed.replace('*', "-for")).into_iter().chain(of_callers) {
        pay(&gateway, &format!("{sign}: 1.2.3.4\r\n")).await.problem(400, "idempotency_scope_missing");
        // Connection cannot make it look as if there were none.
        let hidden = format!("{sign}: 1.2.3.4\r\nConnection: {sign}\r\n");
        pay(&gateway, &hidden).await.problem(400, "request_malformed");
        // Fields with an underscore are not for the service, and are signs all the same.
        let underscored = sign.replace('-', "_");
        pay(&gateway, &format!("{underscored}: 1.2.3.4\r\n")).await.problem(400, "idempotency_scope_missing");
    }
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn anonymous_callers_are_shared_or_refused_as_said_by_route() {
    let upstream = Upstream::counting().await;
    let file = format!(
        "upstream = 'http://{}'\nanonymous = 'refuse'\n[[route]]\npath = '/charges'\n[[route]]\npath = '/open'\nanonymous = 'share'",
        upstream.address
    );
    let gateway = Setup::new().without("--anonymous").with_file(&file).start().await;
    pay(&gateway, "").await.problem(400, "idempotency_scope_missing");
    for replayed in [false, true] {
        let reply = gateway.ask("POST /open", "Idempotency-Key: k\r\nVia: 1.1 a\r\n", "{}").await;
        assert_eq!(reply.told(), (200, "run 1".to_owned(), replayed));
    }
}

/// Regression: with a rolling or an analytics cookie, one key ran three times.
#[tokio::test]
async fn a_cookie_jar_with_a_rolling_cookie_replays() {
    let upstream = Upstream::counting().await;
    let setup = Setup::before(upstream.address).without("--anonymous").with("--listen", "0.0.0.0:0");
    let mut gateway = setup.with("--scope", "cookie:sid").start().await;
    gateway.address.set_ip([127, 0, 0, 1].into());
    for (rolling, replayed) in [(1, false), (2, true), (3, true)] {
        let jar = format!("Cookie: _ga=GA1.{rolling}; sid=ann; lb=node-{rolling}\r\n");
        assert_eq!(pay(&gateway, &jar).await.told(), (200, "run 1".to_owned(), replayed));
    }
    assert_eq!(pay(&gateway, "Cookie: sid=bob\r\n").await.told(), (200, "run 2".to_owned(), false));
    pay(&gateway, "Cookie: _ga=GA1.1\r\n").await.problem(400, "idempotency_scope_missing");
}

#[tokio::test]
async fn cookies_do_not_count_beside_a_token() {
    let upstream = Upstream::counting().await;
    let gateway = by_default(&upstream, "127.0.0.1:0").await;
    for (rolling, replayed) in [(1, false), (2, true)] {
        let fields = format!("Authorization: Bearer ann\r\nCookie: _ga={rolling}\r\n");
        assert_eq!(pay(&gateway, &fields).await.told(), (200, "run 1".to_owned(), replayed));
    }
}

#[tokio::test]
async fn the_list_of_credentials_can_be_set() {
    let upstream = Upstream::counting().await;
    let setup = Setup::before(upstream.address).without("--anonymous");
    let gateway = setup.with("--scope", "credentials:X-Vault-Token,cookie:sid").start().await;
    for replayed in [false, true] {
        // A header that is not listed does not count.
        let fields = format!("X-Vault-Token: ann\r\nAuthorization: {replayed}\r\n");
        assert_eq!(pay(&gateway, &fields).await.told(), (200, "run 1".to_owned(), replayed));
    }
    assert_eq!(pay(&gateway, "Cookie: sid=ann\r\n").await.told(), (200, "run 2".to_owned(), false));
    pay(&gateway, "Authorization: Bearer ann\r\n").await.problem(400, "idempotency_scope_missing");
}

#[tokio::test]
async fn a_secret_header_is_not_shown() {
    for scope in ["header:X-Auth-Token", "header:X-User:secret"] {
        let upstream = Upstream::counting().await;
        let gateway =
            Setup::before(upstream.address).without("--anonymous").with("--scope", scope).start().await;
        let name = scope.split(':').nth(1).unwrap();
        assert_eq!(pay(&gateway, &format!("{name}: ann\r\n")).await.told(), (200, "run 1".to_owned(), false));
        assert_eq!(pay(&gateway, &format!("{name}: ann\r\n")).await.told(), (200, "run 1".to_owned(), true));
        let principal = upstream.seen()[0].header("semel-principal").map(str::len);
        assert_eq!(principal, Some(64), "{scope}");
        pay(&gateway, "").await.problem(400, "idempotency_scope_missing");
    }
}

#[tokio::test]
async fn the_host_that_counts_is_the_one_the_upstream_is_told() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--scope", "header:Host").start().await;
    for (line, host, run, replayed) in [
        ("POST /charges", "a.example", 1, false),
        ("POST /charges", "A.Example", 1, true),
        ("POST http://b.example/charges", "a.example", 2, false),
        ("POST /charges", "b.example", 2, true),
    ] {
        let mut wire = gateway.wire().await;
        let sent =
            format!("{line} HTTP/1.1\r\nHost: {host}\r\nIdempotency-Key: k\r\nContent-Length: 0\r\n\r\n");
        wire.send(sent).await;
        assert_eq!(wire.reply().await.told(), (200, format!("run {run}"), replayed), "{line} {host}");
    }
    assert_eq!(upstream.seen()[1].header("semel-principal"), Some("b.example"));
}
