//! A worker: the requests of one parent, one after the other.

use std::sync::Arc;

use belljar_core::activity::trace::Trace;
use belljar_core::kernel::{Backend, Kernel};
use belljar_core::{Activity, NoProgress};

use crate::budget;
use crate::dump::{self, DumpKey};
use crate::events::{send, violation};
use crate::feed_record::FeedRecord;
use crate::feed_view::OpenFeedView;
use crate::link::Link;
use crate::proto::{
    Configure, DumpResult, Event, FatalError, MAX_VERSION, MIN_VERSION, ParentRequest, Request, ResourceLimits,
    ShutdownDump, Unit,
};
use crate::session::{Session, SessionSettings, TurnEnd};

/// Returns a backend whose sessions have at most this much memory of their own, in bytes.
type BackendWithMemory = Arc<dyn Fn(u64) -> Arc<dyn Backend> + Send + Sync>;

/// The settings of workers. Cheap to clone.
#[derive(Clone)]
pub struct WorkerOptions {
    /// Runs the sessions.
    pub backend: Arc<dyn Backend>,
    /// Creates backends for sessions with a limit of memory. Without it, that of `backend` holds.
    pub with_memory: Option<BackendWithMemory>,
    /// Signs dumps.
    pub dump_key: DumpKey,
    /// The audit log and the traces.
    pub activity: Activity,
    /// The client, if it is authenticated.
    pub owner: Option<Arc<str>>,
    /// Shows the feeds to operators, if there are some.
    pub view: Option<OpenFeedView>,
}

/// A worker of Monty's protocol: it serves one parent over one connection, one session after the other.
pub struct Worker {
    options: WorkerOptions,
    link: Arc<Link>,
    session: Option<Session>,
    /// The place of the current request in its sender's trace.
    trace: Trace,
    /// A kernel for the next session, which is started while the parent has nothing to ask.
    spare: Option<Box<dyn Kernel>>,
}

/// The decision after a request.
enum Next {
    Serve,
    End,
}

impl Worker {
    /// Creates a worker for the parent at the other end of `link`. [`Self::serve`] runs it.
    pub fn new(options: WorkerOptions, link: Link) -> Self {
        Self { options, link: Arc::new(link), session: None, trace: Trace::default(), spare: None }
    }

    /// Handles requests until the parent is gone or ends the worker. Must be called on a thread of
    /// [`Backend::thread_runner`].
    pub fn serve(mut self) {
        self.prepare();
        while let Some(bytes) = self.link.receive() {
            if !self.turn(&bytes) {
                break;
            }
            if self.session.is_none() {
                self.prepare();
            }
        }
    }

    /// Starts a kernel for the next session. The first feed reports it if that fails.
    fn prepare(&mut self) {
        let backend = &self.options.backend;
        if self.spare.is_none() && backend.supports_feeds() {
            match backend.start(None, &NoProgress) {
                Ok(kernel) => self.spare = Some(kernel),
                Err(error) => tracing::debug!(%error, "failed to start an interpreter ahead of time"),
            }
        }
    }

    /// Handles the requests that have arrived, for a transport that lends its thread. Returns false when the worker has
    /// ended. Must be called on a thread of [`Backend::thread_runner`].
    pub fn serve_arrived(&mut self) -> bool {
        while let Some(bytes) = self.link.try_receive() {
            if !self.turn(&bytes) {
                return false;
            }
        }
        !self.link.shared.is_closed()
    }

    /// Returns whether requests have arrived that were not handled.
    pub fn has_arrived(&self) -> bool {
        self.link.has_arrived()
    }

    /// Returns whether a feed is suspended.
    pub fn is_suspended(&self) -> bool {
        self.session.as_ref().is_some_and(Session::is_suspended)
    }

    /// Handles one request. Returns false when the worker has ended.
    fn turn(&mut self, bytes: &[u8]) -> bool {
        if self.link.shared.is_draining() {
            let dump = self.session.as_mut().and_then(|session| session.dump(&self.options.dump_key).ok());
            self.emit(Event::Shutdown(ShutdownDump { dump }));
            return false;
        }
        match budget::decode(bytes) {
            Ok(ParentRequest { kind: Some(request), trace_parent }) => {
                tracing::debug!(trace_parent, "a request of a Monty session");
                self.trace = Trace::from_headers(trace_parent.as_deref(), None);
                matches!(self.handle(request), Next::Serve)
            }
            Ok(_) => {
                self.emit(violation("the request has no kind, or one that is not known"));
                true
            }
            Err(error) => {
                self.emit(violation(&error.to_string()));
                true
            }
        }
    }

    fn handle(&mut self, request: Request) -> Next {
        let end = match request {
            Request::Configure(configure) => return self.configure(configure),
            Request::Reset(_) => {
                let ended = self.session.take();
                self.emit(Event::Ok(Unit {}));
                // The parent need not wait until its memory is free.
                drop(ended);
                return Next::Serve;
            }
            Request::Shutdown(_) => {
                self.session = None;
                self.emit(Event::Ok(Unit {}));
                return Next::End;
            }
            Request::Dump(_) => TurnEnd::Event(self.dump()),
            Request::Load(load) => {
                self.load(&load.state);
                return Next::Serve;
            }
            request => self.handle_session_request(request),
        };
        match end {
            TurnEnd::Event(event) => {
                self.emit(event);
                Next::Serve
            }
            // It ends the session or the worker, so that this does not repeat.
            TurnEnd::Interrupted(request) => self.handle(request),
            TurnEnd::Closed => Next::End,
        }
    }

    /// Handles a request that needs a session.
    fn handle_session_request(&mut self, request: Request) -> TurnEnd {
        let Some(session) = &mut self.session else {
            return TurnEnd::Event(violation("the session has not been configured"));
        };
        match request {
            Request::Feed(_) | Request::InstallDependencies(_) if session.is_suspended() => {
                TurnEnd::Event(violation("a feed is suspended: answer it first"))
            }
            Request::Feed(feed) => session.feed(&feed, &self.trace),
            Request::InstallDependencies(install) => session.install(&install.requirements, &self.trace),
            request => session.resume(request),
        }
    }

    fn configure(&mut self, configure: Configure) -> Next {
        let version = configure.protocol_version;
        if !(MIN_VERSION..=MAX_VERSION).contains(&version) {
            let message = format!(
                "unsupported protocol version {version}: Belljar supports versions {MIN_VERSION} to {MAX_VERSION}"
            );
            self.emit(Event::FatalError(FatalError { message }));
            return Next::End;
        }
        if self.session.is_some() {
            self.emit(violation("the session has been configured already"));
            return Next::Serve;
        }
        tracing::debug!(client = configure.monty_version, version, "a Monty session");
        if configure.type_check {
            tracing::debug!("feeds are not type-checked");
        }
        let settings = SessionSettings::from(configure);
        let backend = self.backend(&settings.limits);
        let has_own_backend = !Arc::ptr_eq(&backend, &self.options.backend);
        let mut session = Session::new(self.link.clone(), backend, settings);
        session.set_spare(if has_own_backend { None } else { self.spare.take() });
        session.set_record(self.record());
        self.session = Some(session);
        self.emit(Event::Ok(Unit {}));
        Next::Serve
    }

    fn backend(&self, limits: &ResourceLimits) -> Arc<dyn Backend> {
        match (&self.options.with_memory, limits.max_memory_bytes) {
            (Some(with_memory), Some(memory)) => with_memory(memory),
            _ => self.options.backend.clone(),
        }
    }

    /// Returns the records of a new session.
    fn record(&self) -> FeedRecord {
        let WorkerOptions { activity, owner, view, .. } = &self.options;
        FeedRecord::new(activity.clone(), owner.clone(), view.clone())
    }

    fn dump(&mut self) -> Event {
        let Some(session) = &mut self.session else { return violation("the session has not been configured") };
        match session.dump(&self.options.dump_key) {
            Ok(state) => Event::DumpResult(DumpResult { state }),
            Err(reason) => violation(&reason),
        }
    }

    fn load(&mut self, bytes: &[u8]) {
        if self.session.as_ref().is_some_and(Session::has_begun) {
            return self.emit(violation("only a session that has not begun can be replaced by a saved one"));
        }
        if let Err(error) = self.options.activity.audit().admit() {
            return self.emit(violation(&error.to_string()));
        }
        let record = self.record();
        let restored = dump::from_bytes(&self.options.dump_key, bytes).and_then(|mut dump| {
            if let Some(configured) = &self.session {
                dump.state.settings.adopt_client(configured.settings());
            }
            let backend = self.backend(&dump.state.settings.limits);
            Session::restore(self.link.clone(), backend, dump, record, &self.trace)
        });
        match restored {
            Ok((session, event)) => {
                let name = session.script_name().to_owned();
                let (limits, times) = session.stamps();
                self.session = Some(session);
                send(&self.link, event.unwrap_or(Event::Ok(Unit {})), Some((&limits, &times)), Some(name));
            }
            Err(reason) => self.emit(violation(&reason)),
        }
    }

    /// Sends an event that ends a turn. Output has been sent before it.
    fn emit(&self, event: Event) {
        let stamps = self.session.as_ref().map(|session| {
            session.flush();
            session.stamps()
        });
        send(&self.link, event, stamps.as_ref().map(|(limits, times)| (limits, times)), None);
    }
}

#[cfg(test)]
mod tests;
