//! One server of a configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::expand::{Variables, from_environment};
use crate::error::{ConfigError, McpError};
use crate::server::{McpServer, McpServerSse, McpServerStdio, McpServerStreamableHttp, ServerBuilder};

/// The settings of a server in any of the file formats. Unknown keys are ignored: they belong to the program that the
/// file was written for.
#[derive(Deserialize)]
pub(super) struct Entry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    args: Vec<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    env: BTreeMap<String, Scalar>,
    #[serde(rename = "envFile")]
    env_file: Option<String>,
    /// Codex: names of variables that the child inherits.
    #[serde(default, deserialize_with = "null_as_default")]
    env_vars: Vec<String>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    headers: BTreeMap<String, String>,
    /// Codex: headers, and headers whose values come from variables.
    #[serde(default)]
    http_headers: BTreeMap<String, String>,
    #[serde(default)]
    env_http_headers: BTreeMap<String, String>,
    bearer_token_env_var: Option<String>,
    startup_timeout_sec: Option<f64>,
    tool_timeout_sec: Option<f64>,
    /// pydantic-ai: in seconds.
    timeout: Option<f64>,
    read_timeout: Option<f64>,
    /// Codex: tools that models may use, and tools that are hidden from them.
    enabled_tools: Option<Vec<String>>,
    #[serde(default, deserialize_with = "null_as_default")]
    disabled_tools: Vec<String>,
    enabled: Option<bool>,
    #[serde(default, deserialize_with = "null_as_default")]
    disabled: bool,
}

/// Deserializes `null` as the default.
fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// The value of a variable: files contain numbers and booleans as well.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Text(String),
    Number(serde_json::Number),
    Bool(bool),
}

impl Scalar {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
            Self::Bool(value) => value.to_string(),
        }
    }
}

impl Entry {
    pub(super) fn deserialize(value: Value) -> Result<Self, ConfigError> {
        serde_json::from_value(value).map_err(ConfigError::from)
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled != Some(false) && !self.disabled
    }

    pub(super) fn build(self, name: &str, variables: &Variables) -> Result<McpServer, McpError> {
        match (&self.url, &self.command) {
            (Some(url), _) => {
                let is_sse = match self.kind.as_deref() {
                    None => url.ends_with("/sse"),
                    Some("sse") => true,
                    Some("http" | "streamable-http" | "streamable_http" | "streamableHttp") => false,
                    Some(other) => return Err(ConfigError::TransportType { kind: other.to_owned(), key: "url" }.into()),
                };
                if is_sse {
                    let server = McpServerSse::new(url)?;
                    let server = self.with_headers(server, |server, name, value| server.header(name, value))?;
                    Ok(self.configured(server, name).build())
                } else {
                    let server = McpServerStreamableHttp::new(url)?;
                    let server = self.with_headers(server, |server, name, value| server.header(name, value))?;
                    Ok(self.configured(server, name).build())
                }
            }
            (None, Some(command)) => {
                if let Some(other) = self.kind.as_deref().filter(|kind| *kind != "stdio") {
                    return Err(ConfigError::TransportType { kind: other.to_owned(), key: "command" }.into());
                }
                let mut server = McpServerStdio::new(command).args(&self.args);
                if let Some(file) = &self.env_file {
                    server = server.envs(read_env_file(&variables.path(file))?);
                }
                for variable in &self.env_vars {
                    server = server.env(variable, from_environment(variable)?);
                }
                if let Some(cwd) = &self.cwd {
                    server = server.cwd(cwd);
                }
                let server = self.configured(server, name);
                Ok(server.envs(self.env.into_iter().map(|(name, value)| (name, value.into_text()))).build())
            }
            (None, None) => Err(ConfigError::NoTransport.into()),
        }
    }

    fn configured<T>(&self, mut server: ServerBuilder<T>, name: &str) -> ServerBuilder<T> {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        if let Some(timeout) = self.startup_timeout_sec.or(self.timeout).and_then(seconds) {
            server = server.timeout(timeout);
        }
        if let Some(timeout) = self.tool_timeout_sec.or(self.read_timeout).and_then(seconds) {
            server = server.read_timeout(timeout);
        }
        if let Some(enabled) = &self.enabled_tools {
            server = server.enabled_tools(enabled);
        }
        server.disabled_tools(&self.disabled_tools).id(name).tool_prefix(name)
    }

    fn with_headers<T>(
        &self,
        mut server: ServerBuilder<T>,
        header: impl Fn(ServerBuilder<T>, &str, &str) -> Result<ServerBuilder<T>, McpError>,
    ) -> Result<ServerBuilder<T>, McpError> {
        for (name, value) in self.headers.iter().chain(&self.http_headers) {
            server = header(server, name, value)?;
        }
        for (name, variable) in &self.env_http_headers {
            server = header(server, name, &from_environment(variable)?)?;
        }
        if let Some(variable) = &self.bearer_token_env_var {
            let value = format!("Bearer {}", from_environment(variable)?);
            server = header(server, "authorization", &value)?;
        }
        Ok(server)
    }
}

fn read_env_file(path: &std::path::Path) -> Result<Vec<(String, String)>, ConfigError> {
    let failed = |error: dotenvy::Error| ConfigError::EnvFile { path: path.to_owned(), reason: error.to_string() };
    dotenvy::from_path_iter(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}
