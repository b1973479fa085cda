//! The report on an operator's change.

use anyhow::Result;
use clap::Args;
use semel::admin::{Inspect, ListQuery, OperatorAck};
use semel::store::{Phase, Record, RecordState};
use semel::{Fence, Key, Timestamp};
use serde::Serialize;

use super::key::{KeyArgs, Seen, named};
use crate::exit::Exit;
use crate::output::{OutputArgs, RecordLine, escaped, json_line, print, when};

/// What every change names: the key, the fence that was seen, and why.
#[derive(Debug, Clone, Args)]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    pub(crate) key: KeyArgs,

    /// The fence of the record as you saw it, from `semel inspect`; if it has another by now,
    /// nothing is changed
    #[arg(long, value_name = "NUMBER")]
    fence: u64,

    /// Why, for the note of the record
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(crate) reason: String,
}

impl ChangeArgs {
    pub(crate) fn fence(&self) -> Fence {
        Fence::new(self.fence)
    }
}

fn reason(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        Err("a reason is needed: it is what the next person finds")
    } else {
        Ok(text.to_owned())
    }
}

/// A change in JSON: its result, and the record as it is now.
#[derive(Serialize)]
struct ChangeLine<'a> {
    changed: bool,
    #[serde(flatten)]
    record: RecordLine<'a>,
}

/// Reports the result of a change; `word` names the change.
///
/// # Errors
/// If nothing was changed; the message names the current owner of the key.
pub(crate) async fn tell(
    store: &dyn Inspect,
    (args, key): (&ChangeArgs, &Key),
    change: OperatorAck,
    word: &str,
    output: &OutputArgs,
) -> Result<()> {
    let (why, record) = match change {
        OperatorAck::Applied => return tell_applied(store, key, word, output).await,
        OperatorAck::Missing => return Err(args.key.missing()),
        OperatorAck::Moved(record) => (format!("its fence is not {}", args.fence), record),
        OperatorAck::Running(record) => ("an attempt runs under a live lease".to_owned(), record),
        OperatorAck::Unfit(record) => {
            let done = matches!(record.state, RecordState::Done { .. });
            (
                if done { "there is an outcome already" } else { "it is neither held nor lost" }.to_owned(),
                record,
            )
        }
        other => anyhow::bail!("the store gave an answer that is not known here: {other:?}"),
    };
    let now = store.now().await?;
    if output.is_json() {
        print(&json_line(&ChangeLine { changed: false, record: RecordLine::new(&record, now) })?)?;
    }
    Err(Exit::Unchanged.because(format!("{} was not {word}: {why}; {}", named(key), holder(&record, now))))
}

async fn tell_applied(store: &dyn Inspect, key: &Key, word: &str, output: &OutputArgs) -> Result<()> {
    if !output.is_json() {
        return print(&format!("{} was {word}\n", named(key)));
    }
    match look(store, key).await? {
        Some(Seen { record, now }) => {
            print(&json_line(&ChangeLine { changed: true, record: RecordLine::new(&record, now) })?)
        }
        // The forgotten record may have been pruned in between.
        None => print(&json_line(&serde_json::json!({
            "changed": true,
            "key": key.value(),
            "realm": key.scope().realm(),
            "principal": key.scope().principal(),
        }))?),
    }
}

async fn look(store: &dyn Inspect, key: &Key) -> Result<Option<Seen>> {
    let query = ListQuery::default()
        .with_realm(Some(key.scope().realm().to_owned()))
        .with_principal(Some(key.scope().principal().to_owned()))
        .with_value(Some(key.value().to_owned()));
    let page = store.list(&query).await?;
    Ok(page.records.into_iter().next().map(|record| Seen { record, now: page.now }))
}

/// The current owner of a key, and since when.
fn holder(record: &Record, now: Timestamp) -> String {
    let phase = record.phase(now);
    let since = match (&record.state, phase) {
        (RecordState::Done { finished_at, .. }, _) => *finished_at,
        (_, Phase::Held | Phase::Lost) => record.lease_until,
        // A fence contains the time of its grant.
        (_, Phase::Running) => Timestamp::from_micros(record.fence.get()),
        _ => record.updated_at,
    };
    format!(
        "now it is {}, fence {}, attempt {}, owner {}, since {since} ({})",
        phase.as_str(),
        record.fence,
        record.attempt,
        escaped(record.owner.as_str()),
        when(since, now)
    )
}
