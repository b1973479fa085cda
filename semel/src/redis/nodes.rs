//! Which server a question goes to: the one there is, or the one that serves the slot.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use redis::{Cmd, Value};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::address::{Address, Place};
use super::committer::{Committer, Question, Said};
use super::errors::Elsewhere;
use super::name::{Name, SLOTS};
use super::options::RedisOptions;
use super::session::{self, Server, Session};
use crate::batch::{Batcher, Lane};
use crate::error::StoreError;

/// How often a question is sent on from server to server.
const MAX_HOPS: u32 = 6;

pub(super) struct Nodes {
    options: Arc<RedisOptions>,
    map: RwLock<Map>,
    refreshing: Arc<Mutex<()>>,
}

/// Who serves what.
enum Map {
    One(Arc<Node>),
    Cluster { slots: Vec<Arc<Node>>, nodes: HashMap<Address, Arc<Node>> },
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
        self.batcher.ask(lane, question).await?.answer().await
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
            Map::of_cluster(&options, served, &HashMap::new())?
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
        let mut node = self.map().node(name);
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

    async fn refresh(self: Arc<Self>, _turn: OwnedMutexGuard<()>) {
        for address in self.known() {
            let served = match session::slots(&self.options, &address).await {
                Ok(served) => served,
                Err(error) => {
                    tracing::debug!(%error, "could not ask a server of the cluster who serves what");
                    continue;
                }
            };
            let mut map = self.map.write().unwrap_or_else(PoisonError::into_inner);
            if let Map::Cluster { nodes, .. } = &*map
                && let Ok(newer) = Map::of_cluster(&self.options, served, nodes)
            {
                *map = newer;
                return;
            }
        }
    }

    /// Where servers are, or were.
    fn known(&self) -> Vec<Address> {
        let mut known: Vec<Address> = match &*self.map() {
            Map::One(_) => Vec::new(),
            Map::Cluster { nodes, .. } => nodes.keys().cloned().collect(),
        };
        if let Place::Servers(seeds) = &self.options.place {
            known.extend(seeds.iter().filter(|seed| !known.contains(seed)).cloned().collect::<Vec<_>>());
        }
        known
    }
}

impl Map {
    /// The map of a cluster; servers that are known already keep their queues.
    ///
    /// # Errors
    /// Unavailable if somebody is missing for some of the slots.
    fn of_cluster(
        options: &Arc<RedisOptions>,
        served: Vec<(u16, u16, Address)>,
        known: &HashMap<Address, Arc<Node>>,
    ) -> Result<Self, StoreError> {
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
        let slots: Option<Vec<_>> = slots.into_iter().collect();
        let slots =
            slots.ok_or_else(|| StoreError::unavailable("the cluster of Redis does not serve all slots"))?;
        Ok(Self::Cluster { slots, nodes })
    }

    fn node(&self, name: &Name) -> Arc<Node> {
        match self {
            Self::One(node) => Arc::clone(node),
            Self::Cluster { slots, .. } => Arc::clone(&slots[usize::from(name.slot())]),
        }
    }

    fn all(&self) -> Vec<Arc<Node>> {
        match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster { slots, nodes } => {
                // In the order of their first slots. One that serves none is asked only because of a slot that moves.
                let mut served: Vec<&Arc<Node>> = Vec::with_capacity(nodes.len());
                for node in slots {
                    if !served.iter().any(|known| Arc::ptr_eq(known, node)) {
                        served.push(node);
                    }
                }
                served.into_iter().map(Arc::clone).collect()
            }
        }
    }
}
