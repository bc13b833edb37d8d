//! The world of a schedule: virtual time, the network with its failures, and the order of events.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use belljar_store::protocol::{NodeId, Status};

use crate::clients::Clients;
use crate::model_store::{Reply, Request, Store};
use crate::replica::{Purpose, Replica};
use crate::{Options, Random};

pub(crate) const SECOND: u64 = 1_000_000;
/// The length of a lease.
pub(crate) const LEASE: u64 = 10 * SECOND;
/// The time after which a request counts as unanswered.
const REQUEST_TIMEOUT: u64 = 5 * SECOND;

pub(crate) enum Event {
    /// A request arrives at the store. A repeated one has no answer.
    AtStore {
        replica: usize,
        incarnation: u32,
        id: u64,
        request: Request,
        answers: bool,
    },
    /// An answer, or the time-out, arrives at a replica.
    Answer {
        replica: usize,
        incarnation: u32,
        id: u64,
        reply: Option<Reply>,
    },
    /// A pause of a task is over.
    Resume {
        replica: usize,
        incarnation: u32,
        task: u64,
    },
    /// The lease is looked at.
    Tick {
        replica: usize,
        incarnation: u32,
    },
    /// A client sends its next request, or the same again.
    Client {
        client: usize,
    },
    /// A replica starts, or starts again.
    Start {
        replica: usize,
    },
    Crash {
        replica: usize,
    },
    Freeze {
        replica: usize,
        until: u64,
    },
    /// Two replicas delete a session whose time is over.
    Expire {
        session: usize,
    },
}

struct Scheduled {
    time: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.time, other.order).cmp(&(self.time, self.order))
    }
}

pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) random: Random,
    pub(crate) options: Options,
    pub(crate) store: Store,
    pub(crate) clients: Clients,
    /// The time from which on nothing fails.
    pub(crate) heal: u64,
    /// The probability of a failure of a request, in thousandths.
    trouble: u64,
    queue: BinaryHeap<Scheduled>,
    order: u64,
    pub(crate) next_id: u64,
    /// The first violation.
    pub(crate) violation: Option<String>,
}

impl World {
    pub(crate) fn violate(&mut self, text: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(format!("at {} s: {}", self.now as f64 / SECOND as f64, text()));
        }
    }

    pub(crate) fn schedule(&mut self, time: u64, event: Event) {
        self.order += 1;
        self.queue.push(Scheduled { time: time.max(self.now), order: self.order, event });
    }

    pub(crate) fn new_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    pub(crate) fn new_write(&mut self) -> u128 {
        u128::from(self.new_id())
    }

    fn has_failures(&self) -> bool {
        self.now < self.heal
    }

    /// Returns the time that a message takes.
    fn delay(&mut self) -> u64 {
        let usual = 1_000 + self.random.below(30_000);
        if self.has_failures() && self.random.chance(self.trouble) {
            // Up to far beyond all time-outs.
            return usual + self.random.below(45 * SECOND);
        }
        usual
    }

    /// Sends a request to the store. It may be late, repeated or lost, and so may its answer.
    pub(crate) fn send(&mut self, replica: &mut Replica, request: Request, purpose: Purpose) {
        let id = self.new_id();
        let (index, incarnation) = (replica.index, replica.incarnation);
        replica.pending.insert(id, purpose);
        let is_lost = self.has_failures() && self.random.chance(self.trouble / 2);
        let is_repeated = self.has_failures() && self.random.chance(self.trouble / 2);
        if is_repeated {
            let (late, request) = (self.now + self.delay() + self.random.below(20 * SECOND), request.clone());
            let event = Event::AtStore { replica: index, incarnation, id, request, answers: false };
            self.schedule(late, event);
        }
        if !is_lost {
            let time = self.now + self.delay();
            self.schedule(time, Event::AtStore { replica: index, incarnation, id, request, answers: true });
        }
        let timeout = self.now + replica.true_duration(REQUEST_TIMEOUT);
        self.schedule(timeout, Event::Answer { replica: index, incarnation, id, reply: None });
    }

    pub(crate) fn is_deleted(&self, session: usize) -> bool {
        self.store.sessions.get(&session).is_some_and(|record| record.status == Status::Deleted)
    }

    /// Returns whether an owner still is the one in the store.
    pub(crate) fn is_owner(&self, session: usize, node: NodeId, epoch: u64) -> bool {
        self.store.sessions.get(&session).is_some_and(|record| record.is_owned_by(node) && record.epoch == epoch)
    }
}

/// The size of a simulated cluster, and what happens to it.
pub(crate) struct Scale {
    pub(crate) replicas: usize,
    pub(crate) sessions: usize,
    /// The number of crashes and pauses of replicas.
    pub(crate) failures: u64,
    /// The time from which on nothing fails.
    pub(crate) heal: u64,
    /// The probability of a failure of a request, in thousandths.
    pub(crate) trouble: u64,
}

/// The result of a schedule.
pub(crate) struct Report {
    pub(crate) events: u64,
    pub(crate) acknowledged: u64,
    /// The requests that arrived at the store, for each second.
    pub(crate) requests: Vec<u64>,
}

/// Runs one schedule with a few replicas. Returns the number of events and acknowledged requests, or the first
/// violation.
pub(crate) fn run(seed: u64, options: Options) -> Result<(u64, u64), String> {
    let mut random = Random::new(seed);
    let heal = (20 + random.below(50)) * SECOND;
    // One schedule in four has no failures of requests, and one in four has many.
    let trouble = [0, 20, 60, 200][random.below(4) as usize];
    let replicas = 2 + random.below(2) as usize;
    let sessions = 1 + random.below(2) as usize;
    let scale = Scale { replicas, sessions, failures: random.below(5), heal, trouble };
    run_scaled(random, options, &scale)
        .map(|report| (report.events, report.acknowledged))
        .map_err(|violation| format!("seed {seed}: {violation}"))
}

/// Runs one schedule of a cluster of this size.
pub(crate) fn run_scaled(mut random: Random, options: Options, scale: &Scale) -> Result<Report, String> {
    let Scale { replicas: count, sessions, heal, trouble, .. } = *scale;
    let mut store = Store { lease_length: LEASE, has_leases: random.chance(400), ..Store::default() };
    if options.defect.is_some_and(|defect| defect.needs_leases_of_replicas()) {
        store.has_leases = false;
    }
    let clients = Clients::new(&mut random, sessions, heal);
    let mut world = World {
        now: 0,
        random,
        options,
        store,
        clients,
        heal,
        trouble,
        queue: BinaryHeap::new(),
        order: 0,
        next_id: 0,
        violation: None,
    };
    let mut replicas: Vec<Replica> = (0..count).map(|index| Replica::new(index, &mut world.random)).collect();
    plan(&mut world, scale);
    let mut requests = Vec::new();
    let end = heal + 90 * SECOND;
    let mut events = 0;
    while let Some(Scheduled { time, event, .. }) = world.queue.pop() {
        if time > end || world.clients.are_done() {
            world.queue.push(Scheduled { time, order: 0, event });
            break;
        }
        world.now = time;
        events += 1;
        if let Event::AtStore { .. } = event {
            let second = (time / SECOND) as usize;
            requests.resize(requests.len().max(second + 1), 0);
            requests[second] += 1;
        }
        handle(&mut world, &mut replicas, event);
        if let Some(violation) = world.violation.take() {
            return Err(violation);
        }
    }
    // Requests that are still on their way arrive.
    while let Some(Scheduled { time, event, .. }) = world.queue.pop() {
        if let Event::AtStore { request, .. } = event {
            world.now = world.now.max(time);
            let (now, defect) = (world.now, world.options.defect);
            world.store.apply(request, now, defect);
        }
    }
    crate::clients::check_end(&world)?;
    Ok(Report { events, acknowledged: world.clients.acknowledged(), requests })
}

/// Plans the failures of replicas, and the first events.
fn plan(world: &mut World, scale: &Scale) {
    let Scale { replicas, sessions, failures, .. } = *scale;
    for replica in 0..replicas {
        world.schedule(replica as u64, Event::Start { replica });
    }
    for client in 0..world.clients.count() {
        let time = SECOND / 2 + world.random.below(SECOND);
        world.schedule(time, Event::Client { client });
    }
    for _ in 0..failures {
        let replica = world.random.below(replicas as u64) as usize;
        let time = SECOND + world.random.below(world.heal);
        // Often for longer than a lease.
        let until = (time + world.random.below(3 * LEASE)).min(world.heal.max(time));
        let event = if world.random.chance(400) { Event::Crash { replica } } else { Event::Freeze { replica, until } };
        world.schedule(time, event);
    }
    if world.random.chance(200) {
        let session = world.random.below(sessions as u64) as usize;
        let time = world.random.below(world.heal);
        world.clients.expire(session);
        world.schedule(time, Event::Expire { session });
    }
}

fn handle(world: &mut World, replicas: &mut [Replica], event: Event) {
    // A replica that is frozen deals with its events later.
    let frozen = match &event {
        Event::Answer { replica, .. } | Event::Resume { replica, .. } | Event::Tick { replica, .. } => {
            replicas[*replica].frozen_until
        }
        _ => 0,
    };
    if frozen > world.now {
        return world.schedule(frozen, event);
    }
    match event {
        Event::AtStore { replica, incarnation, id, request, answers } => {
            let reply = world.store.apply(request, world.now, world.options.defect);
            let is_lost = world.has_failures() && world.random.chance(world.trouble / 2);
            if answers && !is_lost {
                let time = world.now + world.delay();
                world.schedule(time, Event::Answer { replica, incarnation, id, reply: Some(reply) });
            }
        }
        Event::Answer { replica, incarnation, id, reply } => {
            let replica = &mut replicas[replica];
            if replica.incarnation == incarnation
                && let Some(purpose) = replica.pending.remove(&id)
            {
                replica.on_answer(world, purpose, reply);
            }
        }
        Event::Resume { replica, incarnation, task } => {
            let replica = &mut replicas[replica];
            if replica.incarnation == incarnation {
                replica.on_resume(world, task);
            }
        }
        Event::Tick { replica, incarnation } => {
            let replica = &mut replicas[replica];
            if replica.incarnation == incarnation {
                replica.on_tick(world);
            }
        }
        Event::Client { client } => crate::clients::send(world, replicas, client),
        Event::Start { replica } => replicas[replica].start(world),
        Event::Crash { replica } => replicas[replica].crash(world),
        Event::Freeze { replica, until } => {
            let replica = &mut replicas[replica];
            replica.frozen_until = replica.frozen_until.max(until);
        }
        Event::Expire { session } => {
            let now = world.now;
            for replica in replicas.iter_mut().filter(|replica| replica.frozen_until <= now).take(2) {
                replica.delete(world, session);
            }
        }
    }
}
