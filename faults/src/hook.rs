//! The reconcile hook of the service: it finds out whether any handler has started with a held key.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use semel::{Held, Intent, Key, Reconcile, Reconciled};
use tokio::task::spawn_blocking;

/// Looks into the logs of all handlers, of this process and of the others.
///
/// A handler notes its start before anything else: without such a note nothing has happened. Of those that started, only
/// they themselves know.
pub(crate) fn over(folder: &Path) -> impl Reconcile {
    let folder = Arc::<Path>::from(folder);
    move |key: Key, _: Intent, _: Held| {
        let folder = Arc::clone(&folder);
        async move {
            match spawn_blocking(move || has_started(&folder, key.value())).await {
                Ok(Ok(false)) => Reconciled::DidNotHappen,
                _ => Reconciled::Unknown,
            }
        }
    }
}

/// The ledger is searched for any entry of this key, of any caller.
fn has_started(folder: &Path, key: &str) -> io::Result<bool> {
    let noted = format!("\"key\":\"{key}\"");
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|kind| kind == "steps");
        if is_log && fs::read_to_string(&path)?.contains(&noted) {
            return Ok(true);
        }
    }
    Ok(false)
}
