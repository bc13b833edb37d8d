//! Attacks on the network of a session: ways past the proxy, floods, malformed requests, keys, other sessions.

use std::time::{Duration, Instant};

use belljar_native::NativeBackend;
use belljar_sandbox::Policy;
use belljar_testing::{Capability, Trial};

use super::servers::{RESOLVED, SECRET, SERVERS};
use super::{ISSUER, MAX_CONNECTIONS, SOCKS, backend, error, options_with_network, record, text, trial, with_ports};
use crate::trials::harness::{Session, options};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = [
        ("connections_past_the_proxy_fail", past_the_proxy as fn(&mut Session)),
        ("forked_processes_are_under_the_same_policy", forks),
        ("flood_of_connections_hits_the_limit", flood),
        ("idle_clients_do_not_block_others", idle_clients),
        ("malformed_requests_are_refused", malformed),
        ("reused_connection_reaches_no_other_host", reused_connection),
        ("tls_with_other_content_is_refused", tls_with_other_content),
        ("placeholders_in_other_encodings_are_not_replaced", encoded_placeholders),
        ("key_of_the_authority_is_not_readable", authority_key),
        ("variables_of_the_code_change_nothing", variables),
        ("threads_are_under_the_same_policy_during_and_after_their_cell", threads),
        ("time_of_a_refusal_does_not_depend_on_the_name", refused_names),
    ]
    .into_iter()
    .map(|(name, test)| trial(name, test))
    .collect();
    let needs = [Capability::NativeSandbox];
    trials.push(belljar_testing::trial("network::sessions_have_their_own_authority_and_port", &needs, two_sessions));
    trials.push(belljar_testing::trial("network::end_of_the_session_closes_its_connections", &needs, end_of_session));
    trials.push(belljar_testing::trial("network::session_without_options_has_no_proxy", &needs, no_network));
    trials.push(belljar_testing::trial("network::weaker_sandboxes_are_refused", &[], weaker_sandboxes));
    trials
}

fn past_the_proxy(session: &mut Session) {
    let code = "import errno, socket\n\
                def attempt(address, kind=socket.SOCK_STREAM):\n    \
                    family = socket.AF_INET6 if ':' in address else socket.AF_INET\n    \
                    try:\n        \
                        with socket.socket(family, kind) as stream:\n            \
                            stream.settimeout(5)\n            \
                            stream.connect((address, int('HTTPPORT')))\n            \
                            stream.send(b'x')\n            \
                            return stream.recv(1)\n    \
                    except OSError as failure:\n        \
                        return errno.errorcode.get(failure.errno)\n\
                addresses = ['192.0.2.1', '10.0.0.1', '169.254.169.254', '8.8.8.8', '2606:4700::1111', 'fd00::1', '198.18.0.1']\n\
                print({attempt(address) for address in addresses})\n\
                print({attempt(address, socket.SOCK_DGRAM) for address in addresses})\n\
                print(attempt('127.0.0.1'), attempt('::1'))\n\
                try:\n    \
                    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\n\
                except PermissionError as failure:\n    print(failure.errno)";
    let shown = session.text(&code.replace("HTTPPORT", &SERVERS.http.to_string()));
    // The host's loopback interface is another one.
    assert_eq!(shown, "{'ENETUNREACH'}\n{'ENETUNREACH'}\nECONNREFUSED ECONNREFUSED\n1\n");
}

fn forks(session: &mut Session) {
    let code = "import os, subprocess, sys\n\
                fetch = '''import requests\n\
                for url in (\"http://plain.example:HTTP/forked\", \"http://other.example/\"):\n    \
                    print(requests.get(url).status_code, end=\" \")'''\n\
                print(subprocess.run([sys.executable, '-c', fetch], capture_output=True, text=True).stdout)\n\
                reader, writer = os.pipe()\n\
                if os.fork() == 0:\n    \
                    import requests\n    \
                    os.write(writer, str(requests.get('http://other.example/').status_code).encode())\n    \
                    os._exit(0)\n\
                os.wait()\n\
                print(os.read(reader, 10))";
    assert_eq!(text(session, code), "200 403 \nb'403'\n");
    record(session, |record| record.path.as_deref() == Some("/forked") && record.allowed);
}

fn flood(session: &mut Session) {
    session.text(ISSUER);
    let code = "lines, streams = [], []\n\
                for _ in range(40):\n    \
                    stream, line = tunnel(*'echo.example:ECHO'.split(':'))\n    \
                    streams.append(stream)\n    lines.append(line)\n\
                print(sum('200' in line for line in lines), {line for line in lines if '200' not in line})";
    let shown = text(session, code);
    let refusal =
        format!("503 failed to open a connection to echo.example:{}: more than {MAX_CONNECTIONS}", SERVERS.echo);
    assert!(shown.starts_with(&format!("{MAX_CONNECTIONS} ")) && shown.contains(&refusal), "{shown}");
    let again = "for stream in streams: stream.close()\n\
                 import time\n\
                 for _ in range(1200):\n    \
                     stream, line = tunnel(*'echo.example:ECHO'.split(':'))\n    \
                     stream.close()\n    \
                     if '200' in line: break\n    \
                     time.sleep(0.05)\n\
                 print(line)";
    assert_eq!(text(session, again), "HTTP/1.1 200 Connection established\n");
}

fn idle_clients(session: &mut Session) {
    session.text(SOCKS);
    let code = "import requests\n\
                proxy = urllib.parse.urlsplit(os.environ['ALL_PROXY'])\n\
                idle = [socket.create_connection((proxy.hostname, proxy.port)) for _ in range(60)]\n\
                for stream in idle[::2]: stream.sendall(b'CONNECT plain.exa')\n\
                print(requests.get('http://plain.example:HTTP/').status_code)";
    assert_eq!(text(session, code), "200\n");
}

/// Malformed and unusual requests, as Python's bytes, and the statuses of their answers: none without an answer.
const MALFORMED: &[(&str, &str)] = &[
    (r"b''", "none"),
    (r"b'\0\0\0'", "none"),
    (r"b'\x04\x01\0\x50\x7f\0\0\x01\0'", "none"),
    (r"b'\x16\x03\x01\0\x05hello'", "none"),
    (r"b'GET / HTTP/1.1\r\n\r\n'", "400"),
    (r"b'CONNECT HTTP/1.1\r\n\r\n'", "400"),
    (r"b'CONNECT plain.example HTTP/1.1\r\n\r\n'", "400"),
    (r"b'CONNECT plain.example:HTTP HTTP/9.9\r\n\r\n'", "400"),
    (r"b'CONNECT ' + b'a' * 300 + b':80 HTTP/1.1\r\n\r\n'", "400"),
    (r"b'CONNECT pl\xc3\xa4in.example:80 HTTP/1.1\r\n\r\n'", "400"),
    (r"b'GET ftp://plain.example/ HTTP/1.1\r\n\r\n'", "400"),
    (r"b'GET https://plain.example/ HTTP/1.1\r\n\r\n'", "400"),
    (r"b'GET http://plain.example:HTTP/ HTTP/1.1\r\n' + b'A: b\r\n' * 200 + b'\r\n'", "400"),
    (r"b'A' * 70000", "431"),
    // The target names the host, whatever the header is.
    (r"b'GET http://plain.example:HTTP/ HTTP/1.1\r\nHost: other.example\r\n\r\n'", "200"),
    // Hosts that are not allowed, named so that another one may be seen.
    (r"b'CONNECT other.example:443 HTTP/1.1\r\nHost: plain.example:HTTP\r\n\r\n'", "403"),
    (r"b'CONNECT 127.0.0.1:HTTP HTTP/1.1\r\n\r\n'", "403"),
    (r"b'CONNECT [::ffff:127.0.0.1]:HTTP HTTP/1.1\r\n\r\n'", "403"),
    (r"b'CONNECT 2130706433:HTTP HTTP/1.1\r\n\r\n'", "400"),
    (r"b'GET http://127.0.0.1:HTTP/ HTTP/1.1\r\nHost: plain.example:HTTP\r\n\r\n'", "403"),
    (r"b'GET http://other.example#@plain.example:HTTP/ HTTP/1.1\r\n\r\n'", "403"),
    (r"b'GET http://other.example?@plain.example:HTTP/ HTTP/1.1\r\n\r\n'", "403"),
    (r"b'GET http://plain.example:HTTP@other.example/ HTTP/1.1\r\n\r\n'", "400"),
    (r"b'GET http://plain.example\\@other.example/ HTTP/1.1\r\n\r\n'", "400"),
    (r"b'GET http://plain.example%2eother.example/ HTTP/1.1\r\n\r\n'", "400"),
    (r"b'GET http://plain.example:HTTP/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n'", "400"),
    (
        r"b'GET http://plain.example:HTTP/ HTTP/1.1\r\nContent-Length: 1\r\n' \
          b'Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n'",
        "reset",
    ),
];

fn malformed(session: &mut Session) {
    let code = "import os, socket, urllib.parse, requests\n\
                proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])\n\
                def send(data):\n    \
                    with socket.create_connection((proxy.hostname, proxy.port)) as stream:\n        \
                        try:\n            \
                            stream.sendall(data)\n            \
                            stream.shutdown(socket.SHUT_WR)\n            \
                            answer = b''.join(iter(lambda: stream.recv(65536), b''))\n        \
                        except OSError:\n            \
                            return 'reset'\n    \
                    return answer.split(b' ')[1].decode() if answer.startswith(b'HTTP') else 'none'\n";
    session.text(code);
    for (data, status) in MALFORMED {
        assert_eq!(text(session, &format!("print(send({data}))")), format!("{status}\n"), "{data}");
    }
    let next = text(session, "print(requests.get('http://plain.example:HTTP/').status_code)");
    assert_eq!(next, "200\n");
}

fn reused_connection(session: &mut Session) {
    session.text(ISSUER);
    // A second request on the connection of a first one: to another host, and to a host that is not allowed.
    let code = "proxy = urllib.parse.urlsplit(os.environ['HTTP_PROXY'])\n\
                def twice(second):\n    \
                    with socket.create_connection((proxy.hostname, proxy.port)) as stream:\n        \
                        first = 'GET http://plain.example:HTTP/first HTTP/1.1\\r\\nHost: plain.example:HTTP\\r\\n\\r\\n'\n        \
                        stream.sendall((first + second).encode())\n        \
                        got = b''\n        \
                        try:\n            \
                            while part := stream.recv(65536): got += part\n        \
                        except ConnectionResetError: pass\n        \
                        return got.count(b'HTTP/1.1 200')\n\
                print(twice('GET http://other.example/second HTTP/1.1\\r\\nHost: other.example\\r\\n\\r\\n') <= 1)\n\
                print(twice('GET /second HTTP/1.1\\r\\nHost: other.example\\r\\n\\r\\n') <= 1)";
    assert_eq!(text(session, code), "True\nTrue\n");
    assert!(SERVERS.requests_with("second").is_empty());
}

fn tls_with_other_content(session: &mut Session) {
    session.text(ISSUER);
    // TLS that the host ends carries HTTP for the host of the connection, and nothing else.
    let code = "def speak(host, data):\n    \
                    stream, _ = tunnel(*host.split(':'))\n    \
                    with ssl.create_default_context().wrap_socket(stream, server_hostname=host.split(':')[0]) as encrypted:\n        \
                        encrypted.sendall(data)\n        \
                        try:\n            \
                            return encrypted.recv(12)\n        \
                        except OSError:\n            \
                            return b''\n\
                print(speak('secret.example:TLS', b'\\0\\1\\2\\3 EHLO'))\n\
                print(speak('secret.example:TLS', b'GET /fronted HTTP/1.1\\r\\nHost: other.example\\r\\n\\r\\n'))\n\
                print(speak('secret.example:TLS', b'GET /allowed/tls HTTP/1.1\\r\\nHost: secret.example\\r\\n\\r\\n'))";
    assert_eq!(text(session, code), "b''\nb''\nb'HTTP/1.1 200'\n");
    assert!(SERVERS.requests_with("/fronted").is_empty());
    for reason in ["only HTTP/1.1 is allowed", "the Host `other.example` of the request is not"] {
        let seen = record(session, |record| record.error.as_ref().is_some_and(|error| error.contains(reason)));
        assert!(!seen.allowed, "{seen:?}");
    }
    // Without TLS, a secret is not sent.
    let plain = "stream, _ = tunnel(*'secret.example:TLS'.split(':'))\n\
                 stream.sendall(f'GET /plain HTTP/1.1\\r\\nHost: secret.example\\r\\nX: {os.environ[\"API_TOKEN\"]}\\r\\n\\r\\n'.encode())\n\
                 try:\n    print(stream.recv(100).startswith(b'HTTP/1.1 200'))\n\
                 except OSError:\n    print(False)";
    assert_eq!(text(session, plain), "False\n");
    assert!(SERVERS.requests_with("GET /plain").is_empty());
}

fn encoded_placeholders(session: &mut Session) {
    let code = "import base64, os, requests, urllib.parse\n\
                token = os.environ['API_TOKEN']\n\
                forms = [base64.b64encode(token.encode()).decode(), token[::-1], token.encode().hex(), token[:-1], token.swapcase()]\n\
                headers = {f'X-Form-{number}': form for number, form in enumerate(forms)}\n\
                response = requests.post('https://secret.example:TLS/forms?' + token, headers=headers, data=token)\n\
                echoed = requests.get('https://secret.example:TLS/echoed', headers={'X-Token': token}).text\n\
                print(response.status_code, 'X-Token: ' in echoed, echoed, response.text)";
    let shown = text(session, code);
    assert!(shown.starts_with("200 True") && !shown.contains(SECRET), "{shown}");
    assert!(SERVERS.requests_with("/forms").iter().all(|request| !request.contains(SECRET)));
    assert!(SERVERS.requests_with("/echoed")[0].contains(SECRET));
}

fn authority_key(session: &mut Session) {
    let code = "import os, pathlib\n\
                file = pathlib.Path(os.environ['SSL_CERT_FILE'])\n\
                text = file.read_text()\n\
                print(text.count('BEGIN CERTIFICATE') > 1, 'PRIVATE KEY' in text)\n\
                found = []\n\
                for root in ('/session', '/tmp', '/kernel', '/dev/shm', str(file.parent), str(file.parent.parent)):\n    \
                    for folder, _, names in os.walk(root):\n        \
                        for name in names:\n            \
                            path = os.path.join(folder, name)\n            \
                            try:\n                \
                                if b'PRIVATE KEY' in open(path, 'rb').read(1 << 20): found.append(path)\n            \
                            except OSError: pass\n\
                print([path for path in found if '/site-packages/' not in path])\n\
                try:\n    file.write_text('')\n\
                except OSError as failure:\n    print(failure.errno in (13, 30))";
    assert_eq!(session.text(code), "True False\n[]\nTrue\n");
}

fn variables(session: &mut Session) {
    // The policy is the host's, whatever the code's variables are.
    let code = "import os, requests\n\
                for name in ('HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'http_proxy', 'https_proxy', 'all_proxy'):\n    \
                    os.environ.pop(name)\n\
                try:\n    requests.get('http://plain.example:HTTP/')\n\
                except requests.ConnectionError as failure:\n    print('through a proxy alone' in str(failure))";
    assert_eq!(text(session, code), "True\n");
}

fn threads(session: &mut Session) {
    // There are more threads than connections at once, beyond which the status is 503.
    let code = "import os, requests, threading, time\n\
                from concurrent.futures import ThreadPoolExecutor\n\
                headers = {'Authorization': os.environ['API_TOKEN']}\n\
                def status(url):\n    \
                    while True:\n        \
                        try:\n            \
                            found = requests.get(url, headers=headers).status_code\n        \
                        except OSError as failure:\n            \
                            found = 503 if ' 503 ' in str(failure) else type(failure).__name__\n        \
                        if found != 503: return found\n        \
                        time.sleep(0.02)\n\
                urls = ['http://plain.example:HTTP/threads', 'http://other.example/threads',\n    \
                        'https://secret.example:TLS/threads', 'https://other.example/threads'] * 20\n\
                with ThreadPoolExecutor(12) as pool:\n    \
                    found = set(zip(urls, pool.map(status, urls)))\n\
                print([status for url, status in sorted(found, key=lambda pair: urls.index(pair[0]))])\n\
                left = []\n\
                def later():\n    \
                    time.sleep(0.5)\n    \
                    left.extend(map(status, urls[:2]))\n\
                threading.Thread(target=later).start()";
    assert_eq!(text(session, code), "[200, 403, 200, 'ProxyError']\n");
    let after = "for _ in range(1200):\n    if len(left) == 2: break\n    time.sleep(0.05)\nprint(left)";
    assert_eq!(session.text(after), "[200, 403]\n");
    for request in SERVERS.requests_with("/threads") {
        assert_eq!(request.contains(SECRET), request.contains("Host: secret.example"), "{request}");
    }
}

fn refused_names(session: &mut Session) {
    session.text(SOCKS);
    // Nothing resolves a name that the policy does not have: code cannot learn from the time whether it exists.
    let code = "import requests\n\
                found = []\n\
                for name in ('timed.example', 'timed.internal', 'timed.plain.example'):\n    \
                    try:\n        found.append(socket.getaddrinfo(name, 80))\n    \
                    except OSError: pass\n    \
                    found += [requests.get(f'http://{name}/').status_code, socks(name, 443)[1][1]]\n\
                print(found)\n\
                print(requests.get('http://private.example:HTTP/').status_code)";
    assert_eq!(text(session, code), "[403, 2, 403, 2, 403, 2]\n403\n");
    let resolved = RESOLVED.lock().unwrap().clone();
    assert!(resolved.iter().any(|name| name == "private.example"), "{resolved:?}");
    assert!(!resolved.iter().any(|name| name.contains("timed")), "{resolved:?}");
}

fn two_sessions() {
    let backend = backend();
    let mut sessions = [Session::new(&backend), Session::new(&backend)];
    let seen = sessions.each_mut().map(|session| {
        session.text(ISSUER);
        let code = "import ssl, os\nfirst = open(os.environ['SSL_CERT_FILE']).read().split('-----END')[0]\n\
                    print(os.environ['HTTP_PROXY'], first, os.environ['API_TOKEN'])";
        session.text(code)
    });
    let part = |index: usize, number: usize| seen[index].split_whitespace().nth(number).unwrap().to_owned();
    assert_ne!(part(0, 0), part(1, 0), "the ports");
    assert_ne!(seen[0].split("CERTIFICATE").nth(1), seen[1].split("CERTIFICATE").nth(1), "the authorities");
    // Each proxy serves its own sandbox alone.
    let port = part(0, 0).rsplit(':').next().unwrap().to_owned();
    let other = error(&mut sessions[1], &format!("import socket\nsocket.create_connection(('127.0.0.1', {port}))"));
    assert!(other.starts_with("ConnectionRefusedError"), "{other}");
    assert!(std::net::TcpStream::connect(("127.0.0.1", port.parse().unwrap())).is_err(), "the host reaches the proxy");
}

fn end_of_session() {
    let mut session = Session::new(&backend());
    session.text(ISSUER);
    let mark = "end-of-session";
    let code =
        format!("stream, _ = tunnel(*'echo.example:ECHO'.split(':'))\nstream.sendall(b'{mark}')\nstream.recv(3)");
    session.text(&with_ports(&code));
    let has_ended = || SERVERS.ended.lock().unwrap().iter().any(|first| first == mark);
    assert!(!has_ended());
    drop(session);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !has_ended() {
        assert!(Instant::now() < deadline, "the connection outlives its session");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn no_network() {
    let options = options_with_network();
    let backend = NativeBackend::new(belljar_native::NativeOptions { network: None, ..options }).unwrap();
    let mut session = Session::new(&backend);
    let code = "import os\nprint([name for name in os.environ if 'proxy' in name.lower() or 'CERT' in name or 'TOKEN' in name])\n\
                print([line.split()[3] for line in open('/proc/net/tcp').readlines()[1:]].count('0A'))";
    // ipykernel has no listening socket of its own, except that of its output.
    let shown = session.text(code);
    assert!(shown == "[]\n0\n" || shown == "[]\n1\n", "{shown}");
}

fn weaker_sandboxes() {
    for policy in [Policy::Weak, Policy::Unsandboxed] {
        let options = belljar_native::NativeOptions { network: options_with_network().network, ..options(policy) };
        let error = NativeBackend::new(options).unwrap_err().to_string();
        assert!(error.contains("a network policy needs the full native sandbox"), "{error}");
    }
}
