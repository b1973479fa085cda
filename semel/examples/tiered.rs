//! Redis before Postgres: repeats are answered by the one, and the other decides.
//!
//! ```text
//! DATABASE_URL=postgres://app@localhost/app REDIS_URL=redis://localhost \
//!     cargo run --example tiered --features postgres,redis
//! ```
//!
//! It charges an invoice, asks again, lets Redis forget it, and asks once more: charged once, and answered thrice.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use semel::store::{Hot, RedisOptions};
use semel::{Failure, Intent, Key, Once, PostgresStore, Tiered};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = |name| std::env::var(name).map_err(|_| format!("set {name} to the URL of a server to use"));
    let charged = run(&url("DATABASE_URL")?, &url("REDIS_URL")?).await?;
    println!("charged {charged} time(s)");
    Ok(())
}

/// Charges an invoice three times over, and counts how often that happened.
async fn run(postgres: &str, redis: &str) -> Result<u32, Box<dyn Error>> {
    let durable = PostgresStore::connect(postgres).await?;
    durable.migrate().await?;
    // As it only remembers, it may also forget: a Redis that evicts is welcome here.
    let hot = RedisOptions::new(redis)?.with_eviction_allowed().connect().await?;
    let tier = Tiered::new(hot, durable);
    let once = Once::new(tier.clone());

    let invoice = format!("invoice-{}", semel::store::Token::random());
    let key = Key::new("billing", &invoice)?;
    let intent = Intent::of("charge", &invoice, &1_000)?;
    let charged = Arc::new(AtomicU32::new(0));
    for _ in 0..3 {
        let charges = Arc::clone(&charged);
        let charge = move |_lease| async move {
            let number = charges.fetch_add(1, Ordering::SeqCst) + 1;
            Ok::<_, Failure>(format!("receipt {number}"))
        };
        let ran = once.run(&key, &intent, charge).await?;
        println!("{}, replayed: {}", ran.value, ran.replayed);
        tier.drain().await;
        if ran.replayed
            && let Some(found) = tier.hot().recall(&key).await?
        {
            println!("(Redis forgets it)");
            tier.hot().bury(&key, found.done.fence, std::time::Duration::from_millis(1)).await?;
        }
    }
    Ok(charged.load(Ordering::SeqCst))
}

#[cfg(test)]
mod tests {
    use testkit::servers::{postgres_url, redis_url};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn the_invoice_is_charged_once() {
        assert_eq!(super::run(&postgres_url(), &redis_url()).await.unwrap(), 1);
    }
}
