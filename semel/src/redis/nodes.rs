//! Which server a question goes to: the one there is, or the one that serves the slot.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use futures_util::future::select_ok;
use redis::{Cmd, Value};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until};

use super::address::{Address, Place};
use super::committer::{Committer, Question, Said};
use super::errors::Elsewhere;
use super::name::{Name, SLOTS};
use super::options::RedisOptions;
use super::session::{self, Server, Session};
use crate::batch::{Batcher, Lane};
use crate::error::StoreError;

/// The shortest time between two questions about who serves what.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);

/// How often a question is sent on from server to server.
const MAX_HOPS: u32 = 6;

pub(super) struct Nodes {
    options: Arc<RedisOptions>,
    map: RwLock<Map>,
    /// When the map was last drawn anew; held by who does so.
    refreshing: Arc<Mutex<Option<Instant>>>,
}

/// Who serves what.
enum Map {
    One(Arc<Node>),
    Cluster { slots: Vec<Option<Arc<Node>>>, nodes: HashMap<Address, Arc<Node>> },
}

/// A server, with the queue before it.
pub(super) struct Node {
    batcher: Batcher<Committer>,
}

impl Node {
    fn start(options: &Arc<RedisOptions>, address: Option<Address>) -> Arc<Self> {
        let committer = |_| Committer::new(Arc::clone(options), address.clone());
        Arc::new(Self { batcher: Batcher::start((0..options.connections).map(committer).collect()) })
    }

    async fn say(&self, lane: Lane, question: Question) -> Result<Said, StoreError> {
        self.batcher.ask(lane, || question).await?.answer().await
    }

    /// What this very server answers to a command that is about no name in particular.
    pub(super) async fn ask(&self, command: Cmd) -> Result<Value, StoreError> {
        let question = Question { command: Arc::new(command), subject: rand::random(), is_asking: false };
        match self.say(Lane::Claim, question).await? {
            Said::Answer(answer) => Ok(answer),
            Said::Elsewhere(_) => Err(StoreError::unavailable("the server of Redis sent us elsewhere")),
        }
    }
}

impl Nodes {
    /// Finds the servers, and what the first of them says about itself.
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

    /// What the server of this name answers.
    pub(super) async fn ask(
        self: &Arc<Self>,
        lane: Lane,
        name: &Name,
        command: Cmd,
    ) -> Result<Value, StoreError> {
        let mut node = self.node(name)?;
        let mut question = Question { command: Arc::new(command), subject: name.digest(), is_asking: false };
        for _ in 0..MAX_HOPS {
            let said = node.say(lane, question.clone()).await;
            (node, question.is_asking) = match said {
                Ok(Said::Answer(answer)) => return Ok(answer),
                Ok(Said::Elsewhere(Elsewhere::Moved(address))) => {
                    self.refresh_soon();
                    (self.at(address)?, false)
                }
                Ok(Said::Elsewhere(Elsewhere::Ask(address))) => (self.at(address)?, true),
                Err(error) => {
                    if error.is_transient() {
                        // Somebody else may serve the slot by now.
                        self.refresh_soon();
                    }
                    return Err(error);
                }
            };
        }
        Err(StoreError::unavailable(format!("the cluster of Redis sent us on {MAX_HOPS} times")))
    }

    /// All servers, in an order that stays the same while they do.
    pub(super) fn all(&self) -> Vec<Arc<Node>> {
        self.map().all()
    }

    /// Answers what is queued, takes nothing more, and closes the connections.
    pub(super) async fn close(&self) {
        for node in self.all() {
            node.batcher.close().await;
        }
    }

    /// The server of a name.
    fn node(self: &Arc<Self>, name: &Name) -> Result<Arc<Node>, StoreError> {
        let node = self.map().node(name);
        node.ok_or_else(|| {
            self.refresh_soon();
            StoreError::unavailable(format!("nobody serves slot {} of the cluster of Redis", name.slot()))
        })
    }

    fn map(&self) -> RwLockReadGuard<'_, Map> {
        // Nothing panics while the lock is held.
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server at an address, which may be new.
    fn at(&self, address: Address) -> Result<Arc<Node>, StoreError> {
        let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
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

    /// Asks the servers of a cluster in the background who serves what, unless somebody does so already.
    fn refresh_soon(self: &Arc<Self>) {
        if matches!(&*self.map(), Map::One(_)) {
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
        // Some of them may be gone: whoever answers first will do. If it knows less than others, they send us on.
        match select_ok(asked).await {
            Ok((served, _)) => {
                let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
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

    /// Where servers are, or were.
    fn known(&self) -> Vec<Address> {
        let mut known: Vec<Address> = match &*self.map() {
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
    /// The map of a cluster; servers that are known already keep their queues.
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
                // In the order of their first slots. One that serves none is asked only because of a slot that moves.
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
