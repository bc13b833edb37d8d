//! SOCKS5 (RFC 1928) without authentication: the request of a client, and the reply.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::io::AsyncWriteExt as _;

use super::request::{Client, ProxyRequest, RequestError};

/// The version of the protocol, its first byte.
pub(crate) const VERSION: u8 = 5;

const NO_AUTHENTICATION: u8 = 0;
const NO_ACCEPTABLE_METHOD: u8 = 0xff;
const CONNECT: u8 = 1;
const ADDRESS_V4: u8 = 1;
const NAME: u8 = 3;
const ADDRESS_V6: u8 = 4;

/// The result of a request, as the reply's second byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    Succeeded = 0,
    Failed = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    Refused = 5,
    TimedOut = 6,
    UnsupportedCommand = 7,
    UnsupportedAddress = 8,
}

impl Reply {
    /// Returns the bytes of the reply. The address of the connection is not shown.
    pub(crate) fn to_bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, ADDRESS_V4, 0, 0, 0, 0, 0, 0]
    }
}

/// Reads the greeting and the request of a client.
///
/// # Errors
/// Returns an error if the client does not follow the protocol, or asks for something other than a connection.
pub(crate) async fn read(client: &mut Client) -> Result<ProxyRequest, RequestError> {
    let [_, count] = bytes(client).await?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods).await?;
    if !methods.contains(&NO_AUTHENTICATION) {
        client.stream.write_all(&[VERSION, NO_ACCEPTABLE_METHOD]).await?;
        return Err(RequestError::Closed);
    }
    client.stream.write_all(&[VERSION, NO_AUTHENTICATION]).await?;
    let [version, command, _, kind] = bytes(client).await?;
    if version != VERSION {
        return Err(RequestError::Closed);
    }
    let host = match kind {
        ADDRESS_V4 => Ipv4Addr::from(bytes::<4>(client).await?).to_string(),
        ADDRESS_V6 => Ipv6Addr::from(bytes::<16>(client).await?).to_string(),
        NAME => {
            let [length] = bytes(client).await?;
            let mut name = vec![0; usize::from(length)];
            client.read_exact(&mut name).await?;
            // Other bytes are refused as an invalid name.
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => return Err(RequestError::Socks(Reply::UnsupportedAddress)),
    };
    let port = u16::from_be_bytes(bytes(client).await?);
    if command != CONNECT {
        return Err(RequestError::Socks(Reply::UnsupportedCommand));
    }
    Ok(ProxyRequest::Socks { host, port })
}

async fn bytes<const N: usize>(client: &mut Client) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}
