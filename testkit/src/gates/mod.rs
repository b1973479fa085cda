//! Paths to a store that a test can disturb.
//!
//! - `path.rs`: a store behind a path that may drop, delay or repeat each call
//! - `gate.rs`: such a path to a store in memory, with faults by verb
//! - `counted.rs`: such a path that loses nothing, and counts the calls
//! - `proxy.rs`: a socket in front of Postgres whose connections can be cut

mod counted;
mod gate;
mod path;
mod proxy;

pub use counted::{Calls, Counted};
pub use gate::{Fault, Gate};
pub use path::{Path, Through};
pub use proxy::{Cut, Proxy};
