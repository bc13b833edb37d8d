//! Isolation between calls.

use serde_json::json;

use crate::wire::{Wire, text};

#[test]
fn calls_share_no_state() {
    let mut wire = Wire::start(["--no-install"]);
    wire.run(
        "import builtins, sys, os, json\nx = 1\nopen('kept.txt', 'w').write('x')\nos.environ['KEPT'] = '1'\n\
         json.dumps = None\nbuiltins.len = lambda _: 42\nsys.modules['fake'] = sys",
    );
    let seen = wire.run(
        "import os, sys, json\n['x' in globals(), os.path.exists('kept.txt'), 'KEPT' in os.environ, \
         json.dumps([1]), len('ab'), 'fake' in sys.modules]",
    );
    let wanted = "<status>success</status>\n<return_value>\n[\n  false,\n  false,\n  false,\n  \"[1]\",\n  2,\n  false\n]\n</return_value>";
    assert_eq!(seen, wanted);
}

#[test]
fn concurrent_calls_keep_their_output_apart() {
    let mut wire = Wire::start(["--no-install"]);
    let code = |n: usize| format!("import time\nfor i in range(20):\n    print('c{n}', i)\n    time.sleep(0.005)\n{n}");
    let ids: Vec<_> = (0..8).map(|n| wire.send_call(json!({ "python_code": code(n) }))).collect();
    for (n, id) in ids.into_iter().enumerate() {
        let text = text(&wire.answer(id)["result"]);
        let lines: Vec<String> = (0..20).map(|i| format!("c{n} {i}")).collect();
        let wanted = format!(
            "<status>success</status>\n<output>\n{}\n</output>\n<return_value>\n{n}\n</return_value>",
            lines.join("\n")
        );
        assert_eq!(text, wanted);
    }
}

#[test]
fn calls_have_independent_random_numbers() {
    let mut wire = Wire::start(["--no-install"]);
    let [one, other] = [(), ()].map(|()| wire.run("import random, uuid\n[random.random(), str(uuid.uuid4())]"));
    assert_ne!(one, other);
}
