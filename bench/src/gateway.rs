//! The gateway in front of an upstream, compared with the upstream itself, and with nginx.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::runtime::Builder;

use crate::http::client::{flat_out, prepare, repeated};
use crate::http::served::Served;
use crate::load::uuid_v4;
use crate::report::{Report, progress};
use crate::rounds::{Rounds, grouped, number};
use crate::table::Table;

/// The number of concurrent connections.
const CONNECTIONS: usize = 64;

/// The parts to measure, and their length.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds; the sides take turns, and the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Seconds for each side in each round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,

    /// The number of new keys that are sent through the gateway to see whether its memory grows
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,

    /// A gateway binary to measure instead of the one that is built
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// The name of a side, its server, and its keys.
type Side<'a> = (&'static str, &'a Served, fn(u64) -> String);

impl Args {
    /// The settings for the page of all benchmarks.
    pub(crate) fn of_page(long: bool) -> Self {
        let (rounds, seconds, keys) = if long { (5, 2.0, 1_000_000) } else { (3, 1.5, 150_000) };
        Self { rounds, seconds, keys, binary: None }
    }
}

/// Measures, and compares the results with the bounds.
pub(crate) fn run(args: &Args) -> Result<()> {
    measure(args)?.finish()
}

pub(crate) fn measure(args: &Args) -> Result<Report> {
    Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let mut report = Report::new("The gateway");
        compare(args, &mut report).await?;
        Ok(report)
    })
}

async fn compare(args: &Args, report: &mut Report) -> Result<()> {
    let folder = Folder::new()?;
    let upstream = Served::start("upstream", &["plain"]).await?;
    let semel = gateway(args, upstream.address, &folder.0).await?;
    report.at_most("memory of an idle gateway, MiB", semel.memory_mib()?, 20.0);
    let nginx = nginx(upstream.address, &folder.0, report).await?;
    let relay = Served::start("relay", &["relay", &upstream.address.to_string()]).await?;
    prepare(semel.address).await?;

    let none: fn(u64) -> String = |_| String::new();
    let sides: [Side<'_>; 6] = [
        ("the upstream itself", &upstream, none),
        ("a relay that reads nothing", &relay, none),
        ("nginx, pass-through", &nginx, none),
        ("semel, pass-through", &semel, none),
        ("semel, replays from SQLite", &semel, repeated),
        ("semel, new keys on SQLite", &semel, |_| uuid_v4()),
    ];
    let mut rates = [(); 6].map(|()| Rounds::default());
    let mut micros = [(); 6].map(|()| Rounds::default());
    for round in 0..=args.rounds {
        progress(format!("gateway: round {round} of {}", args.rounds));
        for (at, (_, side, key)) in sides.iter().enumerate() {
            let before = side.processor_seconds()?;
            let length = Duration::from_secs_f64(args.seconds);
            let answered = flat_out(side.address, CONNECTIONS, length, *key).await?.max(1) as f64;
            // The first round fetches memory from the system, and makes the connections.
            if round > 0 {
                rates[at].push(answered / args.seconds);
                micros[at].push((side.processor_seconds()? - before) * 1e6 / answered);
            }
        }
    }
    let [direct, _, theirs, passed, replays, _] = &rates;
    let title = format!("the gateway, {CONNECTIONS} connections");
    let columns = ["", "requests a second", "µs of its processor time each", "vs the upstream"];
    let mut table = Table::new(title, columns);
    for (((name, ..), rate), micros) in sides.iter().zip(&rates).zip(&micros) {
        // nginx works in child processes, whose time is not counted.
        let time = if name.starts_with("nginx") { "–".to_owned() } else { micros.show() };
        let ratio = number(rate.over(direct).median());
        table.row([(*name).to_owned(), rate.show(), time, format!("{ratio} x")]);
    }
    report.table(table);
    report.at_least("pass-through vs the upstream itself", passed.over(direct), 0.5);
    report.at_most("nginx vs pass-through", theirs.over(passed), 1.5);
    report.at_least("replays from SQLite vs pass-through", replays.over(passed), 1.0);
    grow(args, &semel, report).await
}

/// Sends many new keys, and measures their effect on the memory.
async fn grow(args: &Args, semel: &Served, report: &mut Report) -> Result<()> {
    progress("gateway: its memory while new keys go through");
    let (mut sent, mut seen) = (0, Vec::new());
    let mut table = Table::new("memory of the gateway while new keys go through", ["keys", "MiB"]);
    while sent < args.keys {
        sent += flat_out(semel.address, CONNECTIONS, Duration::from_secs(3), |_| uuid_v4()).await?;
        let memory = semel.memory_mib()?;
        seen.push(memory);
        table.row([grouped(sent as f64), number(memory)]);
    }
    report.table(table);
    let most = |part: &[f64]| part.iter().fold(0.0_f64, |most, memory| most.max(*memory));
    report.at_most("memory under load, MiB", most(&seen), 150.0);
    let late = seen.len() / 2;
    let grown = most(&seen[late..]) / most(&seen[..late.max(1)]);
    report.at_most("memory in the second half vs the first", grown, 1.15);
    Ok(())
}

/// Builds the gateway of this repository, beside this program.
pub(crate) fn build() -> Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("semel");
    let target =
        program.parent().and_then(Path::parent).context("this program is in no folder of cargo's")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.args(["build", "--release", "--package", "semel-server", "--target-dir"]).arg(target);
    ensure!(command.status()?.success(), "could not build the gateway");
    Ok(program)
}

/// The gateway of this repository, over a new file.
async fn gateway(args: &Args, upstream: SocketAddr, folder: &Path) -> Result<Served> {
    let program = match &args.binary {
        Some(binary) => binary.clone(),
        None => build()?,
    };
    let mut command = Command::new(program);
    command.args(["gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--anonymous", "share"]);
    command.arg("--upstream").arg(format!("http://{upstream}"));
    command.arg("--store").arg(format!("sqlite:{}", folder.join("semel.db").display()));
    Served::listening("semel", command, "listening on ").await
}

/// nginx in the recommended configuration for a reverse proxy: connections to the upstream are
/// kept.
async fn nginx(upstream: SocketAddr, folder: &Path, report: &mut Report) -> Result<Served> {
    let program = testkit::programs::nginx()?;
    let said = Command::new(&program).arg("-v").output().await.context("could not run nginx")?;
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    report.version("nginx", said.trim().trim_start_matches("nginx version: nginx/"));
    let port = testkit::ports::Port::reserve()?;
    let config = format!(
        "daemon off; worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/nginx.log crit;
        events {{ worker_connections 1024; }}
        http {{
            access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
            fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
            keepalive_requests 1000000000;
            upstream service {{ server {upstream}; keepalive 128; keepalive_requests 1000000000; }}
            server {{
                listen 127.0.0.1:{port};
                location / {{ proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection \"\"; }}
            }}
        }}",
        folder = folder.display(),
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config).context("could not write the configuration of nginx")?;
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).arg("-c").arg(&file).arg("-e").arg(folder.join("nginx.log"));
    Served::at("nginx", command, port.address()).await
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("semel-bench-{}", std::process::id()));
        std::fs::create_dir(&path).with_context(|| format!("could not make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
