//! The measured server, and its statistics.

use std::path::PathBuf;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use testkit::servers::Servers;
use tokio_postgres::{Client, NoTls};

use crate::process::family_seconds;
use crate::report::progress;

/// A durable server, and a connection for its statistics.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) version: String,
    client: Client,
    own: Option<Servers>,
}

impl Server {
    /// The server of a URL, or a new one.
    pub(crate) async fn start(url: Option<&str>) -> Result<Self> {
        let (url, own) = match url {
            Some(url) => (url.to_owned(), None),
            None => {
                // The settings leave room for the ten million rows, and avoid a checkpoint in the
                // middle of a figure.
                let settings = [
                    "shared_buffers=2GB",
                    "max_wal_size=16GB",
                    "checkpoint_timeout=1h",
                    // Every reference has a pool of its own, in each process of a layout.
                    "max_connections=500",
                    "track_io_timing=on",
                ];
                let own = Servers::postgres(&settings).context("could not start a server to measure")?;
                (own.url().to_owned(), Some(own))
            }
        };
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(connection);
        for setting in ["fsync", "synchronous_commit"] {
            let value: String = client.query_one(&format!("show {setting}"), &[]).await?.get(0);
            ensure!(
                value == "on",
                "{setting} is {value}: figures of a server that forgets are worth nothing"
            );
        }
        let version: String = client.query_one("show server_version", &[]).await?.get(0);
        println!("Postgres {version}, fsync and synchronous_commit on");
        Ok(Self { url, version, client, own })
    }

    /// A folder that the server's account can read: that of the server, or of the system.
    pub(crate) fn folder(&self) -> PathBuf {
        self.own.as_ref().map_or_else(std::env::temp_dir, |own| PathBuf::from(own.folder()))
    }

    /// A program of Postgres, such as `pgbench`.
    pub(crate) fn program(&self, name: &str) -> Result<Command> {
        self.own.as_ref().map_or_else(|| Ok(Command::new(name)), |own| own.program(name))
    }

    /// The processor time of all processes of the server so far. The server has to be on this
    /// machine.
    pub(crate) async fn processor_seconds(&self) -> Result<f64> {
        let process: i32 = self.client.query_one("select pg_backend_pid()", &[]).await?.get(0);
        family_seconds(process)
    }

    /// The number of syncs of the log, as far as sessions have reported them.
    pub(crate) async fn log_syncs(&self) -> Result<f64> {
        let moved = self.version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0) >= 18;
        let question = if moved {
            "select coalesce(sum(fsyncs), 0)::float8 from pg_stat_io where object = 'wal'"
        } else {
            "select wal_sync::float8 from pg_stat_wal"
        };
        Ok(self.client.query_one(question, &[]).await?.get(0))
    }

    /// The number of bytes written to the log so far.
    pub(crate) async fn log_bytes(&self) -> Result<f64> {
        let question = "select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::float8";
        Ok(self.client.query_one(question, &[]).await?.get(0))
    }

    /// The numbers of sequential scans and of index scans of the table of a schema, as far as
    /// sessions have reported them.
    pub(crate) async fn scans(&self, schema: &str) -> Result<(i64, i64)> {
        let question = "
            select seq_scan, idx_scan
            from pg_stat_user_tables
            where schemaname = $1 and relname = 'records'";
        let row = self.client.query_one(question, &[&schema]).await?;
        Ok((row.get(0), row.get(1)))
    }

    /// The server's time.
    pub(crate) async fn now(&self) -> Result<SystemTime> {
        Ok(self.client.query_one("select clock_timestamp()", &[]).await?.get(0))
    }

    /// The number of other connections that have been active since then.
    pub(crate) async fn busy_since(&self, then: SystemTime) -> Result<i64> {
        let question = "
            select count(*)
            from pg_stat_activity
            where backend_type = 'client backend' and pid <> pg_backend_pid() and query_start > $1";
        Ok(self.client.query_one(question, &[&then]).await?.get(0))
    }

    pub(crate) async fn run(&self, script: &str) -> Result<()> {
        self.client.batch_execute(script).await.with_context(|| script.to_owned())
    }

    /// Empties the tables of all sides, so that each figure begins with the same state and none
    /// pays for another one's vacuum. The cost of a table's size is a figure of its own.
    pub(crate) async fn empty_tables(&self, tables: &[&str]) -> Result<()> {
        self.run(&format!("truncate {}", tables.join(", "))).await?;
        self.run("checkpoint").await
    }

    /// Adds this many done records with random ids.
    pub(crate) async fn fill(&self, schema: &str, rows: u64, expired: bool) -> Result<()> {
        progress(format!("  filling {schema} with {rows} records"));
        let kept_days = if expired { 0 } else { 1 };
        // With the index and durable commits it would take hours; the final state is the same.
        let steps = [
            "set synchronous_commit = off".to_owned(),
            format!("alter table {schema}.records drop constraint records_pkey"),
            format!(
                "insert into {schema}.records (
                    id, version, token, fence, attempt, state, realm, principal, key, operation, resource, fingerprint,
                    fingerprint_version, owner, lease_until, heartbeat_at, created_at, updated_at, retention, after_crash,
                    finished_at, status, headers, body
                )
                select
                    sha256(int8send(n) || '{schema}'), 2, substr(sha256(int8send(n)), 1, 16), 1, 1, 'done', 'bench', '',
                    gen_random_uuid()::text, 'POST /charges', '', sha256('1'), 1, 'bench-1', now(), now(), now(), now(),
                    {kept_days} * 86400000000, 'hold', now(), 200, '', convert_to(repeat('x', 200), 'UTF8')
                from generate_series(1, {rows}) as n"
            ),
            "set maintenance_work_mem = '1GB'".to_owned(),
            format!("alter table {schema}.records add primary key (id)"),
            format!("vacuum (analyze) {schema}.records"),
            "checkpoint".to_owned(),
            "reset synchronous_commit".to_owned(),
        ];
        for step in steps {
            self.run(&step).await?;
        }
        Ok(())
    }
}
