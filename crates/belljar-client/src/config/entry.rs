//! One server of a configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::expand::{Variables, from_environment};
use crate::error::McpError;
use crate::server::{McpServer, McpServerSse, McpServerStdio, McpServerStreamableHttp, ServerBuilder};

/// What the files say about a server. Keys that are not named here are for the programs that the files are of.
#[derive(Deserialize)]
pub(super) struct Entry {
    #[serde(rename = "type")]
    kind: Option<String>,
    command: Option<String>,
    #[serde(default, deserialize_with = "or_nothing")]
    args: Vec<String>,
    #[serde(default, deserialize_with = "or_nothing")]
    env: BTreeMap<String, Scalar>,
    #[serde(rename = "envFile")]
    env_file: Option<String>,
    /// Codex: variables that are handed on.
    #[serde(default, deserialize_with = "or_nothing")]
    env_vars: Vec<String>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    #[serde(default, deserialize_with = "or_nothing")]
    headers: BTreeMap<String, String>,
    /// Codex: headers, and headers whose values are in variables.
    #[serde(default)]
    http_headers: BTreeMap<String, String>,
    #[serde(default)]
    env_http_headers: BTreeMap<String, String>,
    bearer_token_env_var: Option<String>,
    startup_timeout_sec: Option<f64>,
    tool_timeout_sec: Option<f64>,
    /// pydantic-ai's, in seconds.
    timeout: Option<f64>,
    read_timeout: Option<f64>,
    /// Codex: tools that are shown to the model, and tools that are not.
    enabled_tools: Option<Vec<String>>,
    #[serde(default, deserialize_with = "or_nothing")]
    disabled_tools: Vec<String>,
    enabled: Option<bool>,
    #[serde(default, deserialize_with = "or_nothing")]
    disabled: bool,
}

/// What is there and `null` counts as left out.
fn or_nothing<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A value of a variable: people write numbers there, too.
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
    pub(super) fn deserialize(value: Value) -> Result<Self, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled != Some(false) && !self.disabled
    }

    pub(super) fn build(self, name: &str, variables: &Variables) -> Result<McpServer, String> {
        match (&self.url, &self.command) {
            (Some(url), _) => {
                let is_sse = match self.kind.as_deref() {
                    None => url.ends_with("/sse"),
                    Some("sse") => true,
                    Some("http" | "streamable-http" | "streamable_http" | "streamableHttp") => false,
                    Some(other) => return Err(format!("its type `{other}` does not go with a url")),
                };
                if is_sse {
                    let server = McpServerSse::new(url).map_err(words)?;
                    let server = self.with_headers(server, |server, name, value| server.header(name, value))?;
                    Ok(self.configured(server, name).build())
                } else {
                    let server = McpServerStreamableHttp::new(url).map_err(words)?;
                    let server = self.with_headers(server, |server, name, value| server.header(name, value))?;
                    Ok(self.configured(server, name).build())
                }
            }
            (None, Some(command)) => {
                if let Some(other) = self.kind.as_deref().filter(|kind| *kind != "stdio") {
                    return Err(format!("its type `{other}` does not go with a command"));
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
            (None, None) => Err("it has neither a `command` nor a `url`".to_owned()),
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
    ) -> Result<ServerBuilder<T>, String> {
        for (name, value) in self.headers.iter().chain(&self.http_headers) {
            server = header(server, name, value).map_err(words)?;
        }
        for (name, variable) in &self.env_http_headers {
            server = header(server, name, &from_environment(variable)?).map_err(words)?;
        }
        if let Some(variable) = &self.bearer_token_env_var {
            let value = format!("Bearer {}", from_environment(variable)?);
            server = header(server, "authorization", &value).map_err(words)?;
        }
        Ok(server)
    }
}

fn words(error: McpError) -> String {
    error.to_string()
}

fn read_env_file(path: &std::path::Path) -> Result<Vec<(String, String)>, String> {
    let failed = |error: dotenvy::Error| format!("its `envFile` {}: {error}", path.display());
    dotenvy::from_path_iter(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}
