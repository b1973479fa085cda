//! The operator's commands, as processes, on every store.

mod process;
mod place;
mod records;
mod listing;
mod inspecting;
mod changing;
mod pruning;
mod counting;
mod migrating;
mod health;
mod arguments;
