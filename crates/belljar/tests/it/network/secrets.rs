//! Secrets: the code has a placeholder, the server receives the value, and what comes back does not contain it.

use super::cases::check;
use crate::network_servers::{KEY, TOKEN, site};

#[test]
fn servers_receive_the_value_and_the_code_does_not() {
    check("secrets.py");
    let records = site().records();
    let has = |record: &serde_json::Value, value: &str| record["headers"]["authorization"] == format!("Bearer {value}");
    for (value, name) in [(TOKEN, "api.example.com"), (KEY, "keys.example.com")] {
        assert!(records.iter().any(|record| has(record, value)), "{name} did not receive its secret");
    }
}

#[test]
fn output_and_errors_of_commands_are_without_secrets() {
    let code = "import os, sys, urllib.request\nprint(os.environ['TOKEN'])\n\
                request = urllib.request.Request('https://api.example.com:PORT_https/return/plain')\n\
                request.add_header('Authorization', 'Bearer ' + os.environ['TOKEN'])\n\
                print(urllib.request.urlopen(request).read())\nraise RuntimeError(urllib.request.urlopen(request).read())";
    let run = site().run(code);
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.stderr.contains("RuntimeError: b'["), "{}", run.stderr);
    assert!(!format!("{run:?}").contains("s3cret"), "{run:?}");
}
