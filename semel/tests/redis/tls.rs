//! Connections to a server over TLS.

use semel::store::Token;
use semel::{RedisStore, StoreError};
use testkit::certificates::{Authority, Papers};
use testkit::claims::{ask, granted};
use testkit::ports::Port;
use testkit::servers::RedisServers;
use testkit::stores::whole;

/// A claim over a connection of this kind, or the error.
async fn reach(url: &str) -> Result<(), StoreError> {
    let store = RedisStore::connect(url).await?;
    granted(&store, &ask(&store, &Token::random().to_string()).await).await;
    Ok(())
}

#[tokio::test]
async fn sslmode_decides_which_servers_are_trusted() {
    let papers = Papers::new();
    let authorities = ["known", "stranger"].map(Authority::new);
    let shown = authorities[0].certify("localhost");
    let (cert, key) = (papers.write("server.pem", &shown.cert), papers.write("server.key", &shown.key));
    let settings = format!("--tls-cert-file {cert} --tls-key-file {key} --tls-auth-clients no");
    let mut servers = RedisServers::new().unwrap();
    let [port, plain] = Port::several().unwrap();
    servers.start("secure", &format!("--port 0 --tls-port {port} --bind 127.0.0.1 {settings}")).unwrap();
    servers.start("plain", &format!("--port {plain} --bind 127.0.0.1")).unwrap();
    let [known, stranger] = authorities
        .each_ref()
        .map(|authority| papers.write(&Token::random().to_string(), &authority.pem()))
        .map(|file| format!("sslrootcert={file}"));

    // With a file of authorities, `require` is as strict as `verify-ca`.
    for (host, options, fault) in [
        ("localhost", "sslmode=require".to_owned(), None),
        ("127.0.0.1", "sslmode=require".to_owned(), None),
        ("localhost", known.clone(), None),
        ("localhost", format!("sslmode=verify-full&{known}"), None),
        ("localhost", format!("sslmode=verify-ca&{known}"), None),
        ("127.0.0.1", format!("sslmode=verify-ca&{known}"), None),
        ("localhost", format!("sslmode=require&{known}"), None),
        ("127.0.0.1", known.clone(), Some("not valid for name")),
        ("127.0.0.1", format!("sslmode=verify-full&{known}"), Some("not valid for name")),
        ("localhost", stranger.clone(), Some("UnknownIssuer")),
        ("localhost", format!("sslmode=verify-full&{stranger}"), Some("UnknownIssuer")),
        ("localhost", format!("sslmode=verify-ca&{stranger}"), Some("UnknownIssuer")),
        ("localhost", format!("sslmode=require&{stranger}"), Some("UnknownIssuer")),
        // The authorities of the system have not signed this certificate.
        ("localhost", String::new(), Some("UnknownIssuer")),
    ] {
        let case = format!("{host} {options}");
        match (reach(&format!("rediss://{host}:{port}?{options}")).await, fault) {
            (Ok(()), None) => {}
            (Err(error), Some(fault)) => {
                assert!(whole(&error).contains(fault), "{case}: {}", whole(&error));
                assert!(!error.is_unknown(), "{case}: {error}");
            }
            (other, _) => panic!("{case}: {other:?}"),
        }
    }

    // A server without TLS is reached only without TLS, and a server with TLS only with it.
    reach(&format!("redis://127.0.0.1:{plain}")).await.unwrap();
    for url in [format!("rediss://localhost:{plain}?sslmode=require"), format!("redis://localhost:{port}")] {
        let error = reach(&url).await.expect_err(&url);
        assert!(!error.is_unknown(), "{error}");
    }
}
