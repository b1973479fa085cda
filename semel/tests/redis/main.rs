//! The store on a real Redis, a file for each property.

mod log;

mod connecting;
mod commands;
mod lifetimes;
mod outcomes;
mod large;
mod unreadable;
mod old_form;
mod listing;
mod callers;
mod scripts;
mod memory;
mod restarts;
mod faults;
mod hung;
mod replicas;
mod sentinel;
mod cluster;
mod tls;
