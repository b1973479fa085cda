//! The documentation: its commands are run, its lists are compared with the code, and its links are
//! followed.
//!
//! - `page`: the steps of a page. `place`: the folder and the processes in which they run.
//! - `commands`, `codes`, `lists`, `links`: the tests.

mod codes;
mod commands;
mod links;
mod lists;
mod page;
mod place;
