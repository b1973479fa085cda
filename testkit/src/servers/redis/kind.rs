//! The executables of Redis, and the URLs of its servers.

use crate::packages::Kind;

/// Redis, which every package puts on PATH.
pub(crate) const REDIS: Kind = Kind {
    name: "redis",
    variable: "SEMEL_TEST_REDIS_URL",
    package: "redis-server",
    programs: &["redis-server", "redis-cli", "redis-benchmark"],
    folders: |_| Vec::new(),
    version,
    url,
};

/// The word that follows `v=` in `Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0
/// bits=64 build=…`.
fn version(answer: &str) -> Option<&str> {
    answer.split_whitespace().find_map(|word| word.strip_prefix("v="))
}

fn url(folder: &str) -> String {
    format!("redis+unix://{folder}/redis.sock")
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn version_is_read() {
        assert_eq!(version("Redis server v=7.0.15 sha=00000000:0 bits=64\n"), Some("7.0.15"));
        assert_eq!(version("something else 1.0\n"), None);
    }
}
