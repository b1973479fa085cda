//! A proxy to a server that can drop the connection between a request and its answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};
use tokio_util::task::AbortOnDropHandle;

/// The most bytes that are passed on at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A proxy that runs until it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct State {
    /// The number of next answers to drop.
    wanted: AtomicU64,
    cuts: AtomicU64,
    /// Set while answers are held back.
    holds_back: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("could not listen for a proxy")?;
        let address = listener.local_addr()?;
        let state = Arc::<State>::default();
        let passing = Arc::clone(&state);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((client, _)) = listener.accept().await else {
                    // The process is out of file handles: some will be closed, and the clients
                    // reconnect.
                    sleep(Duration::from_millis(10)).await;
                    continue;
                };
                let state = Arc::clone(&passing);
                connections.spawn(async move {
                    // However a connection ends, dropping closes both of its ends.
                    let _ended = pass(client, server, &state).await;
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, state, _task: AbortOnDropHandle::new(task) })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Drops this number of next answers, each with its connection.
    pub(crate) fn cut(&self, answers: u64) {
        self.state.wanted.fetch_add(answers, Ordering::Relaxed);
    }

    /// Holds all answers back until they are let go.
    pub(crate) fn hold_back(&self) {
        self.state.holds_back.send_replace(true);
    }

    pub(crate) fn let_go(&self) {
        self.state.holds_back.send_replace(false);
    }

    /// Drops no more answers, and holds none back.
    pub(crate) fn heal(&self) {
        self.state.wanted.store(0, Ordering::Relaxed);
        self.let_go();
    }

    /// The number of dropped answers.
    pub(crate) fn cuts(&self) -> u64 {
        self.state.cuts.load(Ordering::Relaxed)
    }
}

async fn pass(client: TcpStream, server: SocketAddr, state: &State) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await
    };
    let back = async {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let length = from_server.read(&mut piece).await?;
            if length == 0 {
                return to_client.shutdown().await;
            }
            if state.takes_one() {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            state.let_pass().await;
            to_client.write_all(&piece[..length]).await?;
        }
    };
    tokio::try_join!(there, back)?;
    Ok(())
}

impl State {
    /// Waits while answers are held back.
    async fn let_pass(&self) {
        let mut held_back = self.holds_back.subscribe();
        // The sender is part of this state, and lives at least as long.
        let _is_there = held_back.wait_for(|holds_back| !holds_back).await;
    }

    /// Returns `true` if this answer is to be dropped.
    fn takes_one(&self) -> bool {
        let less = |wanted: u64| wanted.checked_sub(1);
        let taken = self.wanted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        self.cuts.fetch_add(u64::from(taken), Ordering::Relaxed);
        taken
    }
}

#[cfg(test)]
mod facts {
    use super::*;

    /// A server that echoes each byte.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        address
    }

    async fn ask(proxy: &Proxy) -> io::Result<u8> {
        let mut stream = TcpStream::connect(proxy.address()).await?;
        stream.write_all(b"a").await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn answers_are_lost_as_often_as_was_asked_for_and_no_more() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        assert_eq!(ask(&proxy).await.unwrap(), b'a');
        proxy.cut(2);
        assert!(ask(&proxy).await.is_err());
        assert!(ask(&proxy).await.is_err());
        assert_eq!(ask(&proxy).await.unwrap(), b'a');
        assert_eq!(proxy.cuts(), 2);
    }

    #[tokio::test]
    async fn answers_that_are_held_back_come_when_they_are_let_go() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        proxy.hold_back();
        let (answer, ()) = tokio::join!(ask(&proxy), async {
            sleep(Duration::from_millis(50)).await;
            proxy.let_go();
        });
        assert_eq!(answer.unwrap(), b'a');
        proxy.hold_back();
        assert!(tokio::time::timeout(Duration::from_millis(50), ask(&proxy)).await.is_err());
    }

    #[tokio::test]
    async fn a_healed_proxy_loses_nothing() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        proxy.cut(5);
        proxy.heal();
        assert_eq!(ask(&proxy).await.unwrap(), b'a');
        assert_eq!(proxy.cuts(), 0);
    }
}
