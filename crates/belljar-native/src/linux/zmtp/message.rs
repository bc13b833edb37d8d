//! Jupyter's wire format: a signature, then header, parent header, metadata and content as JSON.
//!
//! See <https://jupyter-client.readthedocs.io/en/stable/messaging.html>. The signature is HMAC-SHA256 over the four. A
//! guest can read its kernel's key, so a valid signature proves only that the message comes from this session.

use std::borrow::Cow;

use belljar_core::bounded_json;
use belljar_network::Scrubber;
use hmac::{Hmac, Mac as _};
use jupyter_protocol::{JupyterMessage, JupyterMessageContent};
use serde::{Deserialize, de::DeserializeOwned};
use sha2::Sha256;

/// The part between the routing prefix and the message.
const DELIMITER: &[u8] = b"<IDS|MSG>";

/// The key that signs a session's messages.
#[derive(Clone)]
pub(crate) struct SigningKey(String);

/// A received message whose signature is valid.
#[derive(Debug)]
pub(crate) struct ReceivedMessage {
    /// The `msg_type`, such as `stream`.
    pub(crate) kind: String,
    /// The `msg_id` of the request that the message belongs to, or an empty string.
    pub(crate) parent: String,
    content: String,
}

/// The reason why a received message is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MessageError {
    /// The parts are not those of a Jupyter message.
    Form,
    /// The signature is not of this key.
    Signature,
    /// The header or the parent header is not valid JSON.
    Json,
}

impl SigningKey {
    /// Generates a key of 244 random bits.
    pub(crate) fn random() -> Self {
        Self(format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple()))
    }

    /// Returns the key as it is written into a connection file.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// Makes a signed message. Returns its `msg_id` and its parts.
    pub(crate) fn sign(&self, session: &str, content: JupyterMessageContent) -> (String, Vec<Vec<u8>>) {
        let mut message = JupyterMessage::new(content, None);
        session.clone_into(&mut message.header.session);
        // Serialization does not fail: these are maps with strings as keys.
        let json = |value: serde_json::Result<String>| value.unwrap_or_else(|_| "{}".into()).into_bytes();
        let body = [
            json(serde_json::to_string(&message.header)),
            b"{}".to_vec(),
            b"{}".to_vec(),
            json(serde_json::to_string(&message.content)),
        ];
        let signature = self.mac(&body).map(|mac| hex::encode(mac.finalize().into_bytes())).unwrap_or_default();
        let mut parts = vec![DELIMITER.to_vec(), signature.into_bytes()];
        parts.extend(body);
        (message.header.msg_id, parts)
    }

    /// Checks the signature of a message and reads its headers.
    ///
    /// # Errors
    /// Returns an error if the parts are not a message, or are not signed with this key.
    pub(crate) fn verify(&self, parts: Vec<Vec<u8>>) -> Result<ReceivedMessage, MessageError> {
        let start = parts.iter().position(|part| part == DELIMITER).ok_or(MessageError::Form)?;
        let [signature, header, parent, metadata, content, ..] = &parts[start + 1..] else {
            return Err(MessageError::Form);
        };
        let mut received = [0; 32];
        hex::decode_to_slice(signature, &mut received).map_err(|_| MessageError::Signature)?;
        let mac = self.mac(&[header, parent, metadata, content]).ok_or(MessageError::Signature)?;
        // The comparison takes constant time.
        mac.verify_slice(&received).map_err(|_| MessageError::Signature)?;
        let header: Header = serde_json::from_slice(header).map_err(|_| MessageError::Json)?;
        let parent: Parent = serde_json::from_slice(parent).map_err(|_| MessageError::Json)?;
        // ipykernel sends lone surrogates as bytes that are not UTF-8.
        let content = String::from_utf8_lossy(content).into_owned();
        Ok(ReceivedMessage { kind: header.msg_type, parent: parent.msg_id, content })
    }

    fn mac<T: AsRef<[u8]>>(&self, body: &[T]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).ok()?;
        body.iter().for_each(|part| mac.update(part.as_ref()));
        Some(mac)
    }
}

impl ReceivedMessage {
    /// Removes secrets from the content.
    pub(crate) fn scrub(&mut self, scrubber: &Scrubber) {
        let scrubbed = match scrubber.scrub_text(&self.content) {
            Cow::Owned(content) => Some(content),
            Cow::Borrowed(_) => None,
        };
        if let Some(content) = scrubbed {
            self.content = content;
        }
    }

    /// Parses the content, or returns `None` when it is not a `T`.
    pub(crate) fn content<T: DeserializeOwned>(&self) -> Option<T> {
        bounded_json::parse(&self.content)
    }
}

#[derive(Deserialize)]
struct Header {
    msg_type: String,
}

#[derive(Deserialize)]
struct Parent {
    #[serde(default)]
    msg_id: String,
}

#[cfg(test)]
pub(crate) mod tests {
    use jupyter_protocol::KernelInfoRequest;
    use serde_json::Value;

    use super::*;

    /// Makes a message as a kernel sends it.
    pub(crate) fn signed(key: &SigningKey, kind: &str, parent: &str, content: &[u8]) -> Vec<Vec<u8>> {
        let header = format!(r#"{{"msg_id":"k","msg_type":"{kind}","date":"no date"}}"#).into_bytes();
        let parent = format!(r#"{{"msg_id":"{parent}"}}"#).into_bytes();
        sign_parts(key, [header, parent, b"{}".to_vec(), content.to_vec()])
    }

    fn sign_parts(key: &SigningKey, body: [Vec<u8>; 4]) -> Vec<Vec<u8>> {
        let signature = hex::encode(key.mac(&body).unwrap().finalize().into_bytes());
        let mut parts = vec![b"routing".to_vec(), DELIMITER.to_vec(), signature.into_bytes()];
        parts.extend(body);
        parts
    }

    #[test]
    fn signature_is_valid_only_for_its_key() {
        let key = SigningKey::random();
        let (id, parts) = key.sign("session", KernelInfoRequest {}.into());
        assert!(!id.is_empty());
        assert_eq!(key.verify(parts.clone()).unwrap().kind, "kernel_info_request");
        assert_eq!(SigningKey::random().verify(parts).unwrap_err(), MessageError::Signature);
    }

    #[test]
    fn changed_message_is_dropped() {
        let key = SigningKey::random();
        let whole = signed(&key, "stream", "p", b"{}");
        assert_eq!(key.verify(whole.clone()).unwrap().parent, "p");
        for part in 2..whole.len() {
            let mut changed = whole.clone();
            changed[part].push(b' ');
            assert_eq!(key.verify(changed).unwrap_err(), MessageError::Signature, "part {part}");
        }
        let mut unsigned = whole.clone();
        unsigned[2].clear();
        assert_eq!(key.verify(unsigned).unwrap_err(), MessageError::Signature);
        let mut other = whole.clone();
        other[2] = "é".repeat(32).into_bytes();
        assert_eq!(key.verify(other).unwrap_err(), MessageError::Signature);
        assert_eq!(key.verify(whole[..5].to_vec()).unwrap_err(), MessageError::Form);
        assert_eq!(key.verify(Vec::new()).unwrap_err(), MessageError::Form);
    }

    #[test]
    fn malformed_json_is_dropped() {
        let key = SigningKey::random();
        let deep = "[".repeat(1 << 20);
        for header in [&b"not json"[..], b"[]", b"{}", b"\xff\xfe", deep.as_bytes()] {
            let parts = sign_parts(&key, [header.to_vec(), b"{}".to_vec(), b"{}".to_vec(), b"{}".to_vec()]);
            assert_eq!(key.verify(parts).unwrap_err(), MessageError::Json);
        }
        for content in [&b"not json"[..], b"", deep.as_bytes(), b"{\"a\": NaN}"] {
            let message = key.verify(signed(&key, "stream", "", content)).unwrap();
            assert_eq!(message.content::<Value>(), None);
        }
        let message = key.verify(signed(&key, "stream", "", b"{\"text\": \"a\xffb\"}")).unwrap();
        assert_eq!(message.content::<Value>().unwrap()["text"], "a\u{fffd}b");
    }
}
