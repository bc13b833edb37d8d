//! Jupyter's messages as they travel: a signature, then header, parent header, metadata and content as JSON.
//!
//! See <https://jupyter-client.readthedocs.io/en/stable/messaging.html>. The signature is HMAC-SHA256 over the four. A guest
//! can read its kernel's key, so that a good signature says only that the message comes from this very session.

use belljar_core::bounded_json;
use hmac::{Hmac, Mac as _};
use jupyter_protocol::{JupyterMessage, JupyterMessageContent};
use serde::{Deserialize, de::DeserializeOwned};
use sha2::Sha256;

/// Stands between routing and message.
const DELIMITER: &[u8] = b"<IDS|MSG>";

/// What signs a session's messages.
#[derive(Clone)]
pub(crate) struct Key(String);

/// A message that came.
#[derive(Debug)]
pub(crate) struct Received {
    /// Its type, `stream` for one.
    pub(crate) kind: String,
    /// `msg_id` of the message that it answers; empty if it answers none.
    pub(crate) parent: String,
    content: String,
}

/// Why a message that came is left aside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// It is no message of Jupyter's.
    Form,
    /// Somebody else signed it.
    Signature,
    /// Its JSON cannot be read.
    Json,
}

impl Key {
    /// A key that nobody can guess: 244 random bits.
    pub(crate) fn random() -> Self {
        Self(format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple()))
    }

    /// As it stands in a connection file.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// A message and its id.
    pub(crate) fn seal(&self, session: &str, content: JupyterMessageContent) -> (String, Vec<Vec<u8>>) {
        let mut message = JupyterMessage::new(content, None);
        session.clone_into(&mut message.header.session);
        // None of them can fail: they are maps with names for keys.
        let json = |value: serde_json::Result<String>| value.unwrap_or_else(|_| "{}".into()).into_bytes();
        let body = [
            json(serde_json::to_string(&message.header)),
            b"{}".to_vec(),
            b"{}".to_vec(),
            json(serde_json::to_string(&message.content)),
        ];
        let signature = self.mac(&body).map(|mac| hex(&mac.finalize().into_bytes())).unwrap_or_default();
        let mut parts = vec![DELIMITER.to_vec(), signature.into_bytes()];
        parts.extend(body);
        (message.header.msg_id, parts)
    }

    /// Reads a message.
    ///
    /// # Errors
    /// When it is none, or is not signed with this key.
    pub(crate) fn open(&self, parts: Vec<Vec<u8>>) -> Result<Received, Unusable> {
        let start = parts.iter().position(|part| part == DELIMITER).ok_or(Unusable::Form)?;
        let [signature, header, parent, metadata, content, ..] = &parts[start + 1..] else {
            return Err(Unusable::Form);
        };
        let signature = from_hex(signature).ok_or(Unusable::Signature)?;
        let mac = self.mac(&[header, parent, metadata, content]).ok_or(Unusable::Signature)?;
        // In constant time.
        mac.verify_slice(&signature).map_err(|_| Unusable::Signature)?;
        let header: Header = serde_json::from_slice(header).map_err(|_| Unusable::Json)?;
        let parent: Parent = serde_json::from_slice(parent).map_err(|_| Unusable::Json)?;
        // ipykernel sends lone surrogates as bytes that are no UTF-8.
        let content = String::from_utf8_lossy(content).into_owned();
        Ok(Received { kind: header.msg_type, parent: parent.msg_id, content })
    }

    fn mac<T: AsRef<[u8]>>(&self, body: &[T]) -> Option<Hmac<Sha256>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()).ok()?;
        body.iter().for_each(|part| mac.update(part.as_ref()));
        Some(mac)
    }
}

impl Received {
    /// What it says, if it says that.
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == 64 && text.is_ascii())?;
    (0..32).map(|index| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use jupyter_protocol::KernelInfoRequest;
    use serde_json::Value;

    use super::*;

    /// A message as a kernel would send it.
    pub(crate) fn signed(key: &Key, kind: &str, parent: &str, content: &[u8]) -> Vec<Vec<u8>> {
        let header = format!(r#"{{"msg_id":"k","msg_type":"{kind}","date":"no date"}}"#).into_bytes();
        let parent = format!(r#"{{"msg_id":"{parent}"}}"#).into_bytes();
        sign(key, [header, parent, b"{}".to_vec(), content.to_vec()])
    }

    fn sign(key: &Key, body: [Vec<u8>; 4]) -> Vec<Vec<u8>> {
        let signature = hex(&key.mac(&body).unwrap().finalize().into_bytes());
        let mut parts = vec![b"routing".to_vec(), DELIMITER.to_vec(), signature.into_bytes()];
        parts.extend(body);
        parts
    }

    #[test]
    fn what_is_sealed_can_be_opened_with_the_same_key_alone() {
        let key = Key::random();
        let (id, parts) = key.seal("session", KernelInfoRequest {}.into());
        assert!(!id.is_empty());
        assert_eq!(key.open(parts.clone()).unwrap().kind, "kernel_info_request");
        assert_eq!(Key::random().open(parts).unwrap_err(), Unusable::Signature);
    }

    #[test]
    fn what_was_changed_on_the_way_is_left_aside() {
        let key = Key::random();
        let whole = signed(&key, "stream", "p", b"{}");
        assert_eq!(key.open(whole.clone()).unwrap().parent, "p");
        for part in 2..whole.len() {
            let mut changed = whole.clone();
            changed[part].push(b' ');
            assert_eq!(key.open(changed).unwrap_err(), Unusable::Signature, "part {part}");
        }
        let mut unsigned = whole.clone();
        unsigned[2].clear();
        assert_eq!(key.open(unsigned).unwrap_err(), Unusable::Signature);
        let mut other = whole.clone();
        other[2] = "é".repeat(32).into_bytes();
        assert_eq!(key.open(other).unwrap_err(), Unusable::Signature);
        assert_eq!(key.open(whole[..5].to_vec()).unwrap_err(), Unusable::Form);
        assert_eq!(key.open(Vec::new()).unwrap_err(), Unusable::Form);
    }

    #[test]
    fn json_that_is_none_or_is_deep_or_is_no_text_harms_nobody() {
        let key = Key::random();
        let deep = "[".repeat(1 << 20);
        for header in [&b"not json"[..], b"[]", b"{}", b"\xff\xfe", deep.as_bytes()] {
            let parts = sign(&key, [header.to_vec(), b"{}".to_vec(), b"{}".to_vec(), b"{}".to_vec()]);
            assert_eq!(key.open(parts).unwrap_err(), Unusable::Json);
        }
        for content in [&b"not json"[..], b"", deep.as_bytes(), b"{\"a\": NaN}"] {
            let message = key.open(signed(&key, "stream", "", content)).unwrap();
            assert_eq!(message.content::<Value>(), None);
        }
        let message = key.open(signed(&key, "stream", "", b"{\"text\": \"a\xffb\"}")).unwrap();
        assert_eq!(message.content::<Value>().unwrap()["text"], "a\u{fffd}b");
    }
}
