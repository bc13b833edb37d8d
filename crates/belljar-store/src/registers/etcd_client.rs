//! Requests to etcd's JSON gateway, which every etcd since 3.4 has at the path `/v3`.
//!
//! The gateway needs no code generated from protocol files: the crates for etcd's gRPC interface run `protoc` when they
//! are built, and bring a second HTTP stack. Numbers of 64 bits are strings here, and bytes are base64.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::address::{EtcdTls, EtcdUrl, Variables};
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::objects::{Counters, describe};

/// The time for a request. A member that was stopped does not answer, and another one is asked then.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(2500);
/// The maximum size of an answer, in bytes: a page of a listing.
const MAX_ANSWER: usize = 256 << 20;

/// The failure of a request.
#[derive(Debug)]
pub(super) enum Failure {
    /// The request was not sent, or its effect is the same when it is sent twice.
    Harmless(String),
    /// It may have been carried out.
    Unknown(String),
    /// etcd refuses it.
    Refused(String),
}

/// The client of an etcd cluster.
pub(super) struct EtcdClient {
    http: reqwest::Client,
    members: Vec<String>,
    /// The index of the member that answers.
    member: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    counters: Arc<Counters>,
}

impl EtcdClient {
    pub(super) fn new(url: &EtcdUrl, variables: &Variables, counters: Arc<Counters>) -> Result<Self, StoreError> {
        let mut builder = reqwest::Client::builder().connect_timeout(Duration::from_secs(1)).no_proxy();
        let scheme = if url.tls.is_some() { "https" } else { "http" };
        if let Some(tls) = &url.tls {
            builder = with_tls(builder, tls)?;
        }
        let http =
            builder.build().map_err(|error| StoreError::Invalid(format!("the TLS files: {}", describe(&error))))?;
        let user = variables.get("ETCD_USERNAME").filter(|name| !name.is_empty());
        let password = variables.get("ETCD_PASSWORD").unwrap_or_default();
        Ok(Self {
            http,
            members: url.members.iter().map(|member| format!("{scheme}://{member}")).collect(),
            member: AtomicUsize::new(0),
            user: user.map(|user| (user.to_owned(), password.to_owned())),
            token: Mutex::new(None),
            counters,
        })
    }

    /// Returns the index of the member that is asked.
    fn member(&self) -> usize {
        self.member.load(Ordering::Relaxed) % self.members.len()
    }

    /// Asks another member from now on, unless that was done since `failed` was asked.
    fn leave(&self, failed: usize) {
        let next = (failed + 1) % self.members.len();
        let _ = self.member.compare_exchange(failed, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Sends a request that changes nothing, or the same when it is sent twice, until it succeeds.
    pub(super) async fn read(&self, path: &str, body: &Value, deadline: Deadline) -> Result<Value, StoreError> {
        let mut attempt = 0;
        loop {
            let reason = match self.send(path, body, REQUEST_TIMEOUT).await {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(reason)) => {
                    return Err(StoreError::Refused { operation: format!("ask etcd for {path}"), reason });
                }
                Err(Failure::Harmless(reason) | Failure::Unknown(reason)) => reason,
            };
            // The other members are asked at once, and then again after pauses.
            let round = attempt / u32::try_from(self.members.len()).unwrap_or(1);
            attempt += 1;
            if deadline.is_over() || (round > 0 && !deadline.pause(round).await) {
                return Err(StoreError::unavailable(format!("ask etcd for {path}"), reason));
            }
        }
    }

    /// Sends a request once, or to another member if it certainly did not arrive.
    pub(super) async fn write(&self, path: &str, body: &Value, limit: Duration) -> Result<Value, Failure> {
        for _ in 1..self.members.len() {
            match self.send(path, body, limit).await {
                Err(Failure::Harmless(_)) => {}
                other => return other,
            }
        }
        self.send(path, body, limit).await
    }

    async fn send(&self, path: &str, body: &Value, limit: Duration) -> Result<Value, Failure> {
        let member = self.member();
        let result = match tokio::time::timeout(limit, self.send_with_token(member, path, body)).await {
            Ok(result) => result,
            Err(_) => Err(Failure::Unknown(format!("{} did not answer in time", self.members[member]))),
        };
        if matches!(result, Err(Failure::Harmless(_) | Failure::Unknown(_))) {
            self.leave(member);
        }
        result
    }

    async fn send_with_token(&self, member: usize, path: &str, body: &Value) -> Result<Value, Failure> {
        for is_first in [true, false] {
            let token = self.authenticate(member).await?;
            match self.post(member, path, body, token.as_deref()).await {
                // Tokens expire, and members forget them when they restart.
                Err(Failure::Refused(reason)) if is_first && token.is_some() && reason.contains("token") => {
                    *self.token.lock() = None;
                }
                other => return other,
            }
        }
        Err(Failure::Refused("the token is not accepted".to_owned()))
    }

    /// Returns the token of the user, if there is one.
    async fn authenticate(&self, member: usize) -> Result<Option<String>, Failure> {
        let Some((name, password)) = &self.user else { return Ok(None) };
        let known = self.token.lock().clone();
        if known.is_some() {
            return Ok(known);
        }
        let body = json!({ "name": name, "password": password });
        let answer = match self.post(member, "/v3/auth/authenticate", &body, None).await {
            // The request itself was not sent.
            Err(Failure::Unknown(reason)) => return Err(Failure::Harmless(reason)),
            other => other?,
        };
        let token = answer["token"].as_str().map(str::to_owned);
        self.token.lock().clone_from(&token);
        Ok(token)
    }

    async fn post(&self, member: usize, path: &str, body: &Value, token: Option<&str>) -> Result<Value, Failure> {
        let mut response = self.begin(member, path, body, token).await?;
        let status = response.status();
        let mut bytes = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if bytes.len() + chunk.len() <= MAX_ANSWER => bytes.extend_from_slice(&chunk),
                Ok(Some(_)) => return Err(Failure::Refused("the answer is too long".to_owned())),
                Ok(None) => break,
                Err(error) => return Err(Failure::Unknown(describe(&error))),
            }
        }
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if status.is_success() {
            return Ok(answer);
        }
        let body = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]);
        let text = ["message", "error"].iter().find_map(|key| answer[key].as_str()).unwrap_or_else(|| body.trim());
        let reason = format!("{}: {status}: {text}", self.members[member]);
        // A missing lease is an answer, not a failure.
        match status.as_u16() {
            404 => Ok(json!({ "is_missing": true, "reason": reason })),
            400 | 401 | 403 | 405 | 501 => Err(Failure::Refused(reason)),
            _ => Err(Failure::Unknown(reason)),
        }
    }

    async fn begin(
        &self,
        member: usize,
        path: &str,
        body: &Value,
        token: Option<&str>,
    ) -> Result<reqwest::Response, Failure> {
        self.counters.etcd.fetch_add(1, Ordering::Relaxed);
        let mut request = self.http.post(format!("{}{path}", self.members[member])).body(body.to_string());
        if let Some(token) = token {
            request = request.header("Authorization", token);
        }
        request.send().await.map_err(|error| match error.is_connect() {
            true => Failure::Harmless(describe(&error)),
            false => Failure::Unknown(describe(&error)),
        })
    }

    /// Returns the version of each member that answers.
    pub(super) async fn versions(&self) -> Vec<(String, Result<String, String>)> {
        let mut found = Vec::new();
        for member in &self.members {
            let ask = async {
                let response = self.http.get(format!("{member}/version")).timeout(REQUEST_TIMEOUT).send().await?;
                response.error_for_status()?.text().await
            };
            let version = ask.await.map_err(|error| describe(&error)).and_then(|text| {
                let answer: Value = serde_json::from_str(&text).unwrap_or_default();
                answer["etcdserver"].as_str().map(str::to_owned).ok_or_else(|| "no version of etcd".to_owned())
            });
            found.push((member.clone(), version));
        }
        found
    }
}

fn with_tls(mut builder: reqwest::ClientBuilder, tls: &EtcdTls) -> Result<reqwest::ClientBuilder, StoreError> {
    let read = |path: &std::path::Path| {
        std::fs::read(path).map_err(|error| StoreError::Invalid(format!("failed to read {}: {error}", path.display())))
    };
    let invalid = |path: &std::path::Path, error: &reqwest::Error| {
        StoreError::Invalid(format!("{} is not a PEM file for TLS: {}", path.display(), describe(error)))
    };
    builder = builder.https_only(true);
    if let Some(path) = &tls.authorities {
        let certificates =
            reqwest::Certificate::from_pem_bundle(&read(path)?).map_err(|error| invalid(path, &error))?;
        builder = builder.tls_certs_only(certificates);
    }
    if let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) {
        let pem = [read(certificate)?, b"\n".to_vec(), read(key)?].concat();
        builder = builder.identity(reqwest::Identity::from_pem(&pem).map_err(|error| invalid(key, &error))?);
    }
    Ok(builder)
}
