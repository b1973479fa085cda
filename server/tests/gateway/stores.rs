//! A Postgres that is down for a while.

use std::time::{Duration, Instant};

use testkit::ports::Port;
use testkit::servers::postgres_url;
use testkit::stores::postgres::database;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_postgres::Config;
use tokio_postgres::config::Host;
use tokio_util::task::AbortOnDropHandle;

use crate::process::{BOUND, Gateway, Setup};
use crate::stop::Stop;
use crate::upstream::Upstream;
use crate::wire::Io;

/// A path to the server that can be cut.
struct Way {
    port: Port,
    passing: Option<AbortOnDropHandle<()>>,
}

impl Way {
    async fn new() -> Self {
        let mut way = Self { port: Port::reserve().expect("a free port"), passing: None };
        way.mend().await;
        way
    }

    async fn mend(&mut self) {
        let listener = TcpListener::bind(self.port.address()).await.expect("the port is reserved");
        let passing = tokio::spawn(async move {
            let mut ways = Vec::new();
            loop {
                let (mut near, _) = listener.accept().await.expect("a connection");
                ways.push(AbortOnDropHandle::new(tokio::spawn(async move {
                    let mut far = far_side().await;
                    let _cut = copy_bidirectional(&mut near, &mut far).await;
                })));
            }
        });
        self.passing = Some(AbortOnDropHandle::new(passing));
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
    let gateway = setup.with("--policy", policy).with("--lease", "30s").start().await;
    (upstream, stop, way, gateway)
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
