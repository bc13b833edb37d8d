//! The work of a replica of the simulation for a client: it activates a session, executes a request, and commits.

use belljar_store::protocol::{Command, Event, Intent, Operation, Outcome};

use crate::Defect;
use crate::clients::{self, Answer};
use crate::model_store::{Op, Payload, Record, Reply, Request};
use crate::replica::{Purpose, Replica, Session};
use crate::world::{self, SECOND, World};

/// The time for an operation.
const OPERATION_TIMEOUT: u64 = 30 * SECOND;

enum Stage {
    Operating {
        purpose: Kind,
        is_writing: bool,
    },
    /// The state of an activated session is read.
    Loading {
        record: Record,
    },
    /// The state after a request is written.
    Storing {
        payload: Payload,
        ops: Vec<Op>,
    },
}

enum Kind {
    Activate,
    Commit { ops: Vec<Op> },
    Release,
    Delete,
}

/// A piece of work for one session. A replica has at most one for each.
pub(crate) struct Task {
    session: usize,
    pub(crate) client: Option<usize>,
    op: Op,
    stage: Stage,
    operation: Option<Operation<Payload>>,
    deadline: std::time::Duration,
}

impl Replica {
    /// Receives a request of a client.
    pub(crate) fn on_request(&mut self, world: &mut World, session: usize, client: usize, op: Op) {
        if self.busy.contains(&session) || !self.is_valid(world) {
            return clients::answer(world, client, Answer::Refused(None));
        }
        let id = self.new_task(world, session, Some(client), op, Kind::Activate);
        if self.sessions.contains_key(&session) {
            self.execute(world, id);
        } else {
            self.operate(world, id, Kind::Activate, Intent::Activate);
        }
    }

    /// Deletes a session whose time is over.
    pub(crate) fn delete(&mut self, world: &mut World, session: usize) {
        if self.is_running && !self.busy.contains(&session) && self.is_valid(world) {
            self.sessions.remove(&session);
            let id = self.new_task(world, session, None, 0, Kind::Delete);
            self.operate(world, id, Kind::Delete, Intent::Delete { payload: None });
        }
    }

    fn new_task(&mut self, world: &mut World, session: usize, client: Option<usize>, op: Op, purpose: Kind) -> u64 {
        let id = world.new_id();
        self.busy.insert(session);
        let deadline = self.local(world.now) + std::time::Duration::from_micros(OPERATION_TIMEOUT);
        let stage = Stage::Operating { purpose, is_writing: false };
        self.tasks.insert(id, Task { session, client, op, stage, operation: None, deadline });
        id
    }

    fn operate(&mut self, world: &mut World, id: u64, purpose: Kind, intent: Intent<Payload>) {
        let write = belljar_store::protocol::WriteId(world.new_write());
        let (owner, deadline) = (self.owner(), self.local(world.now));
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.operation = Some(Operation::new(owner, write, intent));
        task.stage = Stage::Operating { purpose, is_writing: false };
        task.deadline = deadline + std::time::Duration::from_micros(OPERATION_TIMEOUT);
        self.drive(world, id, Event::Resumed);
    }

    pub(crate) fn on_resume(&mut self, world: &mut World, id: u64) {
        self.drive(world, id, Event::Resumed);
    }

    /// Gives an event to the operation of a task, and carries the command out.
    pub(crate) fn drive(&mut self, world: &mut World, id: u64, event: Event<Payload>) {
        let local = self.local(world.now);
        let node = self.node;
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some(operation) = &mut task.operation else { return };
        let is_late = local >= task.deadline && !matches!(event, Event::Written | Event::Record(_));
        let command = operation.on(if is_late { Event::TimedOut } else { event });
        let session = task.session;
        if let Stage::Operating { is_writing, .. } = &mut task.stage {
            *is_writing = matches!(command, Command::Write { .. });
        }
        match command {
            Command::Read => world.send(self, Request::Read { session }, Purpose::Task(id)),
            Command::Observe(owner) => self.observe(world, id, owner.node),
            Command::Write { expected, record } => {
                let request = Request::Write { session, expected, record, guard: Some(node) };
                world.send(self, request, Purpose::Task(id));
            }
            Command::Pause { attempt } => {
                let pause = self.true_duration((50_000 << attempt.min(5)) + world.random.below(50_000));
                let (time, replica, incarnation) = (world.now + pause, self.index, self.incarnation);
                world.schedule(time, world::Event::Resume { replica, incarnation, task: id });
            }
            Command::Finish(outcome) => self.finish(world, id, outcome),
        }
    }

    /// Receives the answer to a request of a task, or its time-out.
    pub(crate) fn on_reply(&mut self, world: &mut World, id: u64, reply: Option<Reply>) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        match &mut task.stage {
            Stage::Operating { is_writing, .. } => {
                let event = match reply {
                    Some(Reply::Record(record)) => Event::Record(record),
                    Some(Reply::Written) => Event::Written,
                    Some(Reply::Conflict) => Event::Conflict,
                    Some(_) => Event::Refused,
                    None if *is_writing && world.options.defect == Some(Defect::NoReadBack) => Event::Refused,
                    None if *is_writing => Event::Unknown,
                    None => Event::ReadFailed,
                };
                self.drive(world, id, event);
            }
            Stage::Loading { record } => {
                let record = record.clone();
                self.loaded(world, id, record, reply);
            }
            Stage::Storing { payload, ops } => {
                let (payload, ops) = (*payload, std::mem::take(ops));
                self.stored(world, id, payload, ops, reply);
            }
        }
    }

    fn finish(&mut self, world: &mut World, id: u64, outcome: Outcome<Payload>) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let session = task.session;
        let stage = std::mem::replace(&mut task.stage, Stage::Storing { payload: None, ops: Vec::new() });
        let Stage::Operating { purpose, .. } = stage else { return };
        match (purpose, outcome) {
            (Kind::Activate, Outcome::Done(record)) => self.activated(world, id, record),
            (Kind::Activate, Outcome::Missing) if world.is_deleted(session) => self.end(world, id, Answer::Missing),
            (Kind::Activate, Outcome::Missing) => {
                self.operate(world, id, Kind::Activate, Intent::Create { payload: None });
            }
            (Kind::Activate, Outcome::Elsewhere(owner)) => self.end(world, id, Answer::Refused(Some(owner.node))),
            (Kind::Activate, Outcome::Raced) => self.operate(world, id, Kind::Activate, Intent::Activate),
            // Nothing was executed.
            (Kind::Activate, _) => self.end(world, id, Answer::Refused(None)),
            (Kind::Commit { ops }, Outcome::Done(record)) => self.committed(world, id, record, ops),
            (Kind::Commit { .. }, Outcome::DoneAndLost) => {
                self.sessions.remove(&session);
                self.end(world, id, Answer::Acknowledged);
            }
            (Kind::Commit { .. }, Outcome::Failed) => self.end(world, id, Answer::Refused(None)),
            (Kind::Commit { .. }, Outcome::Lost) => {
                self.sessions.remove(&session);
                self.end(world, id, Answer::Refused(None));
            }
            (Kind::Commit { .. }, _) => {
                self.sessions.remove(&session);
                self.end(world, id, Answer::Uncertain);
            }
            (Kind::Release, _) => {
                self.sessions.remove(&session);
                self.end(world, id, Answer::Uncertain);
            }
            (Kind::Delete, Outcome::Done(_)) => {
                world.clients.deletions[session] += 1;
                self.end(world, id, Answer::Uncertain);
            }
            (Kind::Delete, _) => self.end(world, id, Answer::Uncertain),
        }
    }

    /// Ends a task.
    fn end(&mut self, world: &mut World, id: u64, answer: Answer) {
        let Some(task) = self.tasks.remove(&id) else { return };
        self.busy.remove(&task.session);
        if let Some(client) = task.client {
            clients::answer(world, client, answer);
        }
    }

    fn activated(&mut self, world: &mut World, id: u64, record: Record) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let session = task.session;
        task.operation = None;
        task.stage = Stage::Loading { record: record.clone() };
        let sweep = Request::Sweep { session, epoch: record.epoch, used: record.payload };
        match record.payload {
            None => self.loaded(world, id, record, Some(Reply::Blob(Some(Vec::new())))),
            Some(blob) => world.send(self, Request::GetBlob { blob }, Purpose::Task(id)),
        }
        world.send(self, sweep, Purpose::Nothing);
    }

    fn loaded(&mut self, world: &mut World, id: u64, held: Record, reply: Option<Reply>) {
        let Some(session) = self.tasks.get(&id).map(|task| task.session) else { return };
        match reply {
            Some(Reply::Blob(Some(ops))) => {
                self.sessions.insert(session, Session { held, ops });
                self.execute(world, id);
            }
            Some(_) => {
                if world.is_owner(session, self.node, held.epoch) {
                    world.violate(|| format!("the blob {:?} is missing", held.payload));
                }
                self.end(world, id, Answer::Refused(None));
            }
            None => self.end(world, id, Answer::Refused(None)),
        }
    }

    /// Executes a request: this is where at most one replica may be.
    fn execute(&mut self, world: &mut World, id: u64) {
        let is_valid = self.is_valid(world);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let (session, op) = (task.session, task.op);
        let Some(owned) = self.sessions.get(&session).filter(|_| is_valid) else {
            return self.end(world, id, Answer::Refused(None));
        };
        if !world.is_owner(session, self.node, owned.held.epoch) {
            world.violate(|| format!("two replicas execute session {session}"));
        }
        if let Some(lost) = world.clients.missing_in(session, &owned.ops) {
            world.violate(|| format!("session {session} continues without request {lost}"));
        }
        let mut ops = owned.ops.clone();
        ops.push(op);
        let held = &owned.held;
        let blob = match world.options.defect {
            Some(Defect::BlobNamesWithoutEpoch) => (session, u64::MAX, held.sequence + 1, 0),
            _ => (session, held.epoch, held.sequence + 1, world.new_write()),
        };
        task.stage = Stage::Storing { payload: Some(blob), ops: ops.clone() };
        world.send(self, Request::PutBlob { blob, ops }, Purpose::Task(id));
    }

    fn stored(&mut self, world: &mut World, id: u64, payload: Payload, ops: Vec<Op>, reply: Option<Reply>) {
        let is_valid = self.is_valid(world);
        let Some(task) = self.tasks.get(&id) else { return };
        let (session, client) = (task.session, task.client);
        let Some(owned) = self.sessions.get(&session).filter(|_| reply.is_some() && is_valid) else {
            // The record was not written: nothing has happened.
            return self.end(world, id, Answer::Refused(None));
        };
        let intent = Intent::Commit { held: owned.held.clone(), payload, release: world.random.chance(150) };
        if world.options.defect == Some(Defect::NoConfirmation)
            && let Some(client) = client
        {
            clients::answer(world, client, Answer::Acknowledged);
        }
        self.operate(world, id, Kind::Commit { ops }, intent);
    }

    fn committed(&mut self, world: &mut World, id: u64, record: Record, ops: Vec<Op>) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let (session, client) = (task.session, task.client.take());
        let unused = self.sessions.get(&session).and_then(|owned| owned.held.payload);
        let is_released = record.owner().is_none();
        if let Some(blob) = unused.filter(|blob| Some(*blob) != record.payload) {
            world.send(self, Request::DeleteBlob { blob }, Purpose::Nothing);
        }
        if let Some(client) = client {
            clients::answer(world, client, Answer::Acknowledged);
        }
        if is_released {
            self.sessions.remove(&session);
            return self.end(world, id, Answer::Acknowledged);
        }
        self.sessions.insert(session, Session { held: record.clone(), ops });
        if world.random.chance(100) {
            return self.operate(world, id, Kind::Release, Intent::Release { held: record });
        }
        self.end(world, id, Answer::Acknowledged);
    }
}
