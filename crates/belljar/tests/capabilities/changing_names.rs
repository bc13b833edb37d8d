//! Answers of the resolver that change, or that mix public and private addresses, in a namespace with a DNS server.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::Belljar;

belljar_testing::trials! {
    answers_that_change_lead_to_no_private_address: [NetworkNamespace],
}

/// Runs `belljar run` with these arguments where a resolver changes its answers, and returns the report of
/// `tests/network/changing_names.py`.
fn run_with_changing_names(arguments: &[&str]) -> Value {
    let belljar = Belljar::new().args(["run", "--offline"]).args(arguments).into_command();
    let namespace = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/network/changing_names.py");
    let mut command = Command::new("unshare");
    command.args(["-rmn", "python3", "-B"]).arg(namespace).arg(belljar.get_program()).args(belljar.get_args());
    for (name, value) in belljar.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let run = command.output().unwrap();
    assert!(run.status.success(), "{run:?}");
    serde_json::from_slice(&run.stdout).unwrap()
}

/// Attack: a name whose first answer, which a check would see, is public, and whose further answers are loopback.
fn answers_that_change_lead_to_no_private_address() {
    let code = "import socket\nfor name in ['changing'] * 3 + ['both', 'mapped']:\n    try:\n        \
                with socket.create_connection((f'{name}.example.com', 8080)) as plain:\n            \
                print(plain.recv(100).decode())\n    except OSError as error:\n        \
                print(type(error).__name__, str(error).rpartition('its address ')[2].partition(';')[0])";
    let report = run_with_changing_names(&["--allow-net", "*.example.com:8080", "-c", code]);
    assert_eq!(report["status"], 0, "{report}");
    let output: Vec<&str> = report["output"].as_str().unwrap().lines().collect();
    let [first, second, third, both, mapped] = output.as_slice() else { panic!("{report}") };
    // Each connection is made to the address of the one answer that was checked.
    assert_eq!(*first, "93.184.215.14", "{report}");
    assert_eq!([*second, *third, *mapped], ["PermissionError 127.0.0.1 is loopback"; 3], "{report}");
    // The public one of both addresses is not reachable, and the other one is not tried instead.
    assert!(both.starts_with("OSError") || both.starts_with("PermissionError"), "{report}");
    assert_eq!(report["arrived"], json!(["93.184.215.14"]), "{report}");
    let names = ["changing", "changing", "changing", "both", "mapped"].map(|name| format!("{name}.example.com"));
    assert_eq!(report["names"], json!(names), "{report}");
}
