//! The attacks of `attacks.py` as tests: all run in one sandbox for each way into a sandbox.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};

use belljar_sandbox::{self as sandbox, Folder, FolderSource, Policy, ResourceLimits, Sandbox, Spec, Streams};
use belljar_testing::{Capability, Failed, Trial};
use serde::Deserialize;

use crate::trials::host_user::{HostUser, MARKER, TestResult, python};
use crate::trials::zygote::Zygote;

pub(crate) const ATTACKS_PYTHON: &str = include_str!("attacks/attacks.py");

const MEBIBYTE: u64 = 1 << 20;

/// The ways into a sandbox: as its program, or as a process that was forked elsewhere and entered.
const WAYS: [&str; 2] = ["program", "entered"];

/// The result of one attack, as `attacks.py` writes it.
#[derive(Deserialize, Clone)]
struct AttackResult {
    name: String,
    passed: bool,
    detail: String,
}

type AttackResults = Result<HashMap<String, AttackResult>, String>;

pub(crate) fn trials(user: HostUser) -> Vec<Trial> {
    // Attacks use numbers of system calls, which depend on the architecture.
    let needs = [user.needs(), &[Capability::X86_64]].concat();
    let mut all = Vec::new();
    for way in WAYS {
        // One sandbox for all attacks, created by the first test.
        let results: Arc<OnceLock<AttackResults>> = Arc::new(OnceLock::new());
        for name in names() {
            let results = Arc::clone(&results);
            let test = move || {
                let results = results.get_or_init(|| collect_results(user, way).map_err(|failed| message(&failed)));
                check_result(results, name)
            };
            let name = format!("attacks::{user}::{way}::{name}");
            all.push(belljar_testing::trial_result(name, &needs, test));
        }
    }
    all
}

/// Returns the decorated functions of `attacks.py`, in order.
fn names() -> impl Iterator<Item = &'static str> {
    let mut decorated = false;
    ATTACKS_PYTHON.lines().chain([HOST_UNHARMED_LINES[0], HOST_UNHARMED_LINES[1]]).filter_map(move |line| {
        let is_decorator = line.starts_with("@attack") || line == "@holds" || line == "@works";
        let name = line.strip_prefix("def ").filter(|_| decorated).and_then(|rest| rest.split('(').next());
        decorated = is_decorator;
        name
    })
}

/// The check that runs outside the sandbox, after the attacks.
const HOST_UNHARMED: &str = "the_host_is_unharmed";
const HOST_UNHARMED_LINES: [&str; 2] = ["@holds", "def the_host_is_unharmed():"];

fn message(failed: &Failed) -> String {
    failed.message().unwrap_or("unknown error").to_owned()
}

fn collect_results(user: HostUser, way: &str) -> Result<HashMap<String, AttackResult>, Failed> {
    let output = user.run_task("attacks", &[way])?;
    let results: Result<Vec<AttackResult>, _> = output.lines().map(serde_json::from_str).collect();
    Ok(results
        .map_err(|error| format!("{error} in {output}"))?
        .into_iter()
        .map(|result| (result.name.clone(), result))
        .collect())
}

fn check_result(results: &AttackResults, name: &str) -> Result<(), Failed> {
    let results = results.as_ref().map_err(|why| Failed::from(why.clone()))?;
    if !results.contains_key("end") {
        return Err("the attacks did not run to their end".into());
    }
    match results.get(name) {
        Some(result) if result.passed => Ok(()),
        Some(result) => Err(result.detail.clone().into()),
        None => Err("the attack did not run".into()),
    }
}

/// Targets of the attacks on the host.
struct Target {
    tcp: TcpListener,
    udp: UdpSocket,
    listener: UnixListener,
    abstract_listener: UnixListener,
    victim: Child,
    secret: std::path::PathBuf,
}

impl Target {
    fn prepare(folder: &Path) -> Result<(Self, serde_json::Value), Box<dyn std::error::Error>> {
        let secret = folder.join("secret");
        fs::write(&secret, MARKER)?;
        let other = folder.join("other-session");
        fs::create_dir(&other)?;
        fs::write(other.join("diary"), MARKER)?;
        if let Some(user) = HostUser::session_user(2) {
            chown(&other, Some(user), Some(user))?;
        }
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        tcp.set_nonblocking(true)?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        udp.set_nonblocking(true)?;
        let socket = folder.join("socket");
        let listener = UnixListener::bind(&socket)?;
        listener.set_nonblocking(true)?;
        let name = format!("belljar-test-{}", std::process::id());
        let abstract_listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        abstract_listener.set_nonblocking(true)?;
        let mut victim = Command::new("/bin/sleep");
        // As an ordinary user, the victim has the same user as the code.
        let victim = victim.arg("1000").stdout(Stdio::null()).spawn()?;
        let context = serde_json::json!({
            "secret": secret, "other_session": other, "socket": socket, "abstract": name, "victim": victim.id(),
            "tcp": tcp.local_addr()?.port(), "udp": udp.local_addr()?.port(), "marker": MARKER, "python": python(),
        });
        Ok((Self { tcp, udp, listener, abstract_listener, victim, secret }, context))
    }

    fn is_harmed(&mut self) -> Option<&'static str> {
        if self.tcp.accept().is_ok() || self.listener.accept().is_ok() || self.abstract_listener.accept().is_ok() {
            return Some("a connection came out");
        }
        if self.udp.recv(&mut [0; 16]).is_ok() {
            return Some("a datagram came out");
        }
        if !matches!(self.victim.try_wait(), Ok(None)) {
            return Some("a process was killed");
        }
        if !fs::read_to_string(&self.secret).is_ok_and(|text| text == MARKER) {
            return Some("a file was changed");
        }
        None
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.victim.kill();
        let _ = self.victim.wait();
    }
}

/// Completes the specification of a session's sandbox as the attacks expect it.
pub(crate) fn session(mut spec: Spec, shared: &Path) -> Result<Spec, Box<dyn std::error::Error>> {
    spec.user = HostUser::session_user(1);
    if let Some(user) = spec.user {
        chown(shared, Some(user), Some(user))?;
    }
    spec.environment.insert("HOME".to_owned(), "/home/user".to_owned());
    spec.directory = "/home/user".into();
    spec.folders = vec![
        Folder { inside: "/home/user".into(), source: FolderSource::Memory { bytes: 16 * MEBIBYTE, files: 1000 } },
        Folder { inside: "/shared".into(), source: FolderSource::Host(shared.to_owned()) },
    ];
    spec.limits = ResourceLimits { tmp_bytes: 16 * MEBIBYTE, shared_bytes: 16 * MEBIBYTE, ..ResourceLimits::default() };
    Ok(spec)
}

/// Runs all attacks in a sandbox, and then checks the targets. Runs in a process of the [`HostUser`].
pub(crate) fn run_attacks(arguments: &[String]) -> TestResult {
    let folder = tempfile::Builder::new().prefix("belljar-sandbox-").tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let shared = folder.path().join("shared");
    fs::create_dir(&shared)?;
    let (mut target, mut context) = Target::prepare(folder.path())?;
    context["skip"] = serde_json::json!([]);
    if arguments.first().is_some_and(|way| way == "entered") {
        run_in_entered_process(folder.path(), &shared, &context)?;
    } else {
        // The script is longer than what a specification may have.
        fs::write(shared.join("attacks.py"), ATTACKS_PYTHON)?;
        let script = "exec(open('/shared/attacks.py').read())".to_owned();
        let arguments = [python().display().to_string(), "-B".into(), "-c".into(), script, context.to_string()];
        let spec = session(Spec::new(arguments), &shared)?;
        let (reader, output) = std::io::pipe()?;
        let output = OwnedFd::from(output);
        let streams = Streams { input: None, errors: output.try_clone()?.into(), output: output.into() };
        let mut running = sandbox::spawn(&spec, Policy::Full, streams)?;
        copy_results(File::from(OwnedFd::from(reader)))?;
        running.wait()?;
    }
    let harm = target.is_harmed();
    let result = serde_json::json!({
        "name": HOST_UNHARMED, "passed": harm.is_none(), "detail": harm.unwrap_or_default()
    });
    print_line(&result.to_string())
}

fn print_line(line: &str) -> TestResult {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Runs the attacks in a process that was forked from a zygote and entered an idle sandbox. As an ordinary user, the
/// zygote's interpreter belongs to the user that the code runs as.
fn run_in_entered_process(folder: &Path, shared: &Path, context: &serde_json::Value) -> TestResult {
    let interpreter = folder.join("python3");
    fs::copy(python(), &interpreter)?;
    fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o755))?;
    let before = fs::metadata(&interpreter)?;
    let modules = folder.join("modules");
    fs::create_dir(&modules)?;
    let mut zygote = Zygote::start(&interpreter, &modules)?;
    let idle: Sandbox = sandbox::spawn(&session(Spec::idle(), shared)?, Policy::Full, Streams::default())?;
    let (reader, output) = std::io::pipe()?;
    // The zygote's own interpreter is not visible inside; `multiprocessing` starts helpers by that name.
    let code = format!(
        "import json, sys\nsys.executable = {:?}\nattacks.main(json.loads({:?}))",
        python().display().to_string(),
        context.to_string()
    );
    let entered = zygote.run(&idle, &code, output.into())?;
    copy_results(File::from(OwnedFd::from(reader)))?;
    drop(entered);
    let after = fs::metadata(&interpreter)?;
    if before.permissions() != after.permissions() || before.modified()? != after.modified()? {
        return Err("the zygote's interpreter was changed".into());
    }
    Ok(())
}

/// Copies the results, of bounded size, to standard output, and all other lines to standard error.
fn copy_results(output: File) -> TestResult {
    for line in BufReader::new(output.take(MEBIBYTE)).lines() {
        let line = line?;
        if serde_json::from_str::<AttackResult>(&line).is_ok() { print_line(&line)? } else { eprintln!("{line}") }
    }
    Ok(())
}
