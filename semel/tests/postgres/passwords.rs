//! Logins with a password that changes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use semel::store::{PostgresOptions, Token};
use semel::{Key, Store, StoreError};
use testkit::ports::Port;
use testkit::servers::Servers;

#[tokio::test]
async fn each_connection_asks_for_its_password() {
    let rules = std::env::temp_dir().join(format!("semel-hba-{}", Token::random()));
    fs::write(&rules, "local all all trust\nhost all postgres all trust\nhost all all all scram-sha-256\n")
        .unwrap();
    fs::set_permissions(&rules, fs::Permissions::from_mode(0o644)).unwrap();
    let port = Port::reserve().unwrap();
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        format!("hba_file={}", rules.display()),
    ];
    let _server = Servers::postgres(&settings.each_ref().map(String::as_str)).unwrap();
    let (admin, connection) = tokio_postgres::connect(
        &format!("postgres://postgres@127.0.0.1:{port}/postgres"),
        tokio_postgres::NoTls,
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    admin.batch_execute("create role app superuser login password 'one'").await.unwrap();

    let password = Arc::new(Mutex::new(Ok("one".to_owned())));
    let asked = Arc::clone(&password);
    let options = PostgresOptions::new(&format!("postgres://app:wrong@127.0.0.1:{port}/postgres")).unwrap();
    let refused = options.clone().connect().await.err().expect("the password of the URL is wrong");
    assert!(!refused.is_transient(), "{refused}");
    let options = options.with_passwords(move || {
        let password: Result<String, &str> = asked.lock().unwrap().clone();
        async { password }
    });
    let store = options.clone().connect().await.unwrap();
    store.migrate().await.unwrap();
    let key = Key::new("tests", "key").unwrap();
    assert!(store.find(&key).await.unwrap().is_none());

    admin.batch_execute("alter role app password 'two'").await.unwrap();
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'";
    admin.execute(end, &[]).await.unwrap();
    // The vault lags behind: that is no refusal of the question.
    for _ in 0..3 {
        let lags = store.find(&key).await.unwrap_err();
        assert!(lags.is_transient(), "{lags}");
    }
    *password.lock().unwrap() = Ok("two".to_owned());
    let found = async {
        loop {
            match store.find(&key).await {
                Err(error) if error.is_transient() => tokio::task::yield_now().await,
                found => break found,
            }
        }
    };
    assert!(found.await.unwrap().is_none());

    *password.lock().unwrap() = Err("the vault is sealed");
    let unreachable: StoreError = options.connect().await.err().expect("there is no password");
    assert!(unreachable.is_transient(), "{unreachable}");
    assert!(semel::Error::from(unreachable).to_string().ends_with("the vault is sealed"));
    fs::remove_file(rules).unwrap();
}
