//! The reconcile hook of the service, which checks whether any handler has started with a held key.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use semel::{Held, Intent, Key, Reconcile, Reconciled};
use tokio::task::spawn_blocking;

/// A hook that reads the logs of all handlers, of this process and of the others.
///
/// A handler logs its start before any other step: without such an entry nothing has happened. For
/// a handler that started, the result is unknown.
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

/// Searches the logs for any entry of this key, of any caller.
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
