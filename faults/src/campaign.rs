//! The campaign: all rounds and their results.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rustix::process::geteuid;
use testkit::programs::faketime_threads;
use tokio::time::timeout;

use crate::checker::Verdict;
use crate::goals;
use crate::programs::Programs;
use crate::report::{Report, show};
use crate::round::{self, Ended};
use crate::scenario::{Expected, Scenario};
use crate::scenarios::{controls, soak, trials};
use crate::sites::Sites;
use crate::tally::Tally;

/// The number of tries for a round whose mistake has to be found.
const CONTROL_TRIES: u64 = 24;

/// The time that a round may take beyond its faults.
const GRACE: Duration = Duration::from_secs(90);

/// The options of a campaign.
#[derive(Args)]
pub(crate) struct CampaignArgs {
    /// Runs for hours instead of minutes: a thousand kills, a hundred restarts of Postgres, five
    /// million requests.
    #[arg(long)]
    long: bool,
    /// The seed that a previous run printed, to make the same choices.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs only the rounds whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// The number of seconds for which faults are injected in each round.
    #[arg(long)]
    seconds: Option<u64>,
    /// The file for the results, as Markdown tables.
    #[arg(long)]
    report: Option<PathBuf>,
    /// The folder for the logs of failed rounds; logs of other rounds are removed.
    #[arg(long, default_value = "target/faults")]
    folder: PathBuf,
}

pub(crate) async fn run(args: CampaignArgs) -> Result<()> {
    ensure!(cfg!(semel_faults), "this build has neither failpoints nor mistakes; use `cargo xtask faults`");
    let seed = args.seed.unwrap_or_else(rand::random);
    println!("seed {seed}: the same choices by `cargo xtask faults --seed {seed}`");
    let programs = Programs::keep(&args.folder)?;
    // Downloads happen before the first round, so that no round waits for them.
    faketime_threads()?;
    let mut campaign = Campaign {
        args,
        seed,
        sites: Sites::default(),
        programs,
        number: 0,
        tally: Tally::default(),
        report: Report::default(),
        left_out: Vec::new(),
        failed: Vec::new(),
    };
    campaign.all().await?;
    campaign.finish()
}

struct Campaign {
    args: CampaignArgs,
    seed: u64,
    sites: Sites,
    programs: Programs,
    /// The number of the round.
    number: u64,
    tally: Tally,
    report: Report,
    /// The rounds that cannot run on this machine.
    left_out: Vec<&'static str>,
    failed: Vec<String>,
}

impl Campaign {
    async fn all(&mut self) -> Result<()> {
        let (seconds, repeats, passes) = if self.args.long { (30, 40, 50) } else { (8, 10, 3) };
        let length = Duration::from_secs(self.args.seconds.unwrap_or(seconds));
        for scenario in self.chosen(controls()) {
            self.control(&scenario).await?;
        }
        // The rounds are repeated until enough faults have happened.
        for pass in 0..passes {
            for scenario in self.chosen(trials(length, repeats)) {
                self.trial(&scenario, pass).await?;
            }
            if self.missing().is_empty() || !self.failed.is_empty() {
                break;
            }
        }
        if self.args.long {
            for scenario in self.chosen(vec![soak()]) {
                self.trial(&scenario, 0).await?;
            }
        }
        Ok(())
    }

    fn chosen(&self, scenarios: Vec<Scenario>) -> Vec<Scenario> {
        let is_chosen = |scenario: &Scenario| match &self.args.only {
            Some(only) => scenario.name.contains(only.as_str()),
            None => true,
        };
        scenarios.into_iter().filter(is_chosen).collect()
    }

    /// Runs a round in which the checker must find a violation. The mistake shows by chance, so
    /// there are several tries.
    async fn control(&mut self, scenario: &Scenario) -> Result<()> {
        for attempt in 0..CONTROL_TRIES {
            match self.round(scenario, attempt).await? {
                Ok(_) => return Ok(()),
                Err(why) if attempt + 1 == CONTROL_TRIES => {
                    self.failed.push(format!("{}: {why}", scenario.name))
                }
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Runs a round in which the checker must find nothing.
    async fn trial(&mut self, scenario: &Scenario, pass: u64) -> Result<()> {
        if scenario.needs_small_disk() && !geteuid().is_root() {
            println!("LEFT OUT {}: a small disk needs root, who can mount one", scenario.name);
            self.left_out.push(scenario.name);
            return Ok(());
        }
        match self.round(scenario, pass).await? {
            Ok(tally) => self.tally.take_in(&tally),
            Err(why) => self.failed.push(format!("{}: {why}", scenario.name)),
        }
        Ok(())
    }

    /// The faults that have not happened often enough yet. A run with selected rounds has no goals.
    fn missing(&self) -> Vec<String> {
        let chosen = self.args.only.is_some() || self.args.seconds.is_some();
        if chosen { Vec::new() } else { goals::missing(self.args.long, &self.tally) }
    }

    /// Runs a round, and returns the injected faults, or the reason why the round failed.
    async fn round(&mut self, scenario: &Scenario, pass: u64) -> Result<Result<Tally, String>> {
        self.number += 1;
        let folder = self.folder(scenario)?;
        let began = Instant::now();
        // The seed depends on the name, so that it does not change with the selection of rounds.
        let seed = scenario
            .name
            .bytes()
            .fold(self.seed ^ pass, |seed, byte| (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let round = round::run(scenario, &mut self.sites, &self.programs, &folder, self.number, seed);
        let limit = scenario.length + GRACE;
        let ended = timeout(limit, round).await;
        let ended = ended.unwrap_or_else(|_| bail!("did not end within {limit:?}"));
        let Ended { verdict, tally, footprints } = match ended {
            Ok(ended) => ended,
            Err(error) => {
                println!("FAILED {}: {error:#}; its logs are in {}", scenario.name, folder.display());
                // The servers may be in any state, so the next round starts with new ones.
                self.sites = Sites::default();
                return Ok(Err(format!("{error:#}")));
            }
        };
        let judged = judge(scenario.expected, &verdict);
        show(scenario, &verdict, &footprints, began.elapsed(), judged.is_ok());
        self.report.add(scenario.name, scenario.expected != Expected::Nothing, &verdict);
        match judged {
            Ok(()) => {
                fs::remove_dir_all(&folder)?;
                Ok(Ok(tally))
            }
            Err(why) => {
                println!("         {why}; its logs are in {}", folder.display());
                Ok(Err(why))
            }
        }
    }

    /// A new folder for a round.
    fn folder(&self, scenario: &Scenario) -> Result<PathBuf> {
        let folder = self.args.folder.join(format!("{:03}-{}", self.number, scenario.name));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder).with_context(|| format!("could not make {}", folder.display()))?;
        Ok(folder.canonicalize()?)
    }

    fn finish(self) -> Result<()> {
        println!();
        for (name, count) in self.tally.iter() {
            println!("{count:>9}  {name}");
        }
        if let Some(file) = &self.args.report {
            fs::write(file, self.report.tables(&self.tally))
                .with_context(|| format!("could not write {}", file.display()))?;
        }
        if !self.left_out.is_empty() {
            println!("left out, as they cannot be tried here: {}", self.left_out.join(", "));
        }
        if !self.failed.is_empty() {
            bail!(
                "{} of {} rounds (seed {}):\n{}",
                self.failed.len(),
                self.number,
                self.seed,
                self.failed.join("\n")
            );
        }
        let missing = self.missing();
        ensure!(missing.is_empty(), "too little happened (seed {}): {}", self.seed, missing.join(", "));
        Ok(())
    }
}

/// Compares the verdict of a round with the expected one.
fn judge(expected: Expected, verdict: &Verdict) -> Result<(), String> {
    if verdict.counts.outcomes == 0 {
        return Err("nobody got an outcome".to_owned());
    }
    let found = verdict.kinds();
    match expected {
        Expected::Nothing if found.is_empty() => Ok(()),
        Expected::Nothing => Err(format!("{} violations", verdict.violations.len())),
        Expected::Reported(wanted) | Expected::Caught(_, wanted) => {
            match wanted.iter().any(|kind| found.contains_key(kind)) {
                true => Ok(()),
                false => Err(format!("none of {wanted:?} was found")),
            }
        }
    }
}

#[cfg(test)]
mod facts {
    use crate::checker::{Counts, Kind, Violation};

    use super::*;

    fn verdict(kinds: &[Kind]) -> Verdict {
        let violation = |kind: &Kind| Violation {
            kind: *kind,
            caller: "a".to_owned(),
            key: "k".to_owned(),
            detail: String::new(),
        };
        let counts = Counts { outcomes: 1, ..Counts::default() };
        Verdict { counts, violations: kinds.iter().map(violation).collect() }
    }

    #[test]
    fn a_trial_fails_on_any_violation() {
        assert!(judge(Expected::Nothing, &verdict(&[])).is_ok());
        assert!(judge(Expected::Nothing, &verdict(&[Kind::Unsettled])).is_err());
    }

    #[test]
    fn a_control_fails_unless_what_it_is_for_is_found() {
        let wanted = Expected::Caught("a mistake", &[Kind::SecondEffect, Kind::SecondRun]);
        assert!(judge(wanted, &verdict(&[Kind::AnswerChanged, Kind::SecondRun])).is_ok());
        assert!(judge(wanted, &verdict(&[Kind::AnswerChanged])).is_err());
        assert!(judge(wanted, &verdict(&[])).is_err());
    }

    #[test]
    fn a_round_without_an_outcome_fails() {
        let nothing = Verdict { counts: Counts::default(), violations: Vec::new() };
        assert!(judge(Expected::Nothing, &nothing).is_err());
    }
}
