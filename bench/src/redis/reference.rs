//! The rate of redis-benchmark with the same scripts, over as many connections.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use semel::store::RedisOptions;
use testkit::servers::RedisServers;

use crate::caller::BODY_BYTES;

/// The scripts, as the store puts them together.
const OPEN: &str = concat!(
    include_str!("../../../semel/src/store/redis/lua/record.lua"),
    include_str!("../../../semel/src/store/redis/lua/open.lua")
);
const WRITE: &str = concat!(
    include_str!("../../../semel/src/store/redis/lua/record.lua"),
    include_str!("../../../semel/src/store/redis/lua/write.lua")
);

const LEASE: &str = "30000000";
const RETENTION: &str = "86400000000";
const GRACE: &str = "60000000";
const FAR_AHEAD: &str = "9000000000000000";
/// The policy of the other sides, which do not choose one.
const HOLD: &str = "H";
/// The token of all records of this side: any sixteen bytes.
const TOKEN: &str = "0123456789abcdef";

pub(super) struct Reference<'a> {
    servers: &'a RedisServers,
    socket: String,
    connection: MultiplexedConnection,
    open: String,
    write: String,
    /// As many bytes as the store sends of an intent with its owner, and of an outcome.
    asked: String,
    outcome: String,
    /// The number of commands of a figure.
    commands: usize,
}

impl<'a> Reference<'a> {
    pub(super) async fn new(
        servers: &'a RedisServers,
        name: &str,
        url: &str,
        commands: usize,
    ) -> Result<Self> {
        let client = redis::Client::open(url)?;
        // It takes a while to forget a million keys.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await?;
        let open = load(&mut connection, OPEN).await?;
        let write = load(&mut connection, WRITE).await?;
        let socket = format!("{}/{name}.sock", servers.folder());
        let (asked, outcome) = ("a".repeat(57), "o".repeat(12 + BODY_BYTES));
        Ok(Self { servers, socket, connection, open, write, asked, outcome, commands })
    }

    pub(super) async fn version(&self) -> Result<String> {
        let said: String = redis::cmd("INFO").arg("server").query_async(&mut self.connection.clone()).await?;
        let version = said.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(version.context("the server does not tell its version")?.trim().to_owned())
    }

    pub(super) async fn flush(&self) -> Result<()> {
        redis::cmd("FLUSHALL").query_async(&mut self.connection.clone()).await.context("could not flush")
    }

    /// Claims and completes of new keys per second, with this many commands in flight on each
    /// connection.
    pub(super) async fn first(&self, in_flight: usize) -> Result<f64> {
        let claims = self.rate(in_flight, 1_000_000_000_000, &self.claim("bench:new:__rand_int__"))?;
        // There are ten times as many as are completed, so that hardly any is hit twice.
        let running = self.commands * 10;
        for chunk in (0..running).collect::<Vec<_>>().chunks(10_000) {
            let mut pipeline = redis::pipe();
            for number in chunk {
                let name = format!("bench:runs:{number:012}");
                let mut command = redis::cmd("EVALSHA");
                command.arg(&self.claim(&name)[1..]);
                pipeline.add_command(command).ignore();
            }
            let _: () = pipeline.query_async(&mut self.connection.clone()).await?;
        }
        let completes = self.rate(in_flight, running, &self.complete("bench:runs:__rand_int__"))?;
        Ok((claims.recip() + completes.recip()).recip())
    }

    /// Claims of a key that is done, per second.
    pub(super) async fn replay(&self, in_flight: usize) -> Result<f64> {
        let name = "bench:done:1";
        for command in [self.claim(name), self.complete(name)] {
            let mut sent = redis::cmd("EVALSHA");
            sent.arg(&command[1..]);
            let _: redis::Value = sent.query_async(&mut self.connection.clone()).await?;
        }
        self.rate(in_flight, 1, &self.claim(name))
    }

    fn claim(&self, name: &str) -> Vec<String> {
        let (again, limit) = ("", "");
        let (before, after) =
            ([FAR_AHEAD, LEASE, RETENTION, GRACE, TOKEN, &self.asked], [again, HOLD, limit]);
        ["EVALSHA", &self.open, "1", name].into_iter().chain(before).chain(after).map(str::to_owned).collect()
    }

    /// The completion of a key.
    fn complete(&self, name: &str) -> Vec<String> {
        let (fence, again, limit) = ("", "", "");
        ["EVALSHA", &self.write, "1", name, TOKEN, fence, GRACE, "complete", &self.outcome, again, limit]
            .map(str::to_owned)
            .to_vec()
    }

    /// Commands per second, with numbers up to a limit instead of `__rand_int__`.
    fn rate(&self, in_flight: usize, numbers: usize, command: &[String]) -> Result<f64> {
        let mut benchmark: Command = self.servers.program("redis-benchmark");
        benchmark.args(["-s", &self.socket, "--csv", "-c", &RedisOptions::DEFAULT_CONNECTIONS.to_string()]);
        benchmark.args([
            "-P",
            &in_flight.to_string(),
            "-n",
            &self.commands.to_string(),
            "-r",
            &numbers.to_string(),
        ]);
        let output = benchmark.args(command).output().context("could not run redis-benchmark")?;
        ensure!(output.status.success(), "redis-benchmark: {}", String::from_utf8_lossy(&output.stderr));
        // A line of names, then the command in quotes, the rate, and latencies.
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let rate =
            said.lines().last().and_then(|line| line.rsplit(',').nth(6)).map(|rate| rate.trim_matches('"'));
        rate.and_then(|rate| rate.parse().ok()).with_context(|| format!("redis-benchmark said {said}"))
    }
}

async fn load(connection: &mut MultiplexedConnection, text: &str) -> Result<String> {
    redis::cmd("SCRIPT")
        .arg("LOAD")
        .arg(text)
        .query_async(connection)
        .await
        .context("could not load a script")
}
