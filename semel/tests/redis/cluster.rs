//! The store on a cluster of three masters with a replica each.

use std::collections::{BTreeSet, HashMap};

use redis::aio::MultiplexedConnection;
use redis::{Value, cmd};
use semel::admin::{ListQuery, Prune};
use semel::store::{Claim, Terms, conformance};
use semel::{Key, RedisStore, Store};
use testkit::claims::{ask, done, granted, is_replayed, lease, outcome, retried};
use testkit::contract::keeps_every_promise;
use testkit::servers::RedisServers;
use testkit::stores::redis::{Place, connection, say, settled};
use testkit::until::until;

use crate::listing::{claim_all, listed};

/// A cluster that answers.
pub(crate) struct Cluster {
    pub(crate) servers: RedisServers,
    pub(crate) ports: [u16; 6],
}

impl Cluster {
    /// Starts a cluster that fails over only on request: on a busy machine, servers that are silent
    /// for a second are not dead, and a replica in their place lacks some of their data.
    pub(crate) fn start() -> Self {
        Self::start_with("--cluster-node-timeout 60000")
    }

    /// Starts a cluster with these settings for all servers.
    fn start_with(settings: &str) -> Self {
        let mut servers = RedisServers::new().unwrap();
        let ports = servers.start_cluster(settings).unwrap();
        Self { servers, ports }
    }

    pub(crate) fn place(&self) -> Place {
        let [first, second, ..] = self.ports;
        Place::on(format!("redis+cluster://127.0.0.1:{first},127.0.0.1:{second}"))
    }

    /// A place that is reached by one of the servers.
    fn place_by(&self, server: usize) -> Place {
        Place::on(format!("redis://127.0.0.1:{}", self.ports[server]))
    }

    async fn connection(&self, server: usize) -> MultiplexedConnection {
        connection(&format!("redis://127.0.0.1:{}", self.ports[server])).await
    }

    /// The servers that are masters, or replicas.
    async fn those_that_are(&self, role: &str) -> Vec<usize> {
        let mut found = Vec::new();
        for server in 0..self.ports.len() {
            let info: String = say(&mut self.connection(server).await, "INFO replication").await;
            if info.contains(&format!("role:{role}")) {
                found.push(server);
            }
        }
        found
    }

    /// The master that serves a slot.
    async fn master_of(&self, slot: u16) -> usize {
        let mut client = self.connection(self.those_that_are("master").await[0]).await;
        let ranges: Vec<Vec<Value>> = say(&mut client, "CLUSTER SLOTS").await;
        let port = ranges.iter().find_map(|range| match &range[..] {
            [Value::Int(from), Value::Int(to), Value::Array(master), ..]
                if (*from..=*to).contains(&slot.into()) =>
            {
                if let Value::Int(port) = master[1] {
                    u16::try_from(port).ok()
                } else {
                    None
                }
            }
            _ => None,
        });
        self.ports.iter().position(|known| Some(*known) == port).unwrap()
    }
}

/// A slot that begins to move from a master to another.
struct Moving {
    slot: u16,
    source: MultiplexedConnection,
    target: MultiplexedConnection,
    target_port: u16,
    target_id: String,
}

impl Moving {
    async fn begin(cluster: &Cluster, slot: u16) -> Self {
        let from = cluster.master_of(slot).await;
        let to = *cluster.those_that_are("master").await.iter().find(|server| **server != from).unwrap();
        let (mut source, mut target) = (cluster.connection(from).await, cluster.connection(to).await);
        let source_id: String = say(&mut source, "CLUSTER MYID").await;
        let target_id: String = say(&mut target, "CLUSTER MYID").await;
        say::<()>(&mut target, &format!("CLUSTER SETSLOT {slot} IMPORTING {source_id}")).await;
        say::<()>(&mut source, &format!("CLUSTER SETSLOT {slot} MIGRATING {target_id}")).await;
        Self { slot, source, target, target_port: cluster.ports[to], target_id }
    }

    /// Moves one record, as `redis-cli --cluster reshard` does.
    async fn carry(&mut self, name: &str) {
        let to = format!("MIGRATE 127.0.0.1 {} {name} 0 5000", self.target_port);
        assert_eq!(say::<String>(&mut self.source, &to).await, "OK");
    }

    async fn target_has(&mut self, name: &str) -> bool {
        let slot = self.slot;
        let names: Vec<String> = say(&mut self.target, &format!("CLUSTER GETKEYSINSLOT {slot} 100")).await;
        names.iter().any(|found| found == name)
    }

    async fn end(&mut self) {
        let Self { slot, target_id, .. } = self;
        let order = format!("CLUSTER SETSLOT {slot} NODE {target_id}");
        say::<()>(&mut self.target, &order).await;
        say::<()>(&mut self.source, &order).await;
    }
}

/// Some keys whose records are in one slot, which is returned with them.
async fn keys_of_one_slot<const N: usize>(cluster: &Cluster, place: &Place) -> (u16, [String; N]) {
    let mut client = cluster.connection(0).await;
    let mut slots: HashMap<u16, Vec<String>> = HashMap::new();
    for number in 0.. {
        let key = format!("key-{number}");
        let slot =
            cmd("CLUSTER").arg("KEYSLOT").arg(place.name(&key)).query_async(&mut client).await.unwrap();
        let keys = slots.entry(slot).or_default();
        keys.push(key);
        if let Ok(keys) = <[String; N]>::try_from(keys.clone()) {
            return (slot, keys);
        }
    }
    unreachable!("there are as many keys as one likes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_every_promise() {
    let cluster = Cluster::start();
    let place = cluster.place();
    keeps_every_promise(place.store().await, place.store().await).await;
    conformance::check_backend(place.store().await).await.unwrap_or_else(|broken| panic!("{broken}"));
}

async fn replays(store: &RedisStore, name: &str) {
    let claim = store.claim(&ask(store, name).await).await.unwrap();
    assert!(is_replayed(&claim, name), "{claim:?}");
}

#[tokio::test]
async fn a_slot_may_move_while_the_store_is_in_use() {
    let cluster = Cluster::start();
    let place = cluster.place();
    let (store, other) = (place.store().await, place.store().await);
    let (slot, [there, carried, new]) = keys_of_one_slot(&cluster, &place).await;
    for store in [&store, &other] {
        claim_all(store, [Key::new("tests", &semel::store::Token::random().to_string()).unwrap()]).await;
    }
    done(&store, &there).await;
    let running = granted(&store, &ask(&store, &carried).await).await;

    // In the middle of the move: existing records are answered by the source, missing ones by the
    // target.
    let mut moving = Moving::begin(&cluster, slot).await;
    for store in [&store, &other] {
        replays(store, &there).await;
    }
    let asked = ask(&store, &new).await;
    let lease = granted(&store, &asked).await;
    assert!(moving.target_has(&place.name(&new)).await);
    assert_eq!(granted(&other, &asked).await.fence(), lease.fence());
    let claim = other.claim(&ask(&other, &new).await).await.unwrap();
    assert!(matches!(claim, Claim::Running { .. }), "{claim:?}");
    other.complete(&lease, &outcome(&new)).await.unwrap().applied().unwrap();
    moving.carry(&place.name(&carried)).await;
    store.complete(&running, &outcome(&carried)).await.unwrap().applied().unwrap();
    replays(&other, &carried).await;
    // A script that the target has forgotten is loaded there, too.
    say::<()>(&mut moving.target, "SCRIPT FLUSH").await;
    replays(&store, &new).await;

    // At the end of the move, the source redirects every question.
    moving.carry(&place.name(&there)).await;
    moving.end().await;
    for store in [&store, &other] {
        for name in [&there, &carried, &new] {
            replays(store, name).await;
        }
    }
    assert!(moving.target_has(&place.name(&there)).await);
}

#[tokio::test]
async fn a_store_finds_the_replica_that_was_promoted_in_a_cluster() {
    let mut cluster = Cluster::start_with("");
    let place = cluster.place();
    let store = place.store().await;
    let (slot, [kept, running, new]) = keys_of_one_slot(&cluster, &place).await;
    done(&store, &kept).await;
    let lost = granted(&store, &ask(&store, &running).await).await;
    let asked = ask(&store, &new).await;
    let master = cluster.master_of(slot).await;
    let mut client = cluster.connection(master).await;
    // A failover loses the writes that the replica lacks; here it has everything.
    let mut both = redis::pipe();
    both.cmd("PEXPIREAT")
        .arg(place.name(&running))
        .arg(99_999_999_999_999_u64)
        .cmd("WAIT")
        .arg(1)
        .arg(30_000);
    let (_, has): (i64, i64) = both.query_async(&mut client).await.unwrap();
    assert_eq!(has, 1);

    cluster.servers.signal("KILL", &format!("node{master}")).unwrap();
    let claim = lease(settled(async || store.claim(&asked).await).await);
    assert_eq!((claim.attempt(), claim.token()), (1, asked.token));
    replays(&store, &kept).await;
    store.complete(&lost, &outcome(&running)).await.unwrap().applied().unwrap();
    // Keys of all slots are served again, for existing and for new connections.
    let other = settled(async || place.options().connect().await).await;
    for (number, store) in [&store, &other].into_iter().enumerate() {
        for key in 0..20 {
            let asked = ask(store, &format!("after-{number}-{key}")).await;
            lease(settled(async || store.claim(&asked).await).await);
        }
    }
}

#[tokio::test]
async fn a_cluster_is_found_by_any_of_its_servers_and_looked_at_as_a_whole() {
    const KEYS: usize = 300;
    let cluster = Cluster::start();
    let masters = cluster.those_that_are("master").await;
    let place = cluster.place_by(masters[1]);
    let store = place.store().await;
    let key = |number: usize| Key::new("tests", &format!("key-{number}")).unwrap();
    claim_all(&store, (0..KEYS).map(key)).await;
    for master in &masters {
        let mut client = cluster.connection(*master).await;
        assert!(say::<usize>(&mut client, "DBSIZE").await > KEYS / 6, "the keys are spread over all masters");
    }
    // A replica knows the masters as well as any server, and may be one that was a master when it
    // was configured.
    let replica = cluster.those_that_are("slave").await[0];
    let by_replica = Place { prefix: place.prefix.clone(), ..cluster.place_by(replica) };
    let other = by_replica.store().await;
    for limit in [1, 10, 100, 1_000] {
        let seen = listed(&other, ListQuery::default().with_limit(limit)).await;
        assert_eq!(seen.len(), KEYS, "in pages of {limit}");
        assert_eq!(seen.into_iter().collect::<BTreeSet<_>>(), (0..KEYS).map(key).collect());
    }

    let terms = Terms::new(Terms::MIN_LEASE, Terms::MIN_LEASE).unwrap();
    let mut last = None;
    for number in 0..40 {
        let asked = retried(ask(&store, &format!("over-{number}")).await.with_terms(terms));
        last = Some(granted(&store, &asked).await);
    }
    let last = last.unwrap();
    until("they are over", async || other.find(last.key()).await.unwrap().is_none()).await;
    assert_eq!(other.prune(&Prune::default().with_limit(25)).await.unwrap(), 25);
    assert_eq!(other.prune(&Prune::default()).await.unwrap(), 15);
    assert_eq!(listed(&store, ListQuery::default()).await.len(), KEYS);

    let pending: Vec<_> =
        (0..50).map(async |n| store.claim(&ask(&store, &format!("last-{n}")).await).await).collect();
    let (claims, ()) = tokio::join!(futures_util::future::join_all(pending), async {
        tokio::task::yield_now().await;
        store.close().await;
    });
    for claim in claims {
        // Each claim was answered, or came too late to be sent.
        assert!(
            claim.as_ref().map_or_else(|error| error.to_string().contains("closed"), |_| true),
            "{claim:?}"
        );
    }
}
