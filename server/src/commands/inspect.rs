//! `semel inspect`.

use std::fmt::Write;

use anyhow::Result;
use clap::Args;
use semel::store::{Phase, Record, RecordState};
use semel::{AfterCrash, Outcome, Timestamp};

use super::shared::key::{KeyArgs, Seen, flag};
use super::shared::store::StoreArgs;
use crate::output::{OutputArgs, RecordLine, escaped, hex, json_line, print, quoted, readable, when};

#[derive(Debug, Clone, Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    key: KeyArgs,

    /// Show the body of the outcome, too
    #[arg(long)]
    body: bool,

    #[command(flatten)]
    store: StoreArgs,

    #[command(flatten)]
    output: OutputArgs,
}

pub(crate) async fn run(args: InspectArgs) -> Result<()> {
    let opened = args.store.open().await?;
    let found = args.key.record(&*opened.store).await;
    opened.close().await;
    let seen = found?;
    if args.output.is_json() {
        let line = RecordLine::new(&seen.record, seen.now);
        return print(&json_line(&if args.body { line.with_body(&seen.record) } else { line })?);
    }
    print(&page(&seen, &args))
}

/// The page for people. Writing to a `String` does not fail.
fn page(seen: &Seen, args: &InspectArgs) -> String {
    let Seen { record, now } = seen;
    let mut page = String::new();
    head(&mut page, record, *now);
    intent(&mut page, record);
    timeline(&mut page, record, *now);
    if let Some(outcome) = record.outcome() {
        shown_outcome(&mut page, outcome, args.body);
    }
    match record.phase(*now) {
        Phase::Held => next_steps(&mut page, record, &args.store),
        Phase::Lost if !record.is_expired(*now) => nothing_to_do(&mut page, record, &args.store),
        _ => {}
    }
    page
}

fn line(page: &mut String, name: &str, value: &str) {
    let _ = writeln!(page, "{name:<15}{}", escaped(value));
}

fn head(page: &mut String, record: &Record, now: Timestamp) {
    let scope = record.key.scope();
    line(page, "key", record.key.value());
    line(page, "realm", scope.realm());
    line(page, "principal", if scope.principal().is_empty() { "none" } else { scope.principal() });
    let means = match record.phase(now) {
        Phase::Running => "running",
        Phase::Held => "held: the lease is over, and it is not known what happened",
        Phase::Lost => "lost: the lease is over, and the next attempt takes over",
        Phase::Done => "done",
        Phase::Released => "released: the key can be claimed again",
        other => other.as_str(),
    };
    line(page, "state", means);
    line(page, "after a crash", record.after_crash.as_str());
    if record.is_expired(now) {
        line(page, "expired", "its retention is over: it counts as absent, and the next prune removes it");
    }
}

fn intent(page: &mut String, record: &Record) {
    let intent = &record.intent;
    let fingerprint = intent.fingerprint();
    let _ = writeln!(page, "\nintent");
    line(page, "  operation", intent.operation());
    line(page, "  resource", if intent.resource().is_empty() { "none" } else { intent.resource() });
    let digits = hex(fingerprint.as_bytes());
    line(page, "  fingerprint", &format!("{digits} (version {})", fingerprint.version()));
}

fn timeline(page: &mut String, record: &Record, now: Timestamp) {
    let Record { attempt, fence, .. } = record;
    let owner = record.owner.as_str();
    let mut moments = vec![(record.created_at, "created".to_owned())];
    // An operator's change has a fence of its own, and leaves a note.
    if record.state == RecordState::Running || record.note.is_none() {
        // The fence is the clock of the grant, or slightly more if that clock stood still.
        moments.push((
            Timestamp::from_micros(fence.get()),
            format!("attempt {attempt} granted to {owner}, fence {fence}"),
        ));
    }
    if record.state == RecordState::Running {
        moments.push((record.heartbeat_at, format!("attempt {attempt} last heard of")));
        let over = if record.lease_until > now {
            "the lease is over, unless it is renewed"
        } else {
            "the lease was over"
        };
        moments.push((record.lease_until, over.to_owned()));
    }
    if let RecordState::Done { finished_at, .. } = record.state {
        moments.push((finished_at, format!("outcome recorded, fence {fence}")));
    }
    if let Some(note) = &record.note {
        moments.push((note.at, format!("note: {}", note.text)));
    }
    moments.push((record.updated_at, format!("last written, version {}", record.version)));
    if let Some(end) = record.expires_at() {
        moments.push((end, if end > now { "retention ends" } else { "retention ended" }.to_owned()));
    }
    moments.sort_by_key(|(at, _)| *at);
    let _ = writeln!(page, "\ntimeline");
    for (at, what) in moments {
        let _ = writeln!(page, "  {at}  {:>8}  {}", when(at, now), escaped(&what));
    }
}

fn shown_outcome(page: &mut String, outcome: &Outcome, with_body: bool) {
    let _ = writeln!(page, "\noutcome");
    line(page, "  status", &outcome.status().to_string());
    if let Some(subtype) = outcome.subtype() {
        line(page, "  subtype", subtype);
    }
    for (name, value) in outcome.headers() {
        line(page, "  header", &format!("{name}: {}", String::from_utf8_lossy(&value)));
    }
    let Some(body) = outcome.body() else {
        return line(page, "  body", "not recorded: it was too large, or streamed");
    };
    let size = format!("{} bytes", body.len());
    match readable(body) {
        _ if !with_body && !body.is_empty() => line(page, "  body", &format!("{size}; --body shows it")),
        None => line(page, "  body", &format!("{size}, binary")),
        Some(text) => {
            line(page, "  body", &size);
            // Lines of a body are indented, so that none looks like a line of this page.
            for text in text.lines() {
                let shown: Vec<String> = text.split('\t').map(escaped).collect();
                let _ = writeln!(page, "    {}", shown.join("\t"));
            }
        }
    }
}

/// An operator's choices for a held key, as commands to copy.
fn next_steps(page: &mut String, record: &Record, store: &StoreArgs) {
    let _ = writeln!(page, "\nwhat can be done, once you know what attempt {} did", record.attempt);
    let _ = writeln!(
        page,
        "  it happened; repeats get this answer:\n    {}",
        command(record, store, "resolve", " --status 200 --body '…'")
    );
    let reset = command(record, store, "reset", "");
    let _ = writeln!(page, "  it did not happen; the next attempt may run:\n    {reset}");
    let forget = command(record, store, "forget", "");
    let _ = writeln!(page, "  neither matters; the key counts as new:\n    {forget}");
}

/// The explanation why a lost key needs no operator, and the commands that can be used anyway.
fn nothing_to_do(page: &mut String, record: &Record, store: &StoreArgs) {
    let why = match record.after_crash {
        AfterCrash::Transactional => "the transaction of the lost attempt was rolled back with its effect",
        _ => "the route says that its work may run again",
    };
    let _ = writeln!(page, "\nnothing has to be done: {why}, and the next request with this key runs");
    let forget = command(record, store, "forget", "");
    let _ = writeln!(page, "  to let the key count as new:\n    {forget}");
}

/// A command that changes this record, to copy.
fn command(record: &Record, store: &StoreArgs, verb: &str, more: &str) -> String {
    let scope = record.key.scope();
    let flags = format!(
        "{} {} --fence {}{}",
        flag("realm", scope.realm()),
        flag("principal", scope.principal()),
        record.fence,
        store.flags()
    );
    let key = quoted(record.key.value());
    match key.starts_with('-') {
        true => format!("semel {verb} {flags}{more} --reason '…' -- {key}"),
        false => format!("semel {verb} {key} {flags}{more} --reason '…'"),
    }
}
