//! The commands that serve MCP: `stdio`, `streamable-http`, `streamable-http-stateless`, `sse`; and `example`.

use std::net::{IpAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::{NoProgress, parse_size};
use belljar_python::Python;
use belljar_server::{Capacity, HttpOptions, HttpTransport, ReturnMode, Runner, Server, Workplace};
use clap::{Args, ValueEnum};

use crate::access::AccessOptions;
use crate::cli::{Global, seconds};
use crate::limits::LimitOptions;
use crate::outcome::{fail, fail_with, words};
use crate::packages::{PackageOptions, Packages};
use crate::sandbox_options::SandboxOptions;
use crate::session_options::SessionOptions;

/// Options of every server.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArguments {
    /// The tools to offer.
    #[arg(long, value_enum, default_value_t)]
    toolset: Toolset,
    /// The shape of the tool's answer.
    #[arg(long, value_enum, default_value_t)]
    return_mode: Mode,
    /// Accepted for those who are used to it: code never reaches the network.
    #[arg(long)]
    disable_networking: bool,
    /// Pieces of code that run at the same time [default: four for each core, and at least 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    max_concurrency: Option<u16>,
    /// Pieces of code that may wait for their turn; more are refused.
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_queue: u16,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    sessions: SessionOptions,
    #[command(flatten)]
    packages: PackageOptions,
}

/// Which tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Toolset {
    /// `run_python_code` alone: each call in an interpreter of its own.
    #[default]
    Python,
    /// `execute_code` and its kin: sessions that keep variables and files.
    Interpreter,
    /// Both.
    All,
}

/// What the tool's text looks like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Blocks in tags.
    #[default]
    Xml,
    /// One JSON object.
    Json,
}

impl ServeArguments {
    /// A server as the options say, which begins to make Python ready.
    fn server(&self, global: &Global) -> Result<Server, String> {
        let mode = match self.return_mode {
            Mode::Xml => ReturnMode::Xml,
            Mode::Json => ReturnMode::Json,
        };
        if let Some(server) = self.native_server(mode)? {
            return Ok(server);
        }
        let runner = self.runner(global);
        if self.toolset == Toolset::Python {
            return Ok(Server::new(runner, mode));
        }
        let sessions = self.sessions.sessions(self.limits.of_server(), &runner)?;
        Ok(Server::new(runner, mode).with_sessions(sessions, self.toolset == Toolset::Interpreter))
    }

    /// A server of native kernels, if that is what the options ask for.
    fn native_server(&self, mode: ReturnMode) -> Result<Option<Server>, String> {
        let limits = self.limits.of_server();
        let backend = |limits, color| self.sandbox.native(limits, color, &self.packages);
        if self.toolset == Toolset::Python {
            let native = backend(limits, false)?;
            return Ok(native.map(|native| {
                let python = native.python.clone();
                Server::new(Runner::on(native.warm_up_aside(), &python, limits, self.capacity()), mode)
            }));
        }
        let Some(native) = backend(self.sessions.limits(limits), self.sessions.color())? else { return Ok(None) };
        let python = native.python.clone();
        let backend = native.warm_up_aside();
        let runner = Runner::on(backend.clone(), &python, limits, self.capacity());
        let sessions = self.sessions.native_sessions(backend, &runner)?;
        Ok(Some(Server::new(runner, mode).with_sessions(sessions, self.toolset == Toolset::Interpreter)))
    }

    fn capacity(&self) -> Capacity {
        let mut capacity = Capacity { waiting: self.max_queue.into(), ..Capacity::default() };
        if let Some(running) = self.max_concurrency {
            capacity.running = running.into();
        }
        capacity
    }

    fn runner(&self, global: &Global) -> Runner {
        let capacity = self.capacity();
        let (options, offline, packages) = (global.options(), global.offline(), self.packages.clone());
        Runner::start(self.limits.of_server(), capacity, move |progress| {
            let python = Python::open(&options, progress).map_err(|error| words(&error))?;
            // What the installer itself fetches belongs to no call.
            let packages = Packages::new(&python, &packages, offline, Arc::new(NoProgress))?;
            packages.preload()?;
            let (given, source) = packages.into_parts();
            Ok(Workplace { python, given, source })
        })
    }
}

/// Options of servers that are reached over HTTP.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct HttpArguments {
    /// Address to listen on: a name or an IP address.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 takes one that is free.
    #[arg(long, default_value_t = 3001)]
    port: u16,
    /// Longest request.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "16MB")]
    max_body: u64,
    /// End a session in which nothing happens for so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "300")]
    idle: Duration,
    #[command(flatten)]
    access: AccessOptions,
    #[command(flatten)]
    serve: ServeArguments,
}

impl HttpArguments {
    fn options(&self, transport: HttpTransport, beyond: bool) -> Result<HttpOptions, String> {
        let mut options = HttpOptions::new(transport);
        options.max_body = usize::try_from(self.max_body).unwrap_or(usize::MAX);
        options.max_sessions = self.serve.sessions.max_sessions;
        options.idle = self.idle;
        self.access.apply(&mut options, beyond, &self.host)?;
        Ok(options)
    }
}

/// `belljar streamable-http`, `streamable-http-stateless` and `sse`.
pub(crate) fn http(global: &Global, arguments: &HttpArguments, transport: HttpTransport) -> ExitCode {
    let prepared = arguments.serve.packages.check().and_then(|()| {
        let addresses = (arguments.host.as_str(), arguments.port).to_socket_addrs();
        let addresses = addresses.map_err(|error| format!("--host {}: {error}", arguments.host))?;
        let address = addresses.into_iter().next().ok_or(format!("--host {}: it has no address", arguments.host))?;
        let options = arguments.options(transport, !is_loopback(address.ip()))?;
        Ok((address, options))
    });
    let (address, options) = match prepared {
        Ok(prepared) => prepared,
        Err(message) => return fail(&message),
    };
    serve(async {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .map_err(|error| std::io::Error::other(format!("cannot listen on {address}: {error}")))?;
        // Only now: who cannot listen need not make Python ready.
        let server = arguments.serve.server(global).map_err(std::io::Error::other)?;
        let path = if transport == HttpTransport::Sse { "sse" } else { "mcp" };
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        eprintln!("listening on {scheme}://{}/{path}", listener.local_addr()?);
        belljar_server::serve_http(server, listener, options, told_to_end()).await
    })
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Ctrl-C, or the signal by which service managers end a process.
async fn told_to_end() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::warn!(%error, "Ctrl-C is not heard");
        std::future::pending::<()>().await;
    }
}

/// `belljar stdio`.
pub(crate) fn stdio(global: &Global, arguments: &ServeArguments) -> ExitCode {
    if let Err(message) = arguments.packages.check() {
        return fail(&message);
    }
    match arguments.server(global) {
        Ok(server) => serve(async move { belljar_server::serve_stdio(server).await }),
        Err(message) => fail(&message),
    }
}

/// `belljar example`: the tool's answer to a small program.
#[expect(clippy::print_stdout, reason = "the answer is what the command is for")]
pub(crate) fn example(global: &Global, arguments: &ServeArguments) -> ExitCode {
    const CODE: &str = "import sys\nprint('Python', sys.version.split()[0])\n[n * n for n in range(5)]";
    let server = match arguments.server(global) {
        Ok(server) => server,
        Err(message) => return fail(&message),
    };
    serve(async move {
        eprintln!("running:\n{CODE}\n");
        println!("{}", server.answer(CODE).await);
        Ok(())
    })
}

fn serve(work: impl Future<Output = std::io::Result<()>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start: {error}")),
    };
    match runtime.block_on(work) {
        // What still runs is for nobody.
        Ok(()) => std::process::exit(0),
        Err(error) => fail_with(&error),
    }
}
