//! The relay of HTTP/1.1: requests in order from the code to the server, and responses back.
//!
//! ```text
//!  code ──▶ up: head, policy, secrets, body ──────────────▶ server
//!                  │ Pending, in order
//!  code ◀── down: head, decompression, scrubbing, body ◀─── server
//! ```
//!
//! Both halves are polled by the task of the connection.

mod chunked;
mod decoding;
mod down;
mod head;
mod request;
mod up;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::failure::Failure;
use crate::record::RecordGuard;
use crate::relay::{PhaseEnd, Relay, Security};
use crate::stream::{ServerReader, ServerStream};
pub(crate) use request::RequestPolicy;

/// The most requests that wait for their responses.
const MAX_PENDING: usize = 16;

/// A phase that carries HTTP.
struct Phase<'a> {
    relay: &'a Relay,
    policy: RequestPolicy,
    security: &'a Security,
    /// The number of requests without a complete response.
    pending: AtomicUsize,
}

/// A request that waits for its response.
struct Pending {
    record: Arc<Mutex<RecordGuard>>,
    method: String,
    /// The version of the request: 1 for HTTP/1.1.
    version: u8,
    /// Receives whether the connection became a WebSocket.
    upgrade: Option<oneshot::Sender<bool>>,
    /// The answer of the host instead of a response.
    answer: Option<Vec<u8>>,
}

/// The end of the stream of the code.
enum UpEnd {
    /// The code sends nothing more, or the server reads nothing more.
    Finished,
    /// The code asks for TLS.
    Tls(Box<crate::tls_request::TlsRequest>),
    /// The server was asked for a WebSocket and agreed.
    Upgraded,
}

/// The end of the stream of the server.
enum DownEnd {
    /// The connection is over.
    Finished,
    /// The server agreed to a WebSocket.
    Upgraded,
}

/// The end of the phase.
pub(crate) enum HttpEnd {
    /// The end of a phase of any protocol.
    Phase(PhaseEnd),
    /// The connection is a WebSocket. These bytes of the server arrived already.
    Upgraded(BytesMut),
}

/// Relays requests and responses.
pub(crate) async fn relay(
    relay: &Relay,
    stream: &mut ServerStream,
    security: &Security,
    policy: RequestPolicy,
) -> Result<HttpEnd, Failure> {
    let phase = Phase { relay, policy, security, pending: AtomicUsize::new(0) };
    relay.set_between_requests(true);
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = ServerReader::new(reader);
    let (sender, mut receiver) = mpsc::channel(MAX_PENDING);
    let end = {
        let mut up = Box::pin(up::send(&phase, &mut writer, sender));
        let mut down = Box::pin(down::receive(&phase, &mut reader, &mut receiver));
        let (mut up_done, mut upgraded) = (false, false);
        loop {
            tokio::select! {
                biased;
                result = &mut down => match result? {
                    DownEnd::Finished => break HttpEnd::Phase(PhaseEnd::Done),
                    DownEnd::Upgraded => {
                        // The other half learns of it and returns.
                        if !upgraded && !up_done {
                            up.await?;
                        }
                        break HttpEnd::Upgraded(BytesMut::new());
                    }
                },
                result = &mut up, if !up_done => {
                    up_done = true;
                    match result? {
                        UpEnd::Finished => {}
                        UpEnd::Upgraded => upgraded = true,
                        UpEnd::Tls(request) => break HttpEnd::Phase(PhaseEnd::Tls(request)),
                    }
                }
                // Nothing reads the responses that are still to come.
                () = relay.channel().closed(), if up_done => break HttpEnd::Phase(PhaseEnd::Done),
            }
        }
    };
    relay.set_between_requests(false);
    Ok(match end {
        HttpEnd::Upgraded(_) => HttpEnd::Upgraded(std::mem::take(&mut reader.buffer)),
        end => end,
    })
}

impl Phase<'_> {
    fn begin_request(&self) {
        self.pending.fetch_add(1, Ordering::Relaxed);
        self.relay.set_between_requests(false);
    }

    fn end_request(&self) {
        if self.pending.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.relay.set_between_requests(true);
        }
    }

    fn is_idle(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// Creates the record of a request. The connection itself needs none then.
    fn new_record(&self) -> RecordGuard {
        self.relay.record.lock().cancel();
        RecordGuard::new(&self.relay.connections, &self.relay.host, self.relay.port)
    }
}
