//! The master of a service, as a sentinel knows it.

use semel::{RedisStore, Store};
use testkit::claims::{ask, done, granted, is_replayed};
use testkit::ports::Port;
use testkit::servers::RedisServers;
use testkit::stores::redis::{Place, connection, say, settled};
use testkit::until::until;

/// A sentinel that watches over a master and its replica, each at a port of 127.0.0.1.
struct Watched {
    servers: RedisServers,
    ports: [Port; 3],
    /// A port without a sentinel.
    down: Port,
}

impl Watched {
    async fn start() -> Self {
        let mut servers = RedisServers::new().unwrap();
        let ports = Port::several().unwrap();
        let [sentinel, master, replica] = &ports;
        let at = |port: &Port| format!("--port {port} --bind 127.0.0.1");
        let master_settings = format!("{} --repl-diskless-sync-delay 0", at(master));
        servers.start("master", &master_settings).unwrap();
        servers.start("replica", &format!("{} --replicaof 127.0.0.1 {master}", at(replica))).unwrap();
        let url = servers.start("sentinel", &format!("{} --sentinel", at(sentinel))).unwrap();
        let mut client = connection(&url).await;
        for order in [
            format!("SENTINEL MONITOR main 127.0.0.1 {master} 1"),
            "SENTINEL SET main down-after-milliseconds 500".to_owned(),
            "SENTINEL SET main failover-timeout 3000".to_owned(),
        ] {
            say::<()>(&mut client, &order).await;
        }
        until("the sentinel knows the replica", async || {
            let info: String = say(&mut client, "INFO sentinel").await;
            info.contains("status=ok,") && info.contains("slaves=1,")
        })
        .await;
        Self { servers, ports, down: Port::reserve().unwrap() }
    }

    fn url(&self, service: &str) -> String {
        // The first of the sentinels is down.
        format!("redis+sentinel://127.0.0.1:{},127.0.0.1:{}/{service}", self.down, self.ports[0])
    }
}

#[tokio::test]
async fn a_service_that_the_sentinel_does_not_know_is_refused_by_name() {
    let watched = Watched::start().await;
    let error = RedisStore::connect(&watched.url("other")).await.err().expect("there is no such service");
    assert!(!error.is_transient() && error.to_string().contains("\"other\""), "{error}");
}

#[tokio::test]
async fn a_store_finds_the_replica_that_was_promoted() {
    let mut watched = Watched::start().await;
    let place = Place::on(watched.url("main"));
    let store = place.store().await;
    done(&store, "done").await;
    let lease = granted(&store, &ask(&store, "running").await).await;
    let asked = ask(&store, "key").await;
    // A failover loses the writes that the replica lacks; here it has everything.
    let mut replica = connection(&format!("redis://127.0.0.1:{}", watched.ports[2])).await;
    until("the replica has it all", async || {
        say::<u64>(&mut replica, &format!("EXISTS {}", place.name("running"))).await == 1
    })
    .await;

    watched.servers.signal("KILL", "master").unwrap();
    let claim = settled(async || store.claim(&asked).await).await;
    assert!(matches!(&claim, semel::store::Claim::Granted(lease) if lease.attempt() == 1), "{claim:?}");
    // The old connections of the replica were closed when it was promoted.
    let mut promoted = connection(&format!("redis://127.0.0.1:{}", watched.ports[2])).await;
    assert_eq!(say::<u64>(&mut promoted, &format!("EXISTS {}", place.name("key"))).await, 1);
    assert!(is_replayed(&store.claim(&ask(&store, "done").await).await.unwrap(), "done"));
    store.release(&lease).await.unwrap().applied().unwrap();
    // A new connection leads to the new master, too.
    let other = place.store().await;
    assert!(is_replayed(&other.claim(&ask(&other, "done").await).await.unwrap(), "done"));
}
