//! One load with a growing number of callers: rate, latency, and bytes of the log.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Args;
use super::pool::POOL;
use super::raw::{self, Raw};
use super::shapes::{Shape, Shaped};
use super::subject::{CRATESTACK, PER_CALL, SEMEL, Semel, Subject, connect};
use crate::load::{Measured, flat_out, uuid_v4};
use crate::report::{Report, progress};
use crate::rounds::{Rounds, number};
use crate::server::Server;

/// The number of keys of the repeats.
pub(super) const REPEATED: u64 = 2_000;

/// The number of callers for comparisons outside of plots.
pub(super) const USUAL: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// A new key is claimed, and its outcome recorded.
    First,
    /// A key with an outcome is claimed.
    Replay,
}

impl Load {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::First => "claim + complete, new keys",
            Self::Replay => "replay",
        }
    }
}

/// A measured side.
#[derive(Clone)]
enum Who {
    Subject(Arc<dyn Subject>),
    Raw(Raw),
}

impl Who {
    fn name(&self) -> &'static str {
        match self {
            Self::Subject(subject) => subject.name(),
            Self::Raw(raw) => raw.name(),
        }
    }

    async fn run(&self, server: &Server, load: Load, callers: usize, length: Duration) -> Result<Measured> {
        match self.clone() {
            Self::Raw(raw) => raw.run(server, load, callers, length).await,
            Self::Subject(subject) => {
                flat_out(callers, length, move |n| {
                    let subject = Arc::clone(&subject);
                    async move {
                        match load {
                            Load::First => subject.first(&uuid_v4()).await,
                            Load::Replay => subject.replay(&repeated(n)).await,
                        }
                    }
                })
                .await
            }
        }
    }
}

fn repeated(n: u64) -> String {
    format!("repeated-{}", n % REPEATED)
}

/// All sides, and their tables.
pub(super) struct Sides {
    all: Vec<Who>,
    tables: Vec<String>,
}

impl Sides {
    pub(super) async fn connect(args: &Args, server: &Server) -> Result<Self> {
        let semel = Semel::connect(&server.url, args.connections, SEMEL).await?;
        let mut all: Vec<Arc<dyn Subject>> = vec![
            Arc::new(semel),
            connect(&server.url, CRATESTACK, "", POOL, args.connections).await?,
            connect(&server.url, PER_CALL, "", POOL, args.connections).await?,
        ];
        let mut tables = ["semel.records", "cratestack_idempotency", "per_call.records", raw::TABLE]
            .map(str::to_owned)
            .to_vec();
        for shape in Shape::ALL {
            Shaped::prepare(server, shape).await?;
            all.push(connect(&server.url, shape.name(), "", POOL, args.connections).await?);
            tables.push(shape.table());
        }
        Raw::prepare(server).await?;
        let subjects = all.into_iter().map(Who::Subject);
        let mut all: Vec<Who> = subjects.chain([Raw::Batched, Raw::Single].map(Who::Raw)).collect();
        let is_wanted = |side: &Who| args.sides.iter().any(|wanted| side.name().starts_with(wanted.as_str()));
        all.retain(|side| args.sides.is_empty() || is_wanted(side));
        ensure!(!all.is_empty(), "no side has such a name");
        Ok(Self { all, tables })
    }

    /// The tables of all sides.
    pub(super) fn tables(&self) -> Vec<&str> {
        self.tables.iter().map(String::as_str).collect()
    }

    async fn empty_tables(&self, server: &Server) -> Result<()> {
        server.empty_tables(&self.tables()).await
    }

    /// Records the outcomes for the replays, and leaves no page that a reader would tidy up.
    async fn fill(&self, server: &Server) -> Result<()> {
        for side in &self.all {
            if let Who::Subject(subject) = side {
                let subject = Arc::clone(subject);
                let next = Arc::new(std::sync::atomic::AtomicU64::new(0));
                let fill = (0..USUAL).map(|_| {
                    let (subject, next) = (Arc::clone(&subject), Arc::clone(&next));
                    tokio::spawn(async move {
                        loop {
                            let n = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                            if n >= REPEATED {
                                return anyhow::Ok(());
                            }
                            subject.first(&repeated(n)).await?;
                        }
                    })
                });
                for task in fill.collect::<Vec<_>>() {
                    task.await??;
                }
            }
        }
        Raw::fill(server).await?;
        server.run(&format!("vacuum {}", self.tables.join(", "))).await?;
        server.run("checkpoint").await
    }
}

/// The result of a side with a number of callers.
#[derive(Clone, Default)]
pub(super) struct Point {
    pub(super) rate: Rounds,
    pub(super) p50: Rounds,
    pub(super) p99: Rounds,
    /// Bytes of the log for each operation.
    pub(super) log: Rounds,
}

/// The results of a side, for each number of callers.
pub(super) struct Swept {
    pub(super) name: &'static str,
    pub(super) limit: bool,
    pub(super) points: Vec<Point>,
}

impl Swept {
    /// A side without results so far.
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, limit: false, points: Vec::new() }
    }
}

/// Lets the sides take turns, for each number of callers.
pub(super) async fn sweep(args: &Args, server: &Server, sides: &Sides, load: Load) -> Result<Vec<Swept>> {
    let limit = |side: &Who| matches!(side, Who::Raw(_));
    let swept = |side: &Who| Swept { limit: limit(side), ..Swept::new(side.name()) };
    let mut all: Vec<Swept> = sides.all.iter().map(swept).collect();
    sides.empty_tables(server).await?;
    if load == Load::Replay {
        sides.fill(server).await?;
    }
    for callers in &args.callers {
        progress(format!("Postgres: {}, callers: {callers}", load.name()));
        if load == Load::First {
            sides.empty_tables(server).await?;
        }
        all.iter_mut().for_each(|side| side.points.push(Point::default()));
        for _ in 0..args.rounds {
            for (side, swept) in sides.all.iter().zip(&mut all) {
                let before = server.log_bytes().await?;
                let length = Duration::from_secs_f64(args.seconds);
                let measured = side.run(server, load, *callers, length).await?;
                let bytes = server.log_bytes().await? - before;
                let Some(point) = swept.points.last_mut() else { continue };
                point.rate.push(measured.per_second);
                point.p50.push(measured.millis(50.0));
                point.p99.push(measured.millis(99.0));
                point.log.push(bytes / measured.operations.max(1) as f64);
            }
        }
    }
    Ok(all)
}

/// Measures the same side twice in each round: the difference of the two is noise.
pub(super) async fn noise(args: &Args, server: &Server, sides: &Sides, report: &mut Report) -> Result<()> {
    progress("Postgres: the same side twice");
    sides.empty_tables(server).await?;
    let (mut once, mut again) = (Rounds::default(), Rounds::default());
    for _ in 0..args.rounds {
        for rates in [&mut once, &mut again] {
            let length = Duration::from_secs_f64(args.seconds);
            rates.push(sides.all[0].run(server, Load::First, USUAL, length).await?.per_second);
        }
    }
    let ratio = again.over(&once);
    report.text(format!(
        "The same side twice in each round, {USUAL} callers: the second came to {} x the first ({} to {} in the rounds).\n\
         A difference of this size between two sides says nothing.",
        number(ratio.median()),
        number(ratio.least()),
        number(ratio.most()),
    ));
    Ok(())
}
