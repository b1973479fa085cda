//! The store on a cluster of three masters with a replica each.

use std::time::Duration;

use semel::conformance::{self, Subject};
use xtask::redis_servers::RedisServers;

use crate::place::Place;

/// A cluster that answers.
pub(crate) struct Cluster {
    pub(crate) servers: RedisServers,
    pub(crate) ports: [u16; 6],
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let mut servers = RedisServers::new().unwrap();
        let ports = servers.start_cluster("").unwrap();
        Self { servers, ports }
    }

    pub(crate) fn place(&self) -> Place {
        let [first, second, ..] = self.ports;
        Place::on(format!("redis+cluster://127.0.0.1:{first},127.0.0.1:{second}"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_every_promise() {
    let cluster = Cluster::start();
    let place = cluster.place();
    let subject = Subject::new(place.store().await)
        .with_peer(place.store().await)
        .with_lease(Duration::from_secs(2))
        .with_checks_at_once(64);
    conformance::check(&subject).await.unwrap_or_else(|broken| panic!("{broken}"));
    conformance::check_backend(place.store().await).await.unwrap_or_else(|broken| panic!("{broken}"));
}
