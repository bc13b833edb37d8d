//! Network access of sandboxed code by policy.
//!
//! ```text
//!  code ── system calls ──▶ Connection ── Channel ──▶ task of the connection ── TCP, TLS ──▶ server
//!                           bytes                     policy on name, address, request
//!                           request for TLS           secrets into headers, and out of responses
//! ```
//!
//! - A [`Network`] belongs to a server or a command: a [`Policy`], [`Secrets`], trust, and one thread.
//! - [`Connections`] are the network of one interpreter. They count, limit and record.
//! - A [`Connection`] is a stream socket that does not block.
//!
//! | file | subject |
//! | --- | --- |
//! | `policy`, `address` | hosts, ports, addresses and requests that are allowed |
//! | `secrets`, `scrubber`, `encodings` | secrets and their placeholders, and their removal from what comes back |
//! | `network`, `connections`, `names`, `limits` | the interface for the host |
//! | `connection`, `channel` | the interface for the code's sockets |
//! | `relay`, `dial`, `resolver`, `stream`, `failure` | the task of a connection |
//! | `tls`, `tls_request` | TLS that the code asks for |
//! | `client_tls` | TLS that the code makes itself, through a proxy of the host |
//! | `http` | the checks and changes of HTTP/1.1 |
//! | `refusal`, `record` | what is refused and recorded |
//!
//! # Addresses
//!
//! The code never resolves a name. [`Connections::resolve`] gives a name that the policy allows two synthetic
//! addresses, of `198.18.0.0/15` and of `fd62:656c:6c6a::/48`. A connection to one of them is a connection to the name,
//! which is looked up then; each address that the resolver returns is checked before it is connected to.
//!
//! # TLS
//!
//! The host makes TLS, so that it sees the plain text. The code writes, as the beginning of a write, the 16 bytes of
//! [`Connections::tls_token`], the length of the rest as four bytes in network order, and at most 1 MiB of JSON:
//!
//! ```json
//! {"server_hostname": "a.example", "alpn": ["http/1.1"], "verify": true, "check_hostname": true, "ca": null,
//!  "minimum": "TLSv1.2"}
//! ```
//!
//! Before any plain text of the server it reads a length in the same form and JSON: `version`, `cipher` (name, version,
//! bits), `alpn`, and `certificates` in base64; or `error` with `kind` (`certificate`, `tls` or `refused`), `message`,
//! and for certificates OpenSSL's `verify_code` and `verify_message`. After an error the stream ends. There is one
//! request in a connection, at any time (`STARTTLS`).
//!
//! # HTTP
//!
//! Connections to ports 80 and 443, and to hosts with rules or secrets, carry HTTP/1.1 and nothing else. On other ports
//! a first write that is a request of HTTP is relayed as HTTP, too. Requests are parsed strictly and written again;
//! what is ambiguous resets the connection. A request that the policy does not allow is answered by the host with
//! status 403.
//!
//! On connections to hosts with secrets, responses are searched: `Accept-Encoding` becomes `identity`, compressed
//! bodies are decompressed, and `Range` and `Sec-WebSocket-Extensions` are removed. See [`Scrubber`] for the forms of a
//! secret that are found, and for those that are not.
//!
//! The library uses no terminal, no environment variables and no configuration of the user.

mod address;
mod channel;
mod client_tls;
mod connection;
mod connections;
mod dial;
mod encodings;
mod failure;
mod http;
mod limits;
mod names;
mod network;
mod policy;
mod record;
mod refusal;
mod relay;
mod resolver;
mod scrubber;
mod secrets;
mod stream;
mod tls;
mod tls_request;

pub use client_tls::TlsHandling;
pub use connection::{ChangeCallback, Connection, Readiness};
pub use connections::Connections;
pub use limits::NetworkLimits;
pub use network::{Network, NetworkError, NetworkObserver, NetworkOptions, NoNetworkObserver};
pub use policy::{Policy, PolicyError};
pub use refusal::{Refusal, RefusalKind};
pub use resolver::{Resolver, SystemResolver};
pub use scrubber::{Scrubber, StreamScrubber};
pub use secrets::{SecretError, SecretSource, Secrets};
pub use tls::TrustError;
