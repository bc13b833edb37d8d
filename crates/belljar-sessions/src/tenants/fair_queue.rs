//! The queue of a pool: fair between owners, and in the order of arrival within each. It is a pure data structure.
//!
//! Each owner has a lane. The scheduling is start-time fair queueing: a lane's next job has a *start* on a virtual
//! clock, which is that of its job before, plus the cost of one job (less with more weight), but not before the clock.
//! The job with the earliest start is next, and the clock advances to it. So a lane that had nothing to do is next when
//! it gets a job, however many jobs the others have, and no lane waits for longer than one turn of each other lane.
//!
//! ```text
//!  push ─▶ lane: control, resumed, fresh ─▶ pop: the earliest start, below its limit of running jobs ─▶ release
//! ```

use std::collections::{BTreeSet, HashMap, VecDeque};

/// The number of an owner's lane.
pub(crate) type LaneId = u64;

/// The cost of a job on the virtual clock, for a weight of one.
const JOB_COST: u64 = 1 << 20;

/// The maximum weight of a lane.
pub(crate) const MAX_WEIGHT: u32 = 1000;

/// The number of lanes above which those that nothing waits or runs for are removed.
const MAX_IDLE_LANES: usize = 1024;

/// The precedence of a job in its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Operations that run no code of the owner, such as the end of a session. They do not count as running jobs of the
    /// lane, and its limit does not delay them.
    Control,
    /// Code that has begun, and goes on after a wait.
    Resumed,
    /// Code that begins.
    Fresh,
}

/// The settings of a lane, which may change between two jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LaneLimits {
    /// The share of the lane in relation to others, from 1 to [`MAX_WEIGHT`].
    pub(crate) weight: u32,
    /// The maximum number of jobs that run at the same time.
    pub(crate) max_running: usize,
}

/// The capacity that is shared by all lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capacity {
    /// The maximum number of jobs that run at the same time.
    pub(crate) max_running: usize,
    /// The number of owners that have used the server lately.
    pub(crate) owners: usize,
    /// The number of processors.
    pub(crate) processors: usize,
}

impl Capacity {
    /// Returns the number of jobs that one lane may run. While there are several owners, a quarter of the capacity
    /// stays free of each one's jobs, so that a call of another owner need not wait.
    fn max_per_lane(self) -> usize {
        if self.owners > 1 { self.max_running - self.max_running / 4 } else { self.max_running }
    }

    /// Returns the number of processors that one lane may ask for with the usual priority. One owner may ask for any.
    fn processors_per_lane(self) -> usize {
        if self.owners > 1 { (self.processors / self.owners).max(1) } else { usize::MAX }
    }
}

/// A job that is to run now.
#[derive(Debug)]
pub(crate) struct Dispatched<T> {
    pub(crate) job: T,
    pub(crate) slot: Slot,
}

/// The place of a running job, which must be given back by [`FairQueue::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) lane: LaneId,
    /// True if its owner asks for more than its share of the processors, so that the job is to give way to those of
    /// others. Jobs within the share would be in their way as well: a system shares a processor between two threads of
    /// the same priority in slices, for which a short call would wait at each of its steps.
    pub(crate) gives_way: bool,
    /// False for control jobs.
    is_counted: bool,
}

impl Slot {
    /// Returns whether the job is a control job.
    pub(crate) fn is_control(self) -> bool {
        !self.is_counted
    }
}

/// A queue that is fair between lanes.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    lanes: HashMap<LaneId, Lane<T>>,
    /// The lanes with waiting jobs, by the start of their next one.
    backlog: BTreeSet<(u64, LaneId)>,
    /// The virtual clock: the start of the job that was dispatched last.
    clock: u64,
    waiting: usize,
    running: usize,
}

#[derive(Debug)]
struct Lane<T> {
    control: VecDeque<T>,
    resumed: VecDeque<T>,
    fresh: VecDeque<T>,
    limits: LaneLimits,
    /// The number of counted jobs that run.
    running: usize,
    /// The start of the next job.
    start: u64,
}

impl<T> Lane<T> {
    fn new(limits: LaneLimits) -> Self {
        let (control, resumed, fresh) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { control, resumed, fresh, limits, running: 0, start: 0 }
    }

    fn waiting(&self) -> usize {
        self.control.len() + self.resumed.len() + self.fresh.len()
    }

    /// Takes the next job, and whether it counts. `max_running` is the limit of any lane.
    fn pop(&mut self, max_running: usize) -> Option<(T, bool)> {
        if let Some(job) = self.control.pop_front() {
            return Some((job, false));
        }
        if self.running >= self.limits.max_running.min(max_running) {
            return None;
        }
        let job = self.resumed.pop_front().or_else(|| self.fresh.pop_front())?;
        Some((job, true))
    }
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { lanes: HashMap::new(), backlog: BTreeSet::new(), clock: 0, waiting: 0, running: 0 }
    }
}

impl<T> FairQueue<T> {
    /// Returns the number of jobs that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the number of jobs that run.
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// Returns the number of jobs of a lane that wait.
    pub(crate) fn waiting_in(&self, lane: LaneId) -> usize {
        self.lanes.get(&lane).map_or(0, Lane::waiting)
    }

    /// Adds a job to a lane.
    pub(crate) fn push(&mut self, id: LaneId, limits: LaneLimits, urgency: Urgency, job: T) {
        if self.lanes.len() > MAX_IDLE_LANES && !self.lanes.contains_key(&id) {
            // A lane without a history starts at the clock, so that those that are ahead of it stay.
            let clock = self.clock;
            self.lanes.retain(|_, lane| lane.waiting() > 0 || lane.running > 0 || lane.start > clock);
        }
        let lane = self.lanes.entry(id).or_insert_with(|| Lane::new(limits));
        lane.limits = limits;
        if lane.waiting() == 0 {
            lane.start = lane.start.max(self.clock);
            self.backlog.insert((lane.start, id));
        }
        match urgency {
            Urgency::Control => lane.control.push_back(job),
            Urgency::Resumed => lane.resumed.push_back(job),
            Urgency::Fresh => lane.fresh.push_back(job),
        }
        self.waiting += 1;
    }

    /// Takes the next job that may run.
    pub(crate) fn pop(&mut self, capacity: Capacity) -> Option<Dispatched<T>> {
        if self.running >= capacity.max_running {
            return None;
        }
        let (max_of_lane, share) = (capacity.max_per_lane(), capacity.processors_per_lane());
        // A lane at its limit has a job that runs, so that few are passed over.
        let mut found = None;
        for &(start, id) in &self.backlog {
            let Some(lane) = self.lanes.get_mut(&id) else { continue };
            if let Some((job, is_counted)) = lane.pop(max_of_lane) {
                found = Some((start, id, job, is_counted));
                break;
            }
        }
        let (start, id, job, is_counted) = found?;
        self.backlog.remove(&(start, id));
        let lane = self.lanes.get_mut(&id)?;
        // A lane that was at its limit for a while does not catch up on the time.
        let start = start.max(self.clock);
        self.clock = start;
        lane.start = start.saturating_add(JOB_COST / u64::from(lane.limits.weight.clamp(1, MAX_WEIGHT)));
        if lane.waiting() > 0 {
            self.backlog.insert((lane.start, id));
        }
        lane.running += usize::from(is_counted);
        // One more than the share: the answer of a call leaves before its place is given back, so that the next call of
        // a client that sends one after the other finds the one before still running.
        let gives_way = is_counted && lane.running + lane.waiting() > share.saturating_add(1);
        self.waiting -= 1;
        self.running += 1;
        Some(Dispatched { job, slot: Slot { lane: id, gives_way, is_counted } })
    }

    /// Gives back the place of a job.
    pub(crate) fn release(&mut self, slot: Slot) {
        self.running = self.running.saturating_sub(1);
        let Some(lane) = self.lanes.get_mut(&slot.lane).filter(|_| slot.is_counted) else { return };
        lane.running = lane.running.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests;
