//! Features of IPython that cells can use.

use super::Session;

/// Runs cells one after the other in one session. Each pair is a cell and a text that its output or value contains.
fn check(session: &mut Session, cells: &[(&str, &str)]) {
    for (code, wanted) in cells {
        let answer = session.run(code);
        let text = format!("{}{}", super::joined(&answer["output"]), answer["result"].as_str().unwrap_or_default());
        assert!(answer["success"] == true && text.contains(wanted), "{code:?} wants {wanted:?}: {answer:#}");
    }
}

#[test]
fn history_of_inputs_and_outputs() {
    let mut session = Session::start([]);
    check(
        &mut session,
        &[
            ("40 + 2", "42"),
            ("_", "42"),
            ("_ + 1", "43"),
            ("Out[2]", "42"),
            ("In[2]", "40 + 2"),
            ("_i", "In[2]"),
            ("__", "'40 + 2'"),
            ("5;", ""),
            ("%history", "Out[2]"),
        ],
    );
    assert_eq!(session.run("7;")["result"], serde_json::Value::Null);
}

#[test]
fn magics() {
    let mut session = Session::start([]);
    check(
        &mut session,
        &[
            ("alpha = 1; beta = 'two'", ""),
            ("%who", "alpha\t beta"),
            ("%whos", "alpha      int     1"),
            ("%timeit -n 2 -r 2 sum(range(10))", "loops each"),
            ("%%time\ntotal = sum(range(10))\ntotal", "45"),
            ("%load_ext autoreload\n%autoreload 2", ""),
            ("%%capture kept\nprint('inside')", ""),
            ("kept.stdout", "inside"),
            ("%%writefile made.py\nvalue = 5", "Writing made.py"),
            ("import made; made.value", "5"),
            ("%run made.py\nvalue * 2", "10"),
            ("%env HOME", "/home"),
            ("%lsmagic", "%timeit"),
            ("%reset -f\n'alpha' in globals()", "False"),
        ],
    );
    assert_eq!(session.error("%nope"), "UsageError: Line magic function `%nope` not found.");
}

#[test]
fn help_is_output() {
    let mut session = Session::start([]);
    check(
        &mut session,
        &[
            ("len?", "Return the number of items in a container."),
            ("def area(r):\n    'The area of a circle.'\n    return 3 * r * r", ""),
            ("area?", "The area of a circle."),
            ("area??", "return"),
            ("str.*find*?", "str.rfind"),
        ],
    );
}

#[test]
fn await_at_the_top_level_shares_one_loop() {
    let mut session = Session::start([]);
    check(
        &mut session,
        &[
            ("import asyncio\nawait asyncio.sleep(0.01)\n'slept'", "slept"),
            ("queue = asyncio.Queue()\ntask = asyncio.create_task(queue.get())\nawait asyncio.sleep(0)", ""),
            ("await queue.put('through')\nawait task", "through"),
            (
                "async def numbers():\n    for n in range(3):\n        yield n\n[n async for n in numbers()]",
                "[0, 1, 2]",
            ),
        ],
    );
    assert!(session.error("await asyncio.sleep(0)\n1/0").starts_with("ZeroDivisionError"));
}

#[test]
fn rich_representations_are_shown() {
    let mut session = Session::start([]);
    check(
        &mut session,
        &[
            (
                "class Html:\n    def _repr_html_(self): return '<b>bold</b>'\n    def __repr__(self): return 'plain form'",
                "",
            ),
            ("display(Html())", "plain form"),
            ("Html()", "plain form"),
            (
                "class Both:\n    def _repr_mimebundle_(self, **options): return {'text/plain': 'a bundle', 'text/html': '<i>'}\nBoth()",
                "a bundle",
            ),
            (
                "from IPython.display import Markdown, JSON, HTML, Latex\ndisplay(Markdown('# Title'))",
                "IPython.core.display.Markdown",
            ),
            ("display({'text/plain': 'raw form'}, raw=True)", "raw form"),
            ("display(1, 'two', [3])", "1'two'[3]"),
        ],
    );
    let without_text = "display({'text/html': '<hr>'}, raw=True)";
    assert_eq!(session.run("Html()").get("html"), None);
    assert_eq!(session.run(without_text)["html"], serde_json::json!(["<hr>"]));
    let mut session = Session::start(["--html"]);
    let code = "class Html:\n    def _repr_html_(self): return '<b>bold</b>'\n    def __repr__(self): return 'plain form'\nHtml()";
    let answer = session.run(code);
    assert_eq!((&answer["result"], &answer["html"]), (&"plain form".into(), &serde_json::json!(["<b>bold</b>"])));
}

#[test]
fn shell_commands_run_inside_the_sandbox() {
    let mut session = Session::start([]);
    check(
        &mut session,
        &[
            ("!pwd", "/home"),
            ("open('b.txt', 'w').write('bee\\n'); open('a.txt', 'w').write('ay\\n');", ""),
            ("!ls", "a.txt\nb.txt\n"),
            ("!ls *.txt", "a.txt\nb.txt\n"),
            ("!ls -la a.txt", "-rw-r--r-- 1 user user        3"),
            ("!cat a.txt b.txt", "ay\nbee\n"),
            ("name = 'b.txt'\n!cat {name} && pwd", "bee\n/home\n"),
            ("files = !ls\nfiles", "['a.txt', 'b.txt']"),
            ("ls", "a.txt"),
            ("%cat a.txt", "ay"),
            ("!python -c 'print(6 * 7)'", "42"),
            ("!python -c 'import sys; print(sys.argv[1:])' one two", "['one', 'two']"),
            ("open('tool.py', 'w').write('import sys\\nprint(__name__, sys.argv[1])');", ""),
            ("!python -m tool x", "__main__ x"),
            ("!python tool.py y", "__main__ y"),
            ("!python --version", "Python 3."),
            ("!python -c '1/0'\n_exit_code", "1"),
            ("!cat none.txt", "cat: none.txt: No such file or directory"),
            ("%%bash\n# the files\npwd\nls \\\n  a.txt\n", "/home\na.txt\n"),
            ("%%script bash\npwd", "/home"),
            ("%%python\nprint(6 * 7)", "42"),
        ],
    );
    for code in [
        "!git status",
        "!ls | wc",
        "!echo x > y",
        "x = !uname -a",
        "!python < a.txt",
        "%%bash\ngit status",
        "%%perl\nprint 1",
    ] {
        let error = session.error(code);
        assert!(error.starts_with("UsageError:") && error.contains("native backend"), "{code}: {error}");
    }
}

#[test]
fn matplotlib_magic_works_before_matplotlib_is_installed() {
    let mut session = Session::start(["--no-install"]);
    check(&mut session, &[("%matplotlib inline", ""), ("%matplotlib inline\n6 * 7", "42")]);
}

#[test]
fn packages_that_cells_import_are_installed() {
    let mut session = Session::start([]);
    check(
        &mut session,
        &[
            ("import humanize\nhumanize.intcomma(1234567)", "1,234,567"),
            ("%pip install --quiet inflection\nimport inflection\ninflection.pluralize('session')", "sessions"),
            ("!pip list", "inflection"),
            ("try:\n    import no_such_module_of_anybody\nexcept ImportError:\n    print('missing')", "missing"),
        ],
    );
}

#[test]
fn exit_leaves_the_session_alive() {
    let mut session = Session::start([]);
    session.run("x = 3");
    assert!(session.output("exit()").contains("exit() does not end the session"));
    assert_eq!(session.error("import sys; sys.exit(4)"), "SystemExit: 4");
    assert_eq!(session.value("x"), "3");
}

#[test]
fn classes_of_cells_can_be_pickled_and_errors_of_syntax_are_shown() {
    let mut session = Session::start([]);
    session.run("import pickle\nclass Point:\n    def __init__(self, x): self.x = x");
    assert_eq!(session.value("pickle.loads(pickle.dumps(Point(5))).x"), "5");
    let answer = session.run("def f(:\n  pass");
    assert!(answer["error"].as_str().unwrap().starts_with("SyntaxError"), "{answer:#}");
    assert!(answer["traceback"].to_string().contains("def"), "{answer:#}");
}
