//! The secrets of one host, in the headers of requests.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// Base64 with padding, which may be missing in what the code writes.
const BASIC: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The secrets that may be sent to one host.
#[derive(Clone, Default)]
pub(crate) struct HostSecrets {
    pub(super) secrets: Vec<HostSecret>,
}

/// A secret of a host.
#[derive(Clone)]
pub(super) struct HostSecret {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) placeholder: String,
}

impl HostSecrets {
    pub(crate) fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Returns the value of a header of the code with the secrets instead of their placeholders.
    pub(crate) fn substitute(&self, value: &[u8]) -> Vec<u8> {
        if let Some(basic) = self.substitute_basic(value) {
            return basic;
        }
        self.replace(value)
    }

    /// Replaces placeholders in both parts of `Basic base64(user:password)`.
    fn substitute_basic(&self, value: &[u8]) -> Option<Vec<u8>> {
        let (scheme, encoded) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return None;
        }
        let decoded = BASIC.decode(encoded.trim_ascii()).ok()?;
        let replaced = self.replace(&decoded);
        (replaced != decoded).then(|| [scheme, BASIC.encode(replaced).as_bytes()].concat())
    }

    fn replace(&self, value: &[u8]) -> Vec<u8> {
        let mut value = value.to_vec();
        for secret in &self.secrets {
            value = replace_all(&value, secret.placeholder.as_bytes(), secret.value.as_bytes());
        }
        value
    }

    /// Returns the value of a header of a rule with the secrets instead of `${NAME}`.
    ///
    /// # Errors
    /// Returns the reason if a secret is not for this host.
    pub(crate) fn fill(&self, template: &str) -> Result<String, String> {
        let mut filled = String::with_capacity(template.len());
        let mut rest = template;
        while let Some((before, after)) = rest.split_once("${") {
            let (name, after) = after.split_once('}').ok_or("a `${` without `}` in a rule")?;
            let secret = self.secrets.iter().find(|secret| secret.name == name);
            let secret = secret.ok_or_else(|| format!("the secret {name} is not for this host"))?;
            filled.push_str(before);
            filled.push_str(&secret.value);
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }
}

fn replace_all(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix(from) {
            replaced.extend_from_slice(to);
            rest = after;
        } else if let Some((byte, after)) = rest.split_first() {
            replaced.push(*byte);
            rest = after;
        }
    }
    replaced
}
