//! Secrets: values that the host puts into requests, and the placeholders that the code sees instead.

mod host;
mod specification;

use std::collections::BTreeMap;
use std::fmt;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::policy::{Host, Policy, Target};
use crate::scrubber::Scrubber;
use host::HostSecret;
pub(crate) use host::HostSecrets;
pub use specification::SecretSource;

/// The shortest value. Shorter ones would be found by chance in text that is scrubbed.
const MIN_VALUE: usize = 8;

/// The longest value.
const MAX_VALUE: usize = 8192;

/// The shortest placeholder: its random characters cannot be guessed.
const MIN_PLACEHOLDER: usize = 24;

/// The most secrets.
const MAX_SECRETS: usize = 64;

/// The most hosts of a secret.
const MAX_HOSTS: usize = 64;

/// The longest name.
const MAX_NAME: usize = 64;

/// A secret that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The name is not that of a variable.
    #[error("invalid name of a secret `{0}`: write letters, digits and underscores, at most 64")]
    Name(String),
    /// There are two secrets of the name.
    #[error("the secret {0} is given twice")]
    Duplicate(String),
    /// There are too many secrets.
    #[error("there are more than {MAX_SECRETS} secrets")]
    TooMany,
    /// The value is too short or too long, or contains control characters.
    #[error("invalid value of the secret {name}: {reason}")]
    Value {
        /// The name of the secret.
        name: String,
        /// The reason, without the value.
        reason: &'static str,
    },
    /// A host is not valid.
    #[error("invalid host `{host}` of the secret {name}: {reason}")]
    Host {
        /// The name of the secret.
        name: String,
        /// The host.
        host: String,
        /// The reason.
        reason: String,
    },
    /// The policy does not allow a host of a secret.
    #[error("the secret {name} is for {host}, which the network policy does not allow")]
    NotAllowed {
        /// The name of the secret.
        name: String,
        /// The host.
        host: String,
    },
    /// The text of a secret has another form.
    #[error("invalid secret `{0}`: write NAME@HOST=env:VARIABLE or NAME@HOST=file:PATH")]
    Form(String),
    /// The value could not be read.
    #[error("failed to read the secret {name}: {reason}")]
    Source {
        /// The name of the secret.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The source of random numbers failed.
    #[error("failed to create a placeholder: {0}")]
    Random(String),
}

/// Secrets with the hosts that they are for. Their values are neither in the sandbox nor in debugging output.
#[derive(Clone, Default)]
pub struct Secrets {
    secrets: BTreeMap<String, Secret>,
    /// The key from which placeholders are made. They are random without it.
    key: Option<[u8; 32]>,
}

#[derive(Clone)]
struct Secret {
    hosts: Vec<Target>,
    value: String,
    placeholder: String,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.secrets.keys()).finish()
    }
}

impl Secrets {
    /// Creates an empty set, whose placeholders are random.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set whose placeholders are the same for each set with this key, which must be secret: code that
    /// outlives its process has the placeholders in its variables.
    pub fn with_key(key: [u8; 32]) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    /// Returns whether there are no secrets.
    pub fn is_empty(&self) -> bool {
        self.secrets.is_empty()
    }

    /// Adds a secret for the hosts, each a name, `*.example.com` or an address, with a port or for 443 and 80.
    ///
    /// # Errors
    /// Returns an error if the name, a host or the value is not valid: a value has 8 to 8192 bytes without control
    /// characters.
    pub fn add(&mut self, name: &str, hosts: &[impl AsRef<str>], value: String) -> Result<(), SecretError> {
        let is_name = (1..=MAX_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && !name.starts_with(|c: char| c.is_ascii_digit());
        if !is_name {
            return Err(SecretError::Name(name.chars().take(MAX_NAME).collect()));
        }
        if self.secrets.contains_key(name) {
            return Err(SecretError::Duplicate(name.to_owned()));
        }
        if self.secrets.len() >= MAX_SECRETS {
            return Err(SecretError::TooMany);
        }
        let invalid = |reason| Err(SecretError::Value { name: name.to_owned(), reason });
        if value.len() < MIN_VALUE {
            return invalid("it is shorter than 8 bytes");
        }
        if value.len() > MAX_VALUE {
            return invalid("it is longer than 8192 bytes");
        }
        if value.chars().any(char::is_control) {
            return invalid("it contains control characters or line breaks");
        }
        if value.trim() != value {
            return invalid("it begins or ends with a space");
        }
        let bad_host = |host: &str, reason: String| SecretError::Host {
            name: name.to_owned(),
            host: host.chars().take(300).collect(),
            reason,
        };
        if hosts.is_empty() || hosts.len() > MAX_HOSTS {
            return Err(bad_host("", format!("name 1 to {MAX_HOSTS} hosts")));
        }
        let mut targets = Vec::with_capacity(hosts.len());
        for host in hosts {
            let host = host.as_ref();
            if host == "*" || host.starts_with("*:") {
                return Err(bad_host(host, "a secret is not for every host".to_owned()));
            }
            targets.push(Target::parse(host).map_err(|reason| bad_host(host, reason))?);
        }
        let length = value.len().max(MIN_PLACEHOLDER);
        let placeholder = match &self.key {
            Some(key) => derived_placeholder(key, name, &value, length),
            None => random_placeholder(length).map_err(|error| SecretError::Random(error.to_string()))?,
        };
        self.secrets.insert(name.to_owned(), Secret { hosts: targets, value, placeholder });
        Ok(())
    }

    /// Returns the names of the secrets and their placeholders, for the environment of the code.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        self.secrets.iter().map(|(name, secret)| (name.as_str(), secret.placeholder.as_str()))
    }

    /// Creates a scrubber of all values.
    pub fn scrubber(&self) -> Scrubber {
        Scrubber::new(self.secrets.values().map(|secret| secret.value.as_str()))
    }

    /// Checks that the policy allows every host of a secret.
    ///
    /// # Errors
    /// Returns an error for the first host that it does not allow.
    pub(crate) fn check(&self, policy: &Policy) -> Result<(), SecretError> {
        for (name, secret) in &self.secrets {
            if let Some(host) = secret.hosts.iter().find(|host| !policy.includes(host)) {
                return Err(SecretError::NotAllowed { name: name.clone(), host: host.to_string() });
            }
        }
        Ok(())
    }

    /// Returns the secrets that are for the host.
    pub(crate) fn for_host(&self, host: &Host, port: u16) -> HostSecrets {
        let covers = |secret: &&Secret| secret.hosts.iter().any(|target| target.covers(host, Some(port)));
        let secrets = self.secrets.iter().filter(|(_, secret)| covers(secret)).map(|(name, secret)| HostSecret {
            name: name.clone(),
            value: secret.value.clone(),
            placeholder: secret.placeholder.clone(),
        });
        HostSecrets { secrets: secrets.collect() }
    }
}

/// Creates an unguessable placeholder: letters, digits and underscores, so that no encoding of headers changes it.
fn random_placeholder(length: usize) -> Result<String, getrandom::Error> {
    let mut bytes = vec![0; length];
    getrandom::fill(&mut bytes)?;
    Ok(letters(&bytes))
}

/// Returns the placeholder of a secret, which cannot be guessed without the key.
fn derived_placeholder(key: &[u8; 32], name: &str, value: &str, length: usize) -> String {
    let mut bytes = Vec::with_capacity(length + 32);
    for block in 0_u32.. {
        if bytes.len() >= length {
            break;
        }
        // An HMAC takes keys of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { break };
        for part in [name.as_bytes(), value.as_bytes()] {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.update(&block.to_be_bytes());
        bytes.extend(mac.finalize().into_bytes());
    }
    bytes.truncate(length);
    letters(&bytes)
}

fn letters(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_X";
    bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte & 63)])).collect()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn placeholders_are_random_and_as_long_as_the_value() {
        let mut secrets = Secrets::new();
        secrets.add("SHORT", &["a.example"], "12345678".to_owned()).unwrap();
        secrets.add("LONG", &["a.example"], "x".repeat(100)).unwrap();
        let environment: BTreeMap<_, _> = secrets.environment().collect();
        assert_eq!(environment["SHORT"].len(), 24);
        assert_eq!(environment["LONG"].len(), 100);
        assert!(
            environment.values().all(|value| value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        );
        assert_ne!(random_placeholder(24).unwrap(), random_placeholder(24).unwrap());
        let derived = |key, name, value| derived_placeholder(&[key; 32], name, value, 40);
        assert_eq!(derived(1, "A", "value"), derived(1, "A", "value"));
        for other in [derived(2, "A", "value"), derived(1, "B", "value"), derived(1, "A", "other")] {
            assert_ne!(derived(1, "A", "value"), other);
        }
        assert!(!format!("{secrets:?}").contains("12345678"));
    }

    #[test]
    fn invalid_secrets_are_refused() {
        let mut secrets = Secrets::new();
        for (name, host, value) in [
            ("", "a.example", "12345678"),
            ("1A", "a.example", "12345678"),
            ("A-B", "a.example", "12345678"),
            ("A", "a.example", "1234567"),
            ("A", "a.example", "1234\r\n5678"),
            ("A", "a.example", " 12345678"),
            ("A", "a example", "12345678"),
            ("A", "*", "12345678"),
        ] {
            assert!(secrets.add(name, &[host], value.to_owned()).is_err(), "{name} {host} {value}");
        }
        assert!(secrets.add("A", &[] as &[&str], "12345678".to_owned()).is_err());
        assert!(secrets.add("A", &["a.example"], "x".repeat(9000)).is_err());
        secrets.add("A", &["a.example"], "12345678".to_owned()).unwrap();
        assert_eq!(
            secrets.add("A", &["a.example"], "12345678".to_owned()),
            Err(SecretError::Duplicate("A".to_owned()))
        );
        let mut policy = Policy::none();
        policy.allow("b.example").unwrap();
        assert!(matches!(secrets.check(&policy), Err(SecretError::NotAllowed { .. })));
        policy.allow("*.example").unwrap();
        secrets.check(&policy).unwrap();
    }

    #[test]
    fn placeholders_are_replaced_for_the_named_hosts_only() {
        let mut secrets = Secrets::new();
        secrets.add("TOKEN", &["a.example", "b.example:8443"], "the-value".to_owned()).unwrap();
        let placeholder = secrets.environment().next().unwrap().1.to_owned();
        let a = secrets.for_host(&host("a.example"), 443);
        assert_eq!(a.substitute(format!("Bearer {placeholder}").as_bytes()), b"Bearer the-value");
        let basic = format!("Basic {}", STANDARD.encode(format!("user:{placeholder}")));
        assert_eq!(a.substitute(basic.as_bytes()), format!("Basic {}", STANDARD.encode("user:the-value")).as_bytes());
        let basic = format!("basic {}", STANDARD.encode(format!("{placeholder}:")));
        assert_eq!(a.substitute(basic.as_bytes()), format!("basic {}", STANDARD.encode("the-value:")).as_bytes());
        assert_eq!(a.fill("x ${TOKEN}").unwrap(), "x the-value");
        assert!(a.fill("${OTHER}").is_err());
        for (name, port) in [("a.example", 8443), ("b.example", 443), ("c.example", 443), ("x.a.example", 443)] {
            assert!(secrets.for_host(&host(name), port).is_empty(), "{name}:{port}");
        }
    }
}
