//! The relay of bytes that are not HTTP.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncWriteExt as _, WriteHalf};
use tokio::time::timeout;

use super::{HOLD_TIMEOUT, PhaseEnd, Relay};
use crate::channel::Outgoing;
use crate::failure::Failure;
use crate::scrubber::StreamScrubber;
use crate::stream::{ServerReader, ServerStream};

/// The time for which a first write that may be the beginning of a request is held back.
const SNIFF_TIMEOUT: Duration = Duration::from_millis(200);

/// The methods by which a request of HTTP is recognized.
const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"];

/// The end of the stream of the code.
enum UpEnd {
    Finished,
    Tls(Box<crate::tls_request::TlsRequest>),
    Http,
}

/// Relays bytes until both sides end, the code asks for TLS, or its first bytes are a request of HTTP.
pub(crate) async fn relay(
    relay: &Relay,
    stream: &mut ServerStream,
    sniffs: bool,
    scrubber: StreamScrubber,
    pending: BytesMut,
) -> Result<PhaseEnd, Failure> {
    let (reader, mut writer) = tokio::io::split(stream);
    let mut reader = ServerReader::new(reader);
    reader.buffer = pending;
    let server_spoke = AtomicBool::new(!sniffs);
    let mut up = Box::pin(send(relay, &mut writer, &server_spoke));
    let mut down = Box::pin(receive(relay, &mut reader, &server_spoke, scrubber));
    let (mut up_done, mut down_done, mut failed) = (false, false, None);
    while !(up_done && down_done) {
        tokio::select! {
            result = &mut up, if !up_done => {
                up_done = true;
                match result {
                    Ok(UpEnd::Finished) => {}
                    Ok(UpEnd::Tls(request)) => return Ok(PhaseEnd::Tls(request)),
                    Ok(UpEnd::Http) => return Ok(PhaseEnd::Http),
                    // The last bytes of the server are still delivered.
                    Err(failure @ Failure::Io(_)) => failed = Some(failure),
                    Err(failure) => return Err(failure),
                }
            }
            result = &mut down, if !down_done => {
                down_done = true;
                result?;
            }
            () = relay.channel().closed(), if up_done => return Ok(PhaseEnd::Done),
        }
    }
    failed.map_or(Ok(PhaseEnd::Done), Err)
}

async fn send(
    relay: &Relay,
    writer: &mut WriteHalf<&mut ServerStream>,
    server_spoke: &AtomicBool,
) -> Result<UpEnd, Failure> {
    let mut first = if server_spoke.load(Ordering::Relaxed) { None } else { Some(BytesMut::new()) };
    loop {
        let next = match &first {
            // The rest of what may be a request.
            Some(begun) if !begun.is_empty() => match timeout(SNIFF_TIMEOUT, relay.channel().outgoing()).await {
                Ok(next) => next,
                Err(_) => Outgoing::Data(Bytes::new()),
            },
            _ => relay.channel().outgoing().await,
        };
        let (data, after) = match next {
            Outgoing::Data(data) => (data, None),
            other => (Bytes::new(), Some(other)),
        };
        let data = match first.take() {
            None => data,
            Some(mut begun) => {
                begun.extend_from_slice(&data);
                let is_more = !data.is_empty();
                match looks_like_request(&begun) {
                    Some(true) if !server_spoke.load(Ordering::Relaxed) => {
                        relay.channel().put_back(&begun);
                        return Ok(UpEnd::Http);
                    }
                    None if is_more && !server_spoke.load(Ordering::Relaxed) => {
                        first = Some(begun);
                        continue;
                    }
                    _ => begun.freeze(),
                }
            }
        };
        if !data.is_empty() {
            relay.count_sent(data.len())?;
            relay.record.lock().add_sent(data.len());
            writer.write_all(&data).await?;
            writer.flush().await?;
        }
        match after {
            None | Some(Outgoing::Data(_)) => {}
            Some(Outgoing::Tls(request)) => return Ok(UpEnd::Tls(request)),
            Some(Outgoing::End) => {
                writer.shutdown().await?;
                return Ok(UpEnd::Finished);
            }
        }
    }
}

async fn receive(
    relay: &Relay,
    reader: &mut ServerReader<'_>,
    server_spoke: &AtomicBool,
    mut scrubber: StreamScrubber,
) -> Result<(), Failure> {
    let deliver = |data: &[u8]| {
        relay.record.lock().add_received(data.len());
        relay.deliver(data)
    };
    loop {
        if reader.buffer.is_empty() {
            let space = relay.channel().space().await;
            let read = if scrubber.is_holding() {
                match timeout(HOLD_TIMEOUT, reader.fill(space)).await {
                    Ok(read) => read?,
                    Err(_) => {
                        deliver(&relay.check_released(Some(scrubber.release()))?)?;
                        reader.fill(space).await?
                    }
                }
            } else {
                reader.fill(space).await?
            };
            if read == 0 {
                break;
            }
        }
        server_spoke.store(true, Ordering::Relaxed);
        let data = reader.take(usize::MAX);
        deliver(&scrubber.push(&data))?;
    }
    deliver(&scrubber.finish())?;
    relay.channel().finish_incoming();
    Ok(())
}

/// Returns whether bytes begin a request of HTTP, or `None` if more are needed.
fn looks_like_request(bytes: &[u8]) -> Option<bool> {
    let mut is_undecided = false;
    for method in METHODS {
        for target in ["/", "http"] {
            let beginning = format!("{method} {target}");
            if bytes.starts_with(beginning.as_bytes()) {
                return Some(true);
            }
            is_undecided |= beginning.as_bytes().starts_with(bytes);
        }
    }
    if is_undecided { None } else { Some(false) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_recognized() {
        assert_eq!(looks_like_request(b"GET / HTTP/1.1"), Some(true));
        assert_eq!(looks_like_request(b"POST http://a/"), Some(true));
        for undecided in ["", "G", "GET", "GET ", "P"] {
            assert_eq!(looks_like_request(undecided.as_bytes()), None);
        }
        for other in ["GET key\r\n", "get /", "*1\r\n", "\0\0\0\x08", "GETX"] {
            assert_eq!(looks_like_request(other.as_bytes()), Some(false));
        }
    }
}
