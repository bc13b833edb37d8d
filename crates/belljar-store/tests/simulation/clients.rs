//! The clients of a schedule, and the checks of what they see.

use std::collections::HashSet;

use belljar_store::protocol::{NodeId, Status};

use crate::Random;
use crate::model_store::Op;
use crate::replica::Replica;
use crate::world::{Event, SECOND, World};

/// The answer to a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Acknowledged,
    /// It was certainly not executed: the client sends it again, to the owner if that is known.
    Refused(Option<NodeId>),
    /// It may have been executed: the client does not send it again.
    Uncertain,
    /// The session was deleted.
    Missing,
}

struct Client {
    session: usize,
    op: Op,
    is_waiting: bool,
    /// The replica to which the next request goes, if the client was sent there.
    next: Option<NodeId>,
    /// The number of requests before the failures end.
    remaining: u32,
    is_done: bool,
}

pub(crate) struct Clients {
    clients: Vec<Client>,
    /// The acknowledged requests of each session, in order.
    acknowledged: Vec<Vec<Op>>,
    /// True for sessions that are deleted.
    expires: Vec<bool>,
    pub(crate) deletions: Vec<u32>,
    next_op: Op,
    heal: u64,
}

impl Clients {
    pub(crate) fn new(random: &mut Random, sessions: usize, heal: u64) -> Self {
        let client = |number: usize, remaining| Client {
            session: number % sessions,
            op: Op::try_from(number).unwrap(),
            is_waiting: false,
            next: None,
            remaining,
            is_done: false,
        };
        let clients: Vec<Client> = (0..2 * sessions).map(|number| client(number, 1 + random.below(6) as u32)).collect();
        Self {
            next_op: Op::try_from(clients.len()).unwrap(),
            clients,
            acknowledged: vec![Vec::new(); sessions],
            expires: vec![false; sessions],
            deletions: vec![0; sessions],
            heal,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn expire(&mut self, session: usize) {
        self.expires[session] = true;
    }

    pub(crate) fn are_done(&self) -> bool {
        self.clients.iter().all(|client| client.is_done)
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.iter().map(|ops| ops.len() as u64).sum()
    }

    /// Returns the first acknowledged request that a state lacks.
    pub(crate) fn missing_in(&self, session: usize, ops: &[Op]) -> Option<Op> {
        self.acknowledged[session].iter().copied().find(|op| !ops.contains(op))
    }
}

/// Sends the request of a client to a replica.
pub(crate) fn send(world: &mut World, replicas: &mut [Replica], number: usize) {
    let client = &world.clients.clients[number];
    if client.is_done || client.is_waiting {
        return;
    }
    let (session, op) = (client.session, client.op);
    let directed = client.next.and_then(|node| replicas.iter().position(|replica| replica.node == node));
    let any = world.random.below(replicas.len() as u64) as usize;
    let index = directed.filter(|_| world.random.chance(800)).unwrap_or(any);
    let replica = &mut replicas[index];
    if replica.frozen_until > world.now || !replica.is_running {
        // The connection is refused, or the client gives the replica up before it has seen the request.
        let time = world.now + SECOND / 2 + world.random.below(SECOND);
        world.clients.clients[number].next = None;
        return world.schedule(time, Event::Client { client: number });
    }
    world.clients.clients[number].is_waiting = true;
    replica.on_request(world, session, number, op);
}

/// Delivers an answer to a client.
pub(crate) fn answer(world: &mut World, number: usize, answer: Answer) {
    let now = world.now;
    let pause = 1 + world.random.below(SECOND);
    let clients = &mut world.clients;
    let client = &mut clients.clients[number];
    if client.is_done || !client.is_waiting {
        return;
    }
    client.is_waiting = false;
    client.next = None;
    let session = client.session;
    let is_answered = match answer {
        Answer::Refused(node) => {
            client.next = node;
            false
        }
        Answer::Acknowledged => {
            clients.acknowledged[session].push(client.op);
            // The last request of each client is one that was acknowledged after the failures had ended.
            client.is_done = now > clients.heal && client.remaining == 0;
            true
        }
        Answer::Missing => {
            client.is_done = true;
            if !clients.expires[session] {
                return world.violate(|| format!("session {session} is gone, and was not deleted"));
            }
            true
        }
        Answer::Uncertain => true,
    };
    if is_answered {
        client.op = clients.next_op;
        clients.next_op += 1;
        client.remaining = client.remaining.saturating_sub(1);
    }
    let pause = if is_answered { pause * 5 } else { pause };
    world.schedule(now + pause, Event::Client { client: number });
}

/// Checks the state at the end of a schedule.
pub(crate) fn check_end(world: &World) -> Result<(), String> {
    let clients = &world.clients;
    if let Some(client) = clients.clients.iter().find(|client| !client.is_done) {
        return Err(format!("session {} was not served after the failures had ended", client.session));
    }
    for (session, acknowledged) in clients.acknowledged.iter().enumerate() {
        if clients.deletions[session] > 1 {
            return Err(format!("session {session} was deleted {} times", clients.deletions[session]));
        }
        let Some(record) = world.store.sessions.get(&session) else {
            return Err(format!("session {session} has no record"));
        };
        if record.status == Status::Deleted {
            continue;
        }
        if clients.deletions[session] > 0 {
            return Err(format!("session {session} was deleted and exists"));
        }
        let ops = match record.payload {
            None => Vec::new(),
            Some(blob) => {
                world.store.blobs.get(&blob).cloned().ok_or_else(|| format!("the blob {blob:?} is missing"))?
            }
        };
        if ops.iter().collect::<HashSet<_>>().len() != ops.len() {
            return Err(format!("session {session} has executed a request twice: {ops:?}"));
        }
        if let Some(op) = clients.missing_in(session, &ops) {
            return Err(format!("session {session} has lost request {op}: {acknowledged:?} in {ops:?}"));
        }
    }
    Ok(())
}
