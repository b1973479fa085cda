//! The events of one key, from all three logs.

use std::collections::HashMap;
use std::fmt;

use super::history::History;
use crate::event::{Answer, Effect, Request, Step, What};

/// The events of one key of one caller.
#[derive(Default)]
pub(super) struct Story<'a> {
    pub(super) caller: &'a str,
    pub(super) key: &'a str,
    /// The requests, in the order of their sending times.
    pub(super) requests: Vec<&'a Request>,
    /// The runs, in the order of their fences.
    pub(super) runs: Vec<Run<'a>>,
    /// The effects, in the order of their runs.
    pub(super) effects: Vec<&'a Effect>,
    /// All steps except the starts.
    pub(super) steps: Vec<&'a Step>,
    /// The index in `runs` by the run's name, in the order of the names.
    names: Vec<(&'a str, usize)>,
}

/// A handler that has started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run<'a> {
    pub(super) start: &'a Step,
    pub(super) released_at: Option<u64>,
}

impl Run<'_> {
    /// Returns `true` if this run released the key before the other run started. Both times are
    /// from one clock, which is never set.
    pub(super) fn made_way_for(&self, next: &Run<'_>) -> bool {
        self.released_at.is_some_and(|at| at <= next.start.at)
    }
}

impl<'a> Story<'a> {
    /// The first start of this run.
    pub(super) fn run(&self, name: &str) -> Option<&Run<'a>> {
        let first = self.names.partition_point(|(other, _)| *other < name);
        self.names.get(first).filter(|(other, _)| *other == name).map(|(_, at)| &self.runs[*at])
    }

    /// Each run with the next run of a higher fence.
    pub(super) fn successions(&self) -> impl Iterator<Item = (&Run<'a>, &Run<'a>)> {
        let pairs = self.runs.iter().zip(self.runs.iter().skip(1));
        pairs.filter(|(run, next)| run.start.fence != next.start.fence)
    }

    pub(super) fn takeovers(&self) -> usize {
        self.successions().filter(|(run, next)| !run.made_way_for(next)).count()
    }

    fn put_in_order(&mut self) {
        self.requests.sort_by_key(|request| (request.sent_at, request.ended_at));
        self.effects.sort_by_key(|effect| effect.run.as_str());
        self.runs.sort_by_key(|run| (run.start.fence, run.start.at));
        self.names = self.runs.iter().enumerate().map(|(at, run)| (run.start.run.as_str(), at)).collect();
        self.names.sort_unstable();
        for step in &self.steps {
            let first = self.names.partition_point(|(name, _)| *name < step.run.as_str());
            if let Some((_, at)) = self.names.get(first).filter(|(name, _)| *name == step.run.as_str())
                && step.what == What::Release
            {
                let released_at = &mut self.runs[*at].released_at;
                *released_at = Some(released_at.map_or(step.at, |at| at.min(step.at)));
            }
        }
    }
}

/// The stories of all keys, in the order of their first event, and the story of each run.
pub(super) fn stories(history: &History) -> (Vec<Story<'_>>, HashMap<&str, usize>) {
    let mut book = Book::default();
    for request in &history.requests {
        book.of(&request.caller, &request.key).requests.push(request);
    }
    let mut whose = HashMap::new();
    for step in &history.steps {
        let story = book.of(&step.caller, &step.key);
        if step.what == What::Start {
            story.runs.push(Run { start: step, released_at: None });
            whose.entry(step.run.as_str()).or_insert(book.latest);
        } else {
            story.steps.push(step);
        }
    }
    for effect in &history.effects {
        book.of(&effect.caller, &effect.key).effects.push(effect);
    }
    book.stories.iter_mut().for_each(Story::put_in_order);
    (book.stories, whose)
}

#[derive(Default)]
struct Book<'a> {
    stories: Vec<Story<'a>>,
    numbers: HashMap<(&'a str, &'a str), usize>,
    /// The story that was looked up last.
    latest: usize,
}

impl<'a> Book<'a> {
    fn of(&mut self, caller: &'a str, key: &'a str) -> &mut Story<'a> {
        let new = self.stories.len();
        self.latest = *self.numbers.entry((caller, key)).or_insert(new);
        if self.latest == new {
            self.stories.push(Story { caller, key, ..Story::default() });
        }
        &mut self.stories[self.latest]
    }
}

/// A time in the logs, for people.
pub(super) struct At(pub(super) u64);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// A request and its answer, for people.
pub(super) struct Seen<'a>(pub(super) &'a Request);

impl fmt::Display for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { intent, sent_at, ended_at, after, answer, .. } = self.0;
        let when = if *after { ", after healing" } else { "" };
        write!(f, "the request sent at {} with intent {intent}{when}, ", At(*sent_at))?;
        match answer {
            Answer::Lost => write!(f, "got no answer by {}", At(*ended_at)),
            Answer::Refused { status, code } => write!(f, "got {status} {code} at {}", At(*ended_at)),
            Answer::Outcome { status, replayed, digest, body } => {
                let how = if *replayed { "replayed" } else { "first" };
                write!(f, "got {status} ({how}, digest {digest}) ")?;
                write!(f, "of run {} (fence {}) at {}", body.run, body.fence, At(*ended_at))
            }
        }
    }
}

/// A run, for people.
impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { at, intent, run, fence, attempt, .. } = self.start;
        write!(f, "run {run} (intent {intent}, fence {fence}, attempt {attempt}), started at {}", At(*at))?;
        match self.released_at {
            Some(at) => write!(f, " and gave the key back at {}", At(at)),
            None => Ok(()),
        }
    }
}
