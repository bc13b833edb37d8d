//! Isolation between interpreters that run at the same time or one after the other.

use belljar_core::{Limits, RunRequest};
use belljar_python::on_guest_thread;

use super::{describe, interpreter};
use crate::library::python;

/// Pairs of code: the first leaves a trace, the second checks for it.
const TRACES: &[(&str, &str, &str)] = &[
    ("a variable", "leak = 1", "'leak' in globals()"),
    ("a file", "open('/tmp/leak', 'w').write('x')", "__import__('os').path.exists('/tmp/leak')"),
    ("a file at home", "open('leak', 'w').write('x')", "__import__('os').path.exists('leak')"),
    ("a directory", "import os; os.chdir('/tmp')", "__import__('os').getcwd() == '/tmp'"),
    ("a module", "import sys; sys.modules['leak'] = sys", "'leak' in __import__('sys').modules"),
    ("a module that was imported", "import wave", "'wave' in __import__('sys').modules"),
    ("a patch", "import json; json.leak = 1", "hasattr(__import__('json'), 'leak')"),
    ("a patched builtin", "import builtins; builtins.leak = 1", "hasattr(__builtins__, 'leak')"),
    ("a patched type", "import decimal; decimal.getcontext().prec = 3", "__import__('decimal').getcontext().prec == 3"),
    ("the environment", "import os; os.environ['LEAK'] = '1'", "'LEAK' in __import__('os').environ"),
    ("an open descriptor", "import os; [os.open('/dev/null', 0) for _ in range(50)]", "__import__('os').dup(1) > 40"),
    ("a signal handler", "import signal; signal.signal(2, print)", "__import__('signal').getsignal(2) == print"),
    ("a recursion limit", "import sys; sys.setrecursionlimit(333)", "__import__('sys').getrecursionlimit() == 333"),
    ("an interned object", "import ctypes; ctypes.memset(id(256) + 12, 7, 4)", "str((lambda x: x + 1)(255)) != '256'"),
    (
        "a random seed",
        "import random; random.seed(1); x = random.random()",
        "__import__('random').random() == 0.13436424411240122",
    ),
];

/// Runs `test` on a thread that interpreters can use.
fn guest(test: impl FnOnce() + Send) {
    python();
    on_guest_thread(test).unwrap();
}

#[test]
fn traces_of_one_interpreter_are_invisible_to_others() {
    guest(|| {
        let mut before = interpreter(Limits::default());
        for (what, leave, find) in TRACES {
            let mut one = interpreter(Limits::default());
            one.run(&RunRequest::for_cell(*leave));
            // The check works: the interpreter with the trace finds it.
            if *what != "a random seed" {
                assert_eq!(
                    describe(&one.run(&RunRequest::for_cell(*find))),
                    "value true",
                    "{what} leaves no trace at all"
                );
            }
            let mut after = interpreter(Limits::default());
            assert_eq!(describe(&after.run(&RunRequest::for_cell(*find))), "value false", "{what}, later");
            assert_eq!(describe(&before.run(&RunRequest::for_cell(*find))), "value false", "{what}, earlier");
        }
    });
}

#[test]
fn copies_of_an_image_draw_different_random_numbers() {
    guest(|| {
        for draw in [
            "import random; random.random()",
            "import uuid; str(uuid.uuid4())",
            "import os; os.urandom(8).hex()",
            "import secrets; secrets.token_hex(8)",
            "import tempfile; tempfile.mkstemp()[1]",
        ] {
            let numbers = [(); 2].map(|()| describe(&interpreter(Limits::default()).run(&RunRequest::for_cell(draw))));
            assert!(numbers[0].starts_with("value "), "{draw}: {}", numbers[0]);
            assert_ne!(numbers[0], numbers[1], "{draw}");
        }
    });
}

#[test]
fn crash_or_stop_leaves_other_interpreters_running() {
    guest(|| {
        let mut beside = interpreter(Limits::default());
        beside.run(&RunRequest::for_cell("x = 41"));
        let short = Limits { wall_time: Some(std::time::Duration::from_millis(100)), ..Limits::default() };
        for (code, limits) in [
            ("import os; os.abort()", Limits::default()),
            ("import ctypes; ctypes.memset(0, 255, 30 << 20)", Limits::default()),
            ("while True: pass", short),
            ("import os; os._exit(3)", Limits::default()),
        ] {
            let mut other = interpreter(limits);
            other.run(&RunRequest::for_cell(code));
            assert!(other.is_dead(), "{code}");
            assert_eq!(describe(&beside.run(&RunRequest::for_cell("x + 1"))), "value 42", "{code}");
        }
    });
}

#[test]
fn concurrent_interpreters_are_stopped_one_by_one() {
    python();
    let answers: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                scope.spawn(move || {
                    on_guest_thread(|| {
                        let endless = number % 2 == 0;
                        let wall_time = endless.then(|| std::time::Duration::from_millis(50 * number));
                        let mut interpreter = interpreter(Limits { wall_time, ..Limits::default() });
                        let code = if endless {
                            "while True: pass".into()
                        } else {
                            format!("sum(range(10**6)) * 0 + {number}")
                        };
                        describe(&interpreter.run(&RunRequest::for_cell(code)))
                    })
                    .unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (number, answer) in answers.iter().enumerate() {
        let expected = if number % 2 == 0 { "limit time".to_owned() } else { format!("value {number}") };
        assert_eq!(*answer, expected);
    }
}
