//! The task of a connection: the look-up, the phases of the connection, and its end.

mod raw;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use crate::channel::{Channel, SharedChannel};
use crate::client_tls::{self, TlsHandling};
use crate::connections::Connections;
use crate::dial::dial;
use crate::failure::Failure;
use crate::http::{self, HttpEnd, RequestPolicy};
use crate::limits::count;
use crate::policy::Host;
use crate::record::RecordGuard;
use crate::scrubber::{Released, Scrubber};
use crate::stream::ServerStream;
use crate::tls::{TlsFailure, failure_answer, success_answer};
use crate::tls_request::TlsRequest;

/// The most messages to one interpreter that end with the beginning of a secret.
const MAX_PARTS: u64 = 8;

/// The time for which the last bytes are held back while nothing follows: a secret may begin in them.
pub(crate) const HOLD_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(20);

/// A connection that is about to be made.
pub(crate) struct Task {
    context: Relay,
}

/// A connection as its phases see it.
pub(crate) struct Relay {
    pub(crate) connections: Arc<Connections>,
    pub(crate) channel: SharedChannel,
    pub(crate) host: Host,
    pub(crate) port: u16,
    /// The record of the connection, if it is not one of HTTP.
    pub(crate) record: Mutex<RecordGuard>,
    /// The time at which the connection ends, whatever happens.
    end: Option<Instant>,
    /// No request of HTTP is under way: the end of the connection is not an error.
    pub(crate) is_between_requests: AtomicBool,
}

/// The protection of the current phase.
#[derive(Debug, Clone, Default)]
pub(crate) struct Security {
    /// TLS is established.
    pub(crate) tls: bool,
    /// The host trusts the server, so that secrets may be sent.
    pub(crate) trusted: bool,
    /// The name in TLS of a connection to an address.
    pub(crate) name: Option<Host>,
}

/// The end of a phase.
pub(crate) enum PhaseEnd {
    /// The connection is over.
    Done,
    /// The code asks for TLS.
    Tls(Box<TlsRequest>),
    /// The connection carries HTTP. The bytes of the code are still in the channel.
    Http,
}

impl Task {
    /// Creates the task of a connection that lasts until `end` at most.
    pub(crate) fn new(
        connections: Arc<Connections>,
        channel: SharedChannel,
        host: Host,
        port: u16,
        end: Option<std::time::Instant>,
    ) -> Self {
        let record = Mutex::new(RecordGuard::new(&connections, &host, port));
        let is_between_requests = AtomicBool::new(false);
        let end = end.map(Instant::from_std);
        Self { context: Relay { connections, channel, host, port, record, end, is_between_requests } }
    }
}

/// Runs a connection to its end.
pub(crate) async fn run_task(task: Task) {
    let relay = task.context;
    let limits = relay.connections.limits().clone();
    let failure = tokio::select! {
        result = Box::pin(relay.run()) => result.err(),
        () = relay.expired() => {
            if relay.is_between_requests.load(Ordering::Relaxed) {
                None
            } else {
                Some(Failure::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "the time of the connection is over")))
            }
        }
        () = async {
            relay.channel.closed().await;
            if !relay.channel.has_failed() {
                sleep(limits.linger).await;
            }
        } => Some(Failure::Closed),
    };
    match failure {
        None => {
            relay.record.lock().finish();
            relay.channel.end();
        }
        Some(failure) => {
            {
                let mut record = relay.record.lock();
                match &failure {
                    // The refusal has a record.
                    Failure::Address(_) => record.cancel(),
                    failure if failure.is_refusal() => record.refuse(&failure.reason()),
                    failure => record.fail(&failure.reason()),
                }
            }
            relay.channel.fail(failure.to_error());
        }
    }
}

impl Relay {
    async fn run(&self) -> Result<(), Failure> {
        let mut stream = ServerStream::Plain(dial(&self.connections, &self.host, self.port).await?);
        self.channel.set_connected();
        let mut security = Security::default();
        let mut is_http = false;
        let mut passes = false;
        loop {
            let network = &self.connections.network;
            let policy =
                RequestPolicy::new(self.connections.policy(), &network.secrets, &self.host, self.port, &security);
            let scrubs = policy.scrubs;
            let mut received = BytesMut::new();
            let mut end = None;
            let is_http_only = (is_http || policy.requires_http) && !passes;
            let sniffs = !is_http_only && !passes;
            if is_http_only {
                match http::relay(self, &mut stream, &security, policy).await? {
                    HttpEnd::Phase(phase) => end = Some(phase),
                    HttpEnd::Upgraded(bytes) => received = bytes,
                }
            }
            let end = match end {
                Some(end) => end,
                None => {
                    let scrubber =
                        if scrubs { network.scrubber.uniform_stream() } else { Scrubber::default().stream() };
                    raw::relay(self, &mut stream, sniffs, scrubber, received).await?
                }
            };
            is_http = matches!(end, PhaseEnd::Http);
            match end {
                PhaseEnd::Done => return Ok(()),
                PhaseEnd::Http => {}
                PhaseEnd::Tls(request) if request.passes => {
                    self.check_passing(&stream, &request)?;
                    passes = true;
                }
                PhaseEnd::Tls(request) => match self.start_tls(stream, &request).await? {
                    None => return Ok(()),
                    Some((encrypted, secured)) => {
                        stream = encrypted;
                        security = secured;
                    }
                },
            }
        }
    }

    /// Checks that TLS of the code may be passed on unread.
    fn check_passing(&self, stream: &ServerStream, request: &TlsRequest) -> Result<(), Failure> {
        let (network, policy) = (&self.connections.network, self.connections.policy());
        let name = request.server_hostname.as_deref();
        match client_tls::decide(policy, &network.secrets, &self.host, self.port, name) {
            Ok(TlsHandling::Pass) if matches!(stream, ServerStream::Plain(_)) => Ok(()),
            Ok(_) => Err(Failure::Refused("TLS that the host cannot read is not allowed here".to_owned())),
            Err(reason) => Err(Failure::Refused(reason)),
        }
    }

    /// Establishes TLS and answers the code. Returns `None` if the handshake failed, which ends the connection.
    async fn start_tls(
        &self,
        stream: ServerStream,
        request: &TlsRequest,
    ) -> Result<Option<(ServerStream, Security)>, Failure> {
        let ServerStream::Plain(stream) = stream else {
            return Err(Failure::Refused("TLS within TLS is not supported".to_owned()));
        };
        let network = &self.connections.network;
        let limit = self.connections.limits().connect;
        let result = if self.channel.has_injected_text() {
            Err(TlsFailure::Protocol("the server sent plain text before TLS".to_owned()))
        } else {
            let policy = self.connections.policy();
            network.tls.connect(stream, request, &self.host, self.port, policy, limit).await
        };
        match result {
            Ok(established) => {
                self.channel.push_answer(&success_answer(&established.stream));
                let security = Security { tls: true, trusted: established.trusted, name: established.name };
                Ok(Some((ServerStream::Tls(established.stream), security)))
            }
            Err(failure) => {
                self.channel.push_answer(&failure_answer(&failure));
                let mut record = self.record.lock();
                match failure {
                    TlsFailure::Certificate(failure) => {
                        record.fail(&format!("certificate verify failed: {}", failure.message));
                    }
                    TlsFailure::Protocol(message) => record.fail(&format!("failed to establish TLS: {message}")),
                    TlsFailure::Refused(message) => record.refuse(&message),
                }
                Ok(None)
            }
        }
    }

    /// Waits until the connection was idle for too long, or its end has come.
    async fn expired(&self) {
        let idle = self.connections.limits().idle;
        loop {
            // Times beyond the clock's range are no limits.
            let idle_end = self.channel.last_activity().checked_add(idle);
            let Some(deadline) = [self.end, idle_end].into_iter().flatten().min() else {
                return std::future::pending().await;
            };
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    }

    /// Returns the released bytes.
    ///
    /// Code that has its guesses of a secret echoed, without an end of the message, could tell by the delay that a
    /// guess is right. Such parts are limited in the time of an interpreter.
    pub(crate) fn check_released(&self, released: Option<Released>) -> Result<Vec<u8>, Failure> {
        let Some(released) = released else { return Ok(Vec::new()) };
        if released.is_new_part && !count(&self.connections.counts.parts, 1, MAX_PARTS) {
            return Err(Failure::Refused("messages of the server end with parts of a secret too often".to_owned()));
        }
        Ok(released.bytes)
    }

    /// Counts a request of HTTP.
    pub(crate) fn count_request(&self) -> Result<(), Failure> {
        let limit = self.connections.limits().requests;
        if count(&self.connections.counts.requests, 1, limit) {
            return Ok(());
        }
        Err(Failure::Limit(format!("more than {limit} requests")))
    }

    /// Counts bytes that are sent.
    pub(crate) fn count_sent(&self, bytes: usize) -> Result<(), Failure> {
        let limit = self.connections.limits().bytes_sent;
        self.connections.spend(bytes)?;
        if count(&self.connections.counts.sent, bytes as u64, limit) {
            return Ok(());
        }
        Err(Failure::Limit(format!("more than {limit} bytes were sent")))
    }

    /// Counts bytes that are received and passes them to the code.
    pub(crate) fn deliver(&self, data: &[u8]) -> Result<(), Failure> {
        self.connections.spend(data.len())?;
        let limit = self.connections.limits().bytes_received;
        if !count(&self.connections.counts.received, data.len() as u64, limit) {
            return Err(Failure::Limit(format!("more than {limit} bytes were received")));
        }
        if !data.is_empty() {
            self.channel.push(data);
        }
        Ok(())
    }

    /// Notes whether the connection may end without an error.
    pub(crate) fn set_between_requests(&self, is_between: bool) {
        self.is_between_requests.store(is_between, Ordering::Relaxed);
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }
}
