//! The servers of the network tests, with the certificates and the policy to reach them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::certificates;
use crate::harness::{Belljar, Run};
use crate::wire::Wire;

/// The value of the secret `TOKEN`, which is for `api.example.com` on the port `https`. Each encoding changes it.
pub(crate) const TOKEN: &str = "s3cret/Value+of=the\"tests\"?&%~42";

/// The value of the secret `KEY`, which a rule puts into requests to `keys.example.com`.
pub(crate) const KEY: &str = "another-secret-for-the-rule";

/// Ports that the policy allows on `api.example.com`.
const API_PORTS: [&str; 16] = [
    "https",
    "other",
    "http",
    "expired",
    "future",
    "wrong_name",
    "self_signed",
    "unknown",
    "echo",
    "tls_echo",
    "silent",
    "silent_tls",
    "slow",
    "reset",
    "smtp",
    "closed",
];

/// Servers of the process, and the files of their options.
pub(crate) struct Site {
    folder: tempfile::TempDir,
    ports: BTreeMap<String, u16>,
    /// Its standard input, open until this process ends, lets the servers run.
    _servers: Child,
}

/// Returns the servers, which all tests of the process share.
pub(crate) fn site() -> &'static Site {
    static SITE: OnceLock<Site> = OnceLock::new();
    SITE.get_or_init(Site::start)
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates::write(folder.path()).unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network/servers.py");
        let mut command = Command::new("python3");
        command.arg("-B").arg(program).arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut servers = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(servers.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let site = Self { folder, ports: serde_json::from_str(&line).unwrap(), _servers: servers };
        std::fs::write(site.folder.path().join("policy.toml"), site.policy()).unwrap();
        site
    }

    /// Returns the policy of the tests, which [`belljar`](Self::belljar) uses.
    fn policy(&self) -> String {
        let hosts = API_PORTS.map(|port| format!("\"api.example.com:PORT_{port}\" = []\n")).concat();
        self.filled(&format!(
            r#"[resolve]
"api.example.com" = "127.0.0.1"
"www.example.com" = "127.0.0.1"
"keys.example.com" = "127.0.0.1"
"rules.example.com" = "127.0.0.1"
"denied.example.com" = "127.0.0.2"
"sub.wild.example.com" = "127.0.0.1"

[subnets]
deny = ["127.0.0.2"]

[allow]
{hosts}
"www.example.com:PORT_https" = []
"www.example.com:PORT_http" = []
"*.wild.example.com:PORT_https" = []
"denied.example.com:PORT_canary" = []
"localhost:PORT_canary" = []
"[::1]:PORT_https6" = []
"127.0.0.1:PORT_echo" = []

[[allow."keys.example.com:PORT_https"]]
match = {{ path = ["/digest", "/return/*", "/headers"] }}
transform = {{ headers = {{ authorization = "Bearer ${{KEY}}" }} }}

[[allow."keys.example.com:PORT_http"]]
transform = {{ headers = {{ authorization = "Bearer ${{KEY}}" }} }}

[[allow."rules.example.com:PORT_https"]]
match = {{ method = ["GET"], path = "/hello" }}

[[allow."rules.example.com:PORT_https"]]
match = {{ method = ["POST"], path = "/request", query = {{ kind = "good" }}, headers = {{ x-team = "a" }} }}
"#
        ))
    }

    /// Returns a text with the number of each port instead of `PORT_NAME`.
    pub(crate) fn filled(&self, text: &str) -> String {
        // Names that begin with another name precede it.
        self.ports
            .iter()
            .rev()
            .fold(text.to_owned(), |text, (name, port)| text.replace(&format!("PORT_{name}"), &port.to_string()))
    }

    /// Returns the port of a server.
    pub(crate) fn port(&self, name: &str) -> u16 {
        self.ports[name]
    }

    /// Returns a file of the servers' folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the options for the network with the policy, the certificate authority and the secrets.
    pub(crate) fn options(&self) -> Vec<String> {
        let file = |name: &str| self.file(name).into_os_string().into_string().unwrap();
        ["--net-policy", &file("policy.toml"), "--net-ca", &file("ca.crt")]
            .into_iter()
            .map(str::to_owned)
            .chain(["--secret".to_owned(), self.filled("TOKEN@api.example.com:PORT_https=env:TEST_TOKEN")])
            .chain(["--secret".to_owned(), self.filled("KEY@keys.example.com:PORT_https=env:TEST_KEY")])
            .collect()
    }

    /// Returns `belljar COMMAND` with the options of the network.
    pub(crate) fn belljar(&self, command: &str) -> Belljar {
        Belljar::new().arg(command).args(self.options()).env("TEST_TOKEN", TOKEN).env("TEST_KEY", KEY)
    }

    /// Runs code with `belljar run`.
    pub(crate) fn run(&self, code: &str) -> Run {
        self.belljar("run").args(["--timeout", "180", "-c", &self.filled(code)]).run()
    }

    /// Starts `belljar stdio` with the options of the network.
    pub(crate) fn serve(&self, options: &[&str]) -> Wire {
        self.serve_in("thread", options)
    }

    /// Does the same with this isolation of interpreters.
    pub(crate) fn serve_in(&self, isolation: &str, options: &[&str]) -> Wire {
        let mut command = self.belljar("stdio").args(["--isolation", isolation]).args(options).into_command();
        command.stderr(Stdio::inherit());
        let mut wire = Wire::spawn(command);
        wire.initialize();
        wire
    }

    /// Returns what the servers have recorded: requests, mails and connections to ports that no policy allows.
    pub(crate) fn records(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file("requests.jsonl")).unwrap();
        // The last line may not be complete.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
