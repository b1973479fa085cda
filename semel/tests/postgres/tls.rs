//! Connections to a server over TCP: encrypted or not, with one host or several.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};
use semel::StoreError;
use semel::store::{PostgresOptions, Token};
use testkit::ports::Port;
use testkit::servers::Servers;
use testkit::stores::whole;
use tokio_postgres::{Client, NoTls};

/// The account `nobody`, under which servers run that root starts.
const NOBODY: u32 = 65534;

/// A server with a port.
struct Server {
    port: Port,
    _server: Servers,
}

impl Server {
    fn start(settings: &[&str]) -> Self {
        let port = Port::reserve().unwrap();
        let place = ["listen_addresses=127.0.0.1".to_owned(), format!("port={port}")];
        let settings: Vec<&str> = place.iter().map(String::as_str).chain(settings.iter().copied()).collect();
        Self { port, _server: Servers::postgres(&settings).unwrap() }
    }

    /// Returns `true` if the connection with these options is encrypted, or the error.
    async fn is_encrypted(&self, host: &str, options: &str) -> Result<bool, StoreError> {
        let name = format!("semel-{}", Token::random());
        let url = format!(
            "postgres://postgres@{host}:{port}/postgres?application_name={name}&{options}",
            port = self.port
        );
        let _store = PostgresOptions::new(&url)?.connect().await?;
        let question =
            "select ssl from pg_stat_ssl join pg_stat_activity using (pid) where application_name = $1";
        Ok(self.client().await.query_one(question, &[&name]).await.unwrap().get(0))
    }

    async fn client(&self) -> Client {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

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
    fn server(&self, host: &str, authority: &Issuer<'static, KeyPair>) -> [String; 3] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        fs::write(self.path("server.pem"), certificate.pem()).unwrap();
        fs::write(self.path("server.key"), key.serialize_pem()).unwrap();
        // The server accepts no key that other users can read.
        fs::set_permissions(self.path("server.key"), Permissions::from_mode(0o600)).unwrap();
        give_away(Path::new(&self.path("server.key")));
        let (certificate, key) = (self.path("server.pem"), self.path("server.key"));
        ["ssl=on".to_owned(), format!("ssl_cert_file={certificate}"), format!("ssl_key_file={key}")]
    }
}

impl Drop for Papers {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Gives a file to the account of the servers.
fn give_away(file: &Path) {
    if fs::metadata(file).unwrap().uid() == 0 {
        chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

#[tokio::test]
async fn sslmode_does_what_it_does_for_libpq() {
    let papers = Papers::new();
    let authority = papers.authority("known");
    papers.authority("stranger");
    let settings = papers.server("localhost", &authority);
    let server = Server::start(&settings.each_ref().map(String::as_str));
    let (known, stranger) =
        (format!("sslrootcert={}", papers.path("known")), format!("sslrootcert={}", papers.path("stranger")));

    for (options, encrypted) in [
        ("sslmode=disable", false),
        ("sslmode=prefer", true),
        ("keepalives=1", true),
        ("sslmode=require", true),
    ] {
        assert_eq!(server.is_encrypted("localhost", options).await.unwrap(), encrypted, "{options}");
    }
    // With a file of authorities, `require` is as strict as `verify-ca`.
    for (host, mode, roots, fault) in [
        ("localhost", "verify-ca", &known, None),
        ("localhost", "verify-full", &known, None),
        ("localhost", "require", &known, None),
        ("127.0.0.1", "verify-ca", &known, None),
        ("127.0.0.1", "verify-full", &known, Some("not valid for name")),
        ("localhost", "verify-ca", &stranger, Some("UnknownIssuer")),
        ("localhost", "verify-full", &stranger, Some("UnknownIssuer")),
        ("localhost", "require", &stranger, Some("UnknownIssuer")),
    ] {
        let case = format!("{host} {mode} {roots}");
        let encrypted = server.is_encrypted(host, &format!("sslmode={mode}&{roots}")).await;
        match (encrypted, fault) {
            (Ok(encrypted), None) => assert!(encrypted, "{case}"),
            (Err(error), Some(fault)) => assert!(whole(&error).contains(fault), "{case}: {}", whole(&error)),
            (other, _) => panic!("{case}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn server_without_tls_is_used_unless_that_is_refused() {
    let server = Server::start(&[]);
    for mode in ["disable", "prefer"] {
        assert!(!server.is_encrypted("localhost", &format!("sslmode={mode}")).await.unwrap(), "{mode}");
    }
    for mode in ["require", "verify-ca", "verify-full"] {
        let error = server.is_encrypted("localhost", &format!("sslmode={mode}")).await;
        let error = error.expect_err("the server has no TLS");
        assert!(whole(&error).contains("TLS"), "{mode}: {}", whole(&error));
    }
}

#[tokio::test]
async fn first_of_several_hosts_that_takes_writes_is_used() {
    let (reads, writes) = (Server::start(&["default_transaction_read_only=on"]), Server::start(&[]));
    let connected = async |ports: [&Port; 2], options: &str| {
        let name = format!("semel-{}", Token::random());
        let [first, second] = ports;
        let url = format!(
            "postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/postgres?application_name={name}{options}"
        );
        let _store = PostgresOptions::new(&url).unwrap().connect().await.unwrap();
        let question = "select 1 from pg_stat_activity where application_name = $1";
        let mut ports = Vec::new();
        for server in [&reads, &writes] {
            if !server.client().await.query(question, &[&name]).await.unwrap().is_empty() {
                ports.push(server.port.number());
            }
        }
        ports
    };
    let down = Port::reserve().unwrap();
    let (read, write) = ([reads.port.number()], [writes.port.number()]);
    assert_eq!(connected([&down, &writes.port], "").await, write);
    assert_eq!(connected([&reads.port, &writes.port], "").await, read);
    let writing = "&target_session_attrs=read-write";
    assert_eq!(connected([&reads.port, &writes.port], writing).await, write);
}
