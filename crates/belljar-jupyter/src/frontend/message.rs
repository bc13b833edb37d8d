//! Messages as frames of ZeroMQ: identities, a delimiter, a signature, and four JSON texts.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use hmac::{Hmac, Mac};
use jupyter_protocol::messaging::Header;
use serde::Serialize;
use serde_json::Value;
use sha2::Sha256;
use uuid::Uuid;
use zeromq::ZmqMessage;

/// Parts the identities from the message.
const DELIMITER: &[u8] = b"<IDS|MSG>";
/// The messaging specification that is kept to.
pub(crate) const PROTOCOL_VERSION: &str = "5.4";
/// Identities that a message may have: routers between a frontend and a kernel add one each.
const MOST_IDENTITIES: usize = 16;
/// Bytes of a message that is looked at.
const MOST_BYTES: usize = 64 << 20;
/// Signatures that are remembered, so that no message is taken twice.
const REMEMBERED: usize = 1 << 16;

/// A message that came in.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Who sent it.
    pub(crate) identities: Vec<Bytes>,
    /// Of which kind it is, and its name, which replies bear.
    pub(crate) header: Arc<Header>,
    /// What it says.
    pub(crate) content: Value,
}

/// Why a message is dropped.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum Bad {
    #[error("it has not the frames of a message")]
    Frames,
    #[error("it is too long")]
    Long,
    #[error("its signature is not good")]
    Signature,
    #[error("it came before")]
    Repeated,
    #[error("its {0} is not JSON as agreed")]
    Json(&'static str),
}

/// Signs messages, and checks the signatures of others.
pub(crate) struct Signer {
    key: Option<Hmac<Sha256>>,
    /// The kernel's own name in headers.
    session: String,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    order: VecDeque<Vec<u8>>,
    all: HashSet<Vec<u8>>,
}

impl Signer {
    /// With this key; an empty one does not sign, as Jupyter has it.
    pub(crate) fn new(key: &[u8]) -> Self {
        // HMAC takes keys of any length.
        let key = if key.is_empty() { None } else { Hmac::new_from_slice(key).ok() };
        Self { key, session: Uuid::new_v4().to_string(), seen: Mutex::default() }
    }

    fn mac<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Option<Hmac<Sha256>> {
        let mut mac = self.key.clone()?;
        parts.into_iter().for_each(|part| mac.update(part));
        Some(mac)
    }

    /// Reads a message.
    pub(crate) fn open(&self, message: ZmqMessage) -> Result<Request, Bad> {
        let mut frames = message.into_vec();
        if frames.iter().map(Bytes::len).sum::<usize>() > MOST_BYTES {
            return Err(Bad::Long);
        }
        let delimiter = frames.iter().take(MOST_IDENTITIES + 1).position(|frame| frame == DELIMITER);
        let rest = frames.split_off(delimiter.ok_or(Bad::Frames)?);
        let identities = frames;
        // What follows are buffers, which no request that is answered here has.
        let [_, signature, header, parent, metadata, content, ..] = rest.as_slice() else {
            return Err(Bad::Frames);
        };
        if let Some(mac) = self.mac([header, parent, metadata, content].map(|part| &part[..])) {
            let signature = unhex(signature).ok_or(Bad::Signature)?;
            mac.verify_slice(&signature).map_err(|_| Bad::Signature)?;
            // As bytes: their text can be written in many ways.
            self.remember(signature)?;
        }
        let header: Header = serde_json::from_slice(header).map_err(|_| Bad::Json("header"))?;
        let content = serde_json::from_slice(content).map_err(|_| Bad::Json("content"))?;
        Ok(Request { identities, header: Arc::new(header), content })
    }

    fn remember(&self, signature: Vec<u8>) -> Result<(), Bad> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.all.insert(signature.clone()) {
            return Err(Bad::Repeated);
        }
        seen.order.push_back(signature);
        if seen.order.len() > REMEMBERED
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.all.remove(&oldest);
        }
        Ok(())
    }

    /// A message to these identities (on iopub: with this topic), caused by `parent`.
    pub(crate) fn seal(
        &self,
        identities: &[Bytes],
        kind: &str,
        parent: Option<&Header>,
        content: &impl Serialize,
    ) -> ZmqMessage {
        let header = Header {
            msg_id: Uuid::new_v4().to_string(),
            username: "belljar".into(),
            session: self.session.clone(),
            date: SystemTime::now().into(),
            msg_type: kind.into(),
            version: PROTOCOL_VERSION.into(),
        };
        let json = |value: Result<Vec<u8>, serde_json::Error>| Bytes::from(value.unwrap_or_else(|_| b"{}".to_vec()));
        let parts = [
            json(serde_json::to_vec(&header)),
            json(parent.map_or_else(|| Ok(b"{}".to_vec()), serde_json::to_vec)),
            Bytes::from_static(b"{}"),
            json(serde_json::to_vec(content)),
        ];
        let mac = self.mac(parts.iter().map(|part| &part[..]));
        let signature = mac.map_or_else(String::new, |mac| format!("{:x}", mac.finalize().into_bytes()));
        let mut message = ZmqMessage::from(Bytes::from_static(DELIMITER));
        message.push_back(Bytes::from(signature));
        parts.into_iter().for_each(|part| message.push_back(part));
        identities.iter().rev().for_each(|identity| message.push_front(identity.clone()));
        message
    }
}

fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.iter().map(|byte| Some(char::from(*byte).to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(message: ZmqMessage, place: usize, change: impl FnOnce(&mut Vec<u8>)) -> ZmqMessage {
        let mut frames = message.into_vec();
        let mut frame = frames[place].to_vec();
        change(&mut frame);
        frames[place] = frame.into();
        frames.try_into().unwrap()
    }

    fn message(signer: &Signer) -> ZmqMessage {
        signer.seal(&[Bytes::from_static(b"client")], "execute_request", None, &json!({ "code": "1" }))
    }

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let (mine, theirs) = (Signer::new(b"key"), Signer::new(b"key"));
        let request = theirs.open(message(&mine)).unwrap();
        assert_eq!(request.identities, [Bytes::from_static(b"client")]);
        assert_eq!((request.header.msg_type.as_str(), &request.content), ("execute_request", &json!({ "code": "1" })));
    }

    #[test]
    fn whoever_has_not_the_key_is_not_heard() {
        let signer = Signer::new(b"key");
        assert_eq!(signer.open(message(&Signer::new(b"other"))).unwrap_err(), Bad::Signature);
        assert_eq!(signer.open(message(&Signer::new(b""))).unwrap_err(), Bad::Signature);
        // Identity, delimiter, signature, header, parent, metadata, content.
        for place in 2..7 {
            let message = changed(message(&signer), place, |frame| frame[0] ^= 1);
            assert_eq!(signer.open(message).unwrap_err(), Bad::Signature, "frame {place}");
        }
    }

    #[test]
    fn a_message_is_taken_once() {
        let signer = Signer::new(b"key");
        let message = message(&signer);
        signer.open(message.clone()).unwrap();
        assert_eq!(signer.open(message.clone()).unwrap_err(), Bad::Repeated);
        // Another text of the same signature.
        let mut frames = message.into_vec();
        let signature = frames.iter().position(|frame| frame == DELIMITER).unwrap() + 1;
        frames[signature] = frames[signature].to_ascii_uppercase().into();
        let spelled_otherwise = ZmqMessage::try_from(frames).unwrap();
        assert_eq!(signer.open(spelled_otherwise).unwrap_err(), Bad::Repeated);
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let signer = Signer::new(b"");
        assert_eq!(signer.open("x".into()).unwrap_err(), Bad::Frames);
        let frames = |frames: &[&'static [u8]]| {
            ZmqMessage::try_from(frames.iter().map(|frame| Bytes::from_static(frame)).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(signer.open(frames(&[b"a", DELIMITER, b""])).unwrap_err(), Bad::Frames);
        let deep: &[u8] = Box::leak(b"[".repeat(100_000).into_boxed_slice());
        assert_eq!(signer.open(frames(&[DELIMITER, b"", deep, b"{}", b"{}", b"{}"])).unwrap_err(), Bad::Json("header"));
        let long: &[u8] = Box::leak(vec![b' '; MOST_BYTES].into_boxed_slice());
        assert_eq!(signer.open(frames(&[DELIMITER, b"", long, b"{}", b"{}", b"{}"])).unwrap_err(), Bad::Long);
        let ids: Vec<&'static [u8]> = std::iter::repeat_n(&b"id"[..], 1000).chain([DELIMITER]).collect();
        assert_eq!(signer.open(frames(&ids)).unwrap_err(), Bad::Frames);
    }
}
