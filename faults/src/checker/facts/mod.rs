//! What the checker reports, and what it does not.

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
