//! The servers to which a store connects, and its messages about them.

use semel::store::RedisOptions;
use semel::{Once, Policy, RedisStore, Store, StoreError};
use testkit::claims::{ask, granted, lease};
use testkit::ports::Port;
use testkit::servers::RedisServers;
use testkit::stores::redis::{Place, Server, connection, say, settled};
use testkit::stores::whole;
use testkit::until::until;

use crate::log;

/// The error of a store at this URL.
async fn refused(url: &str) -> StoreError {
    match RedisStore::connect(url).await {
        Ok(_) => panic!("it connects to {url}"),
        Err(error) => error,
    }
}

/// A master and its replica, which has all of it.
pub(crate) async fn pair(servers: &mut RedisServers, settings: &str) -> (String, String) {
    let port = Port::reserve().unwrap();
    let settings = format!("--repl-diskless-sync-delay 0 {settings}");
    let master = servers.start("master", &format!("--port {port} --bind 127.0.0.1 {settings}")).unwrap();
    let replica = servers.start("replica", &format!("--replicaof 127.0.0.1 {port} {settings}")).unwrap();
    let mut client = connection(&master).await;
    until("the replica follows", async || {
        say::<()>(&mut client, "SET followed yes").await;
        say::<u64>(&mut client, "WAIT 1 100").await == 1
    })
    .await;
    (master, replica)
}

#[tokio::test]
async fn a_replica_is_not_taken_for_a_server_that_keeps_records() {
    let mut servers = RedisServers::new().unwrap();
    let (_, replica) = pair(&mut servers, "").await;
    let error = refused(&replica).await;
    assert!(error.to_string().contains("is a replica, which accepts no writes"), "{error}");
    // The replica may be promoted.
    assert!(error.is_transient() && !error.is_unknown(), "{error}");
}

#[tokio::test]
async fn a_server_that_may_evict_is_refused_unless_that_is_allowed() {
    let server = Server::start("");
    let mut client = server.connection().await;
    for policy in ["allkeys-lru", "allkeys-random", "volatile-ttl", "volatile-lfu"] {
        say::<()>(&mut client, &format!("CONFIG SET maxmemory-policy {policy}")).await;
        let error = refused(&server.url).await;
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains(&format!("maxmemory-policy {policy}")), "{error}");
    }
    let place = server.place();
    let store = place.options().with_eviction_allowed().connect().await.unwrap();
    granted(&store, &ask(&store, "key").await).await;
    say::<()>(&mut client, "CONFIG SET maxmemory-policy noeviction").await;
    place.store().await;
}

#[tokio::test]
async fn a_login_that_is_wrong_is_refused_and_not_given_away() {
    let server = Server::start("--requirepass right-4711");
    let url = &server.url;
    for wrong in
        [url.clone(), format!("{url}?pass=wrong-4711"), format!("{url}?user=nobody-4711&pass=wrong-4711")]
    {
        let error = refused(&wrong).await;
        assert!(!error.is_transient(), "{error}");
        let whole = whole(&error);
        assert!(whole.contains("could not connect to Redis at /") && !whole.contains("4711"), "{whole}");
    }
    let store = RedisStore::connect(&format!("{url}?pass=right-4711")).await.unwrap();
    granted(&store, &ask(&store, "key").await).await;
}

#[tokio::test]
async fn a_password_that_changes_is_not_given_away_and_may_change_back() {
    let server = Server::start("--requirepass right-4711");
    let place = Place::on(format!("{}?pass=right-4711", server.url));
    let store = place.store().await;
    let mut client = place.connection().await;
    granted(&store, &ask(&store, "key").await).await;
    say::<()>(&mut client, "CONFIG SET requirepass other-4711").await;
    say::<i64>(&mut client, "CLIENT KILL TYPE normal").await;
    let asked = ask(&store, "other").await;
    for _ in 0..5 {
        let error = store.claim(&asked).await.expect_err("it is not let in");
        let whole = whole(&error);
        assert!(whole.contains("could not connect to Redis at /") && !whole.contains("4711"), "{whole}");
    }
    // The connection that set the password is still accepted.
    say::<()>(&mut client, "CONFIG SET requirepass right-4711").await;
    let mut answer = None;
    until("it is granted", async || {
        answer = store.claim(&asked).await.ok();
        answer.is_some()
    })
    .await;
}

#[tokio::test]
async fn an_address_without_a_server_is_unavailable() {
    let port = Port::reserve().unwrap();
    for url in [
        format!("redis://127.0.0.1:{port}"),
        format!("redis+cluster://127.0.0.1:{port},127.0.0.1:{port}"),
        format!("redis+sentinel://127.0.0.1:{port}/main"),
        "redis+unix:///nowhere/redis.sock".to_owned(),
    ] {
        let error = refused(&url).await;
        assert!(error.is_transient() && !error.is_unknown(), "{error}");
        assert!(error.to_string().contains("could not connect to Redis"), "{error}");
    }
}

#[tokio::test]
async fn several_servers_that_are_no_cluster_are_refused() {
    let mut servers = RedisServers::new().unwrap();
    let [first, second] = Port::several().unwrap();
    for (name, port) in [("first", &first), ("second", &second)] {
        servers.start(name, &format!("--port {port} --bind 127.0.0.1")).unwrap();
    }
    // Each server would grant what another one has granted.
    let hosts = format!("127.0.0.1:{first},127.0.0.1:{second}");
    assert!(RedisOptions::new(&format!("redis://{hosts}")).is_err());
    let refused = RedisStore::connect(&format!("redis+cluster://{hosts}")).await.err().expect("refused");
    assert!(!refused.is_transient(), "{refused}");
    assert!(refused.to_string().ends_with("is not part of a cluster"), "{refused}");
}

#[tokio::test]
async fn a_server_that_becomes_a_replica_is_left_and_found_again() {
    let mut servers = RedisServers::new().unwrap();
    let [first, second] = Port::several().unwrap();
    for (name, port) in [("first", &first), ("second", &second)] {
        servers.start(name, &format!("--port {port} --bind 127.0.0.1")).unwrap();
    }
    let place = Place::on(format!("redis://127.0.0.1:{first}"));
    let store = place.store().await;
    granted(&store, &ask(&store, "before").await).await;
    let mut client = place.connection().await;
    say::<()>(&mut client, &format!("REPLICAOF 127.0.0.1 {second}")).await;
    let asked = ask(&store, "key").await;
    let error = store.claim(&asked).await.expect_err("a replica takes no writes");
    assert!(error.is_transient() && !error.is_unknown(), "{error}");
    say::<()>(&mut client, "REPLICAOF NO ONE").await;
    lease(settled(async || store.claim(&asked).await).await);
}

#[tokio::test]
async fn the_possible_losses_of_a_server_are_logged_once_for_each_store() {
    log::capture();
    let mut servers = RedisServers::new().unwrap();
    let alone = servers.start("alone", "").unwrap();
    let (master, _) = pair(&mut servers, "--appendonly yes").await;
    let said = async |options: RedisOptions| {
        let before = log::warnings().len();
        options.connect().await.unwrap().now().await.unwrap();
        log::warnings().split_off(before)
    };

    let warnings = said(Place::on(&alone).options()).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("no append-only file"), "{warnings:?}");
    let warnings = said(Place::on(&master).options()).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("failover") && warnings[0].contains("is not asked for"), "{warnings:?}");
    let warnings = said(Place::on(&master).options().with_replicas(1)).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("does not rule it out"), "{warnings:?}");
    // A store that allows eviction has a store behind it that loses nothing.
    let warnings = said(Place::on(&master).options().with_eviction_allowed()).await;
    assert!(warnings.is_empty(), "{warnings:?}");

    // New connections of the same store log nothing new.
    let store = Place::on(&alone).store().await;
    let before = log::warnings().len();
    let mut client = connection(&alone).await;
    for round in 0..3 {
        let asked = ask(&store, &format!("key-{round}")).await;
        say::<i64>(&mut client, "CLIENT KILL TYPE normal").await;
        lease(settled(async || store.claim(&asked).await).await);
    }
    assert_eq!(log::warnings().len(), before, "{:?}", log::warnings());
}

#[tokio::test]
async fn transactional_is_refused_over_redis() {
    let once = Once::new(Place::shared().store().await);
    let refused = once.try_with_policy(Policy::transactional()).err().unwrap().to_string();
    assert!(refused.contains("`redis` is none: use a Postgres store"), "{refused}");
}
