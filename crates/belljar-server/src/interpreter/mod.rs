//! The stateful interpreter: tools that run cells in sessions, and the sessions' files as resources.
//!
//! | file | subject |
//! | --- | --- |
//! | `tools` | the tools as clients see them |
//! | `arguments` | what they are given |
//! | `answer` | what they give |
//! | `audience` | whoever waits for a cell: hears output, is asked for input |
//! | `resources` | files as resources |

mod answer;
mod arguments;
mod audience;
mod resources;
mod tools;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_sessions::{FileAddress, Report, SessionError, SessionId, Sessions};
use rmcp::model::{CallToolResult, JsonObject, ProtocolVersion, ResourceUpdatedNotificationParam, Tool};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};

use crate::listener::Listener;
use answer::{Answer, failed};
use arguments::Arguments;
use audience::Ears;

/// How often sessions are looked through for those that expired.
const SWEEP: Duration = Duration::from_secs(5 * 60);
/// Addresses that one client may subscribe to.
const MOST_SUBSCRIPTIONS: usize = 1000;

pub(crate) const INSTRUCTIONS: &str = "Runs Python in sessions that keep variables and files between calls. Pass the \
     session_id of the first answer to later calls. Files that code writes are resources: kernel://{session_id}/{filename}.";

/// One client's view of the sessions.
#[derive(Clone)]
pub(crate) struct Interpreter {
    sessions: Sessions,
    /// The sessions that this client has made or used: nobody is shown another's.
    mine: Arc<Mutex<BTreeSet<SessionId>>>,
    /// Who wants to hear of changes, by address; of all clients.
    subscribers: Arc<Mutex<HashMap<String, Vec<Peer<RoleServer>>>>>,
    /// Addresses that this client has subscribed to.
    subscribed: Arc<Mutex<BTreeSet<String>>>,
}

impl Interpreter {
    pub(crate) fn new(sessions: Sessions) -> Self {
        Self { sessions, mine: Arc::default(), subscribers: Arc::default(), subscribed: Arc::default() }
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
        name: &str,
        arguments: Option<JsonObject>,
        listener: Listener,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, String> {
        let mut arguments = Arguments::new(arguments);
        Ok(match name {
            tools::EXECUTE => {
                let (code, session, timeout) = (arguments.code()?, arguments.session_or_new()?, arguments.timeout()?);
                let ears = Ears::new(listener, context);
                self.execute(code, session, timeout, ears, context).await
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
                    lock(&self.mine).remove(id);
                    self.tell(None, true, &[], context).await;
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
                    self.tell(Some(id), true, &[file.path.as_str()], context).await;
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
        })
    }

    async fn execute(
        &self,
        code: String,
        session: Option<String>,
        timeout: Option<Duration>,
        ears: Ears,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let is_new = session.is_none();
        let id = match session {
            Some(name) => self.find(&name),
            None => self.sessions.create(),
        };
        let id = match id {
            Ok(id) => id,
            Err(error) => return Answer::of_error(&error).result(),
        };
        lock(&self.mine).insert(id.clone());
        let cell = belljar_sessions::CellRequest { code, timeout, ..belljar_sessions::CellRequest::default() };
        let report = self.sessions.execute(&id, cell, ears.audience()).await;
        ears.finish().await;
        match report {
            Ok(report) => {
                let changed: Vec<&str> = report.files.iter().map(|change| change.file.path.as_str()).collect();
                self.tell(Some(&id), report.list_changed, &changed, context).await;
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

    /// Tells this client that its list of files is another one, and all who subscribed that files have changed.
    async fn tell(&self, id: Option<&SessionId>, list: bool, paths: &[&str], context: &RequestContext<RoleServer>) {
        let modern = context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        if list && !modern {
            // A client that is gone need not hear it.
            let _ = context.peer.notify_resource_list_changed().await;
        }
        let Some(id) = id else { return };
        for path in paths {
            let uri = FileAddress::format(id, path);
            let peers = lock(&self.subscribers).get(&uri).cloned().unwrap_or_default();
            for peer in peers {
                let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri.clone())).await;
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
