//! A hot store before a durable one, both real.

mod place;

#[path = "../support/claims.rs"]
mod claims;
#[path = "../support/until.rs"]
mod until;

mod contract;
mod hot;
mod broken_elsewhere;
mod forgetting;
mod putting_aside;
mod failover;
mod example;
