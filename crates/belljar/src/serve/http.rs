//! The commands that serve MCP over HTTP: `streamable-http`, `streamable-http-stateless` and `sse`.

use std::io::{ErrorKind, IsTerminal as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::Duration;

use belljar_core::parse_size;
use belljar_server::{HttpOptions, HttpTransport};
use clap::Args;

use super::ending::Ending;
use super::{PreparedServer, ServeArguments, Surroundings, Toolset, run_on};
use crate::access::AccessOptions;
use crate::command_error::CommandError;
use crate::global_options::GlobalOptions;
use crate::notices::{self, Level};
use crate::observability::Observability;
use crate::os::{ServiceState, notify_service_manager};
use crate::outcome::fail;
use crate::reload::Reload;
use crate::value_parsers::seconds;

/// The options of servers over HTTP.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct HttpArguments {
    /// Address to listen on: a host name or an IP address.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 selects a free port.
    #[arg(long, default_value_t = 3001)]
    port: u16,
    /// Maximum size of a request body.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16MB", hide_short_help = true)]
    max_body: u64,
    /// Time until an idle MCP session over HTTP ends.
    #[arg(long, alias = "idle", value_name = "SECONDS", value_parser = seconds, default_value = "300", hide_short_help = true)]
    http_session_timeout: Duration,
    /// Maximum number of MCP sessions over HTTP [default: that of --max-sessions].
    #[arg(long, value_name = "N", env = "BELLJAR_MAX_HTTP_SESSIONS", hide_env_values = true, hide_short_help = true)]
    max_http_sessions: Option<usize>,
    /// Serve the code-execution protocol of otari, too.
    ///
    /// Its address is /sessions. The server must have sessions: --toolset interpreter, or all.
    #[arg(long, hide_short_help = true)]
    code_execution: bool,
    /// Serve Monty's worker protocol over WebSockets on /monty, for pydantic-monty and pydantic-ai's CodeMode.
    #[arg(long, hide_short_help = true)]
    monty: bool,
    #[command(flatten)]
    access: AccessOptions,
    #[command(flatten)]
    serve: ServeArguments,
}

impl HttpArguments {
    fn options(&self, transport: HttpTransport, is_exposed: bool) -> Result<HttpOptions, CommandError> {
        let mut options = HttpOptions::new(transport);
        options.max_body = usize::try_from(self.max_body).unwrap_or(usize::MAX);
        options.max_sessions = self.max_http_sessions.unwrap_or(self.serve.sessions.max_sessions);
        options.idle = self.http_session_timeout;
        options.code_execution = self.code_execution;
        options.drain = self.serve.sessions.cluster.drain();
        if self.code_execution && self.serve.toolset == Toolset::Python {
            return Err(CommandError::new("--code-execution: the server has no sessions")
                .with_hint("add --toolset interpreter, or --toolset all"));
        }
        if self.access.console && self.serve.toolset == Toolset::Python {
            return Err(CommandError::new("--console: the server has no sessions")
                .with_hint("add --toolset interpreter, or --toolset all"));
        }
        self.access.apply(&mut options, is_exposed, &self.host)?;
        Ok(options)
    }
}

/// Runs `belljar streamable-http`, `streamable-http-stateless` and `sse`.
pub(crate) fn http(
    global: &GlobalOptions,
    arguments: &HttpArguments,
    transport: HttpTransport,
    observability: Observability,
) -> ExitCode {
    let prepared = arguments.serve.packages.check().and_then(|()| {
        let addresses = (arguments.host.as_str(), arguments.port).to_socket_addrs();
        let addresses = addresses.map_err(|error| format!("--host {}: {error}", arguments.host))?;
        let address =
            addresses.into_iter().next().ok_or_else(|| format!("--host {}: no address found", arguments.host))?;
        arguments.serve.sessions.cluster.check_address(address.ip())?;
        let options = arguments.options(transport, !is_loopback(address.ip()))?;
        Ok((address, options))
    });
    let (address, options) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return fail(error),
    };
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    run_on(threads, global, observability, async |tracker, observability| {
        let listener =
            tokio::net::TcpListener::bind(address).await.map_err(|error| failed_to_listen(address, &error))?;
        // Python is prepared only after the server listens, because a server that fails to listen does not need it.
        let name = match transport {
            HttpTransport::Streamable => "streamable-http",
            HttpTransport::StreamableStateless => "streamable-http-stateless",
            HttpTransport::Sse => "sse",
        };
        let path = if transport == HttpTransport::Sse { "sse" } else { "mcp" };
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let address = listener.local_addr().map_err(|error| CommandError::from_error(&error))?;
        let address = format!("{scheme}://{address}");
        let surroundings = Surroundings {
            transport: name,
            monty: arguments.monty,
            tokens: &options.access.tokens,
            address: Some(&address),
        };
        let prepared = arguments.serve.server_for(&surroundings, global, tracker, observability)?;
        let PreparedServer { server, workers, tenants, kind } = prepared;
        observability.export_metrics(&server)?;
        let options = HttpOptions { monty: workers, ..options };
        // The end of a terminal ends the server; from a service manager, SIGHUP asks to read files again.
        let in_terminal = std::io::stdin().is_terminal();
        let ending = Ending::new(&server);
        // Before the address is known: from then on, the server can be asked to end.
        let shutdown = ending.wait(in_terminal);
        let url = format!("{address}/{path}");
        notices::write(Level::Info, &format!("listening on {url}"), "listening", &[("address", &url)]);
        let place = arguments.serve.place_of_code(kind);
        notices::write(Level::Info, &format!("code runs in {place}"), "code runs", &[("place", place)]);
        if options.access.operators.is_some() {
            // A browser does not send the part after `#`.
            let token = arguments.access.make_operator_token(&options)?;
            let token = token.map(|token| format!("#token={token}")).unwrap_or_default();
            let url = format!("{address}/console{token}");
            notices::write(Level::Info, &format!("console on {url}"), "console", &[("address", &url)]);
        }
        if !in_terminal {
            let reload = Reload {
                access: arguments.access.clone(),
                options: options.clone(),
                quotas: arguments.serve.quotas.clone(),
                tenants,
                has_kernels: arguments.serve.has_kernels(),
            };
            tokio::spawn(reload.on_hangup());
        }
        notify_service_manager(ServiceState::Ready);
        let served = belljar_server::serve_http(server, listener, options, shutdown).await;
        served.map_err(|error| CommandError::from_error(&error))?;
        ending.check()
    })
}

/// Returns the error for an address on which the server cannot listen.
fn failed_to_listen(address: SocketAddr, error: &std::io::Error) -> CommandError {
    let failed = CommandError::new(format!("failed to listen on {address}: {error}"));
    match error.kind() {
        ErrorKind::AddrInUse => failed.with_hint("choose another port with --port; 0 selects a free one"),
        ErrorKind::PermissionDenied => failed.with_hint("choose a port above 1023 with --port"),
        _ => failed,
    }
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
