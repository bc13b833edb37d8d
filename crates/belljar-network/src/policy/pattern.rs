//! Hosts as policies and secrets name them: a name, a wildcard, an address or a subnet, and ports.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;

/// The ports of a pattern that names none.
pub(crate) const DEFAULT_PORTS: [u16; 2] = [443, 80];

/// The longest name of the domain name system.
const MAX_NAME: usize = 253;

/// The longest label of a name.
const MAX_LABEL: usize = 63;

/// The far end of a connection as the code named it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Host {
    /// A name in lower case, without a trailing dot.
    Name(String),
    /// An address. Addresses of IPv4 within IPv6 are those of IPv4.
    Address(IpAddr),
}

impl Host {
    /// Reads a name or an address.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        match bare.parse::<IpAddr>() {
            Ok(address) => Ok(Self::Address(address.to_canonical())),
            Err(_) => normal_name(text).map(Self::Name),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address @ IpAddr::V4(_)) => write!(f, "{address}"),
            Self::Address(address @ IpAddr::V6(_)) => write!(f, "[{address}]"),
        }
    }
}

/// The hosts of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostPattern {
    /// `*`: every name.
    AnyName,
    /// `*.example.com`: every name below, kept with its leading dot.
    Below(String),
    /// One name.
    Name(String),
    /// A subnet, or one address.
    Net(IpNet),
}

/// The ports of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Those of HTTP and HTTPS.
    Default,
    /// Every port.
    Any,
    /// One port.
    One(u16),
}

impl Ports {
    pub(crate) fn contains(self, port: u16) -> bool {
        match self {
            Self::Default => DEFAULT_PORTS.contains(&port),
            Self::Any => true,
            Self::One(only) => only == port,
        }
    }
}

/// A pattern of hosts and ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: HostPattern,
    pub(crate) ports: Ports,
}

impl Target {
    /// Reads `HOST`, `HOST:PORT`, `HOST:*`, `*.DOMAIN`, `*`, an address or a subnet; IPv6 with a port is in brackets.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err("write a host, not an address with a scheme".to_owned());
        }
        let (host, port) = split_port(text)?;
        let ports = match port {
            None => Ports::Default,
            Some("*") => Ports::Any,
            Some(port) => match port.parse::<u16>() {
                Ok(number) if number != 0 && port.bytes().all(|byte| byte.is_ascii_digit()) => Ports::One(number),
                _ => return Err(format!("`{port}` is not a port")),
            },
        };
        let host = if host == "*" {
            HostPattern::AnyName
        } else if let Some(domain) = host.strip_prefix("*.") {
            HostPattern::Below(format!(".{}", normal_name(domain)?))
        } else if let Ok(net) = host.parse::<IpNet>() {
            HostPattern::Net(net.trunc())
        } else if host.contains('/') {
            return Err(format!("`{host}` is not a subnet"));
        } else {
            match Host::parse(host)? {
                Host::Name(name) => HostPattern::Name(name),
                Host::Address(address) => HostPattern::Net(IpNet::from(address)),
            }
        };
        Ok(Self { host, ports })
    }

    /// Returns whether the pattern names the host.
    pub(crate) fn covers_host(&self, host: &Host) -> bool {
        match (&self.host, host) {
            (HostPattern::AnyName, Host::Name(_)) => true,
            (HostPattern::Below(suffix), Host::Name(name)) => {
                name.len() > suffix.len() && name.ends_with(suffix.as_str())
            }
            (HostPattern::Name(only), Host::Name(name)) => only == name,
            (HostPattern::Net(net), Host::Address(address)) => net.contains(address),
            _ => false,
        }
    }

    /// Returns whether the pattern names the host, and the port if one is given.
    pub(crate) fn covers(&self, host: &Host, port: Option<u16>) -> bool {
        self.covers_host(host) && port.is_none_or(|port| self.ports.contains(port))
    }

    /// Returns whether every host of the other pattern is one of this pattern, and some of their ports are the same.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let ports = match (self.ports, other.ports) {
            (Ports::Any, _) | (_, Ports::Any) | (Ports::Default, Ports::Default) => true,
            (Ports::One(port), ports) | (ports, Ports::One(port)) => ports.contains(port),
        };
        let hosts = match (&self.host, &other.host) {
            (HostPattern::AnyName, HostPattern::Net(_)) => false,
            (HostPattern::AnyName, _) => true,
            (HostPattern::Below(suffix), HostPattern::Below(other)) => other.ends_with(suffix.as_str()),
            (HostPattern::Net(net), HostPattern::Net(other)) => net.contains(other),
            (_, HostPattern::Name(name)) => self.covers_host(&Host::Name(name.clone())),
            _ => false,
        };
        hosts && ports
    }

    /// Returns how narrow the pattern is: of the patterns that name a host, those of the highest number apply.
    pub(crate) fn specificity(&self) -> usize {
        match &self.host {
            HostPattern::AnyName => 0,
            HostPattern::Below(suffix) => suffix.len(),
            HostPattern::Name(_) => usize::MAX,
            HostPattern::Net(net) => usize::from(net.prefix_len()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostPattern::AnyName => f.write_str("*")?,
            HostPattern::Below(suffix) => write!(f, "*{suffix}")?,
            HostPattern::Name(name) => f.write_str(name)?,
            HostPattern::Net(net) => {
                let text =
                    if net.prefix_len() == net.max_prefix_len() { net.addr().to_string() } else { net.to_string() };
                if matches!(net, IpNet::V6(_)) { write!(f, "[{text}]")? } else { f.write_str(&text)? }
            }
        }
        match self.ports {
            Ports::Default => write!(f, ":{},{}", DEFAULT_PORTS[0], DEFAULT_PORTS[1]),
            Ports::Any => f.write_str(":*"),
            Ports::One(port) => write!(f, ":{port}"),
        }
    }
}

/// Returns the host and the port of a pattern.
fn split_port(text: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = text.strip_prefix('[') {
        let (address, rest) = rest.split_once(']').ok_or("`[` without `]`")?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((address, Some(port))),
            None if rest.is_empty() => Ok((address, None)),
            None => Err(format!("`{rest}` after `]`")),
        };
    }
    match text.split_once(':') {
        // An address of IPv6 without brackets has no port.
        Some((_, rest)) if rest.contains(':') => Ok((text, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

/// Returns a name in lower case without its trailing dot.
///
/// Only names of ASCII letters, digits, hyphens and underscores are valid. A last label of digits is refused, since
/// resolvers read such names as addresses: `127.1`, `0x7f.1`.
pub(crate) fn normal_name(text: &str) -> Result<String, String> {
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.is_empty() {
        return Err("the name of the host is empty".to_owned());
    }
    if !name.is_ascii() {
        return Err("the name of the host is not ASCII: write its `xn--` form".to_owned());
    }
    if name.len() > MAX_NAME {
        return Err(format!("the name of the host is longer than {MAX_NAME} bytes"));
    }
    let is_label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || last
            .strip_prefix("0x")
            .or_else(|| last.strip_prefix("0X"))
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if !name.split('.').all(is_label) || is_number {
        return Err("it is not the name of a host".to_owned());
    }
    Ok(name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(pattern: &str, host: &str, port: u16) -> bool {
        Target::parse(pattern).unwrap().covers(&Host::parse(host).unwrap(), Some(port))
    }

    #[test]
    fn patterns_cover_what_they_name() {
        for (pattern, host, port) in [
            ("api.github.com", "API.GitHub.com.", 443),
            ("api.github.com", "api.github.com", 80),
            ("Api.GitHub.com.:8443", "api.github.com", 8443),
            ("a.example:*", "a.example", 1),
            ("*.example.com", "a.b.example.com", 443),
            ("*", "anything.example", 443),
            ("192.0.2.7:8080", "192.0.2.7", 8080),
            ("192.0.2.7:8080", "::ffff:192.0.2.7", 8080),
            ("10.0.0.0/8:5432", "10.200.1.1", 5432),
            ("[::1]:8443", "::1", 8443),
            ("::1", "::1", 443),
            ("[fd00::/8]:5432", "fd12::1", 5432),
        ] {
            assert!(covers(pattern, host, port), "{pattern} {host}:{port}");
        }
    }

    #[test]
    fn patterns_cover_nothing_else() {
        for (pattern, host, port) in [
            ("api.github.com", "api.github.com", 8443),
            ("api.github.com", "github.com", 443),
            ("api.github.com", "api.github.com.evil.example", 443),
            ("*.example.com", "example.com", 443),
            ("*.example.com", "evilexample.com", 443),
            ("*", "1.1.1.1", 443),
            ("10.0.0.0/8:5432", "11.0.0.1", 5432),
            ("10.0.0.0/8:5432", "10.0.0.1", 443),
            ("10.0.0.1", "10.0.0.1.example", 443),
        ] {
            assert!(!covers(pattern, host, port), "{pattern} {host}:{port}");
        }
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for pattern in [
            "",
            ".",
            "a..b",
            "https://a.example",
            "a.example:0",
            "a.example:99999",
            "a.example:+80",
            "a.example:http",
            "bücher.example",
            "a b",
            "a/b",
            "10.0.0.0/33",
            "[::1",
            "[::1]x",
            "-a.example",
            "127.1",
            "0x7f.1",
            "a.0x7f",
            "2130706433",
            "*.*.example",
            "a*.example",
            "a.example\n",
            "a.example:",
            "%2e.example",
        ] {
            assert!(Target::parse(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn patterns_are_written_as_they_are_read() {
        for pattern in ["*:443,80", "*.example.com:8443", "10.0.0.0/8:5432", "[::1]:8443", "[fd00::/8]:*"] {
            let text = pattern.replace(":443,80", "");
            assert_eq!(Target::parse(&text).unwrap().to_string(), pattern);
        }
    }
}
