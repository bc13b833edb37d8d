//! Requests, from the code to the server.

use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::io::{AsyncWriteExt as _, WriteHalf};
use tokio::sync::{mpsc, oneshot};

use super::chunked::{ChunkedDecoder, Piece, write_chunk};
use super::head::{Framing, MAX_HEAD, RequestHead, head_length, parse_request};
use super::request::{PreparedRequest, Rejection};
use super::{Pending, Phase, UpEnd};
use crate::channel::{Channel, Outgoing};
use crate::failure::Failure;
use crate::record::RecordGuard;
use crate::stream::ServerStream;
use crate::tls_request::TlsRequest;

/// A reader of what the code writes.
struct CodeReader<'a> {
    channel: &'a Channel,
    buffer: BytesMut,
}

/// The result of waiting for a head.
enum NextHead {
    Head(BytesMut),
    End,
    Tls(Box<TlsRequest>),
}

/// The writer to the server. After an error it drops what is written: the response may explain it.
struct ServerWriter<'a, 'b> {
    stream: &'a mut WriteHalf<&'b mut ServerStream>,
    failed: bool,
}

/// Relays requests until the code ends its stream.
pub(super) async fn send(
    phase: &Phase<'_>,
    writer: &mut WriteHalf<&mut ServerStream>,
    pending: mpsc::Sender<Box<Pending>>,
) -> Result<UpEnd, Failure> {
    let channel = phase.relay.channel();
    let mut reader = CodeReader { channel, buffer: BytesMut::new() };
    let mut writer = ServerWriter { stream: writer, failed: false };
    loop {
        let head = match reader.head().await? {
            NextHead::Head(head) => head,
            NextHead::End => {
                writer.shutdown().await;
                return Ok(UpEnd::Finished);
            }
            NextHead::Tls(request) if phase.is_idle() && !phase.security.tls => return Ok(UpEnd::Tls(request)),
            NextHead::Tls(_) => return Err(Failure::Refused("TLS was asked for within a request".to_owned())),
        };
        phase.relay.count_request()?;
        let mut record = phase.new_record();
        let head = match parse_request(&head) {
            Ok(head) => head,
            Err(reason) => return Err(refused(&mut record, reason)),
        };
        record.set_request(&head.method, &head.target);
        let (method, version) = (head.method.clone(), head.version);
        let prepared = match phase.policy.prepare(head) {
            Ok(prepared) => prepared,
            Err(Rejection::Invalid(reason)) => return Err(refused(&mut record, reason)),
            Err(Rejection::Forbidden(reason)) => {
                record.refuse(&reason);
                record.set_status(403);
                let answer = Some(answer(403, "Forbidden", &method, &reason));
                let record = Arc::new(Mutex::new(record));
                phase.begin_request();
                let entry = Pending { record, method, version, upgrade: None, answer };
                send_pending(&pending, entry).await?;
                channel.discard_outgoing();
                return Ok(UpEnd::Finished);
            }
        };
        let PreparedRequest { head, framing, rule, upgrades } = prepared;
        record.set_rule(rule);
        let record = Arc::new(Mutex::new(record));
        let (upgrade, upgraded) = if upgrades { oneshot::channel().into_options() } else { (None, None) };
        phase.begin_request();
        send_pending(&pending, Pending { record: Arc::clone(&record), method, version, upgrade, answer: None }).await?;
        send_request(phase, &mut reader, &mut writer, &head, framing, &record).await?;
        drop(record);
        if writer.failed {
            // The response is still relayed. There is no way to send another request.
            channel.discard_outgoing();
            return Ok(UpEnd::Finished);
        }
        if let Some(upgraded) = upgraded
            && upgraded.await.unwrap_or(false)
        {
            channel.put_back(&reader.buffer);
            return Ok(UpEnd::Upgraded);
        }
    }
}

/// An extension that gives the halves of a channel as options.
trait IntoOptions<A, B> {
    fn into_options(self) -> (Option<A>, Option<B>);
}

impl<A, B> IntoOptions<A, B> for (A, B) {
    fn into_options(self) -> (Option<A>, Option<B>) {
        (Some(self.0), Some(self.1))
    }
}

async fn send_pending(pending: &mpsc::Sender<Box<Pending>>, entry: Pending) -> Result<(), Failure> {
    pending.send(Box::new(entry)).await.map_err(|_| Failure::Closed)
}

fn refused(record: &mut RecordGuard, reason: String) -> Failure {
    record.refuse(&reason);
    Failure::Refused(reason)
}

async fn send_request(
    phase: &Phase<'_>,
    reader: &mut CodeReader<'_>,
    writer: &mut ServerWriter<'_, '_>,
    head: &RequestHead,
    framing: Framing,
    record: &Mutex<RecordGuard>,
) -> Result<(), Failure> {
    let write = async |writer: &mut ServerWriter<'_, '_>, data: &[u8]| {
        phase.relay.count_sent(data.len())?;
        record.lock().add_sent(data.len());
        writer.write(data).await;
        Ok::<(), Failure>(())
    };
    write(writer, &head.to_bytes()).await?;
    match framing {
        Framing::None | Framing::UntilClose => Ok(()),
        Framing::Length(length) => {
            let mut rest = length;
            while rest > 0 {
                if reader.buffer.is_empty() {
                    reader.fill().await?;
                }
                let length = usize::try_from(rest).unwrap_or(usize::MAX).min(reader.buffer.len());
                let data = reader.buffer.split_to(length);
                rest -= length as u64;
                write(writer, &data).await?;
            }
            Ok(())
        }
        Framing::Chunked => {
            let mut decoder = ChunkedDecoder::default();
            loop {
                match decoder.next(&mut reader.buffer) {
                    Err(reason) => {
                        record.lock().refuse(&reason);
                        return Err(Failure::Refused(reason));
                    }
                    Ok(None) => reader.fill().await?,
                    Ok(Some(Piece::Data(data))) => {
                        let mut chunk = Vec::with_capacity(data.len() + 16);
                        write_chunk(&mut chunk, &data);
                        write(writer, &chunk).await?;
                    }
                    // Trailers are dropped, as RFC 9110 allows: rules do not see them.
                    Ok(Some(Piece::End(_))) => return write(writer, b"0\r\n\r\n").await,
                }
            }
        }
    }
}

/// Returns an answer of the host, after which the connection ends.
pub(super) fn answer(status: u16, reason: &str, method: &str, text: &str) -> Vec<u8> {
    let mut answer = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        text.len() + 1
    );
    if method != "HEAD" {
        answer.push_str(text);
        answer.push('\n');
    }
    answer.into_bytes()
}

impl CodeReader<'_> {
    /// Reads more of a request.
    async fn fill(&mut self) -> Result<(), Failure> {
        match self.channel.outgoing().await {
            Outgoing::Data(data) => {
                if self.buffer.is_empty() {
                    self.buffer = BytesMut::from(data);
                } else {
                    self.buffer.extend_from_slice(&data);
                }
                Ok(())
            }
            Outgoing::End => Err(Failure::Closed),
            Outgoing::Tls(_) => Err(Failure::Refused("TLS was asked for within a request".to_owned())),
        }
    }

    /// Waits for the head of the next request.
    async fn head(&mut self) -> Result<NextHead, Failure> {
        let mut searched = 0;
        loop {
            if let Some(length) = head_length(&self.buffer, searched) {
                if length > MAX_HEAD {
                    return Err(too_long());
                }
                let head = self.buffer.split_to(length);
                if self.buffer.is_empty() {
                    self.buffer = BytesMut::new();
                }
                return Ok(NextHead::Head(head));
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(too_long());
            }
            // Bytes that cannot become a request are refused before their line ends, which may be never.
            let is_request = |byte: &u8| matches!(byte, b'\r' | b'\n' | b'\t' | 0x20..=0x7e | 0x80..);
            if searched == 0 && self.buffer.first().is_some_and(|byte| !byte.is_ascii_alphabetic())
                || !self.buffer.iter().skip(searched).all(is_request)
            {
                return Err(Failure::Refused("only HTTP/1.1 is allowed on this connection".to_owned()));
            }
            searched = self.buffer.len();
            if searched == 0 {
                match self.channel.outgoing().await {
                    Outgoing::Data(data) => self.buffer = BytesMut::from(data),
                    Outgoing::End => return Ok(NextHead::End),
                    Outgoing::Tls(request) => return Ok(NextHead::Tls(request)),
                }
            } else {
                self.fill().await?;
            }
        }
    }
}

fn too_long() -> Failure {
    Failure::Refused(format!("the head of the request is longer than {MAX_HEAD} bytes"))
}

impl ServerWriter<'_, '_> {
    async fn write(&mut self, data: &[u8]) {
        if !self.failed {
            let written = async {
                self.stream.write_all(data).await?;
                self.stream.flush().await
            };
            self.failed = written.await.is_err();
        }
    }

    async fn shutdown(&mut self) {
        if !self.failed && self.stream.shutdown().await.is_err() {
            self.failed = true;
        }
    }
}
