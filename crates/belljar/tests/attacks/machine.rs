//! The targets of attacks: a file with a secret, a variable of the environment, a server, and a process.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest time of a program in a plain Python.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(20);

/// The targets of attacks on this machine.
pub(super) struct Machine {
    folder: tempfile::TempDir,
    /// The secret, which is in the file, in the environment, and in each answer of the server.
    secret: String,
    port: u16,
    connections: Arc<AtomicUsize>,
    process: Child,
}

impl Machine {
    pub(super) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The folder's name is random. Code knows it, but not this text.
        let secret: String =
            format!("{}-terces", folder.path().display()).chars().rev().filter(|letter| *letter != '/').collect();
        std::fs::write(folder.path().join("secret.txt"), &secret).unwrap();
        std::fs::write(folder.path().join("secret_module.py"), format!("TOKEN = {secret:?}\n")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, answer) = (connections.clone(), secret.clone());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                // The other end may have left.
                let _ = stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{answer}").as_bytes());
            }
        });
        let unix = UnixListener::bind(folder.path().join("socket")).unwrap();
        let (count, answer) = (connections.clone(), secret.clone());
        std::thread::spawn(move || {
            for mut stream in unix.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let mut process = Command::new("sleep");
        // Longer than all attacks of a group take on a busy machine.
        process.arg("7200").env("ATTACK_SECRET", &secret).stdin(Stdio::null()).current_dir(folder.path());
        let process = process.spawn().unwrap();
        Self { folder, secret, port, connections, process }
    }

    /// Returns the variables for the environment of the server.
    pub(super) fn environment(&self) -> impl Iterator<Item = (&'static str, String)> {
        [("ATTACK_SECRET", self.secret.clone())].into_iter()
    }

    /// Returns code with the names of the targets: as variables, and in the comments of PEP 723.
    pub(super) fn with_names(&self, code: &str) -> String {
        let directory = self.folder.path().display().to_string();
        let port = self.port.to_string();
        let fields = [
            ("DIRECTORY", directory.clone()),
            ("PORT", port.clone()),
            ("FILE", format!("{directory}/secret.txt")),
            ("NAMES", vec!["\"evil\""; 50_000].join(", ")),
            ("NAME", "n".repeat(1 << 20)),
            ("MARKER", format!("{}python_version > '3'{}", "(".repeat(50_000), ")".repeat(50_000))),
            ("VERSION", "1.".repeat(500_000)),
            ("DEEP", format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))),
        ];
        let line = |line: &str| match line.starts_with("# ") {
            true => fields.iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, value)),
            false => line.to_owned(),
        };
        let lines: Vec<String> = code.lines().map(line).collect();
        let names = format!(
            "FILE, DIRECTORY = '{directory}/secret.txt', '{directory}'; PORT, PID = {port}, {}",
            self.process.id()
        );
        format!("{names}\n{}", lines.join("\n"))
    }

    /// Returns the harm that is seen, in this text or on the machine.
    pub(super) fn harm(&mut self, shown: &str) -> Option<&'static str> {
        let file = std::fs::read_to_string(self.folder.path().join("secret.txt")).unwrap_or_default();
        let mut names: Vec<_> = std::fs::read_dir(self.folder.path())
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name())
            .collect();
        names.sort();
        let is_readable = std::fs::metadata(self.folder.path().join("secret.txt"))
            .is_ok_and(|metadata| std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o400 != 0);
        if shown.contains(&self.secret) {
            Some("the result has the secret")
        } else if self.connections.load(Ordering::Relaxed) > 0 {
            Some("the server was reached")
        } else if file != self.secret || !is_readable || names != ["secret.txt", "secret_module.py", "socket"] {
            Some("the directory has changed")
        } else if self.process.try_wait().unwrap().is_some() {
            Some("the process has ended")
        } else {
            None
        }
    }

    /// Runs code without a sandbox, in a directory of its own. Returns its output.
    pub(super) fn run_in_plain_python(&mut self, code: &str) -> String {
        let own = tempfile::tempdir().unwrap();
        let code = self.with_names(&code.replace("/tmp", &own.path().display().to_string()));
        let (program, literal) = (own.path().join("attack.py"), serde_json::to_string(&code).unwrap());
        std::fs::write(&program, format!("import asyncio\nfrom ast import PyCF_ALLOW_TOP_LEVEL_AWAIT as flag\nimport inspect\n\
            code = compile({literal}, 'attack', 'exec', flag)\nresult = eval(code)\nif inspect.iscoroutine(result):\n    asyncio.run(result)\n")).unwrap();
        let output = std::fs::File::create(own.path().join("output")).unwrap();
        let mut command = Command::new("python3");
        command.arg(&program).current_dir(own.path()).envs(self.environment()).stdin(Stdio::null());
        let mut child = command.stdout(output.try_clone().unwrap()).stderr(output).spawn().unwrap();
        let begin = Instant::now();
        while child.try_wait().unwrap().is_none() && begin.elapsed() < CONTROL_TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        child.wait().unwrap();
        String::from_utf8_lossy(&std::fs::read(own.path().join("output")).unwrap()).into_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
