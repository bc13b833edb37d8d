//! One server of a configuration file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::expand::{Variables, from_environment};
use crate::error::{ConfigError, McpError};
#[cfg(feature = "oauth")]
use crate::oauth::RegisteredClient;
use crate::server::{AnyServerBuilder, McpServer, McpServerSse, McpServerStdio, McpServerStreamableHttp};

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
    env: Ordered<Scalar>,
    #[serde(rename = "envFile")]
    env_file: Option<String>,
    /// Codex: names of variables that the child inherits.
    #[serde(default, deserialize_with = "null_as_default")]
    env_vars: Vec<String>,
    cwd: Option<PathBuf>,
    url: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    headers: Ordered<String>,
    /// Codex: headers, and headers whose values come from variables.
    #[serde(default)]
    http_headers: Ordered<String>,
    #[serde(default)]
    env_http_headers: Ordered<String>,
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
    /// Claude Code, VS Code.
    #[cfg_attr(not(feature = "oauth"), allow(dead_code, reason = "only OAuth uses it"))]
    oauth: Option<Lenient<OAuthEntry>>,
    /// Cursor: a table. pydantic-ai 2: `oauth` or a token.
    auth: Option<Lenient<OAuthEntry>>,
    /// Codex.
    #[cfg_attr(not(feature = "oauth"), allow(dead_code, reason = "only OAuth uses it"))]
    scopes: Option<Lenient<Vec<String>>>,
    enabled: Option<bool>,
    #[serde(default, deserialize_with = "null_as_default")]
    disabled: bool,
}

/// The OAuth client of an entry. Keys of other programs are ignored.
#[cfg_attr(not(feature = "oauth"), allow(dead_code, reason = "only OAuth uses it"))]
#[derive(Clone, Default, Deserialize)]
struct OAuthEntry {
    #[serde(rename = "clientId", alias = "CLIENT_ID")]
    client_id: Option<String>,
    #[serde(rename = "clientSecret", alias = "CLIENT_SECRET")]
    client_secret: Option<String>,
    /// A list, or in Claude Code a text with spaces.
    scopes: Option<Lenient<Vec<String>>>,
    #[serde(rename = "callbackPort")]
    callback_port: Option<u16>,
}

/// A value of a type that differs between programs.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Lenient<T> {
    Known(T),
    Text(String),
    Other(#[expect(dead_code, reason = "the value belongs to another program")] Value),
}

impl<T> Lenient<T> {
    #[cfg_attr(not(feature = "oauth"), allow(dead_code, reason = "only OAuth uses it"))]
    fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Text(_) | Self::Other(_) => None,
        }
    }
}

/// A table in the order of the file.
struct Ordered<T>(Vec<(String, T)>);

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Ordered<T> {
    fn iter(&self) -> impl Iterator<Item = (&String, &T)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

impl<'de, T: serde::de::DeserializeOwned> Deserialize<'de> for Ordered<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let table = Map::<String, Value>::deserialize(deserializer)?;
        let entries = table.into_iter().map(|(name, value)| {
            let value = serde_json::from_value(value);
            value.map(|value| (name, value)).map_err(serde::de::Error::custom)
        });
        entries.collect::<Result<_, _>>().map(Self)
    }
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
    fn to_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Bool(value) => value.to_string(),
        }
    }
}

impl Entry {
    pub(super) fn deserialize(value: &Value) -> Result<Self, ConfigError> {
        Self::deserialize_value(value.clone()).map_err(|error| {
            // All keys are optional, so that each can be tried alone.
            let invalid = value.as_object().into_iter().flatten().find_map(|(key, value)| {
                let only = Value::Object(Map::from_iter([(key.clone(), value.clone())]));
                Some((key.clone(), Self::deserialize_value(only).err()?))
            });
            let (key, error) = invalid.unwrap_or((String::new(), error));
            ConfigError::Entry { key, reason: without_value(&error.to_string()) }
        })
    }

    fn deserialize_value(value: Value) -> serde_json::Result<Self> {
        serde_json::from_value(value)
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled != Some(false) && !self.disabled
    }

    /// Returns the builder of the server.
    pub(super) fn builder(self, name: &str, variables: &Variables) -> Result<AnyServerBuilder, McpError> {
        let builder = match (&self.url, &self.command) {
            (Some(url), _) => {
                let builder = match self.kind.as_deref() {
                    None => McpServer::from_url(url)?,
                    Some("sse") => McpServerSse::new(url)?.into_any(),
                    Some("http" | "streamable-http" | "streamable_http" | "streamableHttp") => {
                        McpServerStreamableHttp::new(url)?.into_any()
                    }
                    Some(other) => return Err(ConfigError::TransportType { kind: other.to_owned(), key: "url" }.into()),
                };
                let builder = self.with_headers(builder)?;
                #[cfg(feature = "oauth")]
                let builder = match self.oauth_client() {
                    Some(client) => builder.registered_client(client),
                    None => builder,
                };
                builder
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
                server.envs(self.env.iter().map(|(name, value)| (name, value.to_text()))).into_any()
            }
            (None, None) => return Err(ConfigError::NoTransport.into()),
        };
        Ok(self.configured(builder, name))
    }

    fn configured(&self, mut server: AnyServerBuilder, name: &str) -> AnyServerBuilder {
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

    fn with_headers(&self, mut server: AnyServerBuilder) -> Result<AnyServerBuilder, McpError> {
        for (name, value) in self.headers.iter().chain(self.http_headers.iter()) {
            server = server.header(name, value)?;
        }
        for (name, variable) in self.env_http_headers.iter() {
            server = server.header(name, &from_environment(variable)?)?;
        }
        if let Some(variable) = &self.bearer_token_env_var {
            server = server.header("authorization", &format!("Bearer {}", from_environment(variable)?))?;
        }
        // The text `oauth` asks for OAuth, which the program adds.
        if let Some(Lenient::Text(token)) =
            self.auth.as_ref().filter(|auth| !matches!(auth, Lenient::Text(text) if text == "oauth"))
        {
            server = server.bearer_token(token)?;
        }
        Ok(server)
    }

    /// Returns the OAuth client that the entry names.
    #[cfg(feature = "oauth")]
    fn oauth_client(&self) -> Option<RegisteredClient> {
        let known = |entry: &Option<Lenient<OAuthEntry>>| entry.as_ref().and_then(Lenient::known).cloned();
        let entry = known(&self.oauth).or_else(|| known(&self.auth)).unwrap_or_default();
        let scopes = match entry.scopes.as_ref().or(self.scopes.as_ref()) {
            Some(Lenient::Known(scopes)) => scopes.clone(),
            Some(Lenient::Text(scopes)) => scopes.split_whitespace().map(str::to_owned).collect(),
            Some(Lenient::Other(_)) | None => Vec::new(),
        };
        let client =
            RegisteredClient { scopes, id: entry.client_id, secret: entry.client_secret, port: entry.callback_port };
        (client != RegisteredClient::default()).then_some(client)
    }
}

/// Removes from a parser's error message the value that it quotes.
fn without_value(message: &str) -> String {
    match (message.find(" \""), message.rfind(", expected")) {
        (Some(start), Some(end)) if start < end => format!("{}{}", &message[..start], &message[end..]),
        _ => message.to_owned(),
    }
}

fn read_env_file(path: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let failed = |error: dotenvy::Error| {
        let reason = match error {
            // The library's message quotes the line, which may contain a secret.
            dotenvy::Error::LineParse(_, at) => format!("a line has a syntax error at character {at}"),
            other => other.to_string(),
        };
        ConfigError::EnvFile { path: path.to_owned(), reason }
    };
    dotenvy::from_path_iter(path).map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}
