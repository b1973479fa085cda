//! TLS and HTTP/2, on both sides.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testkit::certificates::Authority;
use tokio::net::TcpStream;

use crate::process::{BOUND, Gateway, Setup};
use crate::upstream::{Act, Line, Upstream, ok};
use crate::wire::{Io, Wire, request};

/// A connection that speaks HTTP/2.
async fn http2(io: impl Io + Unpin + 'static) -> SendRequest<Full<Bytes>> {
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(io)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

async fn ask(sender: &mut SendRequest<Full<Bytes>>, request: Request<Full<Bytes>>) -> (Response<()>, String) {
    let response =
        tokio::time::timeout(BOUND, sender.send_request(request)).await.expect("in time").expect("an answer");
    let (parts, body): (_, Incoming) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    (Response::from_parts(parts, ()), String::from_utf8_lossy(&body).into_owned())
}

fn keyed(key: &str, body: &'static str) -> Request<Full<Bytes>> {
    let request = Request::post("http://shop.example/charges").header("idempotency-key", key);
    request.body(Full::new(Bytes::from_static(body.as_bytes()))).expect("a request")
}

#[tokio::test]
async fn http_2_has_the_same_semantics_and_the_same_keys() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let mut sender = http2(TcpStream::connect(gateway.address).await.unwrap()).await;
    let (first, text) = ask(&mut sender, keyed("k", "{}")).await;
    assert_eq!((first.status().as_u16(), &*text), (200, "run 1"));
    let (again, text) = ask(&mut sender, keyed("k", "{}")).await;
    assert_eq!((again.headers()["idempotency-replayed"].as_bytes(), &*text), (b"true".as_slice(), "run 1"));
    assert_eq!(ask(&mut sender, keyed("k", "other")).await.0.status(), 422);
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), true));
    let seen = &upstream.seen()[0];
    assert_eq!((seen.line(), seen.all("host")), ("POST /charges HTTP/1.1", vec!["shop.example"]));
}

#[tokio::test]
async fn cookies_split_by_http_2_are_joined_for_http_1() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let mut sender = http2(TcpStream::connect(gateway.address).await.unwrap()).await;
    let mut request = keyed("k", "{}");
    for cookie in ["a=1", "b=2"] {
        request.headers_mut().append("cookie", cookie.parse().unwrap());
    }
    assert_eq!(ask(&mut sender, request).await.0.status(), 200);
    assert_eq!(upstream.seen()[0].all("cookie"), ["a=1; b=2"]);
    // The joined cookies identify the same caller.
    let reply = gateway.ask("POST /charges", "Idempotency-Key: k\r\nCookie: a=1; b=2\r\n", "{}").await;
    assert_eq!(reply.told(), (200, "run 1".to_owned(), true));
}

#[tokio::test]
async fn requests_refused_in_http_1_are_refused_in_http_2() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let empty = || Full::new(Bytes::new());
    for request in [
        Request::builder().method("TRACE").uri("http://a/").body(empty()),
        Request::get("http://a/").header("host", "b").body(empty()),
        Request::get("http://u@a/").body(empty()),
        Request::get("http://a/").header("host", "a").header("host", "a").body(empty()),
    ] {
        let mut sender = http2(TcpStream::connect(gateway.address).await.unwrap()).await;
        let request = request.unwrap();
        let what = format!("{request:?}");
        let status = match sender.send_request(request).await {
            Ok(response) => response.status().as_u16(),
            // Some are refused before they are requests.
            Err(_) => 400,
        };
        assert!(matches!(status, 400 | 405), "{status} to {what}");
    }
    assert_eq!(upstream.connections(), 0);
}

/// A gateway with a certificate, and the authority to trust.
async fn with_tls(upstream: &Upstream) -> (Setup, Gateway, Authority) {
    let authority = Authority::new("tests");
    let certificate = authority.certify("localhost");
    let setup = Setup::before(upstream.address);
    let cert = setup.write("cert.pem", &certificate.cert).display().to_string();
    let key = setup.write("key.pem", &certificate.key).display().to_string();
    let setup = setup.with("--tls-cert", &cert).with("--tls-key", &key).with("--header-timeout", "5s");
    let gateway = setup.start().await;
    (setup, gateway, authority)
}

#[tokio::test]
async fn tls_speaks_both_versions() {
    let upstream = Upstream::counting().await;
    let (_setup, gateway, authority) = with_tls(&upstream).await;
    let io = authority.greet(gateway.address, &["http/1.1"]).await.expect("it is trusted");
    let mut wire = Wire::over(io);
    wire.send(request("POST /charges", "Idempotency-Key: k\r\n", b"{}")).await;
    assert_eq!(wire.reply().await.told(), (200, "run 1".to_owned(), false));
    assert_eq!(upstream.seen()[0].header("x-forwarded-proto"), Some("https"));
    let io = authority.greet(gateway.address, &["h2", "http/1.1"]).await.expect("it is trusted");
    assert_eq!(io.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let mut sender = http2(io).await;
    let mut repeat = keyed("k", "{}");
    *repeat.uri_mut() = "https://shop.example/charges".parse().unwrap();
    assert_eq!(ask(&mut sender, repeat).await.1, "run 1");
    // The screen also examines requests under TLS.
    let mut wire = Wire::over(authority.greet(gateway.address, &["http/1.1"]).await.unwrap());
    wire.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    )
    .await;
    assert_eq!(wire.reply().await.status, 400);
    // A client without a TLS handshake gets nothing.
    let mut wire = gateway.wire().await;
    wire.send(request("GET /", "", b"")).await;
    assert!(!wire.hear_all().await.contains("HTTP/1.1"));
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_on_reload() {
    let upstream = Upstream::counting().await;
    let (setup, mut gateway, old) = with_tls(&upstream).await;
    let new = Authority::new("tests");
    let certificate = new.certify("localhost");
    setup.write("cert.pem", &certificate.cert);
    // The new certificate and key do not match, and the old ones stay.
    gateway.signal("HUP");
    gateway.line("the old one stays in force").await;
    assert!(old.greet(gateway.address, &[]).await.is_some());
    setup.write("key.pem", &certificate.key);
    gateway.signal("HUP");
    gateway.line("was reloaded").await;
    assert!(old.greet(gateway.address, &[]).await.is_none());
    assert!(new.greet(gateway.address, &[]).await.is_some());
}

#[tokio::test]
async fn a_client_that_does_not_greet_does_not_keep_it_from_stopping() {
    let upstream = Upstream::counting().await;
    let (setup, gateway, authority) = with_tls(&upstream).await;
    drop(gateway);
    let mut gateway = setup.with("--header-timeout", "1h").with("--drain", "1h").start().await;
    let _silent = gateway.wire().await;
    // The handshake is served after the silent connection was accepted.
    assert!(authority.greet(gateway.address, &[]).await.is_some());
    gateway.signal("TERM");
    assert_eq!(gateway.ended().await, Some(0));
}

/// Answers everything on a connection.
async fn serve(mut line: Line) {
    while let Some(seen) = line.request().await {
        let (Act::Answer(bytes) | Act::Last(bytes)) = ok(&seen);
        line.send(bytes).await;
    }
}

#[tokio::test]
async fn an_upstream_may_speak_tls_and_must_prove_its_name() {
    let (authority, other) = (Authority::new("tests"), Authority::new("tests"));
    for (signer, name, trusted) in [
        (&authority, "127.0.0.1", true),
        (&other, "127.0.0.1", false),
        (&authority, "elsewhere.example", false),
    ] {
        let acceptor = signer.certify(name).acceptor();
        let greet = move |socket| {
            let accepting = acceptor.accept(socket);
            async move { accepting.await.ok() }
        };
        let upstream = Upstream::over(greet, serve).await;
        let setup = Setup::new().with("--upstream", &format!("https://{}", upstream.address));
        let ca = setup.write("ca.pem", &authority.pem()).display().to_string();
        let gateway = setup.with("--upstream-ca", &ca).start().await;
        let first = gateway.post("k", "{}").await;
        if trusted {
            assert_eq!(first.told(), (200, "run 1".to_owned(), false));
            continue;
        }
        // Nothing was sent, so the key is free.
        first.problem(502, "upstream_unreachable");
        gateway.post("k", "other").await.problem(422, "idempotency_key_reused");
        gateway.post("k", "{}").await.problem(502, "upstream_unreachable");
        assert_eq!(upstream.count(), 0);
    }
}
