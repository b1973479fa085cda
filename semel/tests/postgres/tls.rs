//! Connections to a server over TCP: encrypted or not, with one host or several.

use semel::StoreError;
use semel::store::{PostgresOptions, Token};
use testkit::certificates::{Authority, Certificate, Papers};
use testkit::ports::Port;
use testkit::servers::Servers;
use testkit::stores::whole;
use tokio_postgres::{Client, NoTls};

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
        Ok(self.encryption(host, options, |options| options).await?.is_some())
    }

    /// The encryption of the connection with these options: the name of the user in the client's
    /// certificate, which may be empty. `None` if the connection is not encrypted.
    async fn encryption(
        &self,
        host: &str,
        options: &str,
        changed: impl FnOnce(PostgresOptions) -> PostgresOptions,
    ) -> Result<Option<String>, StoreError> {
        let name = format!("semel-{}", Token::random());
        let url = format!(
            "postgres://postgres@{host}:{port}/postgres?application_name={name}&{options}",
            port = self.port
        );
        let _store = changed(PostgresOptions::new(&url)?).connect().await?;
        let question = "select case when ssl then coalesce(client_dn, '') end
            from pg_stat_ssl join pg_stat_activity using (pid) where application_name = $1";
        Ok(self.client().await.query_one(question, &[&name]).await.unwrap().get(0))
    }

    async fn client(&self) -> Client {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", self.port);
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }
}

/// The settings of a server that shows this certificate.
fn settings(papers: &Papers, certificate: &Certificate) -> [String; 3] {
    let (cert, key) =
        (papers.write("server.pem", &certificate.cert), papers.write("server.key", &certificate.key));
    ["ssl=on".to_owned(), format!("ssl_cert_file={cert}"), format!("ssl_key_file={key}")]
}

#[tokio::test]
async fn sslmode_does_what_it_does_for_libpq() {
    let papers = Papers::new();
    let authorities = ["known", "stranger"].map(Authority::new);
    let settings = settings(&papers, &authorities[0].certify("localhost"));
    let server = Server::start(&settings.each_ref().map(String::as_str));
    let [known, stranger] = authorities
        .each_ref()
        .map(|authority| papers.write(&Token::random().to_string(), &authority.pem()))
        .map(|file| format!("sslrootcert={file}"));

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

/// `sslmode=require` trusts any server, unless the program sets what it trusts.
#[tokio::test]
async fn tls_of_the_program_replaces_that_of_the_url() {
    let papers = Papers::new();
    let [known, stranger, of_clients] = ["known", "stranger", "of clients"].map(Authority::new);
    let [cert, key, file] = settings(&papers, &known.certify("localhost"));
    let of_clients_file = format!("ssl_ca_file={}", papers.write("clients.pem", &of_clients.pem()));
    // Over TLS, only a certificate of this authority with the name of the user logs in. The test
    // itself looks over a connection without TLS.
    let logins = "hostssl all all all cert\nhostnossl all all all trust\n";
    let logins = format!("hba_file={}", papers.write("pg_hba.conf", logins));
    let server = Server::start(&[&cert, &key, &file, &of_clients_file, &logins]);

    let shown = of_clients.certify("postgres");
    let connected = async |options: &str, authority: &Authority, shown: Option<&Certificate>| {
        let config = authority.client(shown);
        server.encryption("localhost", options, |options| options.with_tls(config)).await
    };
    for options in ["sslmode=require", "sslmode=verify-full", "sslmode=prefer"] {
        let user = connected(options, &known, Some(&shown)).await.unwrap();
        assert_eq!(user.as_deref(), Some("/CN=postgres"), "{options}");
    }
    // `sslmode` still says whether the connection is encrypted at all.
    assert_eq!(connected("sslmode=disable", &known, Some(&shown)).await.unwrap(), None);

    for (authority, shown, why) in [
        (&stranger, Some(&shown), "UnknownIssuer"),
        (&known, None, "certificate"),
        (&known, Some(&stranger.certify("postgres")), "UnknownCA"),
        (&known, Some(&of_clients.certify("mallory")), "certificate authentication failed"),
    ] {
        let refused = connected("sslmode=require", authority, shown).await.expect_err(why);
        assert!(whole(&refused).contains(why), "{why}: {}", whole(&refused));
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
