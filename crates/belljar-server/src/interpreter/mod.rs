//! The stateful interpreter: tools that run cells in sessions, and the sessions' files as resources.
//!
//! | file | subject |
//! | --- | --- |
//! | `tools` | the tools as clients see them |
//! | `arguments` | what they are given |
//! | `answer` | what they give |
//! | `audience` | whoever waits for a cell: hears output, is asked for input |
//! | `rounds` | questions between two calls, in the protocol's modern era |
//! | `resources` | files as resources |
//! | `changes` | who hears of changes to them |

mod answer;
mod arguments;
mod audience;
mod changes;
mod resources;
mod rounds;
mod tools;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_sessions::{Report, SessionError, SessionId, Sessions};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ProtocolVersion, Tool};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};

use crate::listener::Listener;
use answer::{Answer, failed};
use arguments::Arguments;
use audience::Ears;
use changes::Subscribers;
use rounds::{Rounds, Running, Task};

/// How often sessions are looked through for those that expired.
const SWEEP: Duration = Duration::from_secs(5 * 60);

pub(crate) const INSTRUCTIONS: &str = "Runs Python in sessions that keep variables and files between calls. Pass the \
     session_id of the first answer to later calls. Files that code writes are resources: kernel://{session_id}/{filename}.";

/// One client's view of the sessions.
#[derive(Clone)]
pub(crate) struct Interpreter {
    sessions: Sessions,
    /// The sessions that this client has made or used: nobody is shown another's.
    mine: Arc<Mutex<BTreeSet<SessionId>>>,
    /// Who wants to hear of changes; of all clients.
    subscribers: Arc<Subscribers>,
    /// Addresses that this client has subscribed to.
    subscribed: Arc<Mutex<BTreeSet<String>>>,
    /// Cells that wait for answers, of all clients.
    rounds: Rounds,
}

/// The client of a call, as far as it is told of changes.
#[derive(Clone)]
struct Caller {
    peer: Peer<RoleServer>,
    modern: bool,
}

/// Whether a request is of the protocol's modern era.
fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

impl Interpreter {
    pub(crate) fn new(sessions: Sessions) -> Self {
        Self {
            sessions,
            mine: Arc::default(),
            subscribers: Arc::default(),
            subscribed: Arc::default(),
            rounds: Rounds::default(),
        }
    }

    /// The same for another client.
    pub(crate) fn for_another(&self) -> Self {
        Self { mine: Arc::default(), subscribed: Arc::default(), ..self.clone() }
    }

    /// Looks for expired sessions every few minutes, for as long as the runtime lives.
    pub(crate) fn start_sweeping(&self) {
        let sessions = self.sessions.clone();
        // Idle sessions fall asleep sooner than they expire.
        let belljar_sessions::Options { timeout, sleep_after, .. } = *sessions.options();
        let every = SWEEP.min(timeout / 2).min(sleep_after).max(Duration::from_millis(100));
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                sessions.sweep().await;
            }
        });
    }

    /// Puts to sleep what is awake, so that it survives where it is to.
    pub(crate) async fn end(&self) {
        self.sessions.sleep_all().await;
    }

    pub(crate) fn tools(&self) -> Vec<Tool> {
        tools::all()
    }

    /// Calls one of the tools, whose arguments were not read yet. An `Err` says what is wrong with them.
    pub(crate) async fn call(
        &self,
        request: CallToolRequestParams,
        listener: Listener,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, String> {
        let CallToolRequestParams { name, arguments: given, input_responses, request_state, .. } = request;
        if name == tools::EXECUTE
            && let Some(state) = request_state
        {
            return self.rounds.resume(&state, given.as_ref(), input_responses.as_ref(), listener).await;
        }
        let mut arguments = Arguments::new(given.clone());
        let caller = &Caller { peer: context.peer.clone(), modern: is_modern(context) };
        let result = match &*name {
            tools::EXECUTE => {
                let (code, session, timeout) = (arguments.code()?, arguments.session_or_new()?, arguments.timeout()?);
                let cell = belljar_sessions::CellRequest { code, timeout, ..belljar_sessions::CellRequest::default() };
                let (ears, questions) = Ears::new(listener, context);
                let (this, caller, heard) = (self.clone(), caller.clone(), ears.clone());
                let work = async move { this.execute(cell, session, heard, caller).await };
                match questions {
                    // It may outlast this call.
                    Some(questions) => {
                        let running = Running { arguments: given, ears, questions, task: Task::start(work) };
                        return Ok(self.rounds.answer(running).await);
                    }
                    None => work.await,
                }
            }
            tools::LIST => {
                let session = arguments.session()?;
                let files = match self.find(&session) {
                    Ok(id) => self.sessions.list(&id).await.map(|files| (id, files)),
                    Err(error) => Err(error),
                };
                match files {
                    Ok((id, files)) => answer::files(&id, &files),
                    Err(error) => failed(&error),
                }
            }
            tools::CLEAR => {
                let session = arguments.session()?;
                let cleared = match self.find(&session) {
                    Ok(id) => self.sessions.clear(&id).await.map(|()| id),
                    Err(error) => Err(error),
                };
                if let Ok(id) = &cleared {
                    self.tell(id, true, &[], caller).await;
                    lock(&self.mine).remove(id);
                }
                answer::done(cleared, |id| format!("Session {} cleared and all files deleted", id.as_str()))
            }
            tools::UPLOAD => {
                let (session, name, bytes) = (arguments.session()?, arguments.text("name")?, arguments.contents()?);
                let uploaded = match self.find(&session) {
                    Ok(id) => self.sessions.upload(&id, name, bytes).await.map(|file| (id, file)),
                    Err(error) => Err(error),
                };
                if let Ok((id, file)) = &uploaded {
                    self.tell(id, true, &[file.path.as_str()], caller).await;
                }
                match uploaded {
                    Ok((id, file)) => answer::uploaded(&id, &file),
                    Err(error) => failed(&error),
                }
            }
            tools::INTERRUPT => {
                let session = arguments.session()?;
                let interrupted = self.find(&session).and_then(|id| self.sessions.interrupt(&id));
                answer::done(interrupted, |ran| {
                    if *ran { "What was running was interrupted".into() } else { "Nothing was running".into() }
                })
            }
            tools::RESTART => {
                let session = arguments.session()?;
                let restarted = match self.find(&session) {
                    Ok(id) => self.sessions.restart(&id).await,
                    Err(error) => Err(error),
                };
                answer::done(restarted, |()| "The session has a fresh interpreter; its files are kept".into())
            }
            tools::FORK => {
                let session = arguments.session()?;
                let forked = match self.find(&session) {
                    Ok(id) => self.sessions.fork(&id).await.map(|forked| (id, forked)),
                    Err(error) => Err(error),
                };
                if let Ok((_, forked)) = &forked {
                    lock(&self.mine).insert(forked.clone());
                }
                match forked {
                    Ok((id, forked)) => answer::forked(&id, &forked),
                    Err(error) => failed(&error),
                }
            }
            _ => return Err(format!("there is no tool `{name}`")),
        };
        Ok(result.into())
    }

    async fn execute(
        &self,
        cell: belljar_sessions::CellRequest,
        session: Option<String>,
        ears: Ears,
        caller: Caller,
    ) -> CallToolResult {
        let is_new = session.is_none();
        let id = match session {
            Some(name) => self.find(&name),
            None => self.sessions.create(),
        };
        let id = match id {
            Ok(id) => id,
            Err(error) => {
                ears.pause();
                return Answer::of_error(&error).result();
            }
        };
        lock(&self.mine).insert(id.clone());
        let report = self.sessions.execute(&id, cell, ears.audience()).await;
        ears.pause();
        match report {
            Ok(report) => {
                let changed: Vec<&str> = report.files.iter().map(|change| change.file.path.as_str()).collect();
                self.tell(&id, report.list_changed, &changed, &caller).await;
                self.answer(&id, is_new, report)
            }
            Err(error) => {
                // A session that could not even begin is nobody's.
                if is_new && self.sessions.clear(&id).await.is_ok() {
                    lock(&self.mine).remove(&id);
                }
                Answer::of_error(&error).result()
            }
        }
    }

    fn answer(&self, id: &SessionId, is_new: bool, report: Report) -> CallToolResult {
        let info = is_new.then(|| answer::SessionInfo::new(id, self.sessions.options().timeout));
        Answer::new(id, info, report).result()
    }

    fn find(&self, name: &str) -> Result<SessionId, SessionError> {
        let id = self.sessions.find(name)?;
        lock(&self.mine).insert(id.clone());
        Ok(id)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
