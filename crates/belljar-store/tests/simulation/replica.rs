//! A replica of the simulation: it carries out the commands of the protocol, as the drivers of the crate do.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use belljar_store::protocol::{
    Lease, LeaseCommand, LeaseEvent, LeaseTimes, NodeId, NodeRecord, NodeState, Observer, Owner, Verdict, WriteId,
};

use crate::clients::{self, Answer};
use crate::model_store::{Op, Record, Reply, Request};
use crate::tasks::Task;
use crate::world::{Event, LEASE, SECOND, World};
use crate::{Defect, Random};

/// The purpose of a request to the store.
pub(crate) enum Purpose {
    Task(u64),
    Observe { task: u64, node: NodeId, sent: Duration },
    Fence { task: u64, node: NodeId },
    Renew { sent: Duration, write: WriteId },
    CheckRenewal { sent: Duration, write: WriteId },
    Nothing,
}

/// A session that a replica owns, as far as it knows.
pub(crate) struct Session {
    pub(crate) held: Record,
    pub(crate) ops: Vec<Op>,
}

pub(crate) struct Replica {
    pub(crate) index: usize,
    pub(crate) incarnation: u32,
    pub(crate) node: NodeId,
    pub(crate) is_running: bool,
    pub(crate) frozen_until: u64,
    /// The speed of the clock, in thousandths, and the difference of its date.
    rate: u64,
    skew: i64,
    pub(crate) lease: Lease,
    node_write: WriteId,
    observer: Observer,
    gone: HashSet<NodeId>,
    pub(crate) pending: HashMap<u64, Purpose>,
    pub(crate) tasks: BTreeMap<u64, Task>,
    pub(crate) sessions: HashMap<usize, Session>,
    pub(crate) busy: HashSet<usize>,
}

fn times() -> LeaseTimes {
    LeaseTimes { length: Duration::from_micros(LEASE) }
}

impl Replica {
    pub(crate) fn new(index: usize, random: &mut Random) -> Self {
        Self {
            index,
            incarnation: 0,
            node: NodeId(0),
            is_running: false,
            frozen_until: 0,
            rate: 900 + random.below(200),
            skew: random.below(30 * SECOND).cast_signed() - 15 * SECOND.cast_signed(),
            lease: Lease::new(times(), Duration::ZERO),
            node_write: WriteId(0),
            observer: Observer::new(times()),
            gone: HashSet::new(),
            pending: HashMap::new(),
            tasks: BTreeMap::new(),
            sessions: HashMap::new(),
            busy: HashSet::new(),
        }
    }

    /// Returns the time of the replica's monotonic clock.
    pub(crate) fn local(&self, now: u64) -> Duration {
        Duration::from_micros(now * self.rate / 1000)
    }

    /// Converts a duration of the replica's clock.
    pub(crate) fn true_duration(&self, local: u64) -> u64 {
        local * 1000 / self.rate + 1
    }

    pub(crate) fn owner(&self) -> Owner {
        Owner { node: self.node, address: "".into() }
    }

    pub(crate) fn start(&mut self, world: &mut World) {
        self.incarnation += 1;
        self.node = NodeId(world.new_write());
        self.is_running = true;
        self.lease = Lease::new(times(), self.local(world.now));
        self.observer = Observer::new(times());
        self.gone.clear();
        self.node_write = WriteId(world.new_write());
        let record = NodeRecord { write: self.node_write, state: NodeState::Alive, address: "".into() };
        world.store.nodes.insert(self.node, record);
        world.store.leases.insert(self.node, world.now + LEASE);
        world.store.stamps.insert(self.node, self.wall(world.now));
        self.on_tick(world);
    }

    fn wall(&self, now: u64) -> i64 {
        now.cast_signed() + self.skew
    }

    /// Ends the process. A new one starts later.
    pub(crate) fn crash(&mut self, world: &mut World) {
        if !self.is_running {
            return;
        }
        self.is_running = false;
        self.incarnation += 1;
        self.pending.clear();
        self.sessions.clear();
        self.busy.clear();
        for task in std::mem::take(&mut self.tasks).into_values() {
            if let Some(client) = task.client {
                clients::answer(world, client, Answer::Uncertain);
            }
        }
        let time = world.now + SECOND / 2 + world.random.below(12 * SECOND);
        world.schedule(time, Event::Start { replica: self.index });
    }

    /// Returns whether the replica may act as an owner.
    pub(crate) fn is_valid(&self, world: &World) -> bool {
        world.options.defect == Some(Defect::NoSelfFencing) || self.lease.is_valid(self.local(world.now))
    }

    pub(crate) fn on_tick(&mut self, world: &mut World) {
        self.drive_lease(world, LeaseEvent::Tick);
    }

    fn drive_lease(&mut self, world: &mut World, event: LeaseEvent) {
        let (replica, incarnation) = (self.index, self.incarnation);
        match self.lease.on(event, self.local(world.now)) {
            LeaseCommand::WaitUntil(time) => {
                // Not a moment earlier, which would be the same event again.
                let local = u64::try_from(time.as_nanos().div_ceil(1000)).unwrap();
                let time = local * 1000 / self.rate + 1;
                world.schedule(time, Event::Tick { replica, incarnation });
            }
            LeaseCommand::Renew => self.renew(world),
            LeaseCommand::Stop if world.options.defect == Some(Defect::NoSelfFencing) => {
                self.lease = Lease::new(times(), self.local(world.now));
                self.on_tick(world);
            }
            LeaseCommand::Stop => self.crash(world),
        }
    }

    fn renew(&mut self, world: &mut World) {
        let sent = self.local(world.now);
        let write = WriteId(world.new_write());
        world.store.stamps.insert(self.node, self.wall(world.now));
        let request = if world.store.has_leases {
            Request::KeepAlive { node: self.node }
        } else {
            let record = NodeRecord { write, state: NodeState::Alive, address: "".into() };
            Request::WriteNode { node: self.node, expected: Some(self.node_write), record }
        };
        world.send(self, request, Purpose::Renew { sent, write });
    }

    pub(crate) fn on_answer(&mut self, world: &mut World, purpose: Purpose, reply: Option<Reply>) {
        match (purpose, reply) {
            (Purpose::Task(task), reply) => self.on_reply(world, task, reply),
            (Purpose::Renew { sent, write }, Some(Reply::Written)) => {
                self.node_write = write;
                self.drive_lease(world, LeaseEvent::Renewed { sent });
            }
            (Purpose::Renew { .. }, Some(_)) if world.store.has_leases => {
                self.drive_lease(world, LeaseEvent::Revoked);
            }
            (Purpose::Renew { .. }, None) if world.store.has_leases => self.drive_lease(world, LeaseEvent::Failed),
            (Purpose::Renew { sent, write }, _) => {
                let request = Request::ReadNode { node: self.node };
                world.send(self, request, Purpose::CheckRenewal { sent, write });
            }
            (Purpose::CheckRenewal { sent, write }, Some(Reply::Node(Some(found))))
                if found.state == NodeState::Alive =>
            {
                self.node_write = found.write;
                let event = if found.write == write { LeaseEvent::Renewed { sent } } else { LeaseEvent::Failed };
                self.drive_lease(world, event);
            }
            (Purpose::CheckRenewal { .. }, Some(_)) => self.drive_lease(world, LeaseEvent::Revoked),
            (Purpose::CheckRenewal { .. }, None) => self.drive_lease(world, LeaseEvent::Failed),
            (Purpose::Observe { task, node, sent }, Some(Reply::Node(found))) => {
                self.on_observed(world, task, node, found, sent);
            }
            (Purpose::Fence { task, node }, Some(Reply::Written)) => self.on_owner(world, task, node, true),
            (Purpose::Fence { task, node }, Some(_)) => self.on_owner(world, task, node, false),
            (Purpose::Observe { task, .. } | Purpose::Fence { task, .. }, _) => {
                self.drive(world, task, belljar_store::protocol::Event::ReadFailed);
            }
            (Purpose::Nothing, _) => {}
        }
    }

    /// Asks for the record of the owner of a session.
    pub(crate) fn observe(&mut self, world: &mut World, task: u64, node: NodeId) {
        if self.gone.contains(&node) {
            return self.on_owner(world, task, node, true);
        }
        let sent = self.local(world.now);
        world.send(self, Request::ReadNode { node }, Purpose::Observe { task, node, sent });
    }

    fn on_observed(&mut self, world: &mut World, task: u64, node: NodeId, found: Option<NodeRecord>, sent: Duration) {
        if world.store.has_leases {
            return self.on_owner(world, task, node, found.is_none());
        }
        if world.options.defect == Some(Defect::LeaseByWallClock) {
            let stamp = world.store.stamps.get(&node).copied().unwrap_or(i64::MIN);
            let is_over = self.wall(world.now) - stamp > LEASE.cast_signed();
            return self.on_owner(world, task, node, is_over);
        }
        let local = self.local(world.now);
        match (self.observer.observe(node, found.as_ref(), sent, local), found) {
            (Verdict::Expired(expected), Some(found)) => {
                let write = WriteId(world.new_write());
                let record = NodeRecord { write, state: NodeState::Fenced, ..found };
                let request = Request::WriteNode { node, expected: Some(expected), record };
                world.send(self, request, Purpose::Fence { task, node });
            }
            (verdict, _) => self.on_owner(world, task, node, verdict == Verdict::Gone),
        }
    }

    fn on_owner(&mut self, world: &mut World, task: u64, node: NodeId, is_gone: bool) {
        use belljar_store::protocol::Event;
        if is_gone {
            self.gone.insert(node);
        }
        self.drive(world, task, if is_gone { Event::OwnerGone } else { Event::OwnerAlive });
    }
}
