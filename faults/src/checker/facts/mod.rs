//! Tests of the checker: the violations that it reports, and the histories that it passes.

mod case;
mod runs;
mod effects;
mod answers;
mod intents;
mod conflicts;
mod settling;
mod logs;
mod size;
mod random;
