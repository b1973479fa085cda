//! The documentation says what is true: its commands are run, its lists are compared with the code, its links lead somewhere.

mod codes;
mod commands;
mod links;
mod page;
mod place;
