//! The commands that serve MCP: `stdio` and `example`.
//!
//! | file | subject |
//! | --- | --- |
//! | `http` | the commands that serve over HTTP |
//! | `ending` | signals, and a lost lease |

mod ending;
mod http;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::Backend;
use belljar_core::{NoProgress, parse_size};
use belljar_monty::WorkerOptions;
use belljar_network::Network;
use belljar_python::{BackendOptions, GuestMount, Python, RuntimeLoader, WasmBackend};
use belljar_server::{
    CodeTools, MontyWorkers, MountDescription, PackageRules, ReturnMode, Runner, SandboxDescription, SandboxKind,
    Server, ServerOptions, Tokens,
};
use belljar_sessions::{GuestThreadPool, PoolLimits, Sessions, Tenants};
use clap::{Args, ValueEnum};
use tokio::runtime::Runtime;

use crate::audit_options::AuditArguments;
use crate::command_error::CommandError;
use crate::console::print_line;
use crate::global_options::GlobalOptions;
use crate::isolation::IsolationOptions;
use crate::limits::LimitOptions;
use crate::monty;
use crate::mount::{self, Mount};
use crate::network::NetworkArguments;
use crate::notices::{self, Level};
use crate::observability::Observability;
use crate::os::{NativeKernels, WorkerProcesses};
use crate::outcome::fail;
use crate::packages::{PackageOptions, Packages};
use crate::quotas::{QuotaOptions, name_tokens};
use crate::sandbox_options::{NativeSettings, Sandbox, SandboxOptions};
use crate::session_options::SessionOptions;
use crate::shutdown::BackendTracker;
use crate::tools::ToolOptions;
use ending::Ending;
pub(crate) use http::{HttpArguments, http};

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
    quotas: QuotaOptions,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    isolation: IsolationOptions,
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
    #[command(flatten)]
    audit: AuditArguments,
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
    fn server(
        &self,
        global: &GlobalOptions,
        tracker: &BackendTracker,
        observability: &Observability,
        transport: &'static str,
    ) -> Result<Server, CommandError> {
        let tokens = Tokens::default();
        let surroundings = Surroundings { transport, monty: false, tokens: &tokens, address: None };
        Ok(self.server_for(&surroundings, global, tracker, observability)?.server)
    }

    /// Creates the server that the options describe, for any transport.
    fn server_for(
        &self,
        surroundings: &Surroundings<'_>,
        global: &GlobalOptions,
        tracker: &BackendTracker,
        observability: &Observability,
    ) -> Result<PreparedServer, CommandError> {
        let &Surroundings { transport, monty, tokens, address } = surroundings;
        let mode = match self.return_mode {
            ResultFormat::Xml => ReturnMode::Xml,
            ResultFormat::Json => ReturnMode::Json,
        };
        self.isolation.check(self.has_kernels())?;
        let mounts = mount::for_server(&self.mount, self.sandbox.sandbox)?;
        let folders = self.sessions.folders()?;
        if self.toolset == Toolset::Python {
            // Monty's workers keep the key of their sessions in the data directory.
            let kept = [("--files", folders.is_some()), ("--data-dir", self.sessions.has_data_dir() && !monty)];
            for (option, _) in kept.into_iter().filter(|(_, is_given)| *is_given) {
                let message = format!("{option} has no effect without sessions: --toolset interpreter, or all");
                notices::write(Level::Warn, &format!("warning: {message}"), &message, &[]);
            }
        }
        let cluster = match self.toolset {
            Toolset::Python if self.sessions.cluster.is_given() => {
                return Err(CommandError::new("--store: the server has no sessions")
                    .with_hint("add --toolset interpreter, or --toolset all"));
            }
            _ => self.sessions.join_cluster(address, self.limits.max_wait)?,
        };
        // Weak sandboxes refuse the options of the network before its files are read.
        let native = self.native_backends(&mounts, global.offline(), tracker)?;
        let network = self.network.network_with(|| self.sessions.placeholder_key(cluster.as_ref()))?;
        let activity = observability.start_audit(&self.audit, network.as_deref(), transport)?;
        let backends = match native {
            Some(backends) => backends,
            None => self.wasm_backends(&mounts, network.clone(), global, tracker)?,
        };
        let Backends { runs, sessions, kind, python, installed, warm_up, workers } = backends;
        let tenants = self.quotas.tenants(self.has_kernels())?;
        // Sessions of the data directory find the quotas of their owners by these names.
        name_tokens(&tenants, tokens);
        let pool = GuestThreadPool::with_tenants(self.pool_limits(), tenants.clone(), runs.thread_runner());
        let pool = pool.with_held_hint(HELD_THREADS_HINT);
        let has_workers = kind == SandboxKind::Wasm && self.isolation.is_process();
        let pool = Arc::new(if has_workers { pool.with_code_elsewhere() } else { pool });
        for warm_up in warm_up {
            if let Err(error) = pool.submit(move |_permit| warm_up()) {
                tracing::error!(%error, "failed to prepare Python ahead of time: the first call prepares it");
            }
        }
        let workers = match (monty, workers) {
            (false, _) => None,
            (true, Some(workers)) => {
                let options =
                    monty::worker_options(workers.runtime, workers.options, self.sessions.dump_key(cluster.as_ref())?);
                tracker.add(&options.backend);
                let options = WorkerOptions { activity: activity.clone(), ..options };
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
        let server = Server::new(Runner::with_activity(runs, pool.clone(), activity), options);
        if self.toolset == Toolset::Python {
            return Ok(PreparedServer { server, workers, tenants, kind });
        }
        let store = self.sessions.store(&sessions, is_native, tracker, cluster)?;
        let sessions = Sessions::new(sessions, store, folders, pool, self.sessions.options(max_answer));
        let server = server.with_sessions(sessions, self.toolset == Toolset::Interpreter);
        Ok(PreparedServer { server, workers, tenants, kind })
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
        let (python, installed) = (native.python().to_owned(), native.installed().to_vec());
        let kind = if native.is_sandboxed() { SandboxKind::Native } else { SandboxKind::Unsandboxed };
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
        let limits = self.limits.for_server();
        let session_limits = self.sessions.limits(limits, self.limits.max_wait);
        let pool = self.isolation.pool(&options, &limits, &session_limits)?;
        tracing::info!("code runs in {}", self.place_of_code(SandboxKind::Wasm));
        let opened = pool.clone();
        let runtime = Arc::new(RuntimeLoader::new(move |progress| {
            let python = Python::open(&options, progress).map_err(CommandError::from)?;
            let _ = loaded.set(python.clone());
            if let Some(pool) = &opened {
                pool.open(&python)?;
            }
            // The installer fetches its own files for all calls, so that their progress is not shown to any of them.
            let packages = Packages::new(&python, &packages, offline, Arc::new(NoProgress))?;
            packages.preload()?;
            Ok(packages.into_runtime(python))
        }));
        let mounts: Vec<GuestMount> = mounts.iter().map(Mount::open).collect::<Result<_, _>>()?;
        let processes = pool.as_ref().map(WorkerProcesses::processes);
        let options = BackendOptions { limits, color: false, mounts, network, processes };
        let runs = WasmBackend::with_options(runtime.clone(), options.clone());
        let (limits, color) = (session_limits, self.sessions.color());
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

    /// Returns whether code runs in native kernels.
    fn has_kernels(&self) -> bool {
        self.sandbox.sandbox != Sandbox::Wasm
    }

    /// Returns the place where code runs in a sandbox of this kind.
    fn place_of_code(&self, kind: SandboxKind) -> &'static str {
        match kind {
            SandboxKind::Wasm if self.isolation.is_process() => "WebAssembly, in worker processes",
            SandboxKind::Wasm => "WebAssembly, in threads of the server",
            SandboxKind::Native => "native kernels, in Linux sandboxes",
            SandboxKind::Unsandboxed => "native kernels, without a sandbox",
        }
    }

    fn pool_limits(&self) -> PoolLimits {
        let limits = PoolLimits { max_queued: self.max_queue.into(), ..PoolLimits::default() };
        match self.max_concurrency {
            Some(max_running) => PoolLimits { max_running: max_running.into(), ..limits },
            None => limits,
        }
    }
}

/// The properties of the transport over which a server is served.
struct Surroundings<'a> {
    /// The transport's name in the audit log.
    transport: &'static str,
    /// Serve Monty's protocol, too.
    monty: bool,
    /// The tokens of clients, whose names are those of tenants.
    tokens: &'a Tokens,
    /// The URL on which the server listens.
    address: Option<&'a str>,
}

/// A server that is ready to serve.
struct PreparedServer {
    server: Server,
    /// The workers of Monty's protocol, if it is served.
    workers: Option<MontyWorkers>,
    tenants: Tenants,
    kind: SandboxKind,
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

/// Runs `belljar stdio`.
pub(crate) fn stdio(global: &GlobalOptions, arguments: &ServeArguments, observability: Observability) -> ExitCode {
    if let Err(error) = arguments.packages.check() {
        return fail(error);
    }
    run_on(single_thread(), global, observability, async |tracker, observability| {
        let server = arguments.server(global, tracker, observability, "stdio")?;
        observability.export_metrics(&server)?;
        let ending = Ending::new(&server);
        let served = belljar_server::serve_stdio(server, ending.wait(true)).await;
        served.map_err(|error| CommandError::from_error(&error))?;
        ending.check()
    })
}

/// Runs `belljar example`: prints the tool's result for a sample program.
pub(crate) fn example(global: &GlobalOptions, arguments: &ServeArguments, observability: Observability) -> ExitCode {
    const CODE: &str = "import sys\nprint('Python', sys.version.split()[0])\n[n * n for n in range(5)]";
    run_on(single_thread(), global, observability, async |tracker, observability| {
        let server = arguments.server(global, tracker, observability, "example")?;
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
    observability: Observability,
    work: impl AsyncFnOnce(&BackendTracker, &Observability) -> Result<(), CommandError>,
) -> ExitCode {
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return fail(format!("failed to start threads: {error}")),
    };
    let tracker = BackendTracker::default();
    let result = runtime.block_on(work(&tracker, &observability));
    // The exporter of metrics holds the server.
    observability.end_metrics();
    // Tasks hold clones of the server until the runtime ends. A read of standard input may block a thread.
    runtime.shutdown_timeout(RUNTIME_SHUTDOWN_TIMEOUT);
    tracker.wait();
    observability.end();
    tracker.optimize_libraries(global);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}
