//! The gateway before an upstream: beside the upstream itself, and beside nginx.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use tokio::runtime::Builder;

use crate::http::client::{flat_out, prepare, repeated};
use crate::http::served::Served;
use crate::load::{median, uuid_v4};
use crate::report::Report;

/// How many connections ask at the same time.
const CONNECTIONS: usize = 64;

/// What to measure, and how long.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds; the sides take turns, and the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Seconds for each side in each round
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,

    /// How many new keys go through the gateway to see whether its memory grows
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,

    /// A binary to measure instead of the one that is built for it
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Who is asked, by which keys.
type Side<'a> = (&'static str, &'a Served, fn(u64) -> String);

/// Measures, and compares with what is promised.
pub(crate) fn run(args: &Args) -> Result<()> {
    Builder::new_multi_thread().enable_all().build()?.block_on(measure(args))
}

async fn measure(args: &Args) -> Result<()> {
    let folder = Folder::new()?;
    let mut report = Report::default();
    let upstream = Served::start("upstream", &["plain"]).await?;
    let semel = gateway(args, upstream.address, &folder.0).await?;
    report.at_most("memory of an idle gateway, MiB", semel.memory_mib()?, 30.0);
    let nginx = nginx(upstream.address, &folder.0).await?;
    prepare(semel.address).await?;

    let none: fn(u64) -> String = |_| String::new();
    let sides: [Side<'_>; 5] = [
        ("the upstream itself", &upstream, none),
        ("nginx, pass-through", &nginx, none),
        ("semel, pass-through", &semel, none),
        ("semel, replays from SQLite", &semel, repeated),
        ("semel, new keys on SQLite", &semel, |_| uuid_v4()),
    ];
    let mut rates = [(); 5].map(|()| Vec::new());
    let mut micros = [(); 5].map(|()| Vec::new());
    for round in 0..=args.rounds {
        for (at, (_, side, key)) in sides.iter().enumerate() {
            let before = side.processor_seconds()?;
            let length = Duration::from_secs_f64(args.seconds);
            let answered = flat_out(side.address, CONNECTIONS, length, *key).await?.max(1) as f64;
            // The first time, memory is fetched from the system, and connections are made.
            if round > 0 {
                rates[at].push(answered / args.seconds);
                micros[at].push((side.processor_seconds()? - before) * 1e6 / answered);
            }
        }
    }
    let [direct, theirs, passed, replays, new] = rates.map(median);
    println!("\n{CONNECTIONS} connections");
    for (((name, ..), rate), micros) in sides.iter().zip([direct, theirs, passed, replays, new]).zip(micros) {
        println!("  {name:<28} {rate:>9.0} a second   {:>6.1} us of its processor time each", median(micros));
    }
    println!("  (nginx works in children, whose time is not counted)");
    report.at_least("pass-through vs the upstream itself", passed / direct, 0.5);
    report.at_most("nginx vs pass-through", theirs / passed, 1.5);
    report.at_least("replays from SQLite vs pass-through", replays / passed, 1.0);
    grow(args, &semel, &mut report).await?;
    report.finish()
}

/// Many new keys, and what they do to the memory.
async fn grow(args: &Args, semel: &Served, report: &mut Report) -> Result<()> {
    let (mut sent, mut seen) = (0, Vec::new());
    let mut most: f64 = 0.0;
    println!("\nmemory while new keys go through");
    while sent < args.keys {
        sent += flat_out(semel.address, CONNECTIONS, Duration::from_secs(5), |_| uuid_v4()).await?;
        let memory = semel.memory_mib()?;
        most = most.max(memory);
        seen.push((sent, memory));
        println!("  {sent:>9} keys {memory:>7.1} MiB");
    }
    report.at_most("memory under load, MiB", most, 150.0);
    let late = seen.len() / 2;
    let half = |part: &[(u64, f64)]| {
        part.iter().map(|(_, memory)| memory).fold(0.0_f64, |most, memory| most.max(*memory))
    };
    report.at_most(
        "memory in the second half vs the first",
        half(&seen[late..]) / half(&seen[..late.max(1)]),
        1.15,
    );
    Ok(())
}

/// The gateway of this repository, over a new file.
async fn gateway(args: &Args, upstream: SocketAddr, folder: &Path) -> Result<Served> {
    let program = match &args.binary {
        Some(binary) => binary.clone(),
        None => {
            let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
            let build = ["build", "--release", "--package", "semel-server"];
            let built = Command::new(cargo).args(build).status().await?;
            ensure!(built.success(), "could not build the gateway");
            std::env::current_exe()?.with_file_name("semel")
        }
    };
    let mut command = Command::new(program);
    command.args(["gateway", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command.arg("--upstream").arg(format!("http://{upstream}"));
    command.arg("--store").arg(format!("sqlite:{}", folder.join("semel.db").display()));
    Served::listening("semel", command, "listening on ").await
}

/// nginx as it is advised to be set up before a service: connections to it are kept.
async fn nginx(upstream: SocketAddr, folder: &Path) -> Result<Served> {
    let program = xtask::programs::nginx()?;
    let [port] = xtask::redis_servers::free_ports()?;
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
    Served::at("nginx", command, SocketAddr::from(([127, 0, 0, 1], port))).await
}

/// A folder that is gone in the end.
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
