//! The checks and changes of one request.

use super::head::{Framing, Header, RequestHead, has_token, remove, values};
use crate::policy::rules::RequestView;
use crate::policy::{Host, Policy};
use crate::relay::Security;
use crate::secrets::{HostSecrets, Secrets};

/// Headers of a request that end at the host.
const DROPPED_HEADERS: [&str; 4] = ["http2-settings", "proxy-authorization", "proxy-connection", "trailer"];

/// Tokens of `Connection` that are passed on. Others would remove headers on their way to the server.
const CONNECTION_TOKENS: [&str; 4] = ["close", "keep-alive", "upgrade", "te"];

/// The checks of the requests of one connection.
pub(crate) struct RequestPolicy {
    policy: Policy,
    /// The host of the connection, and the name in TLS if the connection is to an address.
    hosts: Vec<Host>,
    port: u16,
    security: Security,
    secrets: HostSecrets,
    /// Responses may contain secrets.
    pub(crate) scrubs: bool,
    /// The connection carries HTTP and nothing else.
    pub(crate) requires_http: bool,
}

/// A request that is passed on.
#[derive(Debug)]
pub(crate) struct PreparedRequest {
    pub(crate) head: RequestHead,
    pub(crate) framing: Framing,
    /// The entry of the policy that allows it.
    pub(crate) rule: String,
    /// The code asks for a WebSocket.
    pub(crate) upgrades: bool,
}

/// A request that is not passed on.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// The request is not valid, or not for this connection: the connection is reset.
    Invalid(String),
    /// The policy does not allow it: the answer has status 403.
    Forbidden(String),
}

impl RequestPolicy {
    pub(crate) fn new(policy: &Policy, secrets: &Secrets, host: &Host, port: u16, security: &Security) -> Self {
        let hosts: Vec<Host> = std::iter::once(host.clone()).chain(security.name.clone()).collect();
        let for_host = secrets.for_host(host, port);
        let scrubs =
            hosts.iter().any(|host| !secrets.for_host(host, port).is_empty() || policy.transforms_secrets(host, port));
        let has_rules = hosts.iter().any(|host| policy.has_rules(host, port));
        Self {
            policy: policy.clone(),
            hosts,
            port,
            security: security.clone(),
            secrets: for_host,
            scrubs,
            requires_http: port == 80 || port == 443 || scrubs || has_rules,
        }
    }

    /// Checks a request and changes it for the server.
    pub(crate) fn prepare(&self, mut head: RequestHead) -> Result<PreparedRequest, Rejection> {
        self.check_target(&mut head).map_err(Rejection::Invalid)?;
        self.check_host(&head).map_err(Rejection::Invalid)?;
        let framing = head.framing().map_err(Rejection::Invalid)?;
        let mut transform = Vec::new();
        let mut rule = String::new();
        for host in self.hosts.iter().rev() {
            let view = RequestView { method: &head.method, target: &head.target, headers: &head.headers };
            let decision =
                self.policy.decide(host, self.port, &view).map_err(|reason| self.forbidden(&head, host, &reason))?;
            transform.extend(decision.transform);
            rule = decision.rule;
        }
        let upgrades = self.clean_connection(&mut head);
        if self.scrubs {
            // The response has to be readable for the scrubber: whole, and not compressed.
            for name in ["accept-encoding", "sec-websocket-extensions", "range", "if-range"] {
                remove(&mut head.headers, name);
            }
            head.headers.push(("Accept-Encoding".to_owned(), b"identity".to_vec()));
        }
        if self.security.trusted && !self.secrets.is_empty() {
            for (_, value) in &mut head.headers {
                *value = self.secrets.substitute(value);
            }
        }
        for (name, template) in transform {
            let value = if template.contains("${") {
                if !self.security.trusted {
                    let reason = "a secret of its rule is sent over TLS with a verified certificate only";
                    return Err(self.forbidden(&head, &self.hosts[0], reason));
                }
                let filled = self.secrets.fill(&template);
                filled.map_err(|reason| self.forbidden(&head, &self.hosts[0], &reason))?
            } else {
                template
            };
            remove(&mut head.headers, &name);
            head.headers.push((name, value.into_bytes()));
        }
        let breaks = |(_, value): &Header| value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
        if head.headers.iter().any(breaks) {
            return Err(Rejection::Invalid("a header contains a line break".to_owned()));
        }
        Ok(PreparedRequest { head, framing, rule, upgrades })
    }

    fn forbidden(&self, head: &RequestHead, host: &Host, reason: &str) -> Rejection {
        let path = head.target.split('?').next().unwrap_or_default();
        let path = path.get(..path.floor_char_boundary(300)).unwrap_or_default();
        let rules = self.policy.rule_name(host, self.port).unwrap_or_default();
        Rejection::Forbidden(format!(
            "network access to {} {host}:{}{path} is not allowed by the rules of {rules}: {reason}",
            head.method, self.port
        ))
    }

    /// Checks the target and removes the scheme and the host from an absolute one.
    fn check_target(&self, head: &mut RequestHead) -> Result<(), String> {
        if head.method == "CONNECT" {
            return Err("CONNECT is not supported".to_owned());
        }
        if head.target.starts_with('/') || head.target == "*" && head.method == "OPTIONS" {
            return Ok(());
        }
        let (scheme, rest) = head.target.split_once("://").ok_or("the target of the request is not a path")?;
        let expected = if self.security.tls { "https" } else { "http" };
        if !scheme.eq_ignore_ascii_case(expected) {
            return Err(format!("the target of the request has the scheme {scheme}"));
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if !self.is_authority(authority) {
            return Err("the target of the request is on another host".to_owned());
        }
        head.target = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(())
    }

    fn check_host(&self, head: &RequestHead) -> Result<(), String> {
        let mut hosts = values(&head.headers, "host");
        let host = hosts.next().ok_or("the request has no Host")?;
        if hosts.next().is_some() {
            return Err("the request has more than one Host".to_owned());
        }
        let host = std::str::from_utf8(host).unwrap_or_default();
        if self.is_authority(host) {
            return Ok(());
        }
        let host: String = host.chars().take(300).collect();
        Err(format!("the Host `{host}` of the request is not that of the connection, {}", self.hosts[0]))
    }

    /// Returns whether a text names the host of the connection, and its port if it names one.
    fn is_authority(&self, text: &str) -> bool {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (text, None),
        };
        if port.is_some_and(|port| port != self.port.to_string()) {
            return false;
        }
        // An address of IPv6 is in brackets.
        let is_bracketed = host.starts_with('[') && host.ends_with(']');
        match Host::parse(host) {
            Ok(Host::Address(address)) if address.is_ipv6() && !is_bracketed => false,
            Ok(Host::Name(_)) if is_bracketed => false,
            Ok(host) => self.hosts.contains(&host),
            Err(_) => false,
        }
    }

    /// Removes headers that end at the host. Returns whether the code asks for a WebSocket: no other protocol may
    /// replace HTTP, since requests could not be checked in it.
    fn clean_connection(&self, head: &mut RequestHead) -> bool {
        let mut upgrade = values(&head.headers, "upgrade");
        let is_websocket = upgrade.next().is_some_and(|value| value.eq_ignore_ascii_case(b"websocket"))
            && upgrade.next().is_none()
            && has_token(&head.headers, "connection", "upgrade")
            && head.method == "GET"
            && head.version == 1;
        drop(upgrade);
        for name in DROPPED_HEADERS {
            remove(&mut head.headers, name);
        }
        if !is_websocket {
            remove(&mut head.headers, "upgrade");
        }
        for (name, value) in &mut head.headers {
            if name.eq_ignore_ascii_case("connection") {
                let text = String::from_utf8_lossy(value).to_ascii_lowercase();
                let tokens = text
                    .split(',')
                    .map(str::trim)
                    .filter(|token| CONNECTION_TOKENS.contains(token) && (is_websocket || *token != "upgrade"));
                *value = tokens.collect::<Vec<_>>().join(", ").into_bytes();
            }
        }
        head.headers.retain(|(name, value)| !name.eq_ignore_ascii_case("connection") || !value.is_empty());
        is_websocket
    }
}
