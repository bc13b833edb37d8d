//! The systemd units, checked by systemd, and the container, built and run.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::wire::{Wire, text};

belljar_testing::trials! {
    systemd_accepts_the_units: [SystemdAnalyze],
    units_expose_little: [SystemdAnalyze],
    native_unit_permits_the_system_calls_of_the_sandbox: [SystemdAnalyze],
    container_serves_streams_and_http: [ContainerBuilder],
}

fn packaging(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(name)
}

/// The units in a directory of their own, with the path of the binary under test.
struct Units(tempfile::TempDir);

impl Units {
    /// Copies the unit, and the file of this name that changes it.
    fn new(changes: Option<&str>, change: impl Fn(String) -> String) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let unit = std::fs::read_to_string(packaging("systemd/belljar.service")).unwrap();
        let unit = change(unit.replace("/usr/local/bin/belljar", env!("CARGO_BIN_EXE_belljar")));
        std::fs::write(directory.path().join("belljar.service"), unit).unwrap();
        if let Some(name) = changes {
            let changes = directory.path().join("belljar.service.d");
            std::fs::create_dir(&changes).unwrap();
            let text = std::fs::read_to_string(packaging("systemd").join(name)).unwrap();
            std::fs::write(changes.join(name), change(text)).unwrap();
        }
        Self(directory)
    }

    /// Returns whether systemd accepts the unit, and its complaints.
    fn analyze(&self, arguments: &[&str]) -> (bool, String) {
        let unit = self.0.path().join("belljar.service");
        let output = Command::new("systemd-analyze").args(arguments).arg(unit).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns the complaints about the unit. A key is unknown to systemd versions that are older than it.
    fn complaints(&self) -> Vec<String> {
        let (good, text) = self.analyze(&["verify", "--man=no"]);
        let lines = text.lines().filter(|line| line.contains("belljar") && !line.contains("'DelegateSubgroup'"));
        let mut complaints: Vec<String> = lines.map(str::to_owned).collect();
        if !good {
            complaints.push(text);
        }
        complaints
    }
}

fn systemd_accepts_the_units() {
    for changes in [None, Some("native.conf"), Some("cluster.conf")] {
        assert_eq!(Units::new(changes, |text| text).complaints(), [""; 0]);
    }
    for (right, wrong) in [
        ("ProtectSystem=strict", "ProtectSytem=strict"),
        ("Type=notify", "Type=nofity"),
        ("UMask=0077", "UMask=banana"),
        ("SystemCallFilter=@system-service", "SystemCallFilter=@sytem-service"),
    ] {
        let broken = Units::new(None, |text| {
            assert!(text.contains(right), "{right}");
            text.replace(right, wrong)
        });
        assert!(!broken.complaints().is_empty(), "systemd takes {wrong}");
    }
}

fn units_expose_little() {
    // In tenths: systemd calls up to 3.9 fine, and a unit without any hardening has 9.6.
    for (changes, most) in [(None, "20"), (Some("native.conf"), "40"), (Some("cluster.conf"), "20")] {
        let units = Units::new(changes, |text| text);
        let (good, text) = units.analyze(&["security", "--offline=yes", &format!("--threshold={most}")]);
        assert!(good, "{text}");
    }
    let open = Units::new(None, |text| text.replace("SystemCallFilter=", "# "));
    assert!(!open.analyze(&["security", "--offline=yes", "--threshold=20"]).0, "the threshold finds nothing");
}

/// Returns the system calls of a set of systemd's, such as `@mount`, with those of the sets in it.
fn system_calls(set: &str) -> Vec<String> {
    let output = Command::new("systemd-analyze").args(["--no-pager", "syscall-filter", set]).output().unwrap();
    assert!(output.status.success(), "{set}");
    let text = String::from_utf8(output.stdout).unwrap();
    let entries = text.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let calls = entries.flat_map(|entry| if entry.starts_with('@') { system_calls(entry) } else { vec![entry.into()] });
    calls.collect()
}

fn native_unit_permits_the_system_calls_of_the_sandbox() {
    let text = std::fs::read_to_string(packaging("systemd/native.conf")).unwrap();
    let filters = text.lines().filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let words: Vec<&str> = filters.flat_map(str::split_whitespace).collect();
    let mut permitted: Vec<String> =
        words.iter().filter(|word| !word.starts_with('@')).map(|&word| word.into()).collect();
    permitted.extend(words.iter().filter(|word| word.starts_with('@')).flat_map(|set| system_calls(set)));
    // Those of belljar-sandbox/src/syscalls.rs and landlock.rs that ordinary programs do not use.
    for call in [
        "capget",
        "capset",
        "clone",
        "clone3",
        "close_range",
        "landlock_add_rule",
        "landlock_create_ruleset",
        "landlock_restrict_self",
        "mount",
        "mount_setattr",
        "pidfd_open",
        "pidfd_send_signal",
        "pivot_root",
        "prctl",
        "seccomp",
        "setgroups",
        "setresgid",
        "setresuid",
        "signalfd4",
        "umount2",
        "unshare",
    ] {
        assert!(permitted.iter().any(|name| name == call), "{call} is not permitted");
    }
}

/// An image, built from this source; deleted when dropped.
struct Image {
    program: &'static str,
    tag: String,
}

impl Image {
    fn build() -> Self {
        let program = belljar_testing::container_program().unwrap();
        let tag = format!("belljar-test-{}", std::process::id());
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        belljar_testing::install::run(Command::new(program).args(["build", "--tag", &tag]).arg(root));
        Self { program, tag }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments);
        command
    }

    fn output(&self, arguments: &[&str]) -> String {
        belljar_testing::install::run(&mut self.command(arguments)).trim().to_owned()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Fails if the image was not built.
        let _ = self.command(&["rmi", "--force", &self.tag]).output();
    }
}

fn container_serves_streams_and_http() {
    let image = Image::build();
    let mut command = image.command(&["run", "--rm", "--interactive", "--no-healthcheck", &image.tag, "stdio"]);
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    let answer = text(&wire.tool("run_python_code", json!({ "python_code": "6 * 7" })));
    assert!(answer.contains("42"), "{answer}");
    drop(wire);

    const LOG: &str = "/var/log/belljar/audit.log";
    let options = ["--detach", "--read-only", "--tmpfs", "/tmp", "--volume", "/var/log/belljar", "--cap-drop", "ALL"];
    let server = ["streamable-http", "--host", "0.0.0.0", "--insecure-no-auth", "--audit", LOG];
    let container = image.output(&[&["run"], &options[..], &[image.tag.as_str()], &server].concat());
    let begin = Instant::now();
    while !image.command(&["exec", &container, "belljar", "healthcheck"]).output().unwrap().status.success() {
        assert!(begin.elapsed() < Duration::from_secs(180), "{}", image.output(&["logs", &container]));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(image.output(&["exec", &container, "id", "-u"]), "10001");
    let inspected: Value = serde_json::from_str(&image.output(&["inspect", &container])).unwrap();
    assert!(inspected[0]["Config"]["Healthcheck"].to_string().contains("healthcheck"), "{inspected}");
    let log = image.output(&["exec", &container, "belljar", "audit", "show", LOG]);
    assert!(log.contains("server.start"), "{log}");
    image.output(&["rm", "--force", "--volumes", &container]);
}
