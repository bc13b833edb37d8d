//! The protocol's operations in a model checker: two replicas and one session, all orders of their steps, with late,
//! repeated and lost messages within a bound.
//!
//! The leases are not in this model: a replica may take the other for gone at any time. The promises of a commit must
//! not depend on them.

#![expect(clippy::panic, reason = "a test fails by panicking")]

use belljar_store::protocol::{Command, Event, Intent, NodeId, Operation, Outcome, Owner, SessionRecord, WriteId};
use stateright::{Checker, Model, Property};

/// The requests that a session has executed.
type Ops = Vec<u8>;
type Record = SessionRecord<Ops>;

/// The number of requests that each replica executes, and of failures in all.
const REQUESTS: u8 = 2;
const FAILURES: u8 = 2;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Work {
    Idle,
    Activating(WriteId, Operation<Ops>, Command<Ops>),
    Owning(Record),
    /// The request that is committed.
    Committing(u8, Operation<Ops>, Command<Ops>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Replica {
    work: Work,
    remaining: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    replicas: [Replica; 2],
    record: Option<Record>,
    /// Writes that were sent, and may arrive at any later time: late, or a second time.
    late: Vec<(Option<WriteId>, Record)>,
    acknowledged: Vec<u8>,
    /// Requests that their clients send again.
    refused: Vec<u8>,
    failures: u8,
    next: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Activate(usize),
    Execute(usize),
    /// The request of a replica is carried out and answered.
    Answer(usize),
    /// It is carried out later, or never; or it is carried out and the answer is lost.
    Delay(usize),
    LoseAnswer(usize),
    Arrive(usize),
    Crash(usize),
}

/// The defects that the checker must find.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Variant {
    Sound,
    /// A lost answer counts as a failure.
    NoReadBack,
    /// The store ignores the condition of a write.
    Unconditional,
    /// An activation that has lost a race begins again with the ID of the same write.
    ReusedId,
}

struct Protocol(Variant);

impl Protocol {
    fn apply(&self, state: &mut State, expected: Option<WriteId>, record: &Record) -> Event<Ops> {
        if state.record.as_ref().map(|record| record.write) != expected && self.0 != Variant::Unconditional {
            return Event::Conflict;
        }
        state.record = Some(record.clone());
        Event::Written
    }

    fn step(&self, state: &mut State, index: usize, event: Event<Ops>) {
        let (op, mut write, mut operation) = match state.replicas[index].work.clone() {
            Work::Activating(write, operation, _) => (None, write, operation),
            Work::Committing(op, operation, _) => (Some(op), WriteId(0), operation),
            Work::Idle | Work::Owning(_) => return,
        };
        let mut event = event;
        let command = loop {
            let command = operation.on(event);
            event = match command {
                Command::Pause { .. } => Event::Resumed,
                // The lease of the other may have run out at any time.
                Command::Observe(_) => Event::OwnerGone,
                Command::Finish(Outcome::Raced) => {
                    if self.0 != Variant::ReusedId {
                        write = Self::new_id(state);
                    }
                    operation = Operation::new(owner(index), write, Intent::Activate);
                    Event::Resumed
                }
                command => break command,
            };
        };
        let replica = &mut state.replicas[index];
        replica.work = match (op, command) {
            (None, Command::Finish(Outcome::Done(record))) => Work::Owning(record),
            (None, Command::Finish(_)) => Work::Idle,
            (Some(op), Command::Finish(outcome)) => match outcome {
                Outcome::Done(record) => {
                    state.acknowledged.push(op);
                    Work::Owning(record)
                }
                Outcome::DoneAndLost => {
                    state.acknowledged.push(op);
                    Work::Idle
                }
                Outcome::Lost | Outcome::Failed => {
                    state.refused.push(op);
                    Work::Idle
                }
                _ => Work::Idle,
            },
            (None, command) => Work::Activating(write, operation, command),
            (Some(op), command) => Work::Committing(op, operation, command),
        };
        state.late.sort_by_key(|(_, record)| record.write);
        state.late.dedup();
    }

    fn new_id(state: &mut State) -> WriteId {
        state.next += 1;
        WriteId(u128::from(state.next))
    }
}

fn owner(index: usize) -> Owner {
    Owner { node: NodeId(index as u128), address: "".into() }
}

fn command(replica: &Replica) -> Option<&Command<Ops>> {
    match &replica.work {
        Work::Activating(_, _, command) | Work::Committing(_, _, command) => Some(command),
        Work::Idle | Work::Owning(_) => None,
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut create = Operation::new(owner(0), WriteId(0), Intent::Create { payload: Vec::new() });
        let Command::Write { record, .. } = create.on(Event::Resumed) else { panic!() };
        let replica = |work| Replica { work, remaining: REQUESTS };
        vec![State {
            replicas: [replica(Work::Owning(record.clone())), replica(Work::Idle)],
            record: Some(record),
            late: Vec::new(),
            acknowledged: Vec::new(),
            refused: Vec::new(),
            failures: FAILURES,
            next: 0,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (index, replica) in state.replicas.iter().enumerate() {
            let has_work = replica.remaining > 0 || !state.refused.is_empty();
            match &replica.work {
                Work::Idle if has_work => actions.push(Action::Activate(index)),
                Work::Owning(_) if has_work => actions.push(Action::Execute(index)),
                _ => {}
            }
            if let Some(command) = command(replica) {
                actions.push(Action::Answer(index));
                if state.failures > 0 && matches!(command, Command::Write { .. }) {
                    actions.extend([Action::Delay(index), Action::LoseAnswer(index)]);
                }
            }
            if state.failures > 0 && !matches!(replica.work, Work::Idle) {
                actions.push(Action::Crash(index));
            }
        }
        actions.extend((0..state.late.len()).map(Action::Arrive));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Activate(index) => {
                let write = Self::new_id(&mut state);
                let operation = Operation::new(owner(index), write, Intent::Activate);
                state.replicas[index].work = Work::Activating(write, operation, Command::Read);
                self.step(&mut state, index, Event::Resumed);
            }
            Action::Execute(index) => {
                let Work::Owning(held) = state.replicas[index].work.clone() else { return None };
                let op = match state.refused.pop() {
                    Some(op) => op,
                    None => {
                        state.replicas[index].remaining -= 1;
                        u8::try_from(index).ok()? * 10 + state.replicas[index].remaining
                    }
                };
                let payload = [held.payload.clone(), vec![op]].concat();
                let write = Self::new_id(&mut state);
                let intent = Intent::Commit { held, payload, release: false };
                let operation = Operation::new(owner(index), write, intent);
                state.replicas[index].work = Work::Committing(op, operation, Command::Read);
                self.step(&mut state, index, Event::Resumed);
            }
            Action::Answer(index) => {
                let event = match command(&state.replicas[index])?.clone() {
                    Command::Read => Event::Record(state.record.clone()),
                    Command::Write { expected, record } => self.apply(&mut state, expected, &record),
                    _ => return None,
                };
                self.step(&mut state, index, event);
            }
            Action::Delay(index) | Action::LoseAnswer(index) => {
                let Command::Write { expected, record } = command(&state.replicas[index])?.clone() else { return None };
                state.failures -= 1;
                if matches!(action, Action::LoseAnswer(_)) {
                    self.apply(&mut state, expected, &record);
                }
                // It may arrive a second time, too.
                state.late.push((expected, record));
                let lost = if self.0 == Variant::NoReadBack { Event::Refused } else { Event::Unknown };
                self.step(&mut state, index, lost);
            }
            Action::Arrive(number) => {
                let (expected, record) = state.late.remove(number);
                self.apply(&mut state, expected, &record);
            }
            Action::Crash(index) => {
                state.failures -= 1;
                if let Some(Command::Write { expected, record }) = command(&state.replicas[index]).cloned() {
                    state.late.push((expected, record));
                }
                state.replicas[index].work = Work::Idle;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no acknowledged request is lost", |_, state: &State| {
                let stored = state.record.as_ref().map(|record| record.payload.as_slice()).unwrap_or_default();
                state.acknowledged.iter().all(|op| stored.contains(op))
            }),
            Property::always("no request is executed twice", |_, state: &State| {
                let stored = state.record.as_ref().map(|record| record.payload.as_slice()).unwrap_or_default();
                stored.iter().enumerate().all(|(index, op)| !stored[..index].contains(op))
            }),
            Property::always("a refused request was not executed", |_, state: &State| {
                let stored = state.record.as_ref().map(|record| record.payload.as_slice()).unwrap_or_default();
                state.refused.iter().all(|op| !stored.contains(op))
            }),
            Property::sometimes("all requests are acknowledged", |_, state: &State| {
                state.acknowledged.len() == usize::from(2 * REQUESTS)
            }),
            Property::sometimes("both replicas take over", |_, state: &State| {
                state.record.as_ref().is_some_and(|record| record.epoch >= 3)
            }),
        ]
    }
}

/// Explores states up to a depth. Returns the number of states.
fn check(variant: Variant, depth: usize) -> (usize, Vec<&'static str>) {
    let checker = Protocol(variant).checker().target_max_depth(depth).spawn_bfs().join();
    let violated = checker.discoveries().into_keys().filter(|name| name.starts_with("no ") || name.starts_with("a "));
    (checker.unique_state_count(), violated.collect())
}

#[test]
fn no_order_of_steps_loses_or_doubles_a_request() {
    let depth = std::env::var("DEPTH").map_or(20, |depth| depth.parse().unwrap());
    let checker = Protocol(Variant::Sound).checker().target_max_depth(depth).threads(2).spawn_bfs().join();
    println!("{} states, depth {}", checker.unique_state_count(), checker.max_depth());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 10_000, "{}", checker.unique_state_count());
}

#[test]
fn taking_a_lost_answer_for_a_failure_is_found() {
    let (_, violated) = check(Variant::NoReadBack, 14);
    assert!(!violated.is_empty());
}

#[test]
fn an_id_that_is_used_for_two_writes_is_found() {
    let (_, violated) = check(Variant::ReusedId, 20);
    assert_eq!(violated, ["no acknowledged request is lost"]);
}

#[test]
fn unconditional_writes_are_found() {
    let (_, violated) = check(Variant::Unconditional, 14);
    assert!(!violated.is_empty());
}
