//! The rate of pgbench with the statements of the store: the limit for a client that does nothing
//! else.

use std::fmt::Write;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use semel::store::PostgresOptions;
use tokio::process::Command;

use super::pool::POOL;
use super::subject::{Connections, Semel};
use super::sweep::{Load, REPEATED};
use crate::caller::BODY_BYTES;
use crate::load::Measured;
use crate::server::Server;

const CREATE: &str = include_str!("../../../semel/src/store/postgres/batching/sql/create.sql");
const COMPLETE: &str = include_str!("../../../semel/src/store/postgres/batching/sql/complete.sql");
const READ: &str = include_str!("../../../semel/src/store/postgres/batching/sql/read.sql");
const SCHEMA: &str = "raw";
pub(super) const TABLE: &str = "raw.records";

/// The way in which the statements are sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Raw {
    /// Over as many connections as the store has, each with its share of the callers in a
    /// statement.
    Batched,
    /// Over as many connections as a pool has, with one key in a statement.
    Single,
}

impl Raw {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Batched => "pgbench, batched",
            Self::Single => "pgbench, key by key",
        }
    }

    pub(super) async fn prepare(server: &Server) -> Result<()> {
        Semel::connect(&server.url, Connections::DEFAULT, SCHEMA).await.map(drop)
    }

    /// Records the outcomes for the replays.
    pub(super) async fn fill(server: &Server) -> Result<()> {
        server.fill(SCHEMA, REPEATED, false).await
    }

    /// Makes pgbench do the work of this many callers. It counts whole seconds only.
    pub(super) async fn run(
        self,
        server: &Server,
        load: Load,
        callers: usize,
        length: Duration,
    ) -> Result<Measured> {
        let connections = PostgresOptions::DEFAULT_CONNECTIONS;
        // Of the callers of a closed loop, half claim and half complete.
        let (clients, batch) = match (self, load) {
            (Self::Single, _) => (callers.min(POOL), 1),
            (Self::Batched, _) if callers < 2 * connections => (callers, 1),
            (Self::Batched, Load::First) => (connections, callers / connections / 2),
            (Self::Batched, Load::Replay) => (connections, callers / connections),
        };
        let folder = tempfile_folder(server).await?;
        let file = folder.join("script.sql");
        std::fs::write(&file, script(load, batch)).context("could not write a script for pgbench")?;
        let seconds = length.as_secs_f64().round().max(1.0);
        let mut command = Command::from(server.program("pgbench")?);
        command.args(["--no-vacuum", "--protocol=prepared", "--define=done=0", "--log"]);
        command.arg(format!("--log-prefix={}", folder.join("log").display()));
        command.arg(format!("--client={clients}")).arg(format!("--time={seconds}"));
        command.arg("--file").arg(&file).arg(&server.url).stdin(Stdio::null());
        let output = command.output().await.context("could not run pgbench")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "pgbench: {said}");
        let latencies = latencies(&folder)?;
        std::fs::remove_dir_all(&folder)?;
        // A claim and its complete are in two transactions if each transaction holds both kinds.
        let each = if load == Load::First && batch > 1 { 2 } else { 1 };
        let latencies = latencies.into_iter().map(|latency| latency * each).collect();
        Ok(Measured::of(latencies, Duration::from_secs_f64(seconds)).times(batch as u64))
    }
}

/// A folder that the account of the server can write to.
async fn tempfile_folder(server: &Server) -> Result<std::path::PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let folder = server.folder().join("pgbench");
    std::fs::create_dir(&folder).with_context(|| format!("could not make {}", folder.display()))?;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777))?;
    Ok(folder)
}

/// The third word of each line of the logs, in microseconds.
fn latencies(folder: &std::path::Path) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log")) {
            for line in std::fs::read_to_string(&path)?.lines() {
                let micros = line.split(' ').nth(2).and_then(|word| word.parse().ok());
                latencies.push(Duration::from_micros(micros.context("pgbench has another form of log")?));
            }
        }
    }
    Ok(latencies)
}

/// The script that a client of pgbench repeats.
fn script(load: Load, batch: usize) -> String {
    let (mut create, mut complete) = (of_pgbench(CREATE), of_pgbench(COMPLETE));
    create = create.replace("on conflict (id) do nothing\n", "");
    let id = |from: &str| format!("sha256(int8send(({from})::bigint + n))");
    let token = r"'\x30313233343536373839616263646566'::bytea";
    let new = [
        id(":next").as_str(),
        token,
        "'bench'",
        "''",
        "((:next)::bigint + n)::text",
        "'POST /charges'",
        "''",
        "sha256('1')",
        "1",
        "'bench-1'",
        "'30 seconds'",
        "86400000000",
        "'hold'",
        "'infinity'",
    ]
    .map(str::to_owned);
    // All records of a statement have the same fence: the moment of its clock.
    let done = |from: &str| {
        let fence = format!("(select fence from {TABLE} where id = {})", id(from).replace("+ n", "+ 1"));
        let body = format!("convert_to(repeat('x', {BODY_BYTES}), 'UTF8')");
        [id(from), token.to_owned(), fence, "200".to_owned(), "null".to_owned(), "''".to_owned(), body]
    };
    let mut script = r"\set next random(1, 4000000000000000000)".to_owned() + "\n";
    match load {
        Load::First if batch == 1 => {
            put(&mut create, &new, 1);
            put(&mut complete, &done(":next"), 1);
            _ = writeln!(script, "{create};\n{complete};");
        }
        // One statement does both, like that of the store under load.
        Load::First => {
            put(&mut create, &new, batch);
            put(&mut complete, &done(":done"), batch);
            _ = writeln!(
                script,
                "with completed as (\n{complete}\n), created as (\n{create}\n)\n\
                select id, true from completed union all select id, false from created;\n\\set done :next"
            );
        }
        Load::Replay => {
            let id = format!("sha256(int8send(((:next)::bigint + n) % {REPEATED} + 1) || '{SCHEMA}'::bytea)");
            let ids = format!("array(select {id} from generate_series(1, {batch}) as n)");
            _ = writeln!(
                script,
                "{};",
                of_pgbench(READ).replace("$1::bytea[]", &ids).replace("$2::", "1000000::")
            );
        }
    }
    script
}

/// A statement without its header, over the tables of pgbench.
fn of_pgbench(statement: &str) -> String {
    let lines = statement.lines().filter(|line| !line.starts_with("--"));
    lines.collect::<Vec<_>>().join("\n").replace("semel.", &format!("{SCHEMA}."))
}

/// Replaces the parameters by expressions, each for the n-th item of a batch.
fn put(statement: &mut String, values: &[String], batch: usize) {
    for (at, value) in values.iter().enumerate() {
        let begin = format!("unnest(${}::", at + 1);
        let Some(from) = statement.find(&begin) else { continue };
        let rest = &statement[from + begin.len()..];
        let Some(end) = rest.find("[])") else { continue };
        let kind = &rest[..end];
        let whole = from..from + begin.len() + end + 3;
        let of_each = value.contains("+ n");
        let expression = if batch == 1 {
            format!("({})::{kind}", value.replace("+ n", "+ 1"))
        } else if of_each {
            format!(
                "unnest(array(select {value} from generate_series(1, {batch}) as n order by 1)::{kind}[])"
            )
        } else {
            format!("unnest(array_fill(({value})::{kind}, array[{batch}]))")
        };
        statement.replace_range(whole, &expression);
    }
}
