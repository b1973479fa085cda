//! The memory in use and the number of keys, as Redis reports them.

use futures_util::future::try_join_all;
use redis::cmd;

use super::RedisStore;
use crate::words::error::StoreError;
use crate::words::size::StoreSize;

impl RedisStore {
    /// The size of all servers, by one `INFO` for each: all memory in use, and all keys, including
    /// those of other applications.
    ///
    /// # Errors
    /// Unavailable if a server does not answer.
    pub async fn size(&self) -> Result<StoreSize, StoreError> {
        let nodes = self.shared.nodes.all();
        let told =
            try_join_all(nodes.iter().map(async |node| super::parse::<String>(node.ask(cmd("INFO")).await?)));
        let told = told.await?;
        Ok(StoreSize {
            bytes: Some(told.iter().map(|info| memory(info)).sum()),
            records: Some(told.iter().map(|info| keys(info)).sum()),
        })
    }
}

fn memory(info: &str) -> u64 {
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    used.and_then(|used| used.trim().parse().ok()).unwrap_or(0)
}

/// The sum of the keys in lines such as `db0:keys=12,expires=3,avg_ttl=0`.
fn keys(info: &str) -> u64 {
    let databases = info.lines().filter(|line| line.starts_with("db"));
    let counts =
        databases.filter_map(|line| line.split_once(":keys=")?.1.split(',').next()?.parse::<u64>().ok());
    counts.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_redis_says_is_read() {
        let info = "# Memory\r\nused_memory:1048576\r\nused_memory_human:1.00M\r\n# Keyspace\r\n\
                    db0:keys=12,expires=3,avg_ttl=0\r\ndb3:keys=5,expires=0,avg_ttl=0\r\n";
        assert_eq!((memory(info), keys(info)), (1 << 20, 17));
        assert_eq!((memory(""), keys("")), (0, 0));
    }
}
