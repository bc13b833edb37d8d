//! The options for network access with native kernels: servers whose code reaches what a policy allows.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use serde_json::{Value, json};

use crate::harness::Belljar;
use crate::native_calls::answer;
use crate::network_servers::site;

belljar_testing::trials! {
    native_servers_use_the_network_of_their_policy: [NativeSandbox],
    pandas_reads_tables_from_servers_in_native_kernels: [NativeSandbox],
    weaker_native_sandboxes_refuse_network_options: [],
}

/// Starts a server that answers each request with its first line, and returns its port.
fn http_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let line = lines.next().unwrap_or_default();
            lines.find(String::is_empty);
            let length = line.len();
            // The client may have gone.
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{line}");
        }
    });
    port
}

fn native_servers_use_the_network_of_their_policy() {
    let port = http_server();
    let folder = tempfile::tempdir().unwrap();
    let (policy, secret) = (folder.path().join("policy.toml"), folder.path().join("secret"));
    let rules = "[{ match = { method = 'GET' } }]";
    let text = format!("[allow]\n'api.example:{port}' = {rules}\n\n[resolve]\n'api.example' = '127.0.0.1'\n");
    std::fs::write(&policy, text).unwrap();
    std::fs::write(&secret, "the-value-of-the-secret\n").unwrap();
    let options = format!(
        "--toolset all --net-policy '{}' --secret 'API_TOKEN@api.example:{port}=file:{}'",
        policy.display(),
        secret.display()
    );
    let code = format!(
        "import os, urllib.error, urllib.request\n\
         print(urllib.request.urlopen('http://api.example:{port}/x').read().decode())\n\
         try:\n    urllib.request.urlopen('http://other.example/')\n\
         except urllib.error.HTTPError as error:\n    print(error.code, error.read().decode())\n\
         print(len(os.environ['API_TOKEN']) >= 20, 'value' in os.environ['API_TOKEN'])"
    );
    for (tool, argument) in [("run_python_code", "python_code"), ("execute_code", "code")] {
        let answer = answer(&options, tool, &json!({ argument: code }));
        let shown = answer.to_string();
        assert!(shown.contains("GET /x HTTP/1.1") && shown.contains("True False"), "{tool}: {shown}");
        assert!(
            shown.contains("403 network access to other.example:80 is not allowed; allowed: api.example"),
            "{shown}"
        );
        let connections = answer["connections"].as_array().unwrap();
        let allowed: Vec<&Value> = connections.iter().map(|record| &record["allowed"]).collect();
        assert_eq!(allowed, [true, false], "{tool}: {shown}");
        assert_eq!(connections[0]["path"], "/x", "{shown}");
    }
}

fn pandas_reads_tables_from_servers_in_native_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let policy = folder.path().join("policy.toml");
    let bases = [("https", site().port("https")), ("http", site().port("http"))]
        .map(|(scheme, port)| format!("{scheme}://api.example.com:{port}"));
    let hosts: String = bases.iter().map(|base| format!("'{}' = []\n", base.split("//").nth(1).unwrap())).collect();
    std::fs::write(&policy, format!("[resolve]\n'api.example.com' = '127.0.0.1'\n\n[allow]\n{hosts}")).unwrap();
    let options = format!("--net-policy '{}' --net-ca '{}'", policy.display(), site().file("ca.crt").display());
    let code = format!(
        "import pandas as pd\nfor base in {bases:?}:\n    print(pd.read_csv(base + '/csv').value.sum())\n\
         pd.read_csv('http://other.example.com/csv')"
    );
    let answer = answer(&options, "run_python_code", &json!({ "python_code": code }));
    assert_eq!(answer["output"], json!(["3", "3"]), "{answer}");
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("HTTP Error 403") || error.contains("is not allowed"), "{answer}");
}

fn weaker_native_sandboxes_refuse_network_options() {
    let options = [["--allow-net", "api.example"], ["--net-policy", "/nonexistent"], ["--secret", "A@b.example=env:C"]];
    for sandbox in [&["native-weak"][..], &["native", "--allow-unsandboxed"]] {
        for option in options {
            let server = Belljar::without_cache().args(["stdio", "--sandbox"]).args(sandbox).args(option).run();
            assert_eq!((server.status, server.stdout.as_str()), (Some(2), ""), "{server:?}");
            let reason = format!("belljar: {} cannot be used with --", option[0]);
            assert!(
                server.stderr.contains(&reason) && server.stderr.contains("hint: use --sandbox native"),
                "{server:?}"
            );
        }
    }
}
