//! The commands that serve MCP: `stdio`, `streamable-http`, `streamable-http-stateless` and `sse`; and `example`.

use std::io::IsTerminal as _;
use std::net::{IpAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::Backend;
use belljar_core::{NoProgress, parse_size};
use belljar_network::Network;
use belljar_python::{BackendOptions, GuestMount, Python, RuntimeLoader, WasmBackend};
use belljar_server::{
    CodeTools, HttpOptions, HttpTransport, MontyWorkers, MountDescription, PackageRules, ReturnMode, Runner,
    SandboxDescription, SandboxKind, Server, ServerOptions,
};
use belljar_sessions::{GuestThreadPool, PoolLimits};
use clap::{Args, ValueEnum};
use tokio::runtime::Runtime;

use crate::access::AccessOptions;
use crate::command_error::CommandError;
use crate::console::print_line;
use crate::global_options::GlobalOptions;
use crate::limits::LimitOptions;
use crate::monty;
use crate::mount::{self, Mount};
use crate::network::NetworkArguments;
use crate::outcome::fail;
use crate::packages::{PackageOptions, Packages};
use crate::sandbox_options::{NativeKernels, NativeSettings, SandboxOptions};
use crate::session_options::SessionOptions;
use crate::shutdown::BackendTracker;
use crate::tools::ToolOptions;
use crate::value_parsers::seconds;

/// The time that the runtime waits for blocked threads at the end.
const RUNTIME_SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// The advice for calls that are refused while code holds threads with its waits.
const HELD_THREADS_HINT: &str = "code that awaits holds no thread: write `await asyncio.sleep(1)` instead of \
    `time.sleep(1)`, and `await call` instead of `call.result()` or `asyncio.run`. The server's option --max-concurrency \
    raises the number of threads";

/// The options of every server.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServeArguments {
    /// Tools to offer.
    #[arg(long, value_enum, default_value_t)]
    toolset: Toolset,
    /// Format of the tool's result.
    #[arg(long, value_enum, default_value_t, hide_short_help = true)]
    return_mode: ResultFormat,
    /// Maximum size of the text of an answer: output, value and error together. The middle of longer text is left out;
    /// a session keeps it in a file.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "24KB", hide_short_help = true)]
    max_answer: u64,
    /// Accepted for compatibility with mcp-run-python. Code has access to the network only if an option allows it.
    #[arg(long, hide_short_help = true)]
    disable_networking: bool,
    /// Maximum number of pieces of code that run at the same time [default: four for each core, and at least 16].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), hide_short_help = true)]
    max_concurrency: Option<u16>,
    /// Maximum number of pieces of code that wait to run. Further calls are refused.
    #[arg(long, value_name = "N", default_value_t = 256, hide_short_help = true)]
    max_queue: u16,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    sandbox: SandboxOptions,
    /// Directory of this machine that all code can use.
    ///
    /// Code can only read it, unless `:rw` follows. May be repeated.
    #[arg(long, value_name = "HOST:GUEST[:ro|:rw]", help_heading = "Sandbox")]
    mount: Vec<Mount>,
    #[command(flatten)]
    sessions: SessionOptions,
    #[command(flatten)]
    packages: PackageOptions,
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    network: NetworkArguments,
    /// Maximum length of the tools' Python stubs in the descriptions of the server's own tools, in characters. With
    /// longer ones, the server offers tools to search for them.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 12_000,
        hide_short_help = true,
        help_heading = "Tools of MCP servers"
    )]
    tools_in_description: usize,
}

/// A set of tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Toolset {
    /// `run_python_code` only: each call in an interpreter of its own.
    #[default]
    Python,
    /// `execute_code` and related tools: sessions that keep variables and files.
    Interpreter,
    /// Both.
    All,
}

/// A format of the tool's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum ResultFormat {
    /// XML-like blocks.
    #[default]
    Xml,
    /// One JSON object.
    Json,
}

impl ServeArguments {
    /// Creates the server that the options describe, and starts to prepare Python.
    fn server(&self, global: &GlobalOptions, tracker: &BackendTracker) -> Result<Server, CommandError> {
        Ok(self.server_with_workers(global, tracker, false)?.0)
    }

    /// Does the same, and creates workers of Monty's protocol if `monty` is set.
    fn server_with_workers(
        &self,
        global: &GlobalOptions,
        tracker: &BackendTracker,
        monty: bool,
    ) -> Result<(Server, Option<MontyWorkers>), CommandError> {
        let mode = match self.return_mode {
            ResultFormat::Xml => ReturnMode::Xml,
            ResultFormat::Json => ReturnMode::Json,
        };
        let mounts = mount::for_server(&self.mount, self.sandbox.sandbox)?;
        let folders = self.sessions.folders()?;
        if self.toolset == Toolset::Python && folders.is_some() {
            eprintln!("warning: --files has no effect without sessions: --toolset interpreter, or all");
        }
        // Weak sandboxes refuse the options of the network before its files are read.
        let native = self.native_backends(&mounts, global.offline(), tracker)?;
        let network = self.network.network_with(|| self.sessions.placeholder_key())?;
        let backends = match native {
            Some(backends) => backends,
            None => self.wasm_backends(&mounts, network.clone(), global, tracker)?,
        };
        let Backends { runs, sessions, kind, python, installed, warm_up, workers } = backends;
        let pool = GuestThreadPool::new(self.pool_limits(), runs.thread_runner()).with_held_hint(HELD_THREADS_HINT);
        let pool = Arc::new(pool);
        for warm_up in warm_up {
            if let Err(error) = pool.submit(move |_permit| warm_up()) {
                tracing::error!(%error, "failed to prepare Python ahead of time: the first call prepares it");
            }
        }
        let workers = match (monty, workers) {
            (false, _) => None,
            (true, Some(workers)) => {
                let options = monty::worker_options(workers.runtime, workers.options, self.sessions.dump_key()?);
                tracker.add(&options.backend);
                Some(MontyWorkers::new(options, pool.clone()))
            }
            (true, None) => {
                return Err(CommandError::new("--monty: native kernels do not run feeds")
                    .with_hint("leave out --sandbox native, or --monty"));
            }
        };
        let max_answer = usize::try_from(self.max_answer).unwrap_or(usize::MAX);
        let is_native = kind != SandboxKind::Wasm;
        let packages = PackageRules {
            installed,
            can_install: self.packages.can_install(is_native && global.offline()),
            cells_install_imports: !is_native,
            allowed: self.packages.allowed(),
        };
        let (calls, cells) = (*runs.limits(), *sessions.limits());
        let mounts = mounts.into_iter().map(|mount| MountDescription { path: mount.guest, writable: mount.writable });
        let mounts = mounts.collect();
        let network = network.map(|network| network.policy().summary());
        let sandbox = SandboxDescription { python, kind, packages, mounts, calls, cells, max_answer, network };
        let tools = self.tools.tools()?;
        let tools = tools.map(|tools| CodeTools::new(tools, self.tools_in_description));
        let options = ServerOptions { mode, html: self.sessions.html, sandbox, tools };
        let server = Server::new(Runner::new(runs, pool.clone()), options);
        if self.toolset == Toolset::Python {
            return Ok((server, workers));
        }
        let sessions = self.sessions.sessions(sessions, folders, is_native, pool, max_answer, tracker)?;
        Ok((server.with_sessions(sessions, self.toolset == Toolset::Interpreter), workers))
    }

    /// Creates the backends of native kernels, if the options select them.
    fn native_backends(
        &self,
        mounts: &[Mount],
        offline: bool,
        tracker: &BackendTracker,
    ) -> Result<Option<Backends>, CommandError> {
        let limits = self.limits.for_server();
        let (session_limits, session_color) =
            (self.sessions.limits(limits, self.limits.max_wait), self.sessions.color());
        let prestart_sessions = !self.sessions.have_folders();
        let (limits, color, prestart) = match self.toolset {
            Toolset::Interpreter => (session_limits, session_color, prestart_sessions),
            Toolset::Python | Toolset::All => (limits, false, true),
        };
        let (packages, tools) = (&self.packages, !self.tools.servers.is_empty());
        let network = &self.network;
        let settings = NativeSettings { limits, color, packages, offline, mounts, prestart, tools, network };
        let Some(native) = self.sandbox.native(settings)? else { return Ok(None) };
        // A kernel's limits are those of its backend, and sessions have limits of their own.
        let native_sessions = match self.toolset {
            Toolset::All => Some(native.with_limits(session_limits, session_color, prestart_sessions)?),
            Toolset::Python | Toolset::Interpreter => None,
        };
        let warmed_up = |native: NativeKernels| {
            let backend = native.warm_up_in_background();
            tracker.add(&backend);
            backend
        };
        let (python, installed) = (native.python.clone(), native.installed.clone());
        let kind = if native.is_sandboxed { SandboxKind::Native } else { SandboxKind::Unsandboxed };
        let runs = warmed_up(native);
        let sessions = native_sessions.map_or_else(|| runs.clone(), warmed_up);
        Ok(Some(Backends { runs, sessions, kind, python, installed, warm_up: Vec::new(), workers: None }))
    }

    /// Creates the backends of the WebAssembly sandbox, which share one runtime.
    fn wasm_backends(
        &self,
        mounts: &[Mount],
        network: Option<Arc<Network>>,
        global: &GlobalOptions,
        tracker: &BackendTracker,
    ) -> Result<Backends, CommandError> {
        let (options, offline, packages) = (global.options()?, global.offline(), self.packages.clone());
        let loaded = tracker.python();
        let runtime = Arc::new(RuntimeLoader::new(move |progress| {
            let python = Python::open(&options, progress).map_err(CommandError::from)?;
            let _ = loaded.set(python.clone());
            // The installer fetches its own files for all calls, so that their progress is not shown to any of them.
            let packages = Packages::new(&python, &packages, offline, Arc::new(NoProgress))?;
            packages.preload()?;
            Ok(packages.into_runtime(python))
        }));
        let limits = self.limits.for_server();
        let mounts: Vec<GuestMount> = mounts.iter().map(Mount::open).collect::<Result<_, _>>()?;
        let options = BackendOptions { limits, color: false, mounts, network };
        let runs = WasmBackend::with_options(runtime.clone(), options.clone());
        let (limits, color) = (self.sessions.limits(limits, self.limits.max_wait), self.sessions.color());
        let workers = WorkerSettings {
            runtime: runtime.clone(),
            options: BackendOptions { limits, color: false, ..options.clone() },
        };
        let sessions = WasmBackend::with_options(runtime.clone(), BackendOptions { limits, color, ..options });
        let load_runtime: Box<dyn FnOnce() + Send> = Box::new(move || {
            if let Err(error) = runtime.get(&NoProgress) {
                tracing::error!("failed to prepare Python: {error}");
            }
        });
        let mut warm_up = vec![load_runtime];
        if self.toolset != Toolset::Python {
            let sessions = sessions.clone();
            warm_up.push(Box::new(move || {
                if let Err(error) = sessions.warm_up_sessions() {
                    tracing::error!("failed to prepare sessions: {error}");
                }
            }));
        }
        let (runs, sessions) = (Arc::new(runs), Arc::new(sessions));
        let (python, installed) = (global.python_version()?, self.packages.given_names());
        Ok(Backends { runs, sessions, kind: SandboxKind::Wasm, python, installed, warm_up, workers: Some(workers) })
    }

    fn pool_limits(&self) -> PoolLimits {
        let limits = PoolLimits { max_queued: self.max_queue.into(), ..PoolLimits::default() };
        match self.max_concurrency {
            Some(max_running) => PoolLimits { max_running: max_running.into(), ..limits },
            None => limits,
        }
    }
}

/// The backends of a server.
struct Backends {
    /// The backend of `run_python_code`.
    runs: Arc<dyn Backend>,
    /// The backend of the session tools.
    sessions: Arc<dyn Backend>,
    kind: SandboxKind,
    /// The version of Python.
    python: String,
    /// The names of installed packages that a model should know.
    installed: Vec<String>,
    /// Work on guest threads that the first calls would otherwise wait for.
    warm_up: Vec<Box<dyn FnOnce() + Send>>,
    /// The settings of workers of Monty's protocol; not for native kernels.
    workers: Option<WorkerSettings>,
}

/// The settings of workers of Monty's protocol.
struct WorkerSettings {
    runtime: Arc<RuntimeLoader>,
    options: BackendOptions,
}

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
        if self.code_execution && self.serve.toolset == Toolset::Python {
            return Err(CommandError::new("--code-execution: the server has no sessions")
                .with_hint("add --toolset interpreter, or --toolset all"));
        }
        self.access.apply(&mut options, is_exposed, &self.host)?;
        Ok(options)
    }
}

/// Runs `belljar streamable-http`, `streamable-http-stateless` and `sse`.
pub(crate) fn http(global: &GlobalOptions, arguments: &HttpArguments, transport: HttpTransport) -> ExitCode {
    let prepared = arguments.serve.packages.check().and_then(|()| {
        let addresses = (arguments.host.as_str(), arguments.port).to_socket_addrs();
        let addresses = addresses.map_err(|error| format!("--host {}: {error}", arguments.host))?;
        let address =
            addresses.into_iter().next().ok_or_else(|| format!("--host {}: no address found", arguments.host))?;
        let options = arguments.options(transport, !is_loopback(address.ip()))?;
        Ok((address, options))
    });
    let (address, options) = match prepared {
        Ok(prepared) => prepared,
        Err(error) => return fail(error),
    };
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    run_on(threads, global, async |tracker| {
        let listener = tokio::net::TcpListener::bind(address)
            .await
            .map_err(|error| format!("failed to listen on {address}: {error}"))?;
        // Python is prepared only after the server listens, because a server that fails to listen does not need it.
        let (server, workers) = arguments.serve.server_with_workers(global, tracker, arguments.monty)?;
        let options = HttpOptions { monty: workers, ..options };
        let path = if transport == HttpTransport::Sse { "sse" } else { "mcp" };
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let address = listener.local_addr().map_err(|error| CommandError::from_error(&error))?;
        eprintln!("listening on {scheme}://{address}/{path}");
        // The end of a terminal ends the server; from a service manager, SIGHUP asks to read files again.
        let in_terminal = std::io::stdin().is_terminal();
        if !in_terminal {
            tokio::spawn(reload_on_hangup(arguments.access.clone(), options.clone()));
        }
        notify_service_manager(ServiceState::Ready);
        let shutdown = async move {
            shutdown_signal(in_terminal).await;
            notify_service_manager(ServiceState::Stopping);
        };
        let served = belljar_server::serve_http(server, listener, options, shutdown).await;
        served.map_err(|error| CommandError::from_error(&error))
    })
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A state of the server that a service manager waits for.
#[derive(Debug, Clone, Copy)]
enum ServiceState {
    /// Requests are accepted.
    Ready,
    /// Calls in flight have a few seconds to end.
    Stopping,
}

/// Reports a state to systemd, if it started this process with `Type=notify`: see sd_notify(3).
fn notify_service_manager(state: ServiceState) {
    #[cfg(target_os = "linux")]
    {
        let state = match state {
            ServiceState::Ready => sd_notify::NotifyState::Ready,
            ServiceState::Stopping => sd_notify::NotifyState::Stopping,
        };
        if let Err(error) = sd_notify::notify(&[state]) {
            tracing::warn!(%error, "failed to notify the service manager");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = state;
}

/// Reads tokens and certificates again whenever the process receives SIGHUP.
async fn reload_on_hangup(access: AccessOptions, options: HttpOptions) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
        while hangup.recv().await.is_some() {
            match access.reload(&options) {
                Ok(true) => eprintln!("belljar: read the tokens and the certificate again"),
                Ok(false) => eprintln!("belljar: SIGHUP: there are no tokens and no certificate to read again"),
                Err(error) => eprintln!("belljar: kept the tokens and the certificate as they were: {error}"),
            }
        }
    }
}

/// Waits for Ctrl-C or SIGTERM, with which service managers end a process, and for SIGHUP if `hangup_ends`.
async fn shutdown_signal(hangup_ends: bool) {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let (Ok(mut terminate), Ok(mut hangup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) {
            tokio::select! {
                _ = terminate.recv() => {}
                Some(()) = hangup.recv(), if hangup_ends => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    if let Err(error) = tokio::signal::ctrl_c().await {
        tracing::warn!(%error, "failed to handle Ctrl-C");
        std::future::pending::<()>().await;
    }
}

/// Runs `belljar stdio`.
pub(crate) fn stdio(global: &GlobalOptions, arguments: &ServeArguments) -> ExitCode {
    if let Err(error) = arguments.packages.check() {
        return fail(error);
    }
    run_on(single_thread(), global, async |tracker| {
        let server = arguments.server(global, tracker)?;
        let served = belljar_server::serve_stdio(server, shutdown_signal(true)).await;
        served.map_err(|error| CommandError::from_error(&error))
    })
}

/// Runs `belljar example`: prints the tool's result for a sample program.
pub(crate) fn example(global: &GlobalOptions, arguments: &ServeArguments) -> ExitCode {
    const CODE: &str = "import sys\nprint('Python', sys.version.split()[0])\n[n * n for n in range(5)]";
    run_on(single_thread(), global, async |tracker| {
        let server = arguments.server(global, tracker)?;
        eprintln!("running:\n{CODE}\n");
        print_line(server.answer(CODE).await);
        Ok(())
    })
}

/// Creates a runtime for one client, whose tasks all run on the calling thread. Code runs on guest threads. With
/// several threads, each message would wake another one to look for more work.
fn single_thread() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// Runs `work` on a runtime, and waits for the backends that it creates before it returns.
fn run_on(
    runtime: std::io::Result<Runtime>,
    global: &GlobalOptions,
    work: impl AsyncFnOnce(&BackendTracker) -> Result<(), CommandError>,
) -> ExitCode {
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(format!("failed to start threads: {error}")),
    };
    let tracker = BackendTracker::default();
    let result = runtime.block_on(work(&tracker));
    // Tasks hold clones of the server until the runtime ends. A read of standard input may block a thread.
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    tracker.wait();
    tracker.optimize_libraries(global);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}
