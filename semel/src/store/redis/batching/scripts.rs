//! The Lua scripts, in the form in which Redis caches them.

use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs, cmd};

/// A script, and the hash by which it is called.
pub(crate) struct Script {
    text: &'static str,
    hash: String,
}

/// A script whose file follows the one that holds the stored form of a record.
macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("../lua/record.lua"), include_str!($file))));
    };
}

script!(OPEN, "../lua/open.lua");
script!(REPLACE, "../lua/replace.lua");
script!(WRITE, "../lua/write.lua");
script!(READ, "../lua/read.lua");
script!(REMOVE, "../lua/remove.lua");
script!(PLANT, "../lua/plant.lua");
script!(KEEP, "../lua/keep.lua");

/// All scripts.
pub(crate) fn all() -> [&'static Script; 7] {
    [&OPEN, &REPLACE, &WRITE, &READ, &REMOVE, &PLANT, &KEEP]
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// The command that loads the script.
    pub(crate) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(self.text);
        load
    }

    /// The command that runs the script on one key, without its arguments, which the caller
    /// appends.
    pub(crate) fn on(&self, key: impl ToRedisArgs) -> Cmd {
        let mut run = cmd("EVALSHA");
        run.arg(&self.hash).arg(1).arg(key);
        run
    }
}
