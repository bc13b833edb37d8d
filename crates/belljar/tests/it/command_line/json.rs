//! `--json`: one object, whose shape depends on the status.

use crate::harness::Belljar;

/// Returns the object, without the fields that differ from run to run, and the exit status.
fn outcome(options: &[&str], code: &str) -> (serde_json::Value, Option<i32>) {
    let (mut json, status) = Belljar::new().args(["run", "--json"]).args(options).args(["-c", code]).json();
    let stats = json.as_object_mut().unwrap().remove("stats").unwrap();
    for name in ["start_ms", "run_ms", "peak_memory_bytes"] {
        assert!(stats[name].is_number(), "{stats}");
    }
    (json, status)
}

#[test]
fn each_status_has_its_shape() {
    let cases: [(&[&str], &str, i32); 13] = [
        (&[], "print('out'); import sys; print('err', file=sys.stderr); {'a': [1, 2.5, None]}", 0),
        (&[], "x = 1", 0),
        (&[], "1 / 0", 1),
        (&[], "import sys; print('x', end=''); sys.exit(3)", 3),
        (&[], "raise SystemExit('why')", 1),
        (&[], "raise KeyboardInterrupt", 130),
        (&["--timeout", "3"], "print('partial', end='')\nwhile True: pass", 124),
        (&["--cpu", "0.2"], "while True: pass", 124),
        (&["--max-output", "5"], "print('0123456789')", 125),
        (&[], "import os; os.abort()", 134),
        (&[], "float('inf'), 2 ** 100, 'é\\0'", 0),
        (&[], "import os; os.write(1, b'\\xff\\xfe'); None", 0),
        (&[], "'\\ud800'", 0),
    ];
    let mut shapes = String::new();
    for (options, code, status) in cases {
        let (json, came) = outcome(options, code);
        assert_eq!(came, Some(status), "{code}: {json}");
        shapes += &format!("{code}\n{}\n\n", serde_json::to_string_pretty(&json).unwrap());
    }
    insta::assert_snapshot!(shapes);
}

#[test]
fn numbers_keep_all_their_digits() {
    let run = Belljar::run_with(["--json", "-c", "[2 ** 100, 1e22, 0.1, -0.0]"]);
    assert!(run.stdout.contains(r#""value":[1267650600228229401496703205376,1e22,0.1,-0.0]"#), "{run:?}");
}

#[test]
fn the_object_stands_alone_on_standard_output() {
    let run =
        Belljar::new().args(["run", "--json", "-c", "import sys; print(1); print(2, file=sys.stderr); 1/0"]).run();
    assert_eq!(run.stdout.lines().count(), 1, "{run:?}");
    assert_eq!(run.stderr, "");
}

#[test]
fn output_is_kept_in_the_order_in_which_it_was_written() {
    let code = "import sys\nfor i in range(3): print(i); print(-i, file=sys.stderr)";
    let (json, _) = outcome(&[], code);
    assert_eq!(json["output"], "0\n0\n1\n-1\n2\n-2\n");
    assert_eq!(json["stdout"], "0\n1\n2\n");
    assert_eq!(json["stderr"], "0\n-1\n-2\n");
}
