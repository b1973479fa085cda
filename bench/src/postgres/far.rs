//! Postgres in another zone: every message takes some milliseconds on its way.

use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::NoTls;
use tokio_postgres::config::Host;

use super::Args;
use super::best::Best;
use super::pool::POOL;
use super::shapes::Shape;
use super::subject::{SEMEL, connect};
use super::sweep::{Point, Swept};
use crate::load::{flat_out, uuid_v4};
use crate::report::{Report, progress};
use crate::rounds::number;
use crate::server::Server;
use crate::table::Table;

/// The time that a message takes in each direction; the timer adds up to a millisecond.
const ONE_WAY: Duration = Duration::from_millis(2);
const CALLERS: [usize; 4] = [4, 16, 64, 256];
/// The number of callers with a bound.
const BOUND: (usize, f64) = (64, 3.0);

/// Lets semel and the most common shape take turns over a network that delays.
pub(super) async fn far(args: &Args, server: &Server, report: &mut Report) -> Result<()> {
    let url = delayed(&server.url).await?;
    let trip = round_trip(&url).await?;
    let names = [SEMEL, Shape::InsertOrNothing.name()];
    let mut sides = Vec::new();
    for name in names {
        sides.push((connect(&url, name, SEMEL, POOL, args.connections).await?, Swept::new(name)));
    }
    for callers in CALLERS {
        progress(format!("Postgres {trip:.1} ms away: claim + complete, callers: {callers}"));
        for (_, swept) in &mut sides {
            swept.points.push(Point::default());
        }
        for _ in 0..args.rounds {
            for (side, swept) in &mut sides {
                let side = side.clone();
                let length = Duration::from_secs_f64(args.seconds.max(1.0));
                let measured = flat_out(callers, length, move |_| {
                    let side = side.clone();
                    async move { side.first(&uuid_v4()).await }
                })
                .await?;
                let Some(point) = swept.points.last_mut() else { continue };
                point.rate.push(measured.per_second);
                point.p50.push(measured.millis(50.0));
                point.p99.push(measured.millis(99.0));
            }
        }
    }
    let all: Vec<Swept> = sides.into_iter().map(|(_, swept)| swept).collect();
    let title =
        format!("claim + complete, Postgres {trip:.1} ms away: operations a second (p50 in ms), by callers");
    let columns = std::iter::once(String::new()).chain(CALLERS.map(|callers| callers.to_string()));
    let mut table = Table::new(title, columns);
    for side in &all {
        let cell = |point: &Point| format!("{} ({})", point.rate.show(), number(point.p50.median()));
        table.row(std::iter::once(side.name.to_owned()).chain(side.points.iter().map(cell)));
    }
    report.table(table);
    let (callers, bound) = BOUND;
    let at = CALLERS.iter().position(|each| *each == callers);
    if let Some(Best { ours, theirs }) = at.and_then(|at| Best::at(&all, at)) {
        let name = format!("claim + complete, Postgres in another zone, {callers} callers, vs call by call");
        report.at_least(&name, ours.rate.over(&theirs.rate), bound);
    }
    Ok(())
}

/// The URL of the server through a proxy that delays.
async fn delayed(url: &str) -> Result<String> {
    let config: tokio_postgres::Config = url.parse()?;
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let host = config.get_hosts().first().cloned().context("the URL names no host")?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let proxy = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let _ = client.set_nodelay(true);
            match &host {
                Host::Tcp(name) => {
                    if let Ok(server) = TcpStream::connect((name.as_str(), port)).await {
                        let _ = server.set_nodelay(true);
                        join(client, server);
                    }
                }
                Host::Unix(folder) => {
                    let socket = folder.join(format!(".s.PGSQL.{port}"));
                    if let Ok(server) = UnixStream::connect(socket).await {
                        join(client, server);
                    }
                }
            }
        }
    });
    let user = config.get_user().unwrap_or("postgres");
    let name = config.get_dbname().unwrap_or(user);
    Ok(format!("postgres://{user}@127.0.0.1:{proxy}/{name}"))
}

/// Carries bytes in both directions.
fn join(client: TcpStream, server: impl AsyncRead + AsyncWrite + Send + 'static) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = split(server);
    tokio::spawn(carry(from_client, to_server));
    tokio::spawn(carry(from_server, to_client));
}

/// Carries bytes in one direction, each for as long as the way takes.
async fn carry(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin + Send + 'static) {
    let (sender, mut receiver) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        while let Some((due, bytes)) = receiver.recv().await {
            sleep_until(due).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if sender.send((Instant::now() + ONE_WAY, buffer[..count].to_vec())).is_err() {
            return;
        }
    }
}

/// The time of the fastest of some questions, in milliseconds.
async fn round_trip(url: &str) -> Result<f64> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let mut fastest = f64::INFINITY;
    for _ in 0..20 {
        let asked = Instant::now();
        client.batch_execute("").await.context("the proxy does not answer")?;
        fastest = fastest.min(asked.elapsed().as_secs_f64() * 1e3);
    }
    Ok(fastest)
}
