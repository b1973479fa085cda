//! Requests that are refused, cleaned or normalised before they are passed on.

use crate::process::{Gateway, Setup};
use crate::upstream::{Act, Upstream, answer};
use crate::wire::Reply;

const KEYED: &str = "Idempotency-Key: k\r\n";

/// Regression: in four of seven stacks of Python, `post` was carried out as POST; no key counted on
/// it, and a repeat ran again. A browser sends `patch` unchanged: `fetch(url, {method: 'patch'})`.
#[tokio::test]
async fn a_method_in_lower_case_is_refused_and_says_why() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    for method in ["post", "Post", "patch", "pUT", "delete", "get"] {
        for fields in [KEYED, ""] {
            let reply = gateway.ask(&format!("{method} /charges"), fields, "{}").await;
            let problem = reply.problem(400, "request_malformed");
            let detail = problem["detail"].as_str().unwrap();
            assert!(
                detail.contains(method) && detail.contains("methods are written in capitals"),
                "{detail}"
            );
        }
    }
    assert_eq!(upstream.connections(), 0);
}

fn with_route(upstream: &Upstream, more: &str) -> Setup {
    Setup::before(upstream.address).with_file(&format!("[[route]]\npath = '/charges'\n{more}"))
}

/// For Express, `/charges/` and `/Charges` are `/charges`: without a route they ran every time.
#[tokio::test]
async fn a_key_that_no_route_covers_is_refused() {
    let upstream = Upstream::counting().await;
    let gateway = with_route(&upstream, "methods = ['POST']").start().await;
    for line in
        ["POST /charges/", "POST /Charges", "PUT /other", "PATCH /", "DELETE //charges", "PUT /charges"]
    {
        let problem = gateway.ask(line, KEYED, "{}").await.problem(400, "idempotency_route_uncovered");
        assert!(problem["detail"].as_str().unwrap().contains("path"), "{problem}");
    }
    assert_eq!(upstream.connections(), 0);
    for (line, fields) in [("POST /other", ""), ("GET /other", KEYED), ("OPTIONS /other", KEYED)] {
        assert_eq!(gateway.ask(line, fields, "").await.status, 200, "{line}");
    }
    assert_eq!(gateway.post("k", "{}").await.status, 200);
}

#[tokio::test]
async fn a_key_that_no_route_covers_passes_if_told_so() {
    let upstream = Upstream::counting().await;
    let gateway = with_route(&upstream, "").with("--uncovered", "pass").start().await;
    for run in 1..=2 {
        let reply = gateway.ask("POST /other", KEYED, "{}").await;
        assert_eq!(reply.told(), (200, format!("run {run}"), false));
    }
    // Without routes, everything is covered.
    let gateway = Setup::before(upstream.address).start().await;
    gateway.ask("POST /other", KEYED, "{}").await;
    assert!(gateway.ask("POST /other", KEYED, "{}").await.is_replay());
}

#[tokio::test]
async fn spellings_that_a_route_ignores_are_one_request_and_one_key() {
    let upstream = Upstream::counting().await;
    let route = "trailing-slash = 'ignore'\ncase = 'ignore'\n[[route]]\npath = '/orders/{id}'\ntrailing-slash = 'ignore'";
    let gateway = with_route(&upstream, route).start().await;
    let first = gateway.ask("POST /Charges/?a=1", KEYED, "{}").await;
    assert_eq!(first.told(), (200, "run 1".to_owned(), false));
    for line in ["POST /charges?a=1", "POST /charges/?a=1", "POST /CHARGES?a=1"] {
        assert_eq!(gateway.ask(line, KEYED, "{}").await.told(), (200, "run 1".to_owned(), true), "{line}");
    }
    gateway.ask("POST /charges?a=2", KEYED, "{}").await.problem(422, "idempotency_key_reused");
    // The service gets the path as it was sent.
    assert_eq!(upstream.seen()[0].line(), "POST /Charges/?a=1 HTTP/1.1");
    let other = "Idempotency-Key: other\r\n";
    assert_eq!(gateway.ask("POST /orders/Ab/", other, "{}").await.status, 200);
    assert!(gateway.ask("POST /orders/Ab", other, "{}").await.is_replay());
    gateway.ask("POST /orders/aB", other, "{}").await.problem(422, "idempotency_key_reused");
    gateway.ask("POST /Orders/Ab", other, "{}").await.problem(400, "idempotency_route_uncovered");
    assert_eq!(upstream.count(), 2);
}

/// The fields that Connection names are for the next hop only (RFC 9110). The first version refused
/// such requests.
#[tokio::test]
async fn fields_that_connection_names_are_removed() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let fields = format!("{KEYED}Connection: X-Hop, keep-alive\r\nX-Hop: 1\r\nX-Mine: 1\r\n");
    assert_eq!(gateway.ask("POST /charges", &fields, "{}").await.status, 200);
    let seen = &upstream.seen()[0];
    assert_eq!((seen.header("x-hop"), seen.header("x-mine")), (None, Some("1")));
    for name in ["Authorization", "X-Forwarded-For", "Via", "Semel-Fence", "X-Api-Key"] {
        let fields = format!("{KEYED}Connection: {name}\r\n{name}: 1\r\n");
        let problem = gateway.ask("POST /charges", &fields, "{}").await.problem(400, "request_malformed");
        assert!(problem["detail"].as_str().unwrap().contains(&name.to_lowercase()), "{problem}");
    }
    assert_eq!(upstream.count(), 1);
}

/// A service behind WSGI or CGI has one variable for `Semel-Key` and `Semel_Key`.
#[tokio::test]
async fn fields_with_underscores_and_fields_of_the_gateway_are_taken_off() {
    let upstream = Upstream::counting().await;
    let sent = "Semel_Key: forged\r\nSemel-New: forged\r\nIdempotency_Key: forged\r\nX_User: forged\r\nX_Mine: 1\r\nX-Mine: 2\r\n";
    let names = |seen: &crate::upstream::Seen| {
        let names = seen.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        names
            .filter(|(_, value)| matches!(value.trim(), "forged" | "1"))
            .map(|(name, _)| name.to_lowercase())
            .collect::<Vec<_>>()
    };
    let gateway = Setup::before(upstream.address).start().await;
    for fields in [sent.to_owned(), format!("{KEYED}{sent}")] {
        assert_eq!(gateway.ask("POST /charges", &fields, "{}").await.status, 200);
    }
    let setup =
        Setup::before(upstream.address).with("--underscores", "allow").with("--scope", "header:X-User");
    assert_eq!(setup.start().await.ask("POST /charges", sent, "{}").await.status, 200);
    let seen = upstream.seen();
    assert_eq!(names(&seen[0]), [""; 0]);
    // The field is that of this attempt.
    assert_eq!(names(&seen[1]), ["semel-attempt"]);
    assert_eq!(names(&seen[2]), ["x_mine"]);
    assert!(seen.iter().all(|seen| seen.header("x-mine") == Some("2")));
}

const SAFE: [(&str, &str); 8] = [
    ("x-content-type-options", "nosniff"),
    ("content-security-policy", "default-src 'none'"),
    ("x-frame-options", "DENY"),
    ("strict-transport-security", "max-age=1"),
    ("referrer-policy", "no-referrer"),
    ("access-control-allow-origin", "https://shop.example"),
    ("access-control-expose-headers", "x-own"),
    ("vary", "Origin"),
];

async fn replayed(gateway: &Gateway) -> Reply {
    assert!(!gateway.post("k", "{}").await.is_replay());
    let again = gateway.post("k", "{}").await;
    assert!(again.is_replay());
    again
}

/// Regression: a replay without `nosniff` and its policy was a page that the service had never
/// sent.
#[tokio::test]
async fn the_headers_that_make_an_answer_safe_are_replayed_and_others_if_told_so() {
    let fields: String = SAFE.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let upstream = Upstream::start(move |_| {
        let fields = format!("{fields}X-Own: 1\r\nX-Other: 2\r\nSet-Cookie: a=1\r\n");
        async move { answer("200 OK", &fields, "ok") }
    })
    .await;
    let again = replayed(&Setup::before(upstream.address).start().await).await;
    for (name, value) in SAFE {
        assert_eq!(again.header(name), Some(value));
    }
    assert_eq!((again.header("x-own"), again.header("set-cookie")), (None, None));
    let setup = Setup::before(upstream.address).with("--record-header", "X-Own,x-other");
    let again = replayed(&setup.start().await).await;
    assert_eq!(
        (again.header("x-own"), again.header("x-other"), again.header("set-cookie")),
        (Some("1"), Some("2"), None)
    );
    let ended = setup.with("--record-header", "Set-Cookie").run(&["config", "check"]);
    assert!(ended.complained.contains("set-cookie belongs to one caller"), "{ended:?}");
}

/// hyper removes the chunks of `gzip, chunked`, and the field is not passed on: the client would
/// take the compressed bytes for the body.
#[tokio::test]
async fn an_answer_in_a_framing_that_cannot_be_passed_on_is_refused() {
    for fields in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n",
    ] {
        let upstream = Upstream::start(move |_| async move {
            Act::Last(format!("HTTP/1.1 200 OK\r\n{fields}\r\n2\r\nok\r\n0\r\n\r\n").into_bytes())
        })
        .await;
        let gateway = Setup::before(upstream.address).start().await;
        gateway.post("k", "{}").await.problem(502, "upstream_malformed");
        gateway.post("k", "{}").await.problem(409, "idempotency_outcome_unknown");
        gateway.ask("POST /charges", "", "{}").await.problem(502, "upstream_malformed");
    }
}
