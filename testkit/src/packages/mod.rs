//! Executables of other projects: installed, fetched before, or fetched now.
//!
//! - `find.rs`: the search for a server
//! - `programs.rs`: single programs, such as curl, and libfaketime
//! - `debian.rs`: Debian packages, installed by root and unpacked into a folder by every other user
//! - `account.rs`: the account that servers run under

mod account;
mod debian;
mod find;
pub mod programs;

pub(crate) use account::{Account, NOBODY};
pub(crate) use find::{Found, Kind, find, newest_first};
