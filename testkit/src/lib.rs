//! The parts that tests, benchmarks and the fault harness share.
//!
//! - `servers/`: real servers, and disks that are full
//! - `packages/`: the executables of those servers, and other programs
//! - `ports.rs`: ports that stay free for one server
//! - `progress.rs`: the progress lines of a run, and the folder of the workspace
//!
//! With the feature `stores`, which `cargo xtask` can do without:
//!
//! - `stores/`: a place of its own for each test, on every store
//! - `gates/`: paths to a store that a test can disturb
//! - `claims.rs`: claims, and their answers
//! - `contract.rs`: the conformance suite
//! - `every_store.rs`: tests that run on every store
//! - `certificates.rs`: authorities and certificates for TLS
//! - `http.rs`: plain requests to a service
//! - `load.rs`: many callers, and a ledger of their answers
//! - `until.rs`: waiting for an event

pub mod ports;
pub mod progress;
pub mod servers;

mod packages;

pub use packages::programs;

#[cfg(feature = "stores")]
pub mod certificates;
#[cfg(feature = "stores")]
pub mod claims;
#[cfg(feature = "stores")]
pub mod contract;
#[cfg(feature = "stores")]
mod every_store;
#[cfg(feature = "stores")]
pub mod gates;
#[cfg(feature = "stores")]
pub mod http;
#[cfg(feature = "stores")]
pub mod load;
#[cfg(feature = "stores")]
pub mod stores;
#[cfg(feature = "stores")]
pub mod until;
