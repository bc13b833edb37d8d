//! The messages of a client on two streams: one JSON text on each line.
//!
//! rmcp's own transport ignores lines that are not JSON, so that their sender waits for ever, and it starts a task for
//! each request without recording the order of their arrival. This transport answers such lines with an error, and
//! gives each request its turn ([`arrival`](crate::arrival)).

use std::io;
use std::sync::Arc;

use belljar_sessions::SessionId;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, GetExtensions, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::JsonRpcMessageCodec;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::bytes::BytesMut;
use tokio_util::codec::Decoder;

use crate::arrival::{ArrivalOrder, session_use, used_run};
use crate::task_transport::RequestsTask;

/// The maximum length of a line, in bytes: as much as a request over HTTP may have by default.
const MAX_LINE_BYTES: usize = 16 << 20;

/// A client on two streams.
pub(crate) struct LineTransport<R, W> {
    input: BufReader<R>,
    /// `None` once the transport is closed.
    output: Arc<Mutex<Option<W>>>,
    order: ArrivalOrder<SessionId>,
    /// The incomplete line. It survives a cancelled [`LineTransport::receive`].
    line: BytesMut,
    /// Set while the rest of an overlong line is skipped.
    is_skipping: bool,
    /// The task that sends the error about the last line. The next line is read afterwards, so that a client that does
    /// not read cannot make errors pile up.
    reply: Option<JoinHandle<()>>,
}

/// A line as it was read.
enum Line {
    /// The line, without its end, is in [`LineTransport::line`].
    Complete,
    TooLong,
    /// The stream has ended.
    End,
}

impl<R: AsyncRead + Send + Unpin, W: AsyncWrite + Send + Unpin + 'static> LineTransport<R, W> {
    /// Creates a transport whose requests take their turns in `order`.
    pub(crate) fn new(input: R, output: W, order: ArrivalOrder<SessionId>) -> Self {
        let (input, output) = (BufReader::new(input), Arc::new(Mutex::new(Some(output))));
        Self { input, output, order, line: BytesMut::new(), is_skipping: false, reply: None }
    }

    /// Reads the next line. May be cancelled: what was read is kept for the next call.
    async fn read_line(&mut self) -> io::Result<Line> {
        loop {
            let available = self.input.fill_buf().await?;
            if available.is_empty() {
                // An incomplete last line is not a message.
                return Ok(Line::End);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(available.len(), |end| end + 1);
            let is_too_long = !self.is_skipping && self.line.len() + taken > MAX_LINE_BYTES;
            if is_too_long {
                self.line = BytesMut::new();
                self.is_skipping = true;
            } else if !self.is_skipping {
                self.line.extend_from_slice(&available[..end.unwrap_or(taken)]);
            }
            self.input.consume(taken);
            let was_skipping = self.is_skipping;
            if end.is_some() {
                self.is_skipping = false;
            }
            match end {
                _ if is_too_long => return Ok(Line::TooLong),
                Some(_) if !was_skipping => return Ok(Line::Complete),
                _ => {}
            }
        }
    }

    /// Parses a line. Returns `None` for an empty line and for a notification that the protocol does not define.
    fn parse(&self, line: &[u8]) -> Result<Option<RxJsonRpcMessage<RoleServer>>, InvalidLine> {
        const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";
        let line = line.trim_ascii();
        // rmcp's codec skips it, too, but the order of calls depends on what is parsed here.
        let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line).trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let mut bytes = BytesMut::with_capacity(line.len() + 1);
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(b"\n");
        // rmcp's codec skips notifications of other protocols that clients send by mistake.
        let message = JsonRpcMessageCodec::<RxJsonRpcMessage<RoleServer>>::default().decode(&mut bytes);
        let mut message = message.map_err(|_| InvalidLine::new(line))?;
        if let Some(JsonRpcMessage::Request(request)) = &mut message {
            let extensions = request.request.extensions_mut();
            if let Some(session_use) = session_use(line) {
                extensions.insert(self.order.enter(session_use.session));
            }
            if let Some(mark) = RequestsTask::parse(line) {
                extensions.insert(mark);
            }
        }
        Ok(message)
    }
}

/// Parses bytes of a client as a line of standard input, and as the body of a request over HTTP as far as the order of
/// calls depends on it. Returns whether they are a message. For fuzz targets.
#[doc(hidden)]
pub fn parse_message(bytes: &[u8]) -> bool {
    let transport = LineTransport::new(tokio::io::empty(), tokio::io::sink(), ArrivalOrder::default());
    let _ = (session_use(bytes), used_run(bytes));
    transport.parse(bytes).is_ok_and(|message| message.is_some())
}

/// A line that is not a message.
struct InvalidLine {
    error: ErrorData,
    /// The ID of the request, if the line has one.
    id: Option<RequestId>,
}

impl InvalidLine {
    fn new(line: &[u8]) -> Self {
        match serde_json::from_slice::<Value>(line) {
            Ok(mut value) => {
                let id = value.get_mut("id").and_then(|id| serde_json::from_value(id.take()).ok());
                let error = ErrorData::invalid_request("the line is not a JSON-RPC message of this protocol", None);
                Self { error, id }
            }
            Err(error) => {
                let error = ErrorData::parse_error(format!("the line is not valid JSON: {error}"), None);
                Self { error, id: None }
            }
        }
    }
}

/// Writes a message and a newline.
async fn write<W: AsyncWrite + Unpin>(
    output: Arc<Mutex<Option<W>>>,
    message: TxJsonRpcMessage<RoleServer>,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(&message)?;
    line.push(b'\n');
    let mut output = output.lock().await;
    let output = output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
    output.write_all(&line).await?;
    output.flush().await
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        write(self.output.clone(), message)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(reply) = &mut self.reply {
                // The task does not panic.
                let _ = reply.await;
                self.reply = None;
            }
            let parsed = match self.read_line().await {
                Ok(Line::Complete) => {
                    let line = self.line.split();
                    self.parse(&line)
                }
                Ok(Line::TooLong) => {
                    let reason = format!("the line is longer than {MAX_LINE_BYTES} bytes");
                    Err(InvalidLine { error: ErrorData::invalid_request(reason, None), id: None })
                }
                Ok(Line::End) => return None,
                Err(error) => {
                    tracing::error!(%error, "failed to read from the client");
                    return None;
                }
            };
            match parsed {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                Err(InvalidLine { error, id }) => {
                    let reply = write(self.output.clone(), TxJsonRpcMessage::<RoleServer>::error(error, id));
                    self.reply = Some(tokio::spawn(async move {
                        if let Err(error) = reply.await {
                            tracing::debug!(%error, "failed to write to the client");
                        }
                    }));
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        self.output.lock().await.take();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrival::SessionTurn;

    async fn lines(input: &[u8]) -> (Vec<String>, usize) {
        let (client, server) = tokio::io::duplex(1 << 20);
        let mut transport = LineTransport::new(input, server, ArrivalOrder::default());
        let mut messages = 0;
        while transport.receive().await.is_some() {
            messages += 1;
        }
        transport.close().await.unwrap();
        drop(transport);
        let mut replies = Vec::new();
        let mut lines = BufReader::new(client).lines();
        while let Some(line) = lines.next_line().await.unwrap() {
            replies.push(line);
        }
        (replies, messages)
    }

    #[tokio::test]
    async fn lines_that_are_not_messages_get_errors_without_an_id() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let nested = "[".repeat(100_000);
        let input =
            format!("{{bad\n\n{ping}\r\n{nested}\n[]\n\"\\ud800\"\n\u{feff}{ping}\n{{\"method\":\"$/x\"}}\n{ping}");
        let (replies, messages) = lines(input.as_bytes()).await;
        assert_eq!(messages, 2, "{replies:?}");
        let codes: Vec<_> = replies
            .iter()
            .map(|line| {
                let reply: Value = serde_json::from_str(line).unwrap();
                assert!(reply["id"].is_null(), "{reply}");
                reply["error"]["code"].as_i64().unwrap()
            })
            .collect();
        assert_eq!(codes, [-32700, -32700, -32600, -32700]);
    }

    #[tokio::test]
    async fn call_has_its_turn_after_a_byte_order_mark() {
        let arguments = serde_json::json!({ "code": "1", "session_id": "W-zFjI5p-ns1Qiu9" });
        let params = serde_json::json!({ "name": "execute_code", "arguments": arguments });
        let call = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        for before in ["", "\u{feff}", " \u{feff}", "\u{feff} "] {
            let transport = LineTransport::new(tokio::io::empty(), tokio::io::sink(), ArrivalOrder::default());
            let message = transport.parse(format!("{before}{call}").as_bytes()).ok().flatten();
            let Some(JsonRpcMessage::Request(mut request)) = message else { panic!("{before:?}") };
            assert!(request.request.extensions_mut().get::<SessionTurn>().is_some(), "{before:?}");
        }
    }

    #[tokio::test]
    async fn overlong_line_is_skipped_with_an_error() {
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let input = format!("{ping}\n{}\n{ping}\n", "x".repeat(MAX_LINE_BYTES + 10));
        let (replies, messages) = lines(input.as_bytes()).await;
        assert_eq!((replies.len(), messages), (1, 2), "{replies:?}");
        assert!(replies[0].contains("-32600"), "{}", replies[0]);
    }
}
