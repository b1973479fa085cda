//! Connections to a server over TLS.

use std::fs;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use semel::store::Token;
use semel::{RedisStore, StoreError};
use testkit::claims::{ask, granted};
use testkit::ports::Port;
use testkit::servers::RedisServers;
use testkit::stores::whole;

/// A folder of keys and certificates.
struct Papers(PathBuf);

impl Papers {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("semel-papers-{}", Token::random()));
        fs::create_dir(&folder).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// An authority, with its certificate in this file.
    fn authority(&self, name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        fs::write(self.path(name), params.self_signed(&key).unwrap().pem()).unwrap();
        Issuer::new(params, key)
    }

    /// The settings of a server with a certificate for this host.
    fn server(&self, host: &str, authority: &Issuer<'static, KeyPair>) -> String {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        fs::write(self.path("server.pem"), certificate.pem()).unwrap();
        // The key is that of a test: every account that may start the servers may read it.
        fs::write(self.path("server.key"), key.serialize_pem()).unwrap();
        let (certificate, key) = (self.path("server.pem"), self.path("server.key"));
        format!("--tls-cert-file {certificate} --tls-key-file {key} --tls-auth-clients no")
    }
}

impl Drop for Papers {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A claim over a connection of this kind, or the error.
async fn reach(url: &str) -> Result<(), StoreError> {
    let store = RedisStore::connect(url).await?;
    granted(&store, &ask(&store, &Token::random().to_string()).await).await;
    Ok(())
}

#[tokio::test]
async fn sslmode_decides_which_servers_are_trusted() {
    let papers = Papers::new();
    let authority = papers.authority("known");
    papers.authority("stranger");
    let settings = papers.server("localhost", &authority);
    let mut servers = RedisServers::new().unwrap();
    let [port, plain] = Port::several().unwrap();
    servers.start("secure", &format!("--port 0 --tls-port {port} --bind 127.0.0.1 {settings}")).unwrap();
    servers.start("plain", &format!("--port {plain} --bind 127.0.0.1")).unwrap();
    let (known, stranger) =
        (format!("sslrootcert={}", papers.path("known")), format!("sslrootcert={}", papers.path("stranger")));

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
