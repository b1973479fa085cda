//! The admin listener, with clients that may not use it, or stall.

use std::time::{Duration, Instant};

use crate::process::Setup;
use crate::upstream::Upstream;
use crate::wire::Wire;

/// The time after which the listener itself closes clients that stall.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// A web page under a name that resolves to 127.0.0.1 could otherwise read the answers to a
/// browser.
#[tokio::test]
async fn a_name_that_is_not_its_own_is_not_answered() {
    let upstream = Upstream::counting().await;
    let setup = Setup::before(upstream.address);
    let gateway = setup.start().await;
    for path in ["/livez", "/metrics", "/config"] {
        for host in ["evil.example", "127.0.0.1.evil.example:9180", "10.1.2.3"] {
            let reply = gateway.admin_as(host, path, "").await;
            assert_eq!(reply.status, 421, "{host}");
            assert!(reply.text().contains("--admin-host"), "{}", reply.text());
        }
        for host in ["localhost", "127.0.0.1:9180", "[::1]"] {
            assert_eq!(gateway.admin_as(host, path, "").await.status, 200, "{host}");
        }
    }
    let gateway = setup.with("--admin-host", "semel,Prometheus.internal").start().await;
    assert_eq!(gateway.admin_as("prometheus.internal:9180", "/metrics", "").await.status, 200);
    assert_eq!(gateway.admin_as("evil.example", "/metrics", "").await.status, 421);
}

#[tokio::test]
async fn with_a_token_only_health_is_for_everybody() {
    let upstream = Upstream::counting().await;
    let setup = Setup::before(upstream.address);
    let token = setup.write("token", "0123456789abcdef-secret\n").display().to_string();
    let setup = setup.with("--admin-token-file", &token);
    let gateway = setup.start().await;
    for path in ["/metrics", "/config", "/", "/nothing"] {
        for fields in [
            "",
            "Authorization: Bearer 0123456789abcdef-secreT\r\n",
            "Authorization: Basic eA==\r\n",
            "Authorization: Bearer\r\n",
        ] {
            let reply = gateway.admin_as("localhost", path, fields).await;
            assert_eq!(
                (reply.status, reply.header("www-authenticate")),
                (401, Some("Bearer")),
                "{path} {fields}"
            );
        }
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(gateway.admin_as("localhost", path, "").await.status, 200);
    }
    let shown =
        gateway.admin_as("localhost", "/config", "Authorization: bearer 0123456789abcdef-secret\r\n").await;
    assert_eq!(shown.status, 200);
    assert!(
        !shown.text().contains("0123456789abcdef") && shown.text().contains("\"admin-token-file\": \"set\""),
        "{}",
        shown.text()
    );
    setup.write("token", "short");
    let ended = setup.run(&["config", "check"]);
    assert!(ended.complained.contains("less than 16 characters"), "{ended:?}");
}

/// Regression: the first version had 64 places, and clients that took them kept every probe out for
/// 10 s.
#[tokio::test]
async fn clients_that_stall_keep_no_probe_out() {
    let upstream = Upstream::counting().await;
    let gateway = Setup::before(upstream.address).start().await;
    let mut stalled = Vec::new();
    for number in 0..200 {
        let mut wire = Wire::to(gateway.admin).await;
        match number % 3 {
            0 => {}
            1 => wire.send("GET /livez HTTP/1.1\r\nHost: loc").await,
            _ => wire.send("GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n").await,
        }
        stalled.push(wire);
    }
    let began = Instant::now();
    assert_eq!(gateway.admin("/livez").await.told(), (200, "alive\n".to_owned(), false));
    assert_eq!(gateway.admin("/readyz").await.status, 200);
    assert!(began.elapsed() < HEADER_TIMEOUT, "the probes waited for {:?}", began.elapsed());
}
