//! One sandbox in which every attack of `attacks.py` is tried, for each way in; and its listing as tests.

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

use belljar_jupyter::sandbox::{self, Folder, Limits, Policy, Sandbox, Source, Spec, Streams};
use libtest_mimic::{Failed, Trial};
use serde::Deserialize;

use crate::trials::person::{MARKER, Outcome, Person, python};
use crate::trials::zygote::Zygote;

pub(crate) const ATTACKS_PYTHON: &str = include_str!("../attacks/attacks.py");

/// Attacks are made by numbers of system calls, which are those of this architecture.
const KNOWN_ARCHITECTURE: bool = cfg!(target_arch = "x86_64");

const MEBIBYTE: u64 = 1 << 20;

/// How the code gets into the sandbox.
const WAYS: [&str; 2] = ["program", "entered"];

/// What a test learns of one attack.
#[derive(Deserialize, Clone)]
struct Finding {
    name: String,
    good: bool,
    what: String,
}

type Findings = Result<HashMap<String, Finding>, String>;

pub(crate) fn trials(person: Person) -> Vec<Trial> {
    if !KNOWN_ARCHITECTURE {
        eprintln!("SKIPPED: attacks as {person}: they are written for x86-64");
    }
    let mut all = Vec::new();
    for way in WAYS {
        // One sandbox for all of them, made when the first is asked for.
        let findings: Arc<OnceLock<Findings>> = Arc::new(OnceLock::new());
        for name in names() {
            let findings = Arc::clone(&findings);
            let test = move || {
                let findings = findings.get_or_init(|| find(person, way).map_err(|failed| explain(&failed)));
                judge(findings, name)
            };
            all.push(
                Trial::test(format!("attacks::{person}::{way}::{name}"), test).with_ignored_flag(!KNOWN_ARCHITECTURE),
            );
        }
    }
    all
}

/// The functions that are marked, in order.
fn names() -> impl Iterator<Item = &'static str> {
    let mut marked = false;
    ATTACKS_PYTHON.lines().chain([HOST_UNHARMED_LINES[0], HOST_UNHARMED_LINES[1]]).filter_map(move |line| {
        let mark = line.starts_with("@attack") || line == "@holds" || line == "@works";
        let name = line.strip_prefix("def ").filter(|_| marked).and_then(|rest| rest.split('(').next());
        marked = mark;
        name
    })
}

/// The finding that is made outside.
const HOST_UNHARMED: &str = "the_host_is_unharmed";
const HOST_UNHARMED_LINES: [&str; 2] = ["@holds", "def the_host_is_unharmed():"];

fn explain(failed: &Failed) -> String {
    failed.message().unwrap_or("for no known reason").to_owned()
}

fn find(person: Person, way: &str) -> Result<HashMap<String, Finding>, Failed> {
    let output = person.play("attacked", &[way])?;
    let findings: Result<Vec<Finding>, _> = output.lines().map(serde_json::from_str).collect();
    Ok(findings
        .map_err(|error| format!("{error} in {output}"))?
        .into_iter()
        .map(|one| (one.name.clone(), one))
        .collect())
}

fn judge(findings: &Findings, name: &str) -> Result<(), Failed> {
    let findings = findings.as_ref().map_err(|why| Failed::from(why.clone()))?;
    if !findings.contains_key("end") {
        return Err("the attacks ended before their end".into());
    }
    match findings.get(name) {
        Some(finding) if finding.good => Ok(()),
        Some(finding) => Err(finding.what.clone().into()),
        None => Err("it was not tried".into()),
    }
}

/// What is there on the host to be attacked.
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
        if let Some(user) = Person::session_user(2) {
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
        // Of the same user as what attacks it, where one's user is all that one has.
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

/// The sandbox of a session as the attacks expect it.
pub(crate) fn session(mut spec: Spec, shared: &Path) -> Result<Spec, Box<dyn std::error::Error>> {
    spec.user = Person::session_user(1);
    if let Some(user) = spec.user {
        chown(shared, Some(user), Some(user))?;
    }
    spec.environment.insert("HOME".to_owned(), "/home/user".to_owned());
    spec.directory = "/home/user".into();
    spec.folders = vec![
        Folder { inside: "/home/user".into(), source: Source::Memory { bytes: 16 * MEBIBYTE, files: 1000 } },
        Folder { inside: "/shared".into(), source: Source::Host(shared.to_owned()) },
    ];
    spec.limits = Limits { tmp_bytes: 16 * MEBIBYTE, shared_bytes: 16 * MEBIBYTE, ..Limits::default() };
    Ok(spec)
}

/// In a process of the person's: makes the sandbox, and has everything tried in it.
pub(crate) fn play(arguments: &[String]) -> Outcome {
    let folder = tempfile::Builder::new().prefix("belljar-sandbox-").tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    let shared = folder.path().join("shared");
    fs::create_dir(&shared)?;
    let (mut target, mut context) = Target::prepare(folder.path())?;
    context["skip"] = serde_json::json!([]);
    if arguments.first().is_some_and(|way| way == "entered") {
        entered(folder.path(), &shared, &context)?;
    } else {
        let script = format!("import sys, json\n{ATTACKS_PYTHON}");
        let arguments = [python().display().to_string(), "-B".into(), "-c".into(), script, context.to_string()];
        let spec = session(Spec::new(arguments), &shared)?;
        let (reader, output) = std::io::pipe()?;
        let output = OwnedFd::from(output);
        let streams = Streams { input: None, errors: output.try_clone()?.into(), output: output.into() };
        let mut running = sandbox::spawn(&spec, Policy::Full, streams)?;
        copy_findings(File::from(OwnedFd::from(reader)))?;
        running.wait()?;
    }
    let harm = target.is_harmed();
    let finding = serde_json::json!({ "name": HOST_UNHARMED, "good": harm.is_none(), "what": harm });
    say(&finding.to_string().replace("null", "\"\""))
}

fn say(line: &str) -> Outcome {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// The same in a process that was forked from a zygote whose interpreter, if this is no root, belongs to the very user
/// who attacks.
fn entered(folder: &Path, shared: &Path, context: &serde_json::Value) -> Outcome {
    let interpreter = folder.join("python3");
    fs::copy(python(), &interpreter)?;
    fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o755))?;
    let before = fs::metadata(&interpreter)?;
    let modules = folder.join("modules");
    fs::create_dir(&modules)?;
    let mut zygote = Zygote::start(&interpreter, &modules)?;
    let waiting: Sandbox = sandbox::spawn(&session(Spec::waiting(), shared)?, Policy::Full, Streams::default())?;
    let (reader, output) = std::io::pipe()?;
    // The zygote's own interpreter is not shown inside; `multiprocessing` starts helpers by that name.
    let code = format!(
        "import json, sys\nsys.executable = {:?}\nattacks.main(json.loads({:?}))",
        python().display().to_string(),
        context.to_string()
    );
    let entered = zygote.run(&waiting, &code, output.into())?;
    copy_findings(File::from(OwnedFd::from(reader)))?;
    drop(entered);
    let after = fs::metadata(&interpreter)?;
    if before.permissions() != after.permissions() || before.modified()? != after.modified()? {
        return Err("the zygote's interpreter was changed".into());
    }
    Ok(())
}

/// Passes on what is found inside, of bounded size; what is no finding goes to standard error.
fn copy_findings(output: File) -> Outcome {
    for line in BufReader::new(output.take(MEBIBYTE)).lines() {
        let line = line?;
        if serde_json::from_str::<Finding>(&line).is_ok() { say(&line)? } else { eprintln!("{line}") }
    }
    Ok(())
}
