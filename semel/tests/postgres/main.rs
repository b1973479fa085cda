//! The store on a real Postgres.

mod place;
#[path = "../support/claims.rs"]
mod claims;
#[path = "../support/until.rs"]
mod until;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/contest.rs"]
mod contest;
mod backends;
#[path = "../support/load.rs"]
mod load;
mod proxy;

mod contract;
mod transactions;
mod isolation;
mod durable;
mod locked;
mod neighbours;
mod completion;
mod transactional;
mod schema;
mod constraints;
mod ids;
mod outcomes;
mod large;
mod parallel;
mod roles;
mod races;
mod pruning;
mod listing;
mod upkeep;
mod whole_table;
mod example;
mod standby;
mod late_starts;
mod waiting;
mod faults;
mod hung;
mod elsewhere;
mod side;
mod cuts;
mod tls;
