//! The secret from which principals are derived.

use sha2::{Digest, Sha256};
use testkit::stores::postgres::database;

use crate::process::{Gateway, Setup};
use crate::upstream::Upstream;

const OLD: &str = "an-old-secret-of-the-configuration";
const NEW: &str = "a-new-secret-of-the-configuration";

async fn pay(gateway: &Gateway, key: &str) -> (u16, String, bool) {
    let fields = format!("Idempotency-Key: {key}\r\nAuthorization: Bearer ann\r\n");
    gateway.ask("POST /charges", &fields, "{}").await.told()
}

/// Checks that two gateways over one store run each key once, also while the secret of the
/// configuration changes: that secret seals the key of the principals, and principals are not
/// derived from it.
async fn each_key_runs_once_during_a_change(store: &str) {
    let upstream = Upstream::counting().await;
    let with = |secrets: &[&str]| {
        let setup = Setup::before(upstream.address).with("--store", store).with("--migrate", "true");
        let file = setup.write("secret", &secrets.join("\n"));
        setup.with("--principal-secret-file", &file.display().to_string())
    };
    let old = with(&[OLD]).start().await;
    assert_eq!(pay(&old, "a").await, (200, "run 1".to_owned(), false));
    // The second process already has the new secret, and seals with it; the first one continues
    // with the old one.
    let new = with(&[NEW, OLD]).start().await;
    assert_eq!(pay(&new, "a").await, (200, "run 1".to_owned(), true));
    for number in 2..12 {
        let key = format!("during-{number}");
        let (one, other) = tokio::join!(pay(&old, &key), pay(&new, &key));
        let ran = [&one, &other].iter().filter(|told| told.0 == 200 && !told.2).count();
        assert_eq!(ran, 1, "{key}: {one:?}, {other:?}");
    }
    assert_eq!(upstream.count(), 11);
    // A process that is restarted without the new secret, or without any, names the missing one.
    for secrets in [&[OLD][..], &["another-secret-altogether"]] {
        let ended = with(secrets).run(&["gateway"]);
        assert!(
            ended.code != Some(0) && ended.complained.contains("is sealed with another secret"),
            "{ended:?}"
        );
    }
    let bare = Setup::before(upstream.address).with("--store", store).run(&["gateway"]);
    assert!(bare.complained.contains("no secret is configured"), "{bare:?}");
    // In the end the old secret is no longer needed.
    let last = with(&[NEW]).start().await;
    assert_eq!(pay(&last, "a").await, (200, "run 1".to_owned(), true));
}

#[tokio::test]
async fn each_key_runs_once_while_the_secret_changes_over_postgres() {
    each_key_runs_once_during_a_change(&database().await).await;
}

#[tokio::test]
async fn each_key_runs_once_while_the_secret_changes_over_sqlite() {
    let folder = tempfile::TempDir::new().unwrap();
    each_key_runs_once_during_a_change(&format!("sqlite:{}", folder.path().join("semel.db").display())).await;
}

#[tokio::test]
async fn gateways_without_a_configured_secret_share_one_over_the_store_and_over_restarts() {
    let upstream = Upstream::counting().await;
    let store = database().await;
    let setup = Setup::before(upstream.address).with("--store", &store).with("--migrate", "true");
    let (one, other) = tokio::join!(setup.start(), setup.start());
    assert_eq!(pay(&one, "k").await, (200, "run 1".to_owned(), false));
    assert_eq!(pay(&other, "k").await, (200, "run 1".to_owned(), true));
    drop((one, other));
    assert_eq!(pay(&setup.start().await, "k").await, (200, "run 1".to_owned(), true));
}

/// Regression: a 6-digit password could be guessed from a plain digest in less than a second.
#[tokio::test]
async fn a_principal_is_no_plain_digest_and_differs_from_store_to_store() {
    let mut principals = Vec::new();
    for _ in 0..2 {
        let upstream = Upstream::counting().await;
        let gateway = Setup::before(upstream.address).start().await;
        assert_eq!(pay(&gateway, "k").await.0, 200);
        principals.push(upstream.seen()[0].header("semel-principal").unwrap().to_owned());
    }
    assert_ne!(principals[0], principals[1]);
    let mut plain = Sha256::new();
    for part in ["credentials 1", "authorization", "Bearer ann"] {
        plain.update((part.len() as u64).to_be_bytes());
        plain.update(part);
    }
    let plain: String = plain.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!principals.contains(&plain));
}

#[test]
fn a_short_secret_is_refused() {
    let setup = Setup::before(([127, 0, 0, 1], 1).into()).with_variable("SEMEL_PRINCIPAL_SECRET", "short");
    let ended = setup.run(&["gateway"]);
    assert!(ended.complained.contains("shorter than 16 characters"), "{ended:?}");
}
