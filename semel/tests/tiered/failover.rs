//! The writes that a failover of Redis loses: honestly reported for Redis alone, and none for Redis
//! in front of Postgres.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use semel::store::{Ack, Ask, Claim, Token};
use semel::{RedisStore, Store, Tiered};
use testkit::claims::{ask_at, outcome};
use testkit::servers::RedisServers;
use testkit::stores::tiered::Place;
use tokio::time::{Instant, sleep};

/// The number of keys that are claimed before the failover; about a third of them are on the master
/// that dies.
const KEYS: usize = 300;

/// A cluster of three masters, `node0` to `node2`, with a replica each.
struct Cluster {
    servers: RedisServers,
    ports: [u16; 6],
}

impl Cluster {
    fn start() -> Self {
        let mut servers = RedisServers::new().unwrap();
        let ports = servers.start_cluster("").unwrap();
        Self { servers, ports }
    }

    /// A place that is reached by a server that survives.
    fn place(&self) -> Place {
        Place::on(format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.ports[1], self.ports[2]))
    }

    async fn connection(&self, node: usize) -> MultiplexedConnection {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.ports[node])).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }

    async fn info(&self, node: usize) -> String {
        redis::cmd("INFO").arg("replication").query_async(&mut self.connection(node).await).await.unwrap()
    }

    async fn replica_of_the_first(&self) -> usize {
        let master = format!("master_port:{}\r\n", self.ports[0]);
        for node in 3..6 {
            if self.info(node).await.contains(&master) {
                return node;
            }
        }
        panic!("the first master has no replica");
    }

    /// Stops the replica of the first master, so that it receives nothing any more.
    async fn stop_replication(&mut self) -> usize {
        let replica = self.replica_of_the_first().await;
        self.servers.signal("STOP", &format!("node{replica}")).unwrap();
        // The replica would find in its socket the writes of the master from that time.
        let kill = redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("replica").to_owned();
        let killed: i64 = kill.query_async(&mut self.connection(0).await).await.unwrap();
        assert_eq!(killed, 1);
        replica
    }

    /// Kills the first master, and lets its replica take its place.
    async fn fail_over(&mut self, replica: usize) {
        self.servers.signal("KILL", "node0").unwrap();
        self.servers.signal("CONT", &format!("node{replica}")).unwrap();
        let began = Instant::now();
        while !self.info(replica).await.contains("role:master") {
            assert!(began.elapsed() < Duration::from_secs(60), "the replica was not promoted");
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Repeats a claim until there is an answer: during a failover there may be none.
async fn persist(store: &impl Store, asked: &Ask) -> Claim {
    let began = Instant::now();
    loop {
        match store.claim(asked).await {
            Ok(claim) => return claim,
            Err(error) => {
                assert!(error.is_transient() && began.elapsed() < Duration::from_secs(60), "{error}");
            }
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// The fate of keys that were claimed before a failover.
#[derive(Debug, Default)]
struct Report {
    /// The keys that were granted to another attempt although the first one holds a lease: their
    /// work runs twice.
    doubles: usize,
    /// The keys whose first owner could not record its outcome.
    lost: usize,
}

/// Claims keys, kills a master whose last writes no replica has, and claims the keys again.
async fn claimed_over_a_failover(cluster: &mut Cluster, store: &impl Store) -> Report {
    let now = store.now().await.unwrap();
    let asks: Vec<Ask> = (0..KEYS).map(|number| ask_at(now, &format!("key {number}"))).collect();
    let replica = cluster.stop_replication().await;
    let mut leases = Vec::new();
    for asked in &asks {
        let Claim::Granted(lease) = persist(store, asked).await else { panic!("a new key was not granted") };
        leases.push(lease);
    }
    cluster.fail_over(replica).await;

    let mut report = Report::default();
    for (asked, lease) in asks.iter().zip(&leases) {
        let other = asked.clone().with_token(Token::random());
        match persist(store, &other).await {
            Claim::Granted(_) => report.doubles += 1,
            Claim::Running { .. } => {}
            claim => panic!("{claim:?}"),
        }
        let ack = store.complete(lease, &outcome("first")).await.unwrap();
        report.lost += usize::from(ack != Ack::Applied);
    }
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_alone_runs_twice_what_a_failover_forgot_and_that_is_reported() {
    let mut cluster = Cluster::start();
    let store: RedisStore = cluster.place().hot().await;
    let report = claimed_over_a_failover(&mut cluster, &store).await;
    println!("Redis alone, {KEYS} keys claimed before a failover: {report:?}");
    // A third of the keys was on the master that died; the choice is random.
    assert!((KEYS / 6..=KEYS / 2).contains(&report.doubles), "{report:?}");
    assert_eq!(report.lost, report.doubles);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_before_postgres_runs_nothing_twice_over_a_failover() {
    let mut cluster = Cluster::start();
    let place = cluster.place();
    let tier = Tiered::new(place.hot().await, place.durable().await);
    let report = claimed_over_a_failover(&mut cluster, &tier).await;
    println!("Redis before Postgres, {KEYS} keys claimed before a failover: {report:?}");
    assert_eq!((report.doubles, report.lost), (0, 0));
}
