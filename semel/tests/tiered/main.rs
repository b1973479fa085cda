//! A hot store in front of a durable one, both real.

mod hot;
mod repeats;
mod broken_elsewhere;
mod forgetting;
mod putting_aside;
mod failover;
