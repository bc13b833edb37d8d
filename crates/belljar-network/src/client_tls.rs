//! TLS that the code makes itself, through a proxy of the host: whether the host passes it on unread, or has to see the
//! plain text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::connections::Connections;
use crate::policy::{Host, Policy};
use crate::refusal::{Refusal, RefusalKind};
use crate::secrets::Secrets;

/// The handling of TLS that the code makes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsHandling {
    /// The host passes it on unread, after [`Connection::pass_tls`](crate::Connection::pass_tls).
    Pass,
    /// Rules or secrets apply to the host: it has to end this TLS and make its own to the server.
    Inspect,
}

impl Connections {
    /// Decides on TLS that the code makes itself, over a connection to the host. The server name is that of the code's
    /// first message (SNI).
    ///
    /// # Errors
    /// Returns a refusal if the server name is not the host of the connection. For a connection to an address, it has
    /// to be a name that the policy allows.
    pub fn tls_handling(&self, host: &str, port: u16, server_name: Option<&str>) -> Result<TlsHandling, Refusal> {
        let host = Host::parse(host).map_err(|reason| {
            let host: String = host.chars().take(100).collect();
            Refusal::new(RefusalKind::Name, format!("invalid name of a host `{host}`: {reason}"))
        })?;
        decide(self.policy(), &self.network.secrets, &host, port, server_name)
            .map_err(|reason| self.refuse(&host, Some(port), Some(&reason)))
    }

    /// Returns whether rules or secrets apply to any host.
    pub fn may_inspect_tls(&self) -> bool {
        !self.network.secrets.is_empty() || self.policy().has_any_rules()
    }

    /// Returns whether the policy names the loopback interface of the host, by its address or as `localhost`.
    pub fn reaches_loopback(&self) -> bool {
        let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        let mut hosts = addresses.into_iter().map(Host::Address);
        hosts.any(|host| self.policy().allows(&host, None)) || !self.policy().resolved("localhost").is_empty()
    }
}

/// Decides on TLS that the code makes itself.
///
/// # Errors
/// Returns the reason if the server name does not fit the host.
pub(crate) fn decide(
    policy: &Policy,
    secrets: &Secrets,
    host: &Host,
    port: u16,
    server_name: Option<&str>,
) -> Result<TlsHandling, String> {
    let shorten = |name: &str| name.chars().take(300).collect::<String>();
    let name = server_name.map(Host::parse).transpose();
    let name = name.map_err(|_| format!("its TLS is for `{}`", shorten(server_name.unwrap_or_default())))?;
    match (host, &name) {
        (Host::Name(_), None) => return Err("its TLS names no server (SNI)".to_owned()),
        (Host::Name(_), Some(name)) if name != host => return Err(format!("its TLS is for {name}")),
        (Host::Address(_), Some(name)) if !policy.allows(name, Some(port)) => {
            return Err(format!("its TLS is for {name}"));
        }
        _ => {}
    }
    let inspects = |host: &Host| !secrets.for_host(host, port).is_empty() || policy.has_rules(host, port);
    let is_inspected = inspects(host) || name.as_ref().is_some_and(inspects);
    Ok(if is_inspected { TlsHandling::Inspect } else { TlsHandling::Pass })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        let json = serde_json::json!({
            "allow": {
                "plain.example": [],
                "rules.example": [{ "match": { "method": "GET" } }],
                "192.0.2.7": [],
            },
        });
        Policy::from_json(&json).unwrap()
    }

    fn decide_for(host: &str, server_name: Option<&str>) -> Result<TlsHandling, String> {
        let mut secrets = Secrets::new();
        secrets.add("TOKEN", &["secret.example"], "the-secret-value".to_owned()).unwrap();
        let mut policy = policy();
        policy.allow("secret.example").unwrap();
        decide(&policy, &secrets, &Host::parse(host).unwrap(), 443, server_name)
    }

    #[test]
    fn only_tls_for_the_host_of_the_connection_is_passed_on() {
        assert_eq!(decide_for("plain.example", Some("PLAIN.example")), Ok(TlsHandling::Pass));
        assert_eq!(decide_for("192.0.2.7", None), Ok(TlsHandling::Pass));
        assert_eq!(decide_for("192.0.2.7", Some("plain.example")), Ok(TlsHandling::Pass));
        for (host, name) in [
            ("plain.example", None),
            ("plain.example", Some("rules.example")),
            ("plain.example", Some("")),
            ("192.0.2.7", Some("other.example")),
        ] {
            assert!(decide_for(host, name).is_err(), "{host} {name:?}");
        }
    }

    #[test]
    fn tls_for_hosts_with_rules_or_secrets_is_inspected() {
        for (host, name) in
            [("rules.example", "rules.example"), ("secret.example", "secret.example"), ("192.0.2.7", "rules.example")]
        {
            assert_eq!(decide_for(host, Some(name)), Ok(TlsHandling::Inspect), "{host} {name}");
        }
    }
}
