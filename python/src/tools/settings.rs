//! The settings of the tools of a sandbox.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use belljar_mcp_client::{McpError, McpServer, McpServerStdio, load_mcp_servers};
use belljar_tools::{ApprovalMode, ToolLimits, ToolPolicy, Tools};
use serde::Deserialize;

use super::HostTools;
use crate::error::{Error, ErrorKind};
use crate::settings::Size;

/// The servers of a sandbox, and the policy for their tools.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolSettings {
    servers: Vec<ServerSettings>,
    /// Configuration files of servers.
    files: Vec<PathBuf>,
    allow: Vec<String>,
    deny: Vec<String>,
    approval: String,
    limits: LimitSettings,
}

/// A server: a command or a URL.
#[derive(Deserialize)]
struct ServerSettings {
    name: String,
    #[serde(flatten)]
    target: Target,
    timeout: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Target {
    Command { command: Vec<String>, env: BTreeMap<String, String>, inherit_env: bool, cwd: Option<PathBuf> },
    Url { url: String, headers: BTreeMap<String, String>, token: Option<String> },
}

/// The limits of calls, as `limits=` has them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitSettings {
    tool_calls: Option<u32>,
    tool_concurrency: Option<u16>,
    tool_timeout: Option<f64>,
    tool_wait: Option<f64>,
    tool_result: Option<Size>,
    tool_results: Option<Size>,
}

fn argument(message: String) -> Error {
    Error::new(ErrorKind::Argument, message)
}

impl ToolSettings {
    /// Returns the tools, whose servers are connected when they are first needed.
    pub(crate) fn open(self) -> Result<HostTools, Error> {
        let mut servers = Vec::new();
        for file in &self.files {
            servers.extend(load_mcp_servers(file).map_err(|error| argument(format!("servers: {error}")))?);
        }
        for server in self.servers {
            let name = server.name.clone();
            servers.push(server.build().map_err(|error| argument(format!("tools: server {name}: {error}")))?);
        }
        let mut names: Vec<&str> = servers.iter().filter_map(McpServer::id).collect();
        names.sort_unstable();
        if let Some([name, _]) = names.array_windows().find(|[one, other]| one == other) {
            return Err(argument(format!("tools: two servers have the name {name}")));
        }
        let approval: ApprovalMode = self.approval.parse().map_err(|text| argument(format!("approval: {text}")))?;
        let policy = ToolPolicy::new(&self.allow, &self.deny, approval);
        let policy = policy.map_err(|error| argument(format!("allow_tools, deny_tools: {error}")))?;
        let limits = self.limits.limits()?;
        // HTTP clients are made for a runtime.
        let _runtime = crate::executor::executor()?.enter();
        Ok(HostTools::new(Tools::new(&servers, policy, limits)))
    }
}

impl ServerSettings {
    fn build(self) -> Result<McpServer, McpError> {
        let builder = match self.target {
            Target::Command { command, env, inherit_env, cwd } => {
                let (program, arguments) = command.split_first().map_or(("", &[][..]), |(first, rest)| (first, rest));
                let mut server = McpServerStdio::new(program).args(arguments).envs(env);
                if inherit_env {
                    server = server.inherit_env();
                }
                if let Some(cwd) = cwd {
                    server = server.cwd(cwd);
                }
                server.into_any()
            }
            Target::Url { url, headers, token } => {
                let mut server = McpServer::from_url(url)?;
                for (name, value) in headers {
                    server = server.header(&name, &value)?;
                }
                match token {
                    Some(token) => server.bearer_token(token)?,
                    None => server,
                }
            }
        };
        let builder = match self.timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()) {
            Some(timeout) => builder.timeout(timeout),
            None => builder,
        };
        Ok(builder.id(self.name).build())
    }
}

impl LimitSettings {
    fn limits(&self) -> Result<ToolLimits, Error> {
        let defaults = ToolLimits::default();
        let seconds = |value: Option<f64>, name: &str, default| match value.map(Duration::try_from_secs_f64) {
            None => Ok(default),
            Some(Ok(duration)) if !duration.is_zero() => Ok(duration),
            Some(_) => Err(argument(format!("limits[{name:?}]: not a positive number of seconds"))),
        };
        let size = |size: &Option<Size>, name, default| size.as_ref().map_or(Ok(default), |size| size.bytes(name));
        Ok(ToolLimits {
            calls: self.tool_calls.unwrap_or(defaults.calls),
            concurrency: self.tool_concurrency.unwrap_or(defaults.concurrency),
            timeout: seconds(self.tool_timeout, "tool_timeout", defaults.timeout)?,
            wait: seconds(self.tool_wait, "tool_wait", defaults.wait)?,
            result_bytes: size(&self.tool_result, "tool_result", defaults.result_bytes)?,
            total_bytes: size(&self.tool_results, "tool_results", defaults.total_bytes)?,
        })
    }
}
