//! Records of the network use of code, for logs and observers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The key of `_meta` in calls of tools with which a client narrows the network of code: a policy as JSON.
pub const NETWORK_KEY: &str = "io.github.belljar/network";

/// A record of one HTTP request, of one connection that is not HTTP, or of a refusal of either.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionRecord {
    /// The name that the code connected to, or the address if it used one.
    pub host: String,
    /// The port. `None` if the code only looked a name up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The method of an HTTP request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// The path of an HTTP request with its query, at most 500 bytes, without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The status of an HTTP response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes to the server, without those of TLS.
    pub bytes_sent: u64,
    /// Bytes to the code, without those of TLS.
    pub bytes_received: u64,
    /// Milliseconds from the beginning of the connection or request to its end.
    pub duration_ms: u64,
    /// False if the policy refused the connection or the request.
    pub allowed: bool,
    /// The entry of the policy that allowed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The reason of a refusal or failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl fmt::Display for ConnectionRecord {
    /// Writes a line for logs: `GET api.example.com:443/items 200, 12 bytes sent, 3400 received, 81 ms, allowed by
    /// api.example.com:443,80`. A refused access has its reason instead of the entry.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(method) = &self.method {
            write!(f, "{method} ")?;
        }
        f.write_str(&self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        f.write_str(self.path.as_deref().unwrap_or_default())?;
        if let Some(status) = self.status {
            write!(f, " {status}")?;
        }
        if !self.allowed {
            f.write_str(" not allowed")?;
        }
        let Self { bytes_sent, bytes_received, duration_ms, .. } = self;
        write!(f, ", {bytes_sent} bytes sent, {bytes_received} received, {duration_ms} ms")?;
        if let (true, Some(rule)) = (self.allowed, &self.rule) {
            write!(f, ", allowed by {rule}")?;
        }
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_the_access_and_the_rule_or_the_reason() {
        let allowed = ConnectionRecord {
            host: "api.example.com".to_owned(),
            port: Some(443),
            method: Some("GET".to_owned()),
            path: Some("/items".to_owned()),
            status: Some(200),
            bytes_sent: 12,
            bytes_received: 3400,
            duration_ms: 81,
            allowed: true,
            rule: Some("api.example.com:443,80 rule 1".to_owned()),
            error: None,
        };
        let line = "GET api.example.com:443/items 200, 12 bytes sent, 3400 received, 81 ms, allowed by \
                    api.example.com:443,80 rule 1";
        assert_eq!(allowed.to_string(), line);
        let refused = ConnectionRecord {
            host: "evil.example".to_owned(),
            port: Some(80),
            error: Some("it is not named".to_owned()),
            ..ConnectionRecord::default()
        };
        let line = "evil.example:80 not allowed, 0 bytes sent, 0 received, 0 ms: it is not named";
        assert_eq!(refused.to_string(), line);
    }
}
