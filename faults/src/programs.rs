//! The executables of a run, protected from later builds, and their command lines.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::process::Program;
use crate::scenario::{Expected, Fault, Scenario};
use crate::world::LEASE_MS;

/// The common settings of the processes of a round.
pub(crate) struct Stage<'a> {
    pub(crate) scenario: &'a Scenario,
    /// The folder of their logs.
    pub(crate) folder: &'a Path,
    /// The socket of the ledger.
    pub(crate) ledger: &'a Path,
    /// The file with the offset of their clock.
    pub(crate) clock: &'a Path,
    pub(crate) urls: &'a Urls,
}

/// The URLs of a store, one for each process or one for all, and the URL of the cache in front of
/// it.
pub(crate) struct Urls {
    pub(crate) stores: Vec<String>,
    pub(crate) cache: Option<String>,
}

impl Urls {
    /// The URL of the store for this process.
    fn of(&self, process: usize) -> &str {
        &self.stores[process % self.stores.len()]
    }
}

/// This executable, and the executable of the gateway beside it.
pub(crate) struct Programs {
    pub(crate) faults: PathBuf,
    pub(crate) semel: PathBuf,
}

impl Programs {
    /// Moves the executables to a folder.
    pub(crate) fn keep(folder: &Path) -> Result<Self> {
        let faults = std::env::current_exe().context("could not find this executable")?;
        let semel = faults.with_file_name("semel");
        fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
        let folder = folder.canonicalize()?;
        Ok(Self {
            faults: keep(&faults, &folder.join("faults"))?,
            semel: keep(&semel, &folder.join("semel"))?,
        })
    }
}

impl Programs {
    /// The service, with the layer around it or behind a gateway.
    pub(crate) fn service(
        &self,
        stage: &Stage<'_>,
        index: usize,
        listen: SocketAddr,
        has_layer: bool,
    ) -> Result<Program> {
        let mut args: Vec<OsString> = vec!["service".into()];
        let mut add = |flag: &str, value: &dyn AsRef<OsStr>| {
            args.extend([OsString::from(flag), value.as_ref().to_owned()]);
        };
        add("--listen", &listen.to_string());
        add("--policy", &stage.policy()?);
        add("--lease-ms", &LEASE_MS.to_string());
        if let Some(retention) = stage.scenario.retention {
            add("--retention-ms", &retention.as_millis().to_string());
        }
        add("--ledger", &stage.ledger);
        add("--log", &stage.folder);
        if has_layer {
            add("--store", &stage.urls.of(index));
            stage.urls.cache.iter().for_each(|cache| add("--cache", cache));
        }
        if stage.scenario.reconciles() {
            args.push("--reconcile".into());
        }
        let name = if has_layer { "service" } else { "upstream" };
        stage.program(&format!("{name}-{index}"), &self.faults, args, listen)
    }

    pub(crate) fn gateway(
        &self,
        stage: &Stage<'_>,
        index: usize,
        listen: SocketAddr,
        upstream: SocketAddr,
    ) -> Result<Program> {
        let mut args: Vec<OsString> = vec!["gateway".into()];
        let mut add = |flag: &str, value: &str| args.extend([flag, value].map(OsString::from));
        add("--listen", &listen.to_string());
        add("--upstream", &format!("http://{upstream}"));
        add("--policy", &stage.policy()?);
        add("--lease", &format!("{LEASE_MS}ms"));
        add("--admin", "off");
        // The requests of the load have no credentials.
        add("--anonymous", "share");
        add("--store", stage.urls.of(index));
        stage.urls.cache.iter().for_each(|cache| add("--cache", cache));
        stage.program(&format!("gateway-{index}"), &self.semel, args, listen)
    }
}

impl Stage<'_> {
    fn policy(&self) -> Result<String> {
        let word = self.scenario.policy.to_possible_value().context("a policy without a name")?;
        Ok(word.get_name().to_owned())
    }

    fn program(&self, name: &str, path: &Path, args: Vec<OsString>, listen: SocketAddr) -> Result<Program> {
        let mut environment = Vec::new();
        let mut set = |name: &str, value: &str| environment.push((name.to_owned(), value.to_owned()));
        if let Expected::Caught(mistake, _) = self.scenario.expected {
            set("SEMEL_MISTAKE", mistake);
        }
        if self.scenario.faults.contains(&Fault::MoveClock) {
            let library = testkit::programs::faketime_threads()?;
            set("LD_PRELOAD", library.to_str().context("the path of libfaketime is not text")?);
            set("FAKETIME_TIMESTAMP_FILE", self.clock.to_str().context("the path of a clock is not text")?);
            set("FAKETIME_CACHE_DURATION", "1");
            // Only the time of day is faked; the monotonic clock never jumps on a real machine.
            set("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            set("DONT_FAKE_MONOTONIC", "1");
        }
        let output = self.folder.join(format!("{name}.log"));
        let path = path.to_owned();
        Ok(Program { name: name.to_owned(), path, args, environment, output, listen: Some(listen) })
    }
}

fn keep(program: &Path, kept: &Path) -> Result<PathBuf> {
    if kept.exists() {
        fs::remove_file(kept)?;
    }
    // The executable is moved where possible, so that one with failpoints is not mistaken for the
    // usual one. Cargo restores it on the next build.
    fs::rename(program, kept)
        .or_else(|_| fs::copy(program, kept).map(drop))
        .with_context(|| format!("could not keep {}", program.display()))?;
    Ok(kept.to_owned())
}
