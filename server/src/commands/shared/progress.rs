//! The progress of a long command, for terminals.

use std::time::Duration;

use indicatif::ProgressBar;

/// A moving line for work of unknown length. Shown on a terminal only.
pub(crate) fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
