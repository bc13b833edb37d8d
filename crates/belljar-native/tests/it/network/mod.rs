//! Tests of the network that a policy allows: the proxy of a session, its certificate authority, and attacks on both.

mod attacks;
mod servers;

use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex};

use belljar_core::files::Range;
use belljar_core::kernel::{Backend as _, CellRequest, OneShotRequest, ShellRequest};
use belljar_core::{CallCancellation, CellStatus, ConnectionRecord, Outcome};
use belljar_native::{NativeBackend, NativeOptions};
use belljar_network::{Network, NetworkLimits, NetworkOptions, Policy as NetworkPolicy, Secrets};
use belljar_sandbox::Policy;
use belljar_testing::{Capability, Trial};
use serde_json::{Value, json};

use self::servers::{LoopbackResolver, SECRET, SERVERS};
use crate::trials::harness::{Listener, Session, options, python_with, text_of};

/// The Python with HTTP libraries.
static PYTHON: LazyLock<PathBuf> =
    LazyLock::new(|| python_with("native-network", &["ipykernel", "requests", "httpx", "aiohttp"]));

/// The number of connections at once in the tests' sessions.
const MAX_CONNECTIONS: usize = 8;

/// The backend that the tests share.
static SHARED: Mutex<Option<NativeBackend>> = Mutex::new(None);

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = [
        ("http_libraries_use_the_proxy", http_libraries as fn(&mut Session)),
        ("tls_is_passed_on_for_hosts_without_rules", tls_is_passed_on),
        ("tls_ends_at_the_host_for_hosts_with_rules", tls_ends_at_the_host),
        ("secrets_are_in_requests_to_their_host_alone", secrets),
        ("secrets_are_in_no_output_and_no_file", output_without_secrets),
        ("refusals_have_their_text", refusals),
        ("failed_connections_have_their_reason", failed_connections),
        ("socks_connects_by_name", socks),
        ("large_bodies_arrive_whole", large_bodies),
        ("websocket_and_client_data_pass", raw_bytes),
        ("processes_of_the_session_reach_each_other", local_servers),
        ("restarted_kernel_has_the_network", restart),
        ("first_cell_narrows_the_network", narrowing),
    ]
    .into_iter()
    .map(|(name, test)| trial(name, test))
    .collect();
    let needs = [Capability::NativeSandbox];
    let name = "network::call_has_the_records_of_connections_that_it_left_open";
    trials.push(belljar_testing::trial(name, &needs, connections_left_open));
    trials.push(belljar_testing::trial("network::calls_narrow_the_network", &needs, calls_narrow_the_network));
    let name = "network::values_of_calls_are_without_secrets";
    trials.push(belljar_testing::trial(name, &needs, values_without_secrets));
    trials.extend(attacks::trials());
    trials
}

/// Returns a test with a session that has the network.
pub(super) fn trial(name: &str, test: fn(&mut Session)) -> Trial {
    let needs = [Capability::NativeSandbox];
    belljar_testing::trial(format!("network::{name}"), &needs, move || test(&mut Session::new(&backend())))
}

/// Drops the shared backend.
pub(crate) fn end() {
    SHARED.lock().unwrap().take();
}

/// Returns the backend that the tests share.
pub(super) fn backend() -> NativeBackend {
    let mut shared = SHARED.lock().unwrap();
    if let Some(backend) = &*shared {
        return backend.clone();
    }
    let backend = NativeBackend::new(options_with_network()).unwrap();
    backend.warm_up().unwrap();
    shared.insert(backend).clone()
}

/// Returns options with the network of the tests.
pub(super) fn options_with_network() -> NativeOptions {
    let modules = ["urllib.request", "ssl", "requests"].map(str::to_owned).into();
    NativeOptions { network: Some(network()), python: PYTHON.clone(), modules, ..options(Policy::Full) }
}

/// Creates the network of the tests.
fn network() -> Arc<Network> {
    let (http, tls, untrusted, echo) = (SERVERS.http, SERVERS.tls, SERVERS.untrusted, SERVERS.echo);
    let get = json!([{ "match": { "method": "GET", "path": "/allowed/*" } }]);
    let host = |name: &str, port: u16| format!("{name}:{port}");
    let policy = json!({
        "allow": {
            host("plain.example", http): [],
            host("pass.example", tls): [],
            host("rules.example", tls): get,
            host("rules.example", untrusted): get,
            host("secret.example", tls): [],
            host("echo.example", echo): [],
            host("closed.example", 9): [],
            // The resolver's address is not named.
            host("private.example", http): [],
        },
        "resolve": {
            "plain.example": "127.0.0.1",
            "pass.example": "127.0.0.1",
            "rules.example": "127.0.0.1",
            "secret.example": "127.0.0.1",
            "echo.example": "127.0.0.1",
            "closed.example": "127.0.0.1",
        },
    });
    let mut secrets = Secrets::new();
    secrets.add("API_TOKEN", &[host("secret.example", tls)], SECRET.to_owned()).unwrap();
    let options = NetworkOptions {
        policy: NetworkPolicy::from_json(&policy).unwrap(),
        secrets,
        extra_ca: Some(SERVERS.authority.clone().into_bytes()),
        limits: NetworkLimits { connections: MAX_CONNECTIONS, ..NetworkLimits::default() },
        resolver: Some(Arc::new(LoopbackResolver)),
    };
    Network::new(options).unwrap()
}

/// Runs a cell whose text has the ports of the servers instead of `HTTP`, `TLS`, `UNTRUSTED` and `ECHO`.
#[track_caller]
pub(super) fn text(session: &mut Session, code: &str) -> String {
    session.text(&with_ports(code))
}

/// Does the same for a cell that must raise.
#[track_caller]
pub(super) fn error(session: &mut Session, code: &str) -> String {
    session.error(&with_ports(code))
}

pub(super) fn with_ports(code: &str) -> String {
    let ports =
        [(":HTTP", SERVERS.http), (":TLS", SERVERS.tls), (":UNTRUSTED", SERVERS.untrusted), (":ECHO", SERVERS.echo)];
    ports.iter().fold(code.to_owned(), |code, (name, port)| code.replace(name, &format!(":{port}")))
}

/// Returns the records of connections until now, once there is one that fits: records are made when connections end.
#[track_caller]
pub(super) fn record(session: &Session, fits: impl Fn(&ConnectionRecord) -> bool) -> ConnectionRecord {
    for _ in 0..3000 {
        if let Some(record) = session.listener.connections.lock().unwrap().iter().find(|record| fits(record)) {
            return record.clone();
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("no record fits: {:?}", session.listener.connections.lock().unwrap());
}

fn http_libraries(session: &mut Session) {
    let code = "import asyncio, urllib.request, requests, httpx, aiohttp\n\
                plain, tls = 'http://plain.example:HTTP/u', 'https://rules.example:TLS/allowed/u'\n\
                async def fetch(url):\n    \
                    async with aiohttp.ClientSession(trust_env=True) as client, client.get(url) as response:\n        \
                        return await response.text()\n\
                for url in (plain, tls):\n    \
                    texts = [urllib.request.urlopen(url).read().decode(), requests.get(url).text, httpx.get(url).text]\n    \
                    texts.append(await fetch(url))\n    \
                    print(*(text.splitlines()[0] for text in texts), sep='; ')";
    let line = |path: &str| vec![format!("GET {path} HTTP/1.1"); 4].join("; ") + "\n";
    assert_eq!(text(session, code), line("/u") + &line("/allowed/u"));
    let seen = record(session, |record| record.path.as_deref() == Some("/allowed/u"));
    assert_eq!((seen.method.as_deref(), seen.status, seen.allowed), (Some("GET"), Some(200), true));
    let session_requests = "with requests.Session() as client:\n    \
                            print([client.post('http://plain.example:HTTP/p', data='x' * 9).text[-9:] for _ in range(3)])";
    assert_eq!(text(session, session_requests), format!("{:?}\n", vec!["x".repeat(9); 3]).replace('"', "'"));
}

/// The code that prints the issuer of the certificate of a host.
const ISSUER: &str = "import os, socket, ssl, urllib.parse, urllib.request\n\
    def tunnel(host, port):\n    \
        proxy = urllib.parse.urlsplit(os.environ['HTTPS_PROXY'])\n    \
        stream = socket.create_connection((proxy.hostname, proxy.port))\n    \
        stream.sendall(f'CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n'.encode())\n    \
        head = b''\n    \
        while not head.endswith(b'\\r\\n\\r\\n'):\n        \
            byte = stream.recv(1)\n        \
            assert byte, head\n        \
            head += byte\n    \
        return stream, head.split(b'\\r\\n')[0].decode()\n\
    def issuer(host, port, name=None):\n    \
        stream, line = tunnel(host, port)\n    \
        with ssl.create_default_context().wrap_socket(stream, server_hostname=name or host) as encrypted:\n        \
            return dict(part[0] for part in encrypted.getpeercert()['issuer'])['commonName']\n";

fn tls_is_passed_on(session: &mut Session) {
    session.text(ISSUER);
    assert_eq!(text(session, "print(issuer(*'pass.example:TLS'.split(':')))"), "Authority of the tests\n");
    let seen = record(session, |record| record.host == "pass.example");
    assert!(seen.allowed && seen.method.is_none() && seen.bytes_received > 0, "{seen:?}");
    let code = "import requests\nprint(requests.get('https://pass.example:TLS/x').text.splitlines()[0])";
    assert_eq!(text(session, code), "GET /x HTTP/1.1\n");
    for name in ["rules.example", "other.example"] {
        let refused = error(session, &format!("issuer(*'pass.example:TLS'.split(':'), '{name}')"));
        assert!(refused.contains("SSL") || refused.contains("UNRECOGNIZED_NAME"), "{refused}");
        let seen = record(session, |record| !record.allowed && record.error.as_ref().is_some_and(|e| e.contains(name)));
        assert!(seen.error.unwrap().contains(&format!("its TLS is for {name}")), "{name}");
    }
}

fn tls_ends_at_the_host(session: &mut Session) {
    session.text(ISSUER);
    assert_eq!(text(session, "print(issuer(*'rules.example:TLS'.split(':')))"), "Belljar session\n");
    let code = "import requests\nresponse = requests.post('https://rules.example:TLS/allowed/x')\n\
                print(response.status_code, response.text)";
    let refused = text(session, code);
    assert!(refused.starts_with("403 network access to POST rules.example:"), "{refused}");
    let untrusted = "response = requests.get('https://rules.example:UNTRUSTED/allowed/x')\n\
                     print(response.status_code, response.text)";
    let failed = text(session, untrusted);
    assert!(failed.starts_with("502 failed to establish TLS: certificate verify failed: self-signed"), "{failed}");
    assert!(SERVERS.requests_with("POST /allowed/x").is_empty());
}

fn secrets(session: &mut Session) {
    let code = "import os, requests\n\
                headers = {'Authorization': 'Bearer ' + os.environ['API_TOKEN']}\n\
                secret = requests.get('https://secret.example:TLS/secret', headers=headers).text\n\
                other = requests.get('http://plain.example:HTTP/other', headers=headers).text\n\
                passed = requests.get('https://pass.example:TLS/passed', headers=headers).text\n\
                print(secret, other, passed, dict(os.environ))";
    let shown = text(session, code);
    assert!(!shown.contains(SECRET), "{shown}");
    let authorization = |path: &str| {
        let request = SERVERS.requests_with(path).pop().unwrap();
        request.lines().find_map(|line| line.strip_prefix("Authorization: ").map(str::to_owned)).unwrap()
    };
    assert_eq!(authorization("GET /secret "), format!("Bearer {SECRET}"));
    let placeholder = text(session, "print(os.environ['API_TOKEN'], end='')");
    for path in ["GET /other ", "GET /passed "] {
        assert_eq!(authorization(path), format!("Bearer {placeholder}"), "{path}");
    }
}

/// The code that makes the value of the secret, which it could have from elsewhere.
const KNOWN_SECRET: &str = "secret = 'the-value-' + 'of-the-secret'\n";

fn output_without_secrets(session: &mut Session) {
    let code = "import base64, sys, time\n\
                print('-'.join(['<', secret, '>']))\n\
                print(secret, secret.encode().hex(), file=sys.stderr)\n\
                for part in (secret[:9], secret[9:], '\\n', secret[:9], '\\n'):\n    \
                    print(part, end='', flush=True)\n    time.sleep(0.4)\n\
                print(base64.b64encode(secret.encode()).decode())\n\
                display({'text/plain': secret, 'text/html': f'<b>{secret}</b>'}, raw=True)\n\
                secret";
    let run = session.run(&format!("{KNOWN_SECRET}{code}"));
    assert_eq!(run.status, CellStatus::Ok, "{run:?}");
    let (mask, shown) = ("*".repeat(SECRET.len()), text_of(&run));
    let digits: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    for form in ["of-the", &digits] {
        assert!(!format!("{shown}{run:?}").contains(form), "{form}: {run:?}");
    }
    // Only what may be the beginning of a secret is held back, until the end.
    for line in [format!("<-{mask}->\n"), format!("\n{mask}\n{}\n", &SECRET[..9]), format!("'{mask}'")] {
        assert!(shown.contains(&line), "{line}: {shown}");
    }
    let raised = session.run("raise RuntimeError(secret)");
    assert!(format!("{raised:?}").contains(&mask) && !format!("{raised:?}").contains(SECRET), "{raised:?}");
    session.error("input(secret)");
    assert_eq!(session.listener.asked.lock().unwrap()[0].0, mask);
    let inspected = ShellRequest::Inspect { code: "secret".into(), cursor: 6, detail: 0 };
    let inspected = session.kernel.shell_request(&inspected).unwrap().to_string();
    assert!(inspected.contains(&mask) && !inspected.contains(SECRET), "{inspected}");
    // A file whose parts end within the secret.
    session.text("open('a.txt', 'w').write('.' * 100 + secret + '.')");
    let mut read = |offset, length| session.kernel.read("a.txt", Range { offset, length }).unwrap();
    let parts = [read(0, Some(110)), read(110, Some(5)), read(115, None)].concat();
    assert_eq!(String::from_utf8(parts).unwrap(), format!("{}{mask}.", ".".repeat(100)));
}

fn values_without_secrets() {
    let options = NativeOptions { python_version: "3.11.0".into(), packages: None, ..options_with_network() };
    let backend = NativeBackend::new(options).unwrap();
    let code = format!("{KNOWN_SECRET}print(secret)\n{{'of': secret}}");
    let listener: Arc<Listener> = Arc::default();
    let request = OneShotRequest { code, ..OneShotRequest::default() };
    let run = backend.run_once(request, listener.clone(), &CallCancellation::default()).unwrap();
    let seen = format!("{:?} {:?}", run.report, listener.written.lock().unwrap());
    let mask = "*".repeat(SECRET.len());
    assert!(matches!(run.report.outcome, Outcome::Success(Some(_))) && seen.contains(&mask), "{seen}");
    assert!(!seen.contains(SECRET), "{seen}");
}

fn refusals(session: &mut Session) {
    session.text("import requests, urllib.request");
    let allowed = format!("is not allowed; allowed: plain.example:{}", SERVERS.http);
    for url in
        ["http://other.example/", "https://other.example/", "http://127.0.0.1:HTTP/", "http://pass.example:HTTP/"]
    {
        let get = format!("response = requests.get('{url}', proxies={{'no_proxy': None}})");
        let run = session
            .run(&with_ports(&format!("import os\nos.environ['NO_PROXY'] = os.environ['no_proxy'] = ''\n{get}")));
        let shown = match run.status {
            CellStatus::Ok => text(session, "print(response.status_code, response.text)"),
            status => status.error(&session_limits()).unwrap().to_string(),
        };
        assert!(shown.contains("403 network access to ") && shown.contains("is not allowed; allowed: "), "{shown}");
    }
    let refused = error(session, "urllib.request.urlopen('https://other.example/')");
    assert!(refused.contains("403 network access to other.example:443") && refused.contains(&allowed), "{refused}");
    let seen = record(session, |record| record.host == "other.example");
    assert!(!seen.allowed && seen.error.unwrap().contains("is not allowed"));
    // The policy allows the name, and not the address that it has.
    let private = text(
        session,
        "response = requests.get('http://private.example:HTTP/')\nprint(response.status_code, response.text)",
    );
    assert!(private.starts_with("403 ") && private.contains("127.0.0.1 is loopback"), "{private}");
}

fn session_limits() -> belljar_core::Limits {
    crate::trials::harness::limits()
}

fn failed_connections(session: &mut Session) {
    let closed = error(session, "import urllib.request\nurllib.request.urlopen('https://closed.example:9/')");
    assert!(closed.contains("502 failed to connect to closed.example:9: "), "{closed}");
    let unnamed = error(session, "import requests\nrequests.get('https://a_b..example:443/')");
    assert!(unnamed.contains("400 invalid name of a host"), "{unnamed}");
    let direct = error(session, "import socket\nsocket.create_connection(('example.org', 443))");
    assert!(direct.contains("through a proxy alone") && direct.contains("trust_env"), "{direct}");
}

/// The code of a client of SOCKS5.
const SOCKS: &str = "import os, socket, struct, urllib.parse\n\
    def socks(host, port, kind=3, command=1, greeting=b'\\x05\\x01\\x00'):\n    \
        proxy = urllib.parse.urlsplit(os.environ['ALL_PROXY'])\n    \
        stream = socket.create_connection((proxy.hostname, proxy.port))\n    \
        stream.sendall(greeting)\n    \
        method = stream.recv(2)\n    \
        if method != b'\\x05\\x00':\n        \
            return None, method\n    \
        address = bytes([len(host)]) + host.encode() if kind == 3 else socket.inet_pton(\n        \
            {1: socket.AF_INET, 4: socket.AF_INET6}.get(kind, socket.AF_INET), host)\n    \
        stream.sendall(bytes([5, command, 0, kind]) + address + struct.pack('>H', int(port)))\n    \
        return stream, stream.recv(10)\n";

fn socks(session: &mut Session) {
    session.text(SOCKS);
    let code = "stream, reply = socks(*'echo.example:ECHO'.split(':'))\nstream.sendall(b'hello')\n\
                print(reply[:2], stream.recv(5))";
    assert_eq!(text(session, code), "b'\\x05\\x00' b'hello'\n");
    for (call, reply) in [
        ("'other.example', 443", "2"),
        ("'private.example', 'HTTP'", "2"),
        ("'127.0.0.1', 80, kind=1", "2"),
        ("'::1', 80, kind=4", "2"),
        ("'10.0.0.1', 80, kind=1", "2"),
        ("'closed.example', 9", "5"),
        ("'a b', 80", "4"),
        ("'echo.example', 'ECHO', command=2", "7"),
        ("'echo.example', 'ECHO', command=3", "7"),
        ("'127.0.0.1', 80, kind=9", "8"),
    ] {
        let call = call.replace("HTTP", &SERVERS.http.to_string()).replace("ECHO", &SERVERS.echo.to_string());
        assert_eq!(text(session, &format!("print(socks({call})[1][1])")), format!("{reply}\n"), "{call}");
    }
    let authenticated = "print(socks('echo.example', 1, greeting=b'\\x05\\x01\\x02'))";
    assert_eq!(text(session, authenticated), "(None, b'\\x05\\xff')\n");
}

fn large_bodies(session: &mut Session) {
    let code = "import requests\n\
                for url in ('http://plain.example:HTTP', 'https://pass.example:TLS', 'https://rules.example:TLS'):\n    \
                    path = '/allowed/x' if 'rules' in url else '/big/20000000'\n    \
                    print(len(requests.get(url + path).content) > 100)\n\
                print(len(requests.get('http://plain.example:HTTP/big/20000000').content))\n\
                print(len(requests.get('https://pass.example:TLS/big/20000000').content))\n\
                print(len(requests.post('https://secret.example:TLS/up', data=b'y' * 5_000_000).content) > 5_000_000)";
    assert_eq!(text(session, code), "True\nTrue\nTrue\n20000000\n20000000\nTrue\n");
}

fn raw_bytes(session: &mut Session) {
    session.text(ISSUER);
    let code = "stream, line = tunnel(*'echo.example:ECHO'.split(':'))\nprint(line)\n\
                data = b'z' * 3_000_000\nimport threading\n\
                def send():\n    stream.sendall(data)\n    stream.shutdown(socket.SHUT_WR)\n\
                threading.Thread(target=send).start()\n\
                got = b''.join(iter(lambda: stream.recv(65536), b''))\nprint(got == data)";
    assert_eq!(text(session, code), "HTTP/1.1 200 Connection established\nTrue\n");
}

fn local_servers(session: &mut Session) {
    let code = "import http.server, threading, requests\n\
                class Handler(http.server.BaseHTTPRequestHandler):\n    \
                    def do_GET(self):\n        \
                        self.send_response(200)\n        self.end_headers()\n        self.wfile.write(b'local')\n    \
                    def log_message(self, *arguments):\n        pass\n\
                server = http.server.HTTPServer(('127.0.0.1', 0), Handler)\n\
                threading.Thread(target=server.serve_forever, daemon=True).start()\n\
                print([requests.get(f'http://{name}:{server.server_port}/').text for name in ('127.0.0.1', 'localhost')])";
    assert_eq!(text(session, code), "['local', 'local']\n");
}

fn connections_left_open() {
    let options = NativeOptions { python_version: "3.11.0".into(), packages: None, ..options_with_network() };
    let backend = NativeBackend::new(options).unwrap();
    let listener: Arc<Listener> = Arc::default();
    let code = "import requests\nclient = requests.Session()\nclient.get('https://pass.example:TLS/open').status_code";
    let request = OneShotRequest { code: with_ports(code), ..OneShotRequest::default() };
    let run = backend.run_once(request, listener.clone(), &CallCancellation::default()).unwrap();
    assert!(matches!(run.report.outcome, Outcome::Success(Some(_))), "{:?}", run.report);
    let records = listener.connections.lock().unwrap();
    assert!(
        matches!(records.as_slice(), [record] if record.host == "pass.example" && record.error.is_none()),
        "{records:?}"
    );
}

fn restart(session: &mut Session) {
    let get = "import requests\nprint(requests.get('http://plain.example:HTTP/again').status_code)";
    assert_eq!(text(session, get), "200\n");
    session.text(ISSUER);
    let held = format!("held = [tunnel(*'echo.example:ECHO'.split(':'))[0] for _ in range({MAX_CONNECTIONS})]");
    session.text(&with_ports(&held));
    session.kernel.restart().unwrap();
    // The connections of the former process do not count.
    assert_eq!(text(session, get), "200\n");
}

/// Statuses of two hosts, of which a narrowed network has the first.
const STATUSES: &str = "import requests\n\
    def status(url):\n    \
        try: return requests.get(url).status_code\n    \
        except OSError as error: return type(error).__name__\n\
    [status('https://pass.example:TLS/a'), requests.get('http://plain.example:HTTP/a').status_code]";

fn narrowed(host: &str) -> Value {
    json!({ "allow": [with_ports(host)] })
}

fn narrowing(session: &mut Session) {
    let run = |session: &mut Session, network: Option<Value>| {
        let cell = CellRequest { code: with_ports(STATUSES), network, ..CellRequest::default() };
        let result = session.kernel.execute(&cell, session.listener.clone());
        format!("{:?} {:?}", result.status, result.outputs)
    };
    let rules = json!({ "allow": { with_ports("pass.example:TLS"): [{ "match": { "method": "GET" } }] }, "typo": 1 });
    assert!(run(session, Some(rules)).contains("typo"));
    let policy = narrowed("pass.example:TLS");
    let answer = run(session, Some(policy.clone()));
    assert!(answer.contains("[200, 403]"), "{answer}");
    // The same policy changes nothing, and another one is refused.
    assert_eq!(run(session, Some(policy.clone())).matches("[200, 403]").count(), 1);
    let refused = run(session, Some(narrowed("*")));
    assert!(refused.contains("the first cell of a session sets its policy"), "{refused}");
    session.kernel.restart().unwrap();
    assert!(run(session, None).contains("[200, 403]"));
}

fn calls_narrow_the_network() {
    let options = NativeOptions { python_version: "3.11.0".into(), packages: None, ..options_with_network() };
    let backend = NativeBackend::new(options).unwrap();
    let listener: Arc<Listener> = Arc::default();
    for (host, statuses) in [("pass.example:TLS", r"  200,\n  403"), ("plain.example:HTTP", r#"ProxyError\",\n  200"#)]
    {
        let code = with_ports(STATUSES);
        let request = OneShotRequest { code, network: Some(narrowed(host)), ..OneShotRequest::default() };
        let run = backend.run_once(request, listener.clone(), &CallCancellation::default()).unwrap();
        assert!(format!("{:?}", run.report.outcome).contains(statuses), "{:?}", run.report);
    }
}
