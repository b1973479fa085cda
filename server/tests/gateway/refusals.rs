//! Refusals of requests that are still being sent, received by real clients.
//!
//! A socket that is closed with unread bytes resets the connection, and the answer is lost to a
//! client that sends all of its request before it reads: Python received none of 40, and Node 7.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use testkit::programs;
use tokio::task::spawn_blocking;

use crate::process::{BOUND, Gateway, Setup};
use crate::upstream::Upstream;
use crate::wire::{Wire, request};

/// The number and size of the requests of each of the eleven clients: over the limit of 1 MiB, and
/// larger than any buffer.
const SENT: [(usize, usize); 3] = [(20, 1_153_434), (20, 10 << 20), (20, 100 << 20)];

const PYTHON: &str = r#"
import sys, http.client, urllib.request, urllib.error
kind, host, path, count, size = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
body, headers = b"x" * size, {"Idempotency-Key": "k", "Content-Type": "text/plain"}
for _ in range(count):
    try:
        if kind == "http.client":
            connection = http.client.HTTPConnection(host, timeout=60)
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            print(answer.status)
        else:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            opener.open(urllib.request.Request("http://" + host + path, body, headers), timeout=60)
            print("no refusal")
    except urllib.error.HTTPError as error:
        error.read()
        print(error.code)
    except Exception as error:
        print(type(error).__name__)
"#;

const NODE: &str = r#"
const [kind, host, path, count, size] = process.argv.slice(1);
const http = require("node:http");
const body = Buffer.alloc(Number(size), "x");
const headers = { "Idempotency-Key": "k", "Content-Type": "text/plain" };
const url = "http://" + host + path;
const ask = {
  fetch: async () => {
    const answer = await fetch(url, { method: "POST", headers, body });
    await answer.text();
    return answer.status;
  },
  http: () => new Promise((done, failed) => {
    const sent = http.request(url, { method: "POST", headers: { ...headers, "Content-Length": body.length } }, (answer) => {
      answer.resume();
      answer.on("end", () => done(answer.statusCode));
      answer.on("error", failed);
    });
    sent.on("error", failed);
    sent.end(body);
  }),
  http2: () => new Promise((done, failed) => {
    const session = require("node:http2").connect("http://" + host, { maxSessionMemory: 1000 });
    session.on("error", failed);
    const sent = session.request({ ":method": "POST", ":path": path, "idempotency-key": "k" });
    sent.on("response", (fields) => {
      sent.resume();
      done(fields[":status"]);
      session.destroy();
    });
    sent.on("error", failed);
    sent.end(body);
  }),
}[kind];
(async () => {
  for (let n = 0; n < Number(count); n++) {
    try { console.log(await ask()); } catch (error) { console.log(String(error.cause ?? error)); }
  }
  process.exit(0);
})();
"#;

async fn setup() -> (Upstream, Gateway) {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).with("--max-body", "1MiB").start().await;
    (upstream, gateway)
}

/// Runs a client for each size, and expects a line with 413 for each request.
async fn all_hear(gateway: &Gateway, what: &str, client: impl Fn(usize, usize) -> Vec<Command>) {
    for (count, size) in SENT {
        let mut heard = Vec::new();
        for mut command in client(count, size) {
            command.env("no_proxy", "*").env_remove("http_proxy").env_remove("HTTP_PROXY");
            let output: Output =
                spawn_blocking(move || command.output().expect("it runs")).await.expect("no panic");
            let lines = String::from_utf8_lossy(&output.stdout).into_owned();
            heard.extend(lines.lines().map(str::to_owned));
            assert!(output.status.success() || !lines.is_empty(), "{what}: {output:?}");
        }
        assert_eq!(heard, vec!["413"; count], "{what}, {size} bytes: {}", gateway.log());
    }
}

#[tokio::test]
async fn python_hears_every_refusal() {
    let (_upstream, gateway) = setup().await;
    for kind in ["http.client", "urllib"] {
        let client = |count: usize, size: usize| {
            let mut python = programs::python().expect("python is here, or can be had");
            python.args(["-c", PYTHON, kind, &gateway.address.to_string(), "/charges"]);
            python.args([count.to_string(), size.to_string()]);
            vec![python]
        };
        all_hear(&gateway, kind, client).await;
    }
}

#[tokio::test]
async fn node_hears_every_refusal() {
    let (_upstream, gateway) = setup().await;
    for kind in ["fetch", "http", "http2"] {
        let client = |count: usize, size: usize| {
            let mut node = programs::node().expect("node is here, or can be had");
            node.args(["-e", NODE, kind, &gateway.address.to_string(), "/charges"]);
            node.args([count.to_string(), size.to_string()]);
            vec![node]
        };
        all_hear(&gateway, kind, client).await;
    }
}

#[tokio::test]
async fn curl_hears_every_refusal() {
    let (_upstream, gateway) = setup().await;
    let setup = Setup::new();
    // With `Expect`, the client asks first and sends nothing; without it, the client sends at once.
    for (expect, framing) in [
        ("Expect: 100-continue", "Accept: */*"),
        ("Expect:", "Accept: */*"),
        ("Expect:", "Transfer-Encoding: chunked"),
    ] {
        let client = |count: usize, size: usize| {
            let file = setup.write("body", &"x".repeat(size));
            let curl = || {
                let mut curl = programs::curl().expect("curl is here, or can be had");
                curl.args([
                    "-s",
                    "-o",
                    "/dev/null",
                    "-w",
                    "%{http_code}\n",
                    "-H",
                    expect,
                    "-H",
                    "Idempotency-Key: k",
                    "-H",
                    framing,
                ]);
                curl.arg("--data-binary").arg(format!("@{}", file.display()));
                curl.arg(format!("http://{}/charges", gateway.address));
                curl
            };
            (0..count).map(|_| curl()).collect()
        };
        all_hear(&gateway, &format!("{expect} {framing}"), client).await;
    }
}

#[tokio::test]
async fn a_raw_socket_that_sends_all_before_it_reads_hears_every_refusal() {
    let (_upstream, gateway) = setup().await;
    for (count, size) in SENT {
        let address = gateway.address;
        let sent = request("POST /charges", "Idempotency-Key: k\r\n", &vec![b'x'; size]);
        let heard = spawn_blocking(move || {
            let one = || -> std::io::Result<String> {
                let mut socket = TcpStream::connect(address)?;
                socket.set_read_timeout(Some(BOUND))?;
                socket.write_all(&sent)?;
                let mut text = String::new();
                socket.read_to_string(&mut text)?;
                Ok(text)
            };
            (0..count).map(|_| one()).collect::<Vec<_>>()
        });
        for text in heard.await.unwrap() {
            let text = text.unwrap_or_else(|error| panic!("{size} bytes: {error}"));
            assert!(text.starts_with("HTTP/1.1 413 ") && text.contains("connection: close"), "{text}");
        }
    }
}

#[tokio::test]
async fn hyper_hears_every_refusal_over_both_versions() {
    let (_upstream, gateway) = setup().await;
    for (count, size) in SENT {
        let body = Bytes::from(vec![b'x'; size]);
        let asked = || {
            let request = Request::post("http://shop.example/charges");
            request
                .header("host", "shop.example")
                .header("idempotency-key", "k")
                .body(Full::new(body.clone()))
                .unwrap()
        };
        for _ in 0..count {
            let io = TokioIo::new(tokio::net::TcpStream::connect(gateway.address).await.unwrap());
            let (mut sender, connection) = http1::handshake(io).await.unwrap();
            tokio::spawn(connection);
            assert_eq!(sender.send_request(asked()).await.expect("an answer").status(), 413, "{size} bytes");
        }
        let io = TokioIo::new(tokio::net::TcpStream::connect(gateway.address).await.unwrap());
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..count {
            assert_eq!(sender.send_request(asked()).await.expect("an answer").status(), 413, "{size} bytes");
        }
    }
}

/// Refusals at the door, of the framing and of the layer, with an unread body.
#[tokio::test]
async fn every_kind_of_refusal_is_heard() {
    let upstream = Upstream::counting().await;
    let file = "upstream-timeout = '10s'\n[[route]]\npath = '/charges'";
    let gateway = Setup::before(upstream.address).with_file(file).start().await;
    let body = vec![b'x'; 20 << 20];
    for (line, fields, status) in [
        ("POST /charges", "Idempotency-Key: k\r\n", 413),
        ("POST /charges", "Idempotency-Key: \"\"\r\n", 400),
        ("POST /other", "Idempotency-Key: k\r\n", 400),
        ("post /charges", "", 400),
        ("TRACE /charges", "", 405),
        ("POST /charges", "Connection: Host\r\n", 400),
        ("POST /charges", "Content-Length: 3\r\n", 400),
    ] {
        let (address, sent) = (gateway.address, request(line, fields, &body));
        let heard = spawn_blocking(move || {
            let mut socket = TcpStream::connect(address)?;
            socket.set_read_timeout(Some(BOUND))?;
            socket.write_all(&sent)?;
            let mut text = String::new();
            socket.read_to_string(&mut text).map(|_| text)
        });
        let text = heard.await.unwrap().unwrap_or_else(|error| panic!("{line} {fields}: {error}"));
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{line} {fields}: {text}");
    }
    assert_eq!(upstream.connections(), 0);
}

/// The discarding of input is limited, so a client cannot keep a connection for ever.
#[tokio::test]
async fn a_client_that_neither_sends_nor_closes_is_not_waited_for_long() {
    let (_upstream, gateway) = setup().await;
    let mut wire = gateway.wire().await;
    wire.send("POST /charges HTTP/1.1\r\nHost: a\r\nIdempotency-Key: k\r\nContent-Length: 9000000\r\n\r\nx")
        .await;
    assert_eq!(wire.reply().await.status, 413);
    assert!(!wire.read().await, "nothing follows");
    let began = Instant::now();
    while wire.try_send("x").await.is_some() && began.elapsed() < BOUND {
        // The client sends no byte for longer than the limit.
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
    assert!(began.elapsed() < BOUND, "it is still there after {:?}", began.elapsed());
}

/// A refusal of a request that has arrived completely does not cost its connection.
#[tokio::test]
async fn a_refusal_of_a_small_request_keeps_the_connection() {
    let (_upstream, gateway) = setup().await;
    let mut wire: Wire = gateway.wire().await;
    for _ in 0..3 {
        wire.send(request("POST /charges", "Idempotency-Key: \"\"\r\n", b"{}")).await;
        let reply = wire.reply().await;
        assert_eq!((reply.status, reply.header("connection")), (400, None));
        wire.send(request("POST /charges", "Idempotency-Key: used\r\n", b"{}")).await;
        assert_eq!(wire.reply().await.status, 200);
    }
}
