//! Responses, from the server to the code.

use bytes::BytesMut;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::chunked::{ChunkedDecoder, Piece, write_chunk};
use super::decoding::{BodyDecoder, MAX_INPUT};
use super::head::{
    Framing, Header, MAX_HEAD, ResponseHead, head_length, parse_response, remove, values, write_headers,
};
use super::up::answer;
use super::{DownEnd, Pending, Phase};
use crate::failure::Failure;
use crate::relay::HOLD_TIMEOUT;
use crate::scrubber::StreamScrubber;
use crate::stream::ServerReader;

/// The most bytes of one read.
const MAX_READ: usize = 64 * 1024;

/// The most interim responses to one request.
const MAX_INTERIM: usize = 16;

/// The changes of a body on its way.
struct Body {
    decoder: Option<BodyDecoder>,
    scrubber: Option<StreamScrubber>,
    /// The body is written in chunks.
    chunked: bool,
}

/// Relays responses until the server closes the connection.
pub(super) async fn receive(
    phase: &Phase<'_>,
    reader: &mut ServerReader<'_>,
    requests: &mut mpsc::Receiver<Box<Pending>>,
) -> Result<DownEnd, Failure> {
    loop {
        let next = tokio::select! {
            biased;
            next = requests.recv() => next,
            // The server closes the connection, or sends what was not asked for: 408 after some time, for example.
            read = reader.arrival() => {
                read?;
                return Ok(DownEnd::Finished);
            }
        };
        let Some(mut pending) = next else { return Ok(DownEnd::Finished) };
        let end = respond(phase, reader, &mut pending).await;
        if let Err(failure) = &end {
            pending.record.lock().fail(&failure.reason());
        }
        match end? {
            Next::Close => {
                pending.record.lock().finish();
                return Ok(DownEnd::Finished);
            }
            Next::Request => {
                pending.record.lock().finish();
                drop(pending);
                phase.end_request();
            }
            Next::Upgraded => {
                pending.record.lock().finish();
                return Ok(DownEnd::Upgraded);
            }
        }
    }
}

/// The state after a response.
enum Next {
    Request,
    Close,
    Upgraded,
}

async fn respond(phase: &Phase<'_>, reader: &mut ServerReader<'_>, pending: &mut Pending) -> Result<Next, Failure> {
    if let Some(answer) = pending.answer.take() {
        deliver(phase, pending, &answer).await?;
        return Ok(Next::Close);
    }
    let mut interim = 0;
    let mut head = loop {
        let Some(head) = read_head(reader).await? else {
            pending.record.lock().fail("the server closed the connection without a response");
            return Ok(Next::Close);
        };
        let head = parse_response(&head).map_err(Failure::Protocol)?;
        if !(100..200).contains(&head.status) || head.status == 101 {
            break head;
        }
        interim += 1;
        if interim > MAX_INTERIM {
            return Err(Failure::Protocol("the server sent too many interim responses".to_owned()));
        }
        if pending.version == 1 {
            deliver(phase, pending, &scrubbed(phase, head).to_bytes()).await?;
        }
    };
    pending.record.lock().set_status(head.status);
    if head.status == 101 {
        let upgrade = pending.upgrade.take();
        let Some(upgrade) = upgrade.filter(|_| super::head::has_token(&head.headers, "upgrade", "websocket")) else {
            return Err(Failure::Protocol("the server switched protocols without being asked to".to_owned()));
        };
        deliver(phase, pending, &scrubbed(phase, head).to_bytes()).await?;
        // The other half may have ended meanwhile.
        let _ended = upgrade.send(true);
        return Ok(Next::Upgraded);
    }
    drop(pending.upgrade.take());
    let framing = head.framing(&pending.method).map_err(Failure::Protocol)?;
    let mut closes = head.closes() || framing == Framing::UntilClose || pending.version == 0;
    let decoder = match decoder(phase, &head, framing) {
        Ok(decoder) => decoder,
        Err(text) => {
            pending.record.lock().fail(&text);
            deliver(phase, pending, &answer(502, "Bad Gateway", &pending.method, &text)).await?;
            return Ok(Next::Close);
        }
    };
    let mut out = framing;
    if decoder.is_some() {
        for name in ["content-encoding", "content-length", "transfer-encoding"] {
            remove(&mut head.headers, name);
        }
        out = Framing::UntilClose;
        if pending.version == 1 && head.version == 1 {
            head.headers.push(("Transfer-Encoding".to_owned(), b"chunked".to_vec()));
            out = Framing::Chunked;
        }
        closes |= out == Framing::UntilClose;
    }
    if framing == Framing::Chunked && pending.version == 0 {
        return Err(Failure::Protocol("the server answered HTTP/1.0 in chunks".to_owned()));
    }
    let scrubber = phase.policy.scrubs.then(|| phase.relay.connections.network.scrubber.uniform_stream());
    deliver(phase, pending, &scrubbed(phase, head).to_bytes()).await?;
    let mut body = Body { decoder, scrubber, chunked: out == Framing::Chunked };
    relay_body(phase, reader, pending, framing, &mut body).await?;
    Ok(if closes { Next::Close } else { Next::Request })
}

/// Returns the decoder of a body that has to be scrubbed.
fn decoder(phase: &Phase<'_>, head: &ResponseHead, framing: Framing) -> Result<Option<BodyDecoder>, String> {
    let mut encodings =
        values(&head.headers, "content-encoding").filter(|value| !value.eq_ignore_ascii_case(b"identity"));
    let first = encodings.next();
    let (Some(encoding), true) = (first, phase.policy.scrubs && framing != Framing::None) else { return Ok(None) };
    let name = String::from_utf8_lossy(encoding).chars().take(40).collect::<String>();
    if encodings.next().is_some() || head.status == 206 {
        return Err("the response is encoded in a way that cannot be searched for secrets".to_owned());
    }
    match BodyDecoder::new(encoding) {
        Some(decoder) => Ok(Some(decoder)),
        None => Err(format!("the response has the encoding `{name}`, which cannot be searched for secrets")),
    }
}

/// Returns a head without secrets.
fn scrubbed(phase: &Phase<'_>, mut head: ResponseHead) -> ResponseHead {
    if phase.policy.scrubs {
        head.reason = phase.relay.connections.network.scrubber.scrub_text(&head.reason).into_owned();
        scrub_headers(phase, &mut head.headers);
    }
    head
}

fn scrub_headers(phase: &Phase<'_>, headers: &mut [Header]) {
    let scrubber = &phase.relay.connections.network.scrubber;
    for (name, value) in headers {
        *name = scrubber.scrub_text(name).into_owned();
        *value = scrubber.scrub(value).into_owned();
    }
}

async fn read_head(reader: &mut ServerReader<'_>) -> Result<Option<BytesMut>, Failure> {
    let mut searched = 0;
    loop {
        if let Some(length) = head_length(&reader.buffer, searched) {
            if length > MAX_HEAD {
                return Err(too_long());
            }
            return Ok(Some(reader.take(length)));
        }
        searched = reader.buffer.len();
        if searched > MAX_HEAD {
            return Err(too_long());
        }
        if reader.fill(MAX_READ).await? == 0 {
            return Ok(None);
        }
    }
}

fn too_long() -> Failure {
    Failure::Protocol(format!("the head of the response is longer than {MAX_HEAD} bytes"))
}

async fn relay_body(
    phase: &Phase<'_>,
    reader: &mut ServerReader<'_>,
    pending: &Pending,
    framing: Framing,
    body: &mut Body,
) -> Result<(), Failure> {
    let mut trailers = Vec::new();
    match framing {
        Framing::None => return Ok(()),
        Framing::Length(length) => {
            let mut rest = length;
            while rest > 0 {
                if reader.buffer.is_empty() && !fill(phase, reader, pending, body).await? {
                    return Err(Failure::Protocol("the server closed the connection within a response".to_owned()));
                }
                let data = reader.take(usize::try_from(rest).unwrap_or(usize::MAX));
                rest -= data.len() as u64;
                body.deliver(phase, pending, &data).await?;
            }
        }
        Framing::Chunked => {
            let mut decoder = ChunkedDecoder::default();
            loop {
                match decoder.next(&mut reader.buffer).map_err(Failure::Protocol)? {
                    Some(Piece::Data(data)) => body.deliver(phase, pending, &data).await?,
                    Some(Piece::End(headers)) => {
                        trailers = headers;
                        break;
                    }
                    None => {
                        if !fill(phase, reader, pending, body).await? {
                            let text = "the server closed the connection within a response";
                            return Err(Failure::Protocol(text.to_owned()));
                        }
                    }
                }
            }
        }
        Framing::UntilClose => {
            while !reader.buffer.is_empty() || fill(phase, reader, pending, body).await? {
                let data = reader.take(usize::MAX);
                body.deliver(phase, pending, &data).await?;
            }
        }
    }
    if reader.buffer.is_empty() {
        reader.buffer = BytesMut::new();
    }
    if phase.policy.scrubs {
        scrub_headers(phase, &mut trailers);
    }
    let end = body.finish(&trailers)?;
    deliver(phase, pending, &end).await
}

/// Reads more of a body. Returns false at the end.
async fn fill(
    phase: &Phase<'_>,
    reader: &mut ServerReader<'_>,
    pending: &Pending,
    body: &mut Body,
) -> Result<bool, Failure> {
    phase.relay.channel().space().await;
    if body.scrubber.as_ref().is_some_and(StreamScrubber::is_holding) {
        match timeout(HOLD_TIMEOUT, reader.fill(MAX_READ)).await {
            Ok(read) => return Ok(read? > 0),
            Err(_) => {
                let released = body.scrubber.as_mut().map(StreamScrubber::release);
                let released = phase.relay.check_released(released)?;
                deliver(phase, pending, &body.framed(released)).await?;
            }
        }
    }
    Ok(reader.fill(MAX_READ).await? > 0)
}

/// Passes bytes to the code as it reads them.
async fn deliver(phase: &Phase<'_>, pending: &Pending, data: &[u8]) -> Result<(), Failure> {
    let mut rest = data;
    while !rest.is_empty() {
        let space = phase.relay.channel().space().await.min(rest.len());
        let (now, later) = rest.split_at(space);
        pending.record.lock().add_received(now.len());
        phase.relay.deliver(now)?;
        rest = later;
    }
    Ok(())
}

impl Body {
    /// Changes bytes of the body and passes them to the code.
    async fn deliver(&mut self, phase: &Phase<'_>, pending: &Pending, data: &[u8]) -> Result<(), Failure> {
        if self.decoder.is_none() && self.scrubber.is_none() {
            if self.chunked {
                let chunk = self.framed(data.to_vec());
                return deliver(phase, pending, &chunk).await;
            }
            return deliver(phase, pending, data).await;
        }
        let size = if self.decoder.is_some() { MAX_INPUT } else { data.len().max(1) };
        for piece in data.chunks(size) {
            let text = match &mut self.decoder {
                Some(decoder) => decoder.decode(piece).map_err(|error| invalid_encoding(&error))?,
                None => piece.to_vec(),
            };
            let text = match &mut self.scrubber {
                Some(scrubber) => scrubber.push(&text),
                None => text,
            };
            let chunk = self.framed(text);
            deliver(phase, pending, &chunk).await?;
        }
        Ok(())
    }

    fn framed(&self, data: Vec<u8>) -> Vec<u8> {
        if !self.chunked {
            return data;
        }
        let mut chunk = Vec::with_capacity(data.len() + 16);
        write_chunk(&mut chunk, &data);
        chunk
    }

    /// Returns the end of the body.
    fn finish(&mut self, trailers: &[Header]) -> Result<Vec<u8>, Failure> {
        let mut text = match &mut self.decoder {
            Some(decoder) => decoder.finish().map_err(|error| invalid_encoding(&error))?,
            None => Vec::new(),
        };
        if let Some(scrubber) = &mut self.scrubber {
            text = scrubber.push(&text);
            text.extend(scrubber.finish());
        }
        let mut end = self.framed(text);
        if self.chunked {
            end.extend_from_slice(b"0\r\n");
            write_headers(&mut end, trailers);
        }
        Ok(end)
    }
}

fn invalid_encoding(error: &std::io::Error) -> Failure {
    Failure::Protocol(format!("failed to decompress the response: {error}"))
}
