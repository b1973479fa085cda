//! A Postgres that is down for a while.

use std::future::pending;
use std::time::{Duration, Instant};

use testkit::ports::Port;
use testkit::servers::postgres_url;
use testkit::stores::postgres::database;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::process::{BOUND, Gateway, Setup};
use crate::stop::Stop;
use crate::upstream::{Upstream, answer};
use crate::wire::Io;

/// A path to the server that can be cut.
struct Way {
    port: Port,
    passing: Option<AbortOnDropHandle<()>>,
    frozen: CancellationToken,
}

impl Way {
    async fn new() -> Self {
        let port = Port::reserve().expect("a free port");
        let mut way = Self { port, passing: None, frozen: CancellationToken::new() };
        way.mend().await;
        way
    }

    async fn mend(&mut self) {
        let listener = TcpListener::bind(self.port.address()).await.expect("the port is reserved");
        self.frozen = CancellationToken::new();
        let frozen = self.frozen.clone();
        let passing = tokio::spawn(async move {
            let mut ways = Vec::new();
            loop {
                let (mut near, _) = listener.accept().await.expect("a connection");
                let frozen = frozen.clone();
                ways.push(AbortOnDropHandle::new(tokio::spawn(async move {
                    let mut far = far_side().await;
                    tokio::select! {
                        _cut = copy_bidirectional(&mut near, &mut far) => {}
                        () = frozen.cancelled() => pending().await,
                    }
                })));
            }
        });
        self.passing = Some(AbortOnDropHandle::new(passing));
    }

    /// Passes nothing on any more, and keeps every connection open.
    fn freeze(&self) {
        self.frozen.cancel();
    }

    /// Cuts every connection, and refuses new ones.
    async fn cut(&mut self) {
        drop(self.passing.take());
        // The port is free again when the task has ended.
        let began = Instant::now();
        while TcpStream::connect(self.port.address()).await.is_ok() {
            assert!(began.elapsed() < BOUND, "the way is still open");
        }
    }
}

async fn far_side() -> Box<dyn IoUnpin> {
    let config: Config = postgres_url().parse().expect("a URL");
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts().first().expect("a host") {
        Host::Unix(folder) => {
            let socket = folder.join(format!(".s.PGSQL.{port}"));
            Box::new(UnixStream::connect(socket).await.expect("the server is there"))
        }
        Host::Tcp(host) => Box::new(TcpStream::connect((&**host, port)).await.expect("the server is there")),
    }
}

trait IoUnpin: Io + Unpin {}

impl<I: Io + Unpin> IoUnpin for I {}

/// A gateway over Postgres, and the path between them.
async fn setup(policy: &str) -> (Upstream, Stop, Way, Gateway) {
    let (upstream, stop) = Upstream::stopping().await;
    let (setup, way) = over_postgres(&upstream).await;
    let gateway = setup.with("--policy", policy).with("--lease", "30s").start().await;
    (upstream, stop, way, gateway)
}

/// Settings over Postgres, and the path to it.
async fn over_postgres(upstream: &Upstream) -> (Setup, Way) {
    let way = Way::new().await;
    let config: Config = database().await.parse().expect("a URL");
    let login = config.get_user().expect("a user");
    let password = config.get_password().map(|password| format!(":{}", String::from_utf8_lossy(password)));
    let store = format!(
        "postgres://{login}{}@{}/{}",
        password.unwrap_or_default(),
        way.port.address(),
        config.get_dbname().expect("a database")
    );
    let setup = Setup::before(upstream.address).with("--store", &store).with("--migrate", "true");
    (setup, way)
}

async fn until_ready(gateway: &Gateway, status: u16) -> String {
    let began = Instant::now();
    loop {
        let ready = gateway.admin("/readyz").await;
        if ready.status == status {
            return ready.text();
        }
        assert!(began.elapsed() < BOUND, "readyz stays {}", ready.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn while_the_store_is_away_nothing_with_a_key_runs_and_everything_else_does() {
    let (upstream, stop, mut way, gateway) = setup("hold").await;
    (0..3).for_each(|_| stop.go());
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), false));
    way.cut().await;
    let why = until_ready(&gateway, 503).await;
    assert!(why.starts_with("not ready: "), "{why}");
    for key in ["k", "l"] {
        let refused = gateway.post(key, "{}").await;
        refused.problem(503, "store_unavailable");
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(gateway.ask("POST /charges", "", "{}").await.status, 200);
    assert_eq!(upstream.count(), 2);
    way.mend().await;
    until_ready(&gateway, 200).await;
    assert_eq!(gateway.post("k", "{}").await.told(), (200, "run 1".to_owned(), true));
    assert_eq!(gateway.post("l", "{}").await.told(), (200, "run 3".to_owned(), false));
}

#[tokio::test]
async fn an_outcome_that_comes_while_the_store_is_away_is_recorded_when_it_is_back() {
    let (upstream, stop, mut way, gateway) = setup("hold").await;
    let first = gateway.posting("k", "{}");
    stop.arrival().await;
    way.cut().await;
    stop.go();
    until_ready(&gateway, 503).await;
    way.mend().await;
    let first = first.await.unwrap().unwrap();
    // The client gets the outcome if it could be recorded in time, and otherwise an answer that it
    // will be.
    match first.status {
        200 => assert_eq!(first.told(), (200, "run 1".to_owned(), false)),
        _ => drop(first.problem(503, "outcome_pending")),
    }
    assert_eq!(gateway.post_until_settled("k", "{}").await.told(), (200, "run 1".to_owned(), true));
    assert_eq!(upstream.count(), 1);
}

/// Regression: the outcomes of clients that had left waited for the store outside of the budget.
#[tokio::test]
async fn outcomes_that_wait_for_a_silent_store_stay_within_the_budget() {
    const ATTEMPTS: usize = 80;
    const BODY: usize = (1 << 20) - 100;
    let stop = Stop::default();
    let stops = stop.clone();
    let upstream = Upstream::start(move |seen| {
        let stop = stops.clone();
        async move {
            if seen.number > 1 {
                stop.here().await;
            }
            answer("200 OK", "", vec![b'x'; BODY])
        }
    })
    .await;
    let (setup, mut way) = over_postgres(&upstream).await;
    let setup = setup.with("--max-memory", "8MiB").with("--upstream-timeout", "5m").with("--lease", "10m");
    let gateway = setup.start().await;
    assert_eq!(gateway.post("warm", "{}").await.status, 200);
    let before = gateway.peak_bytes();
    let asked: Vec<_> = (0..ATTEMPTS).map(|key| gateway.posting(&key.to_string(), "{}")).collect();
    for _ in 0..ATTEMPTS {
        stop.arrival().await;
    }
    way.freeze();
    // The clients leave, so nothing waits for the answers but the store.
    asked.iter().for_each(tokio::task::JoinHandle::abort);
    let gone = "semel_gateway_connections ";
    let began = Instant::now();
    while gateway.metric(&[gone]).await > 0.0 {
        assert!(began.elapsed() < BOUND, "the clients are still there");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    (0..ATTEMPTS).for_each(|_| stop.go());
    // The pause lets the answers arrive. If it were too short, the test would only cover less.
    tokio::time::sleep(Duration::from_secs(5)).await;
    gateway.stays_within(before, 8 << 20);
    way.cut().await;
    way.mend().await;
    let began = Instant::now();
    for key in 0..ATTEMPTS {
        let reply = loop {
            let reply = gateway.post(&key.to_string(), "{}").await;
            if reply.status == 200 {
                break reply;
            }
            assert!(matches!(reply.status, 409 | 503) && began.elapsed() < BOUND, "{key}: {}", reply.text());
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert_eq!((reply.body.len(), reply.is_replay()), (BODY, true), "{key}");
    }
    assert_eq!(upstream.count(), 1 + ATTEMPTS);
}
