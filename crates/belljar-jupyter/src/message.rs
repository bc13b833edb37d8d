//! Messages as ZeroMQ frames: identities, a delimiter, a signature, and four JSON texts.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use hmac::{Hmac, Mac};
use jupyter_protocol::messaging::Header;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use sha2::Sha256;
use uuid::Uuid;
use zeromq::ZmqMessage;

/// The frame between the identities and the signature.
const DELIMITER: &[u8] = b"<IDS|MSG>";
/// The version of the messaging specification that the kernel implements.
pub(crate) const PROTOCOL_VERSION: &str = "5.4";
/// The largest number of identities of a message. Each router between a frontend and the kernel adds one.
const MAX_IDENTITIES: usize = 16;
/// The largest size of a message, in bytes. Larger ones are dropped unread.
const MAX_BYTES: usize = 64 << 20;
/// The number of signatures that are remembered to detect repeated messages.
const MAX_REMEMBERED_SIGNATURES: usize = 1 << 16;

/// A message from a frontend.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The identities of its sender, which replies go to.
    pub(crate) identities: Vec<Bytes>,
    /// The header, which replies repeat as their parent header.
    pub(crate) header: Arc<Header>,
    /// The content, whose form depends on the message type.
    pub(crate) content: Value,
}

/// The reason why a message is dropped.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum MessageError {
    #[error("the frames of a message are missing")]
    Frames,
    #[error("the message is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the signature is invalid")]
    InvalidSignature,
    #[error("the message was received before")]
    Repeated,
    #[error("the {0} is not valid JSON")]
    InvalidJson(&'static str),
}

/// Signs messages to frontends, and verifies the signatures of messages from them.
pub(crate) struct Signer {
    key: Option<Hmac<Sha256>>,
    /// The kernel's session ID in headers.
    session: String,
    replay_guard: Mutex<ReplayGuard>,
}

/// The signatures of the latest messages.
#[derive(Default)]
struct ReplayGuard {
    order: VecDeque<Vec<u8>>,
    signatures: HashSet<Vec<u8>>,
}

impl Signer {
    /// Creates a signer. With an empty key messages are not signed, as Jupyter specifies.
    pub(crate) fn new(key: &[u8]) -> Self {
        // HMAC accepts keys of any length.
        let key = if key.is_empty() { None } else { Hmac::new_from_slice(key).ok() };
        Self { key, session: Uuid::new_v4().to_string(), replay_guard: Mutex::default() }
    }

    fn mac<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> Option<Hmac<Sha256>> {
        let mut mac = self.key.clone()?;
        parts.into_iter().for_each(|part| mac.update(part));
        Some(mac)
    }

    /// Verifies and decodes a message.
    pub(crate) fn verify(&self, message: ZmqMessage) -> Result<Request, MessageError> {
        let mut frames = message.into_vec();
        if frames.iter().map(Bytes::len).sum::<usize>() > MAX_BYTES {
            return Err(MessageError::TooLong);
        }
        let delimiter = frames.iter().take(MAX_IDENTITIES + 1).position(|frame| frame == DELIMITER);
        let rest = frames.split_off(delimiter.ok_or(MessageError::Frames)?);
        let identities = frames;
        // Further frames are buffers, which none of the supported requests has.
        let [_, signature, header, parent, metadata, content, ..] = rest.as_slice() else {
            return Err(MessageError::Frames);
        };
        if let Some(mac) = self.mac([header, parent, metadata, content].map(|part| &part[..])) {
            let signature = hex::decode(signature).map_err(|_| MessageError::InvalidSignature)?;
            mac.verify_slice(&signature).map_err(|_| MessageError::InvalidSignature)?;
            // The bytes are remembered, since hexadecimal digits can be upper or lower case.
            self.remember(signature)?;
        }
        let header: Header = serde_json::from_slice(header).map_err(|_| MessageError::InvalidJson("header"))?;
        let content = serde_json::from_slice(content).map_err(|_| MessageError::InvalidJson("content"))?;
        Ok(Request { identities, header: Arc::new(header), content })
    }

    fn remember(&self, signature: Vec<u8>) -> Result<(), MessageError> {
        let mut guard = self.replay_guard.lock();
        if !guard.signatures.insert(signature.clone()) {
            return Err(MessageError::Repeated);
        }
        guard.order.push_back(signature);
        if guard.order.len() > MAX_REMEMBERED_SIGNATURES
            && let Some(oldest) = guard.order.pop_front()
        {
            guard.signatures.remove(&oldest);
        }
        Ok(())
    }

    /// Encodes and signs a message to `identities` (on iopub: a topic), caused by `parent`.
    pub(crate) fn sign(
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
        let signature = mac.map_or_else(String::new, |mac| hex::encode(mac.finalize().into_bytes()));
        let mut message = ZmqMessage::from(Bytes::from_static(DELIMITER));
        message.push_back(Bytes::from(signature));
        parts.into_iter().for_each(|part| message.push_back(part));
        identities.iter().rev().for_each(|identity| message.push_front(identity.clone()));
        message
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with_changed_frame(message: ZmqMessage, index: usize, change: impl FnOnce(&mut Vec<u8>)) -> ZmqMessage {
        let mut frames = message.into_vec();
        let mut frame = frames[index].to_vec();
        change(&mut frame);
        frames[index] = frame.into();
        frames.try_into().unwrap()
    }

    fn message(signer: &Signer) -> ZmqMessage {
        signer.sign(&[Bytes::from_static(b"client")], "execute_request", None, &json!({ "code": "1" }))
    }

    #[test]
    fn message_is_decoded_as_it_was_encoded() {
        let (sender, receiver) = (Signer::new(b"key"), Signer::new(b"key"));
        let request = receiver.verify(message(&sender)).unwrap();
        assert_eq!(request.identities, [Bytes::from_static(b"client")]);
        assert_eq!((request.header.msg_type.as_str(), &request.content), ("execute_request", &json!({ "code": "1" })));
    }

    #[test]
    fn message_with_another_key_is_refused() {
        let signer = Signer::new(b"key");
        assert_eq!(signer.verify(message(&Signer::new(b"other"))).unwrap_err(), MessageError::InvalidSignature);
        assert_eq!(signer.verify(message(&Signer::new(b""))).unwrap_err(), MessageError::InvalidSignature);
        // Identity, delimiter, signature, header, parent, metadata, content.
        for index in 2..7 {
            let message = with_changed_frame(message(&signer), index, |frame| frame[0] ^= 1);
            assert_eq!(signer.verify(message).unwrap_err(), MessageError::InvalidSignature, "frame {index}");
        }
    }

    #[test]
    fn repeated_message_is_refused() {
        let signer = Signer::new(b"key");
        let message = message(&signer);
        signer.verify(message.clone()).unwrap();
        assert_eq!(signer.verify(message.clone()).unwrap_err(), MessageError::Repeated);
        // The same signature in upper case.
        let mut frames = message.into_vec();
        let signature = frames.iter().position(|frame| frame == DELIMITER).unwrap() + 1;
        frames[signature] = frames[signature].to_ascii_uppercase().into();
        let in_upper_case = ZmqMessage::try_from(frames).unwrap();
        assert_eq!(signer.verify(in_upper_case).unwrap_err(), MessageError::Repeated);
    }

    #[test]
    fn malformed_message_is_refused() {
        let signer = Signer::new(b"");
        assert_eq!(signer.verify("x".into()).unwrap_err(), MessageError::Frames);
        let frames = |frames: &[&'static [u8]]| {
            ZmqMessage::try_from(frames.iter().map(|frame| Bytes::from_static(frame)).collect::<Vec<_>>()).unwrap()
        };
        assert_eq!(signer.verify(frames(&[b"a", DELIMITER, b""])).unwrap_err(), MessageError::Frames);
        let deep: &[u8] = Box::leak(b"[".repeat(100_000).into_boxed_slice());
        assert_eq!(
            signer.verify(frames(&[DELIMITER, b"", deep, b"{}", b"{}", b"{}"])).unwrap_err(),
            MessageError::InvalidJson("header")
        );
        let long: &[u8] = Box::leak(vec![b' '; MAX_BYTES].into_boxed_slice());
        assert_eq!(
            signer.verify(frames(&[DELIMITER, b"", long, b"{}", b"{}", b"{}"])).unwrap_err(),
            MessageError::TooLong
        );
        let ids: Vec<&'static [u8]> = std::iter::repeat_n(&b"id"[..], 1000).chain([DELIMITER]).collect();
        assert_eq!(signer.verify(frames(&ids)).unwrap_err(), MessageError::Frames);
    }
}
