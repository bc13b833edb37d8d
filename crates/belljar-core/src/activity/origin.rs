//! The origin of a call in the form in which it is saved with code that waits: its protocol, and its place in a trace.

use serde::{Deserialize, Serialize};

use super::trace::Trace;

/// The protocol of calls whose origin names none.
const DEFAULT_PROTOCOL: &str = "mcp";
/// The protocols that records name.
const PROTOCOLS: [&str; 4] = [DEFAULT_PROTOCOL, "code-execution", "monty", "admin"];

/// The protocol of a call and its place in a trace. One that was read from a disk is not trusted: other protocols count
/// as MCP, and places that are not valid as none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CallOrigin {
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
    /// The place by W3C's specification.
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

impl CallOrigin {
    pub(super) fn new(protocol: &str, trace: &Trace) -> Self {
        let (traceparent, tracestate) = trace.headers();
        Self { protocol: Some(protocol.to_owned()), traceparent, tracestate }
    }

    /// Returns whether nothing is known about the call.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn protocol(&self) -> &'static str {
        let named = PROTOCOLS.into_iter().find(|name| self.protocol.as_deref() == Some(*name));
        named.unwrap_or(DEFAULT_PROTOCOL)
    }

    pub(super) fn trace(&self) -> Trace {
        Trace::from_headers(self.traceparent.as_deref(), self.tracestate.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_that_are_not_known_count_as_mcp() {
        let protocol = |saved: &str| serde_json::from_str::<CallOrigin>(saved).unwrap().protocol();
        assert_eq!(protocol("{}"), "mcp");
        assert_eq!(protocol(r#"{"protocol":"admin"}"#), "admin");
        assert_eq!(protocol(r#"{"protocol":"forged\nline","other":1}"#), "mcp");
        for name in PROTOCOLS {
            let saved = serde_json::to_string(&CallOrigin::new(name, &Trace::default())).unwrap();
            assert_eq!(protocol(&saved), name);
        }
    }
}
