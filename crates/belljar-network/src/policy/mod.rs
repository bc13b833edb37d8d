//! The policy: which hosts, ports, addresses and requests are allowed.

mod file;
mod path;
mod pattern;
pub(crate) mod rules;

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::address::{embedded_v4, special_block};
pub(crate) use pattern::{Host, Target};
use rules::{RequestView, Rule, matching_rule};

/// The most bytes of a summary.
const MAX_SUMMARY: usize = 400;

/// The most entries of a policy.
const MAX_ENTRIES: usize = 10_000;

/// A policy that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A pattern of hosts is not valid.
    #[error("invalid host pattern `{pattern}`: {reason}")]
    Pattern {
        /// The pattern.
        pattern: String,
        /// The reason.
        reason: String,
    },
    /// A policy is not TOML.
    #[error("failed to parse the network policy: {reason}")]
    Syntax {
        /// The position and kind of the error.
        reason: String,
    },
    /// A key that does not exist.
    #[error("unknown key `{key}` in {place} of the network policy; keys: {known}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The part of the policy.
        place: String,
        /// The keys that exist there.
        known: String,
    },
    /// A value that is not valid.
    #[error("invalid value of `{key}` in the network policy: {reason}")]
    Value {
        /// The key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// Too many entries.
    #[error("the network policy has more than {MAX_ENTRIES} entries")]
    TooManyEntries,
}

/// A policy: which hosts, ports, addresses and requests are allowed. Nothing is, unless it is named.
///
/// Of the entries that name a host, those with the narrowest pattern apply: `api.example.com` before `*.example.com`
/// before `*`. An entry without rules allows every request. With rules, the first that matches a request applies.
///
/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Each layer has to allow an access. `None` allows nothing. Names resolve by the first layer only.
    layers: Vec<Arc<Layer>>,
}

/// One policy without the policies that narrow it.
#[derive(Debug, Clone, Default)]
struct Layer {
    entries: Vec<Entry>,
    /// Subnets that are not reached, even by names.
    denied: Vec<IpNet>,
    /// Addresses of names, instead of those that a resolver returns.
    resolve: Vec<(String, IpAddr)>,
}

/// One entry of a policy.
#[derive(Debug, Clone)]
struct Entry {
    target: Target,
    /// Requests that are allowed. Not empty: an entry without rules has one that matches everything.
    rules: Vec<Rule>,
}

/// The decision on a request.
#[derive(Debug, Default)]
pub(crate) struct RequestDecision {
    /// Headers to set, in this order.
    pub(crate) transform: Vec<(String, String)>,
    /// The entry and the number of its rule.
    pub(crate) rule: String,
}

impl Policy {
    /// Creates a policy that allows nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns whether the policy allows nothing.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty() || self.layers.iter().any(|layer| layer.entries.is_empty())
    }

    /// Allows `HOST`, `HOST:PORT`, `HOST:*`, `*.example.com`, `*` (every name), `192.0.2.7:8080`, `[::1]:8443` or
    /// `10.0.0.0/8:5432`. Without a port, 443 and 80 are allowed.
    ///
    /// # Errors
    /// Returns an error if the pattern is not valid.
    pub fn allow(&mut self, pattern: &str) -> Result<(), PolicyError> {
        self.add(pattern, Vec::new())
    }

    /// Reads a policy file: see [`Policy::from_json`].
    ///
    /// ```toml
    /// allow = ["docs.example.com", "db.example.com:5432"]
    /// resolve = { "db.example.com" = "10.0.0.5" }
    /// subnets = { allow = ["10.1.0.0/16:8080"], deny = ["203.0.113.0/24"] }
    /// ```
    ///
    /// ```toml
    /// [[allow."api.github.com"]]
    /// match = { method = ["GET"], path = "/repos/*", query = { state = "open" }, headers = { x-team = "a" } }
    /// transform = { headers = { authorization = "Bearer ${GITHUB_TOKEN}" } }
    /// ```
    ///
    /// # Errors
    /// Returns an error that names the key if a key or a value is not valid.
    pub fn from_toml(text: &str) -> Result<Self, PolicyError> {
        let value: serde_json::Value = toml::from_str(text)
            .map_err(|error| PolicyError::Syntax { reason: error.to_string().trim_end().to_owned() })?;
        Self::from_json(&value)
    }

    /// Reads a policy in the form of the files.
    ///
    /// - `allow` is a list of patterns, or an object from patterns to lists of rules; an empty list allows every
    ///   request.
    /// - A rule's `match` has `method` and `path` (a text or a list), `query` and `headers` (objects from names to
    ///   patterns). A path is exact, a prefix (`/repos/*`), or a glob in which `*` does not match a slash and `**`
    ///   does.
    /// - A rule's `transform` has `headers`. They replace those of the code; `${NAME}` in a value is a secret.
    /// - `subnets` has `allow`, more patterns, and `deny`, subnets that names do not reach, either.
    /// - `resolve` gives names the address to connect to. Such an address may be private.
    ///
    /// # Errors
    /// Returns an error that names the key if a key or a value is not valid.
    pub fn from_json(value: &serde_json::Value) -> Result<Self, PolicyError> {
        file::read(value)
    }

    /// Returns a policy that allows only what both do. The `resolve` entries are those of `self`, and only `self` can
    /// name the private addresses that names resolve to. Transforms of both apply; those of `self` win.
    #[must_use]
    pub fn narrowed_by(&self, other: &Self) -> Self {
        if self.layers.is_empty() || other.layers.is_empty() {
            return Self::none();
        }
        Self { layers: self.layers.iter().chain(&other.layers).cloned().collect() }
    }

    /// Returns the hosts and ports that are allowed, for messages: at most 400 bytes.
    pub fn summary(&self) -> String {
        if self.is_empty() {
            return "nothing".to_owned();
        }
        let mut text = String::new();
        for (index, layer) in self.layers.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; of these only " };
            text.push_str(separator);
            for (index, entry) in layer.entries.iter().enumerate() {
                let next = format!("{}{}", if index == 0 { "" } else { ", " }, entry.target);
                if text.len() + next.len() > MAX_SUMMARY {
                    text.push_str(", …");
                    return text;
                }
                text.push_str(&next);
            }
        }
        text
    }

    fn layer(&mut self) -> &mut Layer {
        if self.layers.is_empty() {
            self.layers.push(Arc::default());
        }
        Arc::make_mut(&mut self.layers[0])
    }

    /// Adds an entry with rules.
    fn add(&mut self, pattern: &str, mut rules: Vec<Rule>) -> Result<(), PolicyError> {
        let target = Target::parse(pattern)
            .map_err(|reason| PolicyError::Pattern { pattern: pattern.chars().take(300).collect(), reason })?;
        if rules.is_empty() {
            rules.push(Rule::default());
        }
        let layer = self.layer();
        if layer.entries.len() >= MAX_ENTRIES {
            return Err(PolicyError::TooManyEntries);
        }
        layer.entries.push(Entry { target, rules });
        Ok(())
    }

    /// Returns whether a connection to the host is allowed, on any port if none is given.
    pub(crate) fn allows(&self, host: &Host, port: Option<u16>) -> bool {
        !self.layers.is_empty() && self.layers.iter().all(|layer| layer.allows(host, port))
    }

    /// Returns whether an entry of each layer includes the target.
    pub(crate) fn includes(&self, target: &Target) -> bool {
        !self.layers.is_empty()
            && self.layers.iter().all(|layer| layer.entries.iter().any(|entry| entry.target.includes(target)))
    }

    /// Returns the addresses that the policy gives a name, if any.
    pub(crate) fn resolved(&self, name: &str) -> Vec<IpAddr> {
        let entries = self.layers.first().map(|layer| layer.resolve.as_slice()).unwrap_or_default();
        entries.iter().filter(|(known, _)| known == name).map(|(_, address)| *address).collect()
    }

    /// Checks an address that is about to be connected to.
    ///
    /// # Errors
    /// Returns the reason if the address is denied, or if only a policy that names it may reach it.
    pub(crate) fn check_address(&self, host: &Host, address: IpAddr, port: u16) -> Result<(), String> {
        let address = address.to_canonical();
        let embedded = match address {
            IpAddr::V6(address) => embedded_v4(address).map(IpAddr::V4),
            IpAddr::V4(_) => None,
        };
        for candidate in [Some(address), embedded].into_iter().flatten() {
            if self.layers.iter().any(|layer| layer.denied.iter().any(|net| net.contains(&candidate))) {
                return Err(format!("the address {address} is denied"));
            }
        }
        let Some(block) = special_block(address) else { return Ok(()) };
        let is_resolved = matches!(host, Host::Name(name) if self.resolved(name).contains(&address));
        // A subnet that is wider than the special block does not name the block: `0.0.0.0/0` is not `127.0.0.0/8`.
        let is_named = self.layers.first().is_some_and(|layer| {
            layer.entries.iter().any(|entry| match &entry.target.host {
                pattern::HostPattern::Net(net) => {
                    entry.target.ports.contains(port) && net.contains(&address) && block.net.contains(net)
                }
                _ => false,
            })
        });
        if is_resolved || is_named { Ok(()) } else { Err(format!("its address {address} is {}", block.use_)) }
    }

    /// Returns whether requests to the host are restricted or changed by rules.
    pub(crate) fn has_rules(&self, host: &Host, port: u16) -> bool {
        self.layers.iter().any(|layer| layer.rules(host, port).iter().any(|(_, _, rule)| !rule.is_trivial()))
    }

    /// Returns whether requests to any host are restricted or changed by rules.
    pub fn has_any_rules(&self) -> bool {
        let mut entries = self.layers.iter().flat_map(|layer| &layer.entries);
        entries.any(|entry| entry.rules.iter().any(|rule| !rule.is_trivial()))
    }

    /// Returns the entry that allows the host, for records.
    pub(crate) fn rule_name(&self, host: &Host, port: u16) -> Option<String> {
        let layer = self.layers.first()?;
        layer.rules(host, port).first().map(|(target, _, _)| target.to_string())
    }

    /// Returns whether a transform for the host contains `${`.
    pub(crate) fn transforms_secrets(&self, host: &Host, port: u16) -> bool {
        let uses = |rule: &Rule| rule.transform.iter().any(|(_, value)| value.contains("${"));
        self.layers.iter().any(|layer| layer.rules(host, port).iter().any(|(_, _, rule)| uses(rule)))
    }

    /// Decides on a request to the host.
    ///
    /// # Errors
    /// Returns the reason if a layer does not allow the request.
    pub(crate) fn decide(&self, host: &Host, port: u16, request: &RequestView<'_>) -> Result<RequestDecision, String> {
        let mut decision = RequestDecision::default();
        if self.layers.is_empty() {
            return Err("nothing is allowed".to_owned());
        }
        for layer in self.layers.iter().rev() {
            let rules = layer.rules(host, port);
            let only: Vec<&Rule> = rules.iter().map(|(_, _, rule)| *rule).collect();
            let index = matching_rule(&only, request)?;
            if let Some((target, number, rule)) = rules.get(index) {
                decision.transform.extend(rule.transform.iter().cloned());
                decision.rule = format!("{target} rule {number}");
                if only.iter().all(|rule| rule.is_trivial()) {
                    decision.rule = target.to_string();
                }
            }
        }
        Ok(decision)
    }
}

impl Layer {
    fn allows(&self, host: &Host, port: Option<u16>) -> bool {
        if let Host::Address(address) = host
            && self.denied.iter().any(|net| net.contains(address))
        {
            return false;
        }
        self.entries.iter().any(|entry| {
            entry.target.covers(host, port)
                && match (host, &entry.target.host) {
                    // A wide subnet does not name the private addresses within it.
                    (Host::Address(address), pattern::HostPattern::Net(net)) => {
                        special_block(*address).is_none_or(|block| block.net.contains(net))
                    }
                    _ => true,
                }
        })
    }

    /// Returns the rules that apply to the host, with their entry and their number in it. Rules that match everything
    /// are the last.
    fn rules(&self, host: &Host, port: u16) -> Vec<(&Target, usize, &Rule)> {
        let covering = || self.entries.iter().filter(|entry| entry.target.covers(host, Some(port)));
        let Some(narrowest) = covering().map(|entry| entry.target.specificity()).max() else { return Vec::new() };
        let mut rules: Vec<_> = covering()
            .filter(|entry| entry.target.specificity() == narrowest)
            .flat_map(|entry| entry.rules.iter().enumerate().map(|(index, rule)| (&entry.target, index + 1, rule)))
            .collect();
        rules.sort_by_key(|(_, _, rule)| rule.is_trivial());
        rules
    }
}

#[cfg(test)]
mod documented;
#[cfg(test)]
mod tests;
