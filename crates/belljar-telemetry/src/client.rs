//! Requests of the exporters. They run on the exporters' own threads, which may block.

use std::net::IpAddr;

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};

/// The maximum size of a response, in bytes.
const MAX_RESPONSE: u64 = 4 << 20;

/// A client over a [`ureq::Agent`].
#[derive(Debug, Clone)]
pub(crate) struct Client(pub(crate) ureq::Agent);

impl Client {
    /// Sends a request, and returns the response whatever its status is.
    pub(crate) fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (parts, body) = request.into_parts();
        let is_local = parts.uri.host().is_some_and(is_loopback);
        let mut request = Request::from_parts(parts, body.to_vec());
        if is_local {
            // A proxy elsewhere does not reach this machine, and would read the headers, which may have a token.
            request = self.0.configure_request(request).proxy(None).build();
        }
        let mut response = self.0.run(request)?;
        let body = response.body_mut().with_config().limit(MAX_RESPONSE).read_to_vec()?;
        let (parts, _) = response.into_parts();
        Ok(Response::from_parts(parts, body.into()))
    }
}

/// Returns whether the host of an address is this machine.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        Ok(self.send(request)?)
    }
}
