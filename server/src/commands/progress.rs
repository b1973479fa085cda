//! How far a long command is, for whoever looks at a terminal.

use std::time::Duration;

use indicatif::ProgressBar;

/// A line that moves while something of unknown length goes on. On a terminal only.
pub(super) fn spinner() -> ProgressBar {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
