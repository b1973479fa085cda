//! The headers that the upstream gets, what it says about the key, and the fields that stay on one hop.

use crate::process::Setup;
use crate::upstream::{Act, Upstream, answer, ok};

const FORGED: &str = "Semel-Key: other\r\nSemel-Token: 00000000000000000000000000000000\r\nSemel-Fence: 1\r\nSemel-Attempt: 9\r\n\
                      Semel-Realm: bank\r\nSemel-Principal: root\r\n";

#[tokio::test]
async fn the_upstream_is_told_which_attempt_it_is() {
    let upstream = Upstream::start(|seen| async move {
        match seen.number {
            1 => answer("429 Too Many Requests", "", "slow down"),
            _ => ok(&seen),
        }
    })
    .await;
    let gateway = Setup::before(upstream.address).with("--realm", "shop").start().await;
    let fields = format!("Idempotency-Key: k\r\nX-Mine: 1\r\n{FORGED}");
    assert_eq!(gateway.ask("POST /charges", &fields, "{}").await.status, 429);
    assert_eq!(gateway.ask("POST /charges", &fields, "{}").await.status, 200);
    let seen = upstream.seen();
    let numbers = |name: &str| -> Vec<u64> {
        seen.iter().map(|seen| seen.header(name).and_then(|text| text.parse().ok()).expect(name)).collect()
    };
    assert_eq!(numbers("semel-attempt"), [1, 2]);
    let fences = numbers("semel-fence");
    assert!(1 < fences[0] && fences[0] < fences[1], "{fences:?}");
    assert_ne!(seen[0].header("semel-token"), seen[1].header("semel-token"));
    for seen in &seen {
        assert_eq!((seen.header("semel-realm"), seen.header("semel-principal")), (Some("shop"), Some("")));
        assert_eq!((seen.header("idempotency-key"), seen.header("x-mine")), (Some("k"), Some("1")));
        assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!((seen.header("host"), seen.line()), (Some("shop.example"), "POST /charges HTTP/1.1"));
        assert_eq!(seen.header("semel-key"), Some("k"));
        for name in ["key", "token", "fence", "attempt", "realm", "principal"] {
            assert_eq!(seen.all(&format!("semel-{name}")).len(), 1, "{}", seen.head);
        }
    }
}

/// With the quotation marks, `semel.complete` would never find the record.
#[tokio::test]
async fn the_upstream_is_told_the_key_as_the_record_has_it() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    for (sent, key) in [
        ("abc", "abc"),
        ("\"abcd\"", "abcd"),
        (r#""a\"b\\c""#, r#"a"b\c"#),
        ("\"a, b; c=1\"", "a, b; c=1"),
        ("50%-off'--", "50%-off'--"),
    ] {
        assert_eq!(gateway.post(sent, "{}").await.status, 200, "{sent}");
        let seen = upstream.seen();
        let seen = seen.last().unwrap();
        assert_eq!((seen.header("idempotency-key"), seen.header("semel-key")), (Some(sent), Some(key)));
    }
}

#[tokio::test]
async fn clients_cannot_forge_the_headers_of_the_gateway() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    // Many servers treat an underscore as a hyphen.
    let with_underscores: String =
        FORGED.lines().map(|line| format!("{}\r\n", line.replacen("Semel-", "sEMEL_", 1))).collect();
    for (line, fields) in [
        ("POST /charges", FORGED.to_owned()),
        ("GET /charges", format!("Idempotency-Key: k\r\n{FORGED}")),
        ("POST /charges", with_underscores.clone()),
        ("GET /charges", with_underscores),
    ] {
        assert_eq!(gateway.ask(line, &fields, "").await.status, 200);
    }
    for seen in upstream.seen() {
        let head = seen.head.to_ascii_lowercase();
        assert!(!head.contains("semel-") && !head.contains("semel_"), "{head}");
    }
}

#[tokio::test]
async fn fields_of_one_hop_are_not_passed_on() {
    let upstream = Upstream::start(|seen| async move {
        let fields = "Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nX-End: 1\r\n";
        answer("200 OK", fields, format!("run {}", seen.number))
    })
    .await;
    let gateway = Setup::before(upstream.address).start().await;
    let fields = "Connection: keep-alive, Keep-Alive\r\nKeep-Alive: timeout=5\r\nTE: trailers, deflate\r\n\
                  Proxy-Authorization: secret\r\nProxy-Connection: close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n";
    let reply = gateway.ask("POST /charges", fields, "{}").await;
    assert_eq!(reply.status, 200);
    for name in ["x-hop", "keep-alive"] {
        assert_eq!(reply.header(name), None);
    }
    assert_eq!(reply.header("x-end"), Some("1"));
    let seen = &upstream.seen()[0];
    for name in
        ["keep-alive", "proxy-authorization", "proxy-connection", "upgrade", "http2-settings", "connection"]
    {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.all("te"), ["trailers"]);
}

#[tokio::test]
async fn the_upstream_may_say_what_becomes_of_the_key() {
    for (settle, policy, status, then) in [
        ("complete", "hold", "500 Oops", Some("replay")),
        ("complete", "retry", "500 Oops", Some("replay")),
        ("Complete", "retry", "429 Too Many Requests", Some("replay")),
        ("release", "hold", "200 OK", Some("run")),
        ("abandon", "hold", "200 OK", None),
        ("abandon", "retry", "200 OK", Some("run")),
        ("perhaps", "hold", "200 OK", Some("replay")),
        // The two words contradict each other.
        ("release\r\nIdempotency-Settle: complete", "hold", "200 OK", None),
    ] {
        let upstream = Upstream::start(move |seen| async move {
            let fields = format!("Idempotency-Settle: {settle}\r\n");
            answer(status, &fields, format!("run {}", seen.number))
        })
        .await;
        let gateway = Setup::before(upstream.address).with("--policy", policy).start().await;
        let code: u16 = status[..3].parse().unwrap();
        let first = gateway.post("k", "{}").await;
        assert_eq!(first.told(), (code, "run 1".to_owned(), false), "{settle}");
        let again = gateway.post("k", "{}").await;
        for reply in [&first, &again] {
            assert_eq!(reply.header("idempotency-settle"), None, "{settle}");
        }
        match then {
            Some("replay") => {
                assert_eq!(again.told(), (code, "run 1".to_owned(), true), "{settle} {policy}")
            }
            Some(_) => assert_eq!(again.told(), (code, "run 2".to_owned(), false), "{settle} {policy}"),
            None => drop(again.problem(409, "idempotency_outcome_unknown")),
        }
    }
}

#[tokio::test]
async fn a_failure_is_the_outcome_under_hold_and_none_under_retry() {
    for (policy, status, fields, replays) in [
        ("hold", "500 Oops", "", true),
        ("retry", "500 Oops", "", false),
        ("hold", "503 Busy", "Retry-After: 1\r\n", false),
        ("hold", "503 Busy", "", true),
        ("hold", "401 Who", "", false),
        ("retry", "404 Gone", "", true),
    ] {
        let upstream =
            Upstream::start(
                move |seen| async move { answer(status, fields, format!("run {}", seen.number)) },
            )
            .await;
        let gateway = Setup::before(upstream.address).with("--policy", policy).start().await;
        let code: u16 = status[..3].parse().unwrap();
        assert_eq!(gateway.post("k", "{}").await.told(), (code, "run 1".to_owned(), false));
        let again = gateway.post("k", "{}").await;
        let expected = if replays { "run 1" } else { "run 2" };
        assert_eq!(again.told(), (code, expected.to_owned(), replays), "{policy} {status}");
    }
}

#[tokio::test]
async fn large_and_streamed_answers_reach_only_the_first_caller_whole() {
    let events = "data: 1\n\ndata: 2\n\n";
    let chunked = |kind: &str, more: &str, end: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{events}\r\n0\r\n{end}\r\n",
            events.len()
        )
    };
    let large = "x".repeat(3_000);
    for (what, sent, body) in [
        ("large", format!("HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n{large}"), large.as_str()),
        ("events", chunked("text/event-stream", "", ""), events),
        ("trailers", chunked("text/plain", "Trailer: X-Sum\r\n", "X-Sum: 7\r\n"), events),
    ] {
        let upstream = Upstream::start(move |_| {
            let sent = sent.clone();
            async move { Act::Answer(sent.into_bytes()) }
        })
        .await;
        let gateway = Setup::before(upstream.address).with("--max-response", "2000").start().await;
        let first = gateway.ask("POST /charges", "Idempotency-Key: k\r\nTE: trailers\r\n", "{}").await;
        assert_eq!(first.told(), (200, body.to_owned(), false), "{what}");
        if what == "trailers" {
            assert_eq!(first.trailers.join("").to_ascii_lowercase(), "x-sum: 7");
        }
        let again = gateway.ask("POST /charges", "Idempotency-Key: k\r\nTE: trailers\r\n", "{}").await;
        assert_eq!(again.told(), (200, String::new(), true), "{what}");
        assert_eq!(again.header("idempotency-replay"), Some("omitted"), "{what}");
        assert_eq!(upstream.count(), 1, "{what}");
    }
}
