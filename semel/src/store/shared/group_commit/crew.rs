//! The workers of a queue: how many there are, how many are at work, and the choice of how many
//! should be.
//!
//! A batch costs the server much, and each operation in it little. So under a load, few workers with
//! large batches are fastest: each additional one makes the batches smaller. With only a few
//! operations there are no batches to be had. Then each operation goes alone and at once, over a
//! connection of its own, and the server shares the disk between them: none waits for a batch in
//! flight. A server that is far away or has a slow disk is mostly idle while it is waited for, so
//! more batches in flight cost nothing there. While answers are large, only those workers take part
//! that share a load, as memory is short then.
//!
//! | operations, waiting and in flight | workers |
//! | --- | --- |
//! | up to [`FEW`] | as many as there are operations, each with one |
//! | more, answers take long | all |
//! | more, all that share a load hang | all |
//! | more | another one for each [`ENOUGH`] that wait, up to those that share a load |
//!
//! An additional worker is never woken under a load, even if it has a connection and nothing to do:
//! it would take what the other workers were about to take, and the batches would be smaller.

use std::time::Duration;

use tokio::time::Instant;

/// The number of operations that go alone, each over its own connection.
pub(super) const FEW: usize = 8;
/// The number of waiting operations that makes another worker take part under a load.
pub(super) const ENOUGH: usize = 16;
/// The number of operations over which their largest number counts, and then once more.
const MANY: usize = 256;
/// Answers take long if the fastest of a small batch takes this long.
const SLOW: Duration = Duration::from_millis(2);
/// The largest size of the answers of a batch that are not large.
const SMALL: usize = 64 << 10;
/// The time over which the fastest answer counts.
const WINDOW: Duration = Duration::from_secs(1);

/// The kind of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// It has a connection from the start, and shares a load with the others of its kind.
    Sharing,
    /// It has a connection on demand.
    Additional,
}

/// The next worker for waiting operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// One of this kind that is ready and has nothing to do.
    Idle(Role),
    /// An additional one that has no connection yet.
    Unconnected,
}

/// The workers of one kind.
#[derive(Default)]
struct Workers {
    /// The number of those whose tasks run.
    alive: usize,
    /// The number of those that may take operations: they have a connection, or share a load.
    ready: usize,
    /// The number of those between taking operations and having settled them.
    serving: usize,
    /// The number of those that have been serving for so long that others should not wait for them.
    hanging: usize,
}

impl Workers {
    fn has_idle(&self) -> bool {
        self.serving < self.ready
    }

    fn all_hang(&self) -> bool {
        self.hanging >= self.alive
    }
}

pub(super) struct Crew {
    /// The number of workers that share a load, unless some have ended.
    pub(super) size: usize,
    sharing: Workers,
    additional: Workers,
    /// The number of workers at work, without those that have taken so long that others should not
    /// wait for them.
    at_work: usize,
    /// The number of operations of the workers at work.
    in_flight: usize,
    /// The number of workers that have lost a batch and not recovered yet.
    pub(super) recovering: usize,
    fastest: Fastest,
    most: Most,
    /// The moment until which additional workers do not take part, because answers were large.
    heavy_until: Option<Instant>,
}

impl Crew {
    /// A crew of so many workers, of which some share a load, and the rest is additional.
    pub(super) fn new(sharing: usize, additional: usize) -> Self {
        Self {
            size: sharing,
            sharing: Workers { alive: sharing, ready: sharing, ..Workers::default() },
            additional: Workers { alive: additional, ..Workers::default() },
            at_work: 0,
            in_flight: 0,
            recovering: 0,
            fastest: Fastest::default(),
            most: Most::default(),
            heavy_until: None,
        }
    }

    /// Returns `true` if another worker should take part.
    pub(super) fn is_worth_another(&self, waiting: usize) -> bool {
        if self.at_work == 0 {
            return true;
        }
        self.are_few(waiting) || self.is_slow() || self.at_work < self.size && waiting >= ENOUGH
    }

    /// Returns `true` if a worker of this kind may take part.
    pub(super) fn may_take(&self, role: Role, waiting: usize) -> bool {
        role == Role::Sharing || self.are_few(waiting) || self.is_slow() || self.sharing.all_hang()
    }

    /// The worker that should take the waiting operations, if one is not about to take them anyway.
    pub(super) fn next(&self, waiting: usize) -> Option<Next> {
        if self.sharing.has_idle() {
            Some(Next::Idle(Role::Sharing))
        } else if !self.may_take(Role::Additional, waiting) {
            None
        } else if self.additional.has_idle() {
            Some(Next::Idle(Role::Additional))
        } else {
            Some(Next::Unconnected)
        }
    }

    /// Returns `true` if there are workers whose tasks run.
    pub(super) fn is_alive(&self) -> bool {
        self.sharing.alive + self.additional.alive > 0
    }

    fn workers(&mut self, role: Role) -> &mut Workers {
        match role {
            Role::Sharing => &mut self.sharing,
            Role::Additional => &mut self.additional,
        }
    }

    /// The number of operations that a worker should take.
    pub(super) fn share(&self, waiting: usize, busy_with_suspect: bool) -> usize {
        if self.are_few(waiting) {
            return 1;
        }
        // A load that is enough for all free workers is shared among them: while one batch is in
        // flight, another is being answered.
        let away = self.at_work + self.recovering + usize::from(busy_with_suspect);
        let free = self.size.saturating_sub(away).max(1);
        if waiting >= ENOUGH * free { waiting.div_ceil(free) } else { waiting }
    }

    /// Returns `true` if there are additional workers, and so few operations that each goes alone.
    fn are_few(&self, waiting: usize) -> bool {
        self.in_flight + waiting <= FEW && self.most.known() <= FEW && self.has_additional()
    }

    /// Returns `true` if even small batches are answered late.
    fn is_slow(&self) -> bool {
        self.has_additional() && self.fastest.known.is_some_and(|fastest| fastest >= SLOW)
    }

    /// Returns `true` if there are additional workers that may take part. While answers are large,
    /// they may not: as many large answers would be in memory as there are connections.
    fn has_additional(&self) -> bool {
        self.additional.alive > 0 && self.heavy_until.is_none_or(|end| end <= Instant::now())
    }

    /// Records that an operation came.
    pub(super) fn came(&mut self, waiting: usize) {
        self.most.add(self.in_flight + waiting);
    }

    /// Records that a worker has taken operations.
    pub(super) fn begin(&mut self, role: Role, operations: usize) {
        self.workers(role).serving += 1;
        self.at_work += 1;
        self.in_flight += operations;
    }

    /// Records that a worker has taken an operation about a suspect, which no other worker waits
    /// for.
    pub(super) fn begin_suspect(&mut self, role: Role) {
        self.workers(role).serving += 1;
    }

    /// Records that a worker has answered its operations, or takes so long that others should not
    /// wait for it.
    pub(super) fn step_back(&mut self, operations: usize) {
        self.at_work -= 1;
        self.in_flight -= operations;
    }

    /// Records that a worker takes so long that others should not wait for it.
    pub(super) fn hang(&mut self, role: Role) {
        self.workers(role).hanging += 1;
    }

    /// Records that a worker has settled its operations.
    pub(super) fn end(&mut self, role: Role, was_hanging: bool) {
        let workers = self.workers(role);
        workers.serving -= 1;
        workers.hanging -= usize::from(was_hanging);
    }

    /// Returns `true` if no worker is at work.
    pub(super) fn rests(&self) -> bool {
        self.at_work == 0
    }

    /// Returns `true` if every worker that could take operations has lost a batch.
    pub(super) fn has_lost_all(&self) -> bool {
        self.recovering == self.sharing.ready + self.additional.ready
    }

    /// Records that an additional worker has got a connection, or has none any more.
    pub(super) fn ready(&mut self, is_ready: bool) {
        if is_ready {
            self.additional.ready += 1;
        } else {
            self.additional.ready -= 1;
        }
    }

    /// Records that a worker has ended.
    pub(super) fn leave(&mut self, role: Role, was_ready: bool) {
        let workers = self.workers(role);
        workers.alive -= 1;
        workers.ready -= usize::from(was_ready);
    }

    /// Records the time that a batch took.
    pub(super) fn took(&mut self, operations: usize, answer_bytes: usize, time: Duration) {
        if answer_bytes > SMALL {
            self.heavy_until = Some(Instant::now() + WINDOW);
        } else if operations <= ENOUGH {
            self.fastest.add(Instant::now(), time);
        }
    }
}

/// The largest number of operations, waiting and in flight, of the last while: under a load there
/// are few for a moment whenever a batch was answered.
#[derive(Default)]
struct Most {
    before: usize,
    current: usize,
    /// The number of operations that have come in this window.
    came: usize,
}

impl Most {
    fn add(&mut self, operations: usize) {
        if self.came == MANY {
            (self.before, self.current, self.came) = (self.current, 0, 0);
        }
        self.current = self.current.max(operations);
        self.came += 1;
    }

    fn known(&self) -> usize {
        self.before.max(self.current)
    }
}

/// The fastest answer of the last seconds.
#[derive(Default)]
struct Fastest {
    /// The fastest of this window and the one before. It stays while there are no answers.
    known: Option<Duration>,
    /// The fastest of this window.
    current: Option<Duration>,
    /// The end of this window.
    end: Option<Instant>,
}

impl Fastest {
    fn add(&mut self, now: Instant, time: Duration) {
        if self.end.is_none_or(|end| end <= now) {
            self.known = self.current.take();
            self.end = Some(now + WINDOW);
        }
        self.current = Some(self.current.map_or(time, |fastest| fastest.min(time)));
        self.known = Some(self.known.map_or(time, |fastest| fastest.min(time)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crew of two that share a load, and six additional ones with a connection.
    fn connected() -> Crew {
        let mut crew = Crew::new(2, 6);
        (0..6).for_each(|_| crew.ready(true));
        crew
    }

    /// A connected crew whose two sharing workers are both at work, while this many operations wait.
    fn under_load(waiting: usize) -> Crew {
        let mut crew = connected();
        crew.begin(Role::Sharing, 20);
        crew.begin(Role::Sharing, 20);
        crew.came(waiting);
        crew
    }

    #[test]
    fn under_a_load_an_additional_worker_takes_nothing_though_it_has_a_connection() {
        let mut crew = under_load(100);
        assert!(!crew.may_take(Role::Additional, 100));
        assert_eq!(crew.next(100), None);
        // Between two batches of a worker, too.
        crew.step_back(20);
        assert!(!crew.may_take(Role::Additional, 100));
        assert_eq!(crew.next(100), None);
        crew.end(Role::Sharing, false);
        assert_eq!(crew.next(100), Some(Next::Idle(Role::Sharing)));
    }

    #[test]
    fn an_additional_worker_takes_a_load_over_when_all_that_share_it_hang() {
        let mut crew = under_load(100);
        crew.hang(Role::Sharing);
        assert_eq!(crew.next(100), None);
        crew.hang(Role::Sharing);
        assert_eq!(crew.next(100), Some(Next::Idle(Role::Additional)));
        crew.end(Role::Sharing, true);
        assert_eq!(crew.next(100), Some(Next::Idle(Role::Sharing)));
        assert!(!crew.may_take(Role::Additional, 100));
    }

    #[test]
    fn a_few_operations_go_to_idle_workers_first_and_then_to_new_connections() {
        let mut crew = Crew::new(2, 2);
        crew.ready(true);
        crew.came(1);
        let next = [
            Next::Idle(Role::Sharing),
            Next::Idle(Role::Sharing),
            Next::Idle(Role::Additional),
            Next::Unconnected,
        ];
        for (next, role) in next.into_iter().zip([Role::Sharing, Role::Sharing, Role::Additional]) {
            assert_eq!(crew.next(1), Some(next));
            crew.begin(role, 1);
        }
        assert_eq!(crew.next(1), Some(Next::Unconnected));
    }
}
