//! The policy: names, ports, addresses, requests and limits, and runs that do not use the network.

use serde_json::{Value, json};

use super::cases::check;
use crate::harness::Belljar;
use crate::network_servers::site;
use crate::wire::Wire;

#[test]
fn only_what_is_named_is_reached() {
    check("policy.py");
}

#[test]
fn limits_of_connections_and_bytes_are_errors() {
    let limited = |options: &[&str], code: &str| {
        let run = site().belljar("run").args(options).args(["-c", &site().filled(code)]).run();
        assert_eq!(run.status, Some(0), "{run:?}");
        run.stdout
    };
    let many = "import socket\nopen = []\ntry:\n    while True:\n        \
                open.append(socket.create_connection(('api.example.com', PORT_echo)))\n\
                except OSError as error:\n    print(len(open), error)";
    let output = limited(&["--net-connections", "3"], many);
    assert!(output.starts_with("3 ") && output.contains("more than 3 connections at once"), "{output}");
    let large = "import urllib.request, http.client\nfor base in ('https://api.example.com:PORT_https', \
                 'http://api.example.com:PORT_http'):\n    try:\n        \
                 print(len(urllib.request.urlopen(base + '/bytes?count=3000000').read()))\n    \
                 except (OSError, http.client.IncompleteRead) as error:\n        print('error')";
    assert_eq!(limited(&["--net-bytes", "1MB"], large), "error\nerror\n");
    let idle = "import socket\nplain = socket.create_connection(('api.example.com', PORT_silent))\n\
                try:\n    print(plain.recv(1))\nexcept OSError as error:\n    print(type(error).__name__)";
    assert_eq!(limited(&["--net-idle", "0.5"], idle), "TimeoutError\n");
    assert_eq!(limited(&["--net-lifetime", "1"], idle), "TimeoutError\n");
    let total = format!(
        "{idle}\ntry:\n    socket.create_connection(('api.example.com', PORT_echo))\n\
                         except OSError as error:\n    print(error)"
    );
    let output = limited(&["--net-time", "1"], &total);
    assert!(output.starts_with("TimeoutError\n") && output.contains("used for more than 1 seconds"), "{output}");
}

#[test]
fn files_that_are_not_valid_are_errors_before_code_runs() {
    let folder = tempfile::tempdir().unwrap();
    let block = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for (option, text, reason) in [
        ("--net-policy", "allow = [", "failed to parse the network policy: TOML parse error"),
        ("--net-policy", "alow = []", "unknown key `alow` in the top level of the network policy"),
        ("--net-ca", "not a certificate", "the file contains no certificates in PEM"),
        ("--net-ca", block, "--net-ca: failed to read certificate authorities: block 1 is not a certificate"),
    ] {
        let file = folder.path().join("file");
        std::fs::write(&file, text).unwrap();
        let run = Belljar::new().args(["run", "--allow-net", "a.example", option]).arg(&file).args(["-c", "1"]).run();
        assert!(run.status == Some(2) && run.stderr.contains(reason), "{run:?}");
        std::fs::remove_file(&file).unwrap();
        let run = Belljar::new().args(["run", "--allow-net", "a.example", option]).arg(&file).args(["-c", "1"]).run();
        assert!(run.status == Some(2) && run.stderr.contains("failed to open"), "{run:?}");
    }
}

/// Names with an address in the policy are not looked up: this one is, at the machine's resolver.
#[test]
fn look_ups_are_limited() {
    let code = "import socket\nfor attempt in range(3):\n    try:\n        \
                socket.create_connection(('localhost', 443))\n    except OSError as error:\n        \
                print(type(error).__name__)";
    let options = ["run", "--json", "--allow-net", "localhost", "--net-lookups", "2", "-c", code];
    let (report, _) = Belljar::new().args(options).json();
    assert_eq!(report["output"], "PermissionError\nPermissionError\nConnectionResetError\n", "{report}");
    assert_eq!(report["connections"][2]["error"], "more than 2 look-ups of names", "{report}");
}

#[test]
fn run_without_use_of_the_network_is_the_same_with_a_policy() {
    let code = "import os, sys\nprint(sorted(os.environ), sys.argv, os.listdir('.'))\nprint('error', file=sys.stderr)\n\
                import socket\nprint(socket.gethostname(), socket.has_ipv6)\n{'a': [1, 2]}";
    let with = Belljar::new().args(["run", "-p", "--allow-net", "api.example.com", "-c", code]).run();
    let without = Belljar::run_with(["-p", "-c", code]);
    assert_eq!((with.status, &with.stdout, &with.stderr), (without.status, &without.stdout, &without.stderr));
    let answers = [&["--allow-net", "api.example.com"][..], &[]].map(|options| {
        let mut wire = Wire::start(options.iter().copied());
        let answer = wire.call(json!({ "python_code": "print('out')\n6 * 7" }));
        (answer, wire.notifications("notifications/message").len())
    });
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].0["structuredContent"].get("connections").is_none(), "{}", answers[0].0);
}

#[test]
fn without_options_there_is_no_network() {
    let code = "import socket\nfor name in ('api.example.com', 'localhost', '127.0.0.1'):\n    try:\n        \
                socket.create_connection((name, PORT_canary))\n        print('connected')\n    \
                except OSError as error:\n        print('this sandbox has no network access' in str(error))";
    let code = site().filled(code);
    assert_eq!(Belljar::run_with(["-c", &code]).stdout, "True\nTrue\nTrue\n");
    let mut wire = Wire::start(["--no-install"]);
    let answer = wire.call(json!({ "python_code": code }));
    assert_eq!(answer["structuredContent"]["output"], json!(["True", "True", "True"]), "{answer}");
}

in_both_isolations! { records_of_connections_name_the_rule_and_the_reason }

fn records_of_connections_name_the_rule_and_the_reason(isolation: &str) {
    // A connection is recorded when the host has seen its end, on a busy machine after the end of the code.
    let code = "import socket, urllib.request, urllib.error\n\
                urllib.request.urlopen('https://api.example.com:PORT_https/csv?a=1').read()\n\
                for url in ('https://rules.example.com:PORT_https/other', 'https://elsewhere.example.org/'):\n    \
                try:\n        urllib.request.urlopen(url)\n    except OSError as error:\n        pass\n\
                with socket.create_connection(('api.example.com', PORT_echo)) as plain:\n    plain.sendall(b'abc')\n    \
                plain.shutdown(1)\n    plain.makefile('rb').read()\nimport time; time.sleep(PAUSE)";
    let mut wire = site().serve_in(isolation, &[]);
    wire.follow_output();
    let attempts = ["0.5", "5", "50"].into_iter().map(|pause| {
        wire.received.clear();
        let answer = wire.call(json!({ "python_code": site().filled(&code.replace("PAUSE", pause)) }));
        answer["structuredContent"]["connections"].as_array().unwrap().clone()
    });
    let is_of_echo = |record: &Value| record["port"] == site().port("echo");
    // Those of the last attempt, if none has all.
    let mut records = Vec::new();
    for found in attempts {
        records = found;
        if records.iter().any(is_of_echo) {
            break;
        }
    }
    let summary: Vec<String> = records
        .iter()
        .map(|record| {
            ["host", "port", "method", "path", "status", "allowed", "rule"]
                .map(|field| record[field].to_string())
                .join(" ")
        })
        .collect();
    for expected in [
        "\"api.example.com\" PORT_https \"GET\" \"/csv?a=1\" 200 true \"api.example.com:PORT_https\"",
        "\"rules.example.com\" PORT_https \"GET\" \"/other\" 403 false \"rules.example.com:PORT_https\"",
        "\"elsewhere.example.org\" 443 null null null false null",
        "\"api.example.com\" PORT_echo null null null true \"api.example.com:PORT_echo\"",
    ] {
        let expected = site().filled(expected);
        assert!(summary.contains(&expected), "{expected} is not in {summary:#?}");
    }
    let echo = records.iter().find(|record| is_of_echo(record)).unwrap();
    assert_eq!((echo["bytes_sent"].as_u64(), echo["bytes_received"].as_u64()), (Some(3), Some(6)), "{echo}");
    let messages = wire.notifications("notifications/message");
    let logged: Vec<&str> = messages
        .iter()
        .filter(|message| message["logger"] == "network")
        .filter_map(|message| message["data"].as_str())
        .collect();
    assert_eq!(logged.len(), records.len(), "{logged:#?}");
    let rule = site().filled("ms, allowed by api.example.com:PORT_https");
    let is_allowed = |line: &&str| line.starts_with("GET api.example.com:") && line.contains("/csv?a=1 200");
    assert!(logged.iter().any(|line| is_allowed(line) && line.ends_with(&rule)), "{logged:#?}");
    assert!(logged.iter().any(|line| line.starts_with("elsewhere.example.org:443 not allowed")), "{logged:#?}");
}
