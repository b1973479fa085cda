//! The operator's commands, as processes, on every store.
//!
//! - `place`: a store for each test. `process`: the binary as a process. `records`: records in
//!   every state.
//! - The other files test a command each; `changing` tests resolve, reset and forget, `arguments`
//!   the arguments of all.

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
