//! The servers, and the choice of the one for a name: the only server, or the one that serves the
//! slot.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use parking_lot::RwLock;
use redis::{Cmd, FromRedisValue, Value};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until};

use super::address::{Address, Place};
use super::batching::committer::{Large, Question, Said};
use super::batching::session::{self, Server, Session};
use super::errors::Elsewhere;
use super::name::{Name, SLOTS};
use super::node::Node;
use super::options::RedisOptions;
use super::parse;
use crate::store::shared::group_commit::Lane;
use crate::store::shared::server_clock::ClockOffset;
use crate::words::error::StoreError;
use crate::words::time::Timestamp;

/// The shortest time between two refreshes of the map of slots.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// The largest number of redirections of a command.
const MAX_HOPS: u32 = 6;

pub(super) struct Nodes {
    options: Arc<RedisOptions>,
    map: RwLock<Map>,
    /// The time of the last refresh of the map; the lock is held during a refresh.
    refreshing: Arc<Mutex<Option<Instant>>>,
}

/// The map from slots to servers.
enum Map {
    One(Arc<Node>),
    Cluster { slots: Vec<Option<Arc<Node>>>, nodes: HashMap<Address, Arc<Node>> },
}

/// A command that is created for a server, because the server's clock may differ from that of the
/// store.
pub(super) struct Command<F> {
    pub(super) make: F,
    /// The number of bytes that it reads, if those are many.
    pub(super) answer_bytes: usize,
}

impl<F: Fn(ClockOffset) -> Cmd> Command<F> {
    pub(super) fn new(make: F) -> Self {
        Self { make, answer_bytes: 0 }
    }
}

/// An answer, and the server that gave it.
pub(super) struct Answered {
    pub(super) said: Answer,
    pub(super) node: Arc<Node>,
    pub(super) offset: ClockOffset,
}

pub(super) enum Answer {
    Own(Value),
    Shared(Arc<Large>),
}

impl Answer {
    /// The answer to a command that reads little.
    pub(super) fn parse<T: FromRedisValue>(self) -> Result<T, StoreError> {
        match self {
            Self::Own(value) => parse(value),
            Self::Shared(large) => parse(large.value.clone()),
        }
    }
}

impl Nodes {
    /// Finds the servers, and the first server's description of itself.
    pub(super) async fn find(options: Arc<RedisOptions>) -> Result<(Self, Server), StoreError> {
        let session = Session::open(&options).await?;
        let map = if session.server.is_cluster {
            let served = session::slots(&options, &session.address).await?;
            Map::of_cluster(&options, served, &HashMap::new())
        } else {
            Map::One(Node::start(&options, None))
        };
        let nodes = Self { options, map: RwLock::new(map), refreshing: Arc::default() };
        Ok((nodes, session.server))
    }

    /// The answer of the server of this name.
    pub(super) async fn ask(
        self: &Arc<Self>,
        lane: Lane,
        name: &Name,
        command: Command<impl Fn(ClockOffset) -> Cmd>,
    ) -> Result<Answered, StoreError> {
        let mut node = self.node(name)?;
        let mut is_asking = false;
        for _ in 0..MAX_HOPS {
            let offset = match self.is_reference(&node) {
                true => ClockOffset::NONE,
                false => Box::pin(self.offset(&node)).await,
            };
            let question = Question {
                command: Arc::new((command.make)(offset)),
                subject: name.digest(),
                is_asking,
                answer_bytes: command.answer_bytes,
            };
            let said = node.say(lane, question).await;
            (node, is_asking) = match said {
                Ok(Said::Answer(answer)) => return Ok(Answered { said: Answer::Own(answer), node, offset }),
                Ok(Said::Large(large)) => return Ok(Answered { said: Answer::Shared(large), node, offset }),
                Ok(Said::Elsewhere(Elsewhere::Moved(address))) => {
                    self.refresh_soon();
                    (self.at(address)?, false)
                }
                Ok(Said::Elsewhere(Elsewhere::Ask(address))) => (self.at(address)?, true),
                Err(error) => {
                    if error.is_transient() {
                        // Another server may serve the slot by now.
                        self.refresh_soon();
                    }
                    return Err(error);
                }
            };
        }
        Err(StoreError::unavailable(format!("the Redis cluster redirected the command {MAX_HOPS} times")))
    }

    /// The server whose clock is that of the store.
    pub(super) fn reference(&self) -> Result<Arc<Node>, StoreError> {
        let missing = || StoreError::unavailable("there is no Redis server");
        self.map.read().reference().map(Arc::clone).ok_or_else(missing)
    }

    /// The store's clock, if it is known without a round trip.
    pub(super) fn known_time(&self) -> Option<Timestamp> {
        self.map.read().reference()?.clock.known()
    }

    fn is_reference(&self, node: &Arc<Node>) -> bool {
        self.map.read().reference().is_some_and(|reference| Arc::ptr_eq(reference, node))
    }

    /// The distance between the clock of a server and that of the store. A server that does not
    /// report its time will not answer the command either.
    async fn offset(&self, node: &Node) -> ClockOffset {
        let Ok(reference) = self.reference() else { return ClockOffset::NONE };
        match (reference.now().await, node.now().await) {
            (Ok(store), Ok(server)) => ClockOffset::between(store, server),
            _ => ClockOffset::NONE,
        }
    }

    /// All servers, in an order that stays the same as long as they do.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.map.read().all()
    }

    /// Answers the queued operations, accepts no more, and closes the connections.
    pub(super) async fn close(&self) {
        for node in self.all() {
            node.batcher.close().await;
        }
    }

    /// The server of a name.
    fn node(self: &Arc<Self>, name: &Name) -> Result<Arc<Node>, StoreError> {
        let node = self.map.read().node(name);
        node.ok_or_else(|| {
            self.refresh_soon();
            StoreError::unavailable(format!("no server serves slot {} of the Redis cluster", name.slot()))
        })
    }

    /// The server at an address, which may be new.
    fn at(&self, address: Address) -> Result<Arc<Node>, StoreError> {
        let mut map = self.map.write();
        match &mut *map {
            Map::Cluster { nodes, .. } => {
                let start = || Node::start(&self.options, Some(address.clone()));
                Ok(Arc::clone(nodes.entry(address.clone()).or_insert_with(start)))
            }
            Map::One(_) => {
                Err(StoreError::unavailable("Redis has become a part of a cluster: connect again"))
            }
        }
    }

    /// Asks the servers of a cluster in the background for the map of slots, unless a refresh is in
    /// progress.
    fn refresh_soon(self: &Arc<Self>) {
        if matches!(&*self.map.read(), Map::One(_)) {
            return;
        }
        if let Ok(turn) = Arc::clone(&self.refreshing).try_lock_owned() {
            tokio::spawn(Arc::clone(self).refresh(turn));
        }
    }

    async fn refresh(self: Arc<Self>, mut last: OwnedMutexGuard<Option<Instant>>) {
        if let Some(last) = *last {
            sleep_until(last + REFRESH_PAUSE).await;
        }
        let known = self.known();
        let asked = known.iter().map(|address| Box::pin(session::slots(&self.options, address)));
        // Some of the servers may be gone: the first answer counts. If it is outdated, the servers
        // redirect the commands.
        match select_ok(asked).await {
            Ok((served, _)) => {
                let mut map = self.map.write();
                if let Map::Cluster { nodes, .. } = &*map
                    && !served.is_empty()
                {
                    *map = Map::of_cluster(&self.options, served, nodes);
                }
            }
            Err(error) => tracing::debug!(%error, "no server of the cluster says who serves what"),
        }
        *last = Some(Instant::now());
    }

    /// The addresses of the servers, including former ones.
    fn known(&self) -> Vec<Address> {
        let mut known: Vec<Address> = match &*self.map.read() {
            Map::One(_) => Vec::new(),
            Map::Cluster { nodes, .. } => nodes.keys().cloned().collect(),
        };
        let seeds = match &self.options.place {
            Place::Server(seed) => std::slice::from_ref(seed),
            Place::Cluster(seeds) => seeds,
            Place::Sentinels { .. } => &[],
        };
        for seed in seeds {
            if !known.contains(seed) {
                known.push(seed.clone());
            }
        }
        known
    }
}

impl Map {
    /// The map of a cluster; servers that are already known keep their queues.
    fn of_cluster(
        options: &Arc<RedisOptions>,
        served: Vec<(u16, u16, Address)>,
        known: &HashMap<Address, Arc<Node>>,
    ) -> Self {
        let mut slots = vec![None; SLOTS.into()];
        let mut nodes = HashMap::new();
        for (from, to, address) in served {
            let start = || Node::start(options, Some(address.clone()));
            let node = nodes
                .entry(address.clone())
                .or_insert_with(|| known.get(&address).map_or_else(start, Arc::clone));
            for slot in from..=to.min(SLOTS - 1) {
                slots[usize::from(slot)] = Some(Arc::clone(node));
            }
        }
        Self::Cluster { slots, nodes }
    }

    /// The first of all servers.
    fn reference(&self) -> Option<&Arc<Node>> {
        match self {
            Self::One(node) => Some(node),
            Self::Cluster { slots, .. } => slots.iter().flatten().next(),
        }
    }

    fn node(&self, name: &Name) -> Option<Arc<Node>> {
        match self {
            Self::One(node) => Some(Arc::clone(node)),
            Self::Cluster { slots, .. } => slots[usize::from(name.slot())].clone(),
        }
    }

    fn all(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster { slots, nodes } => {
                // The servers are in the order of their first slots. A server without slots is used
                // only during the move of a slot.
                let mut served: Vec<&Arc<Node>> = Vec::with_capacity(nodes.len());
                for node in slots.iter().flatten() {
                    if !served.iter().any(|known| Arc::ptr_eq(known, node)) {
                        served.push(node);
                    }
                }
                served.into_iter().map(Arc::clone).collect()
            }
        }
    }
}
