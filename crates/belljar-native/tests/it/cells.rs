//! Tests of cells: their output, errors and input requests.

use std::time::Duration;

use belljar_core::kernel::InputError;
use belljar_core::{CellStatus, Output, Stream};
use belljar_sandbox::Policy;
use belljar_testing::Trial;

use crate::trials::harness::{Session, in_each, in_policies, text_of};

pub(crate) fn trials() -> Vec<Trial> {
    [
        in_each("output_and_values_arrive_in_order", output_and_values_arrive_in_order),
        in_each("variables_persist_and_cells_are_numbered", variables_persist_and_cells_are_numbered),
        in_each("error_has_a_traceback_and_session_continues", error_has_a_traceback),
        in_each("output_is_streamed_while_the_cell_runs", output_is_streamed_while_the_cell_runs),
        in_each("displays_are_updated_and_cleared", displays_are_updated_and_cleared),
        in_each("input_is_answered_or_refused_with_a_reason", input_requests),
        in_each("magics_commands_and_await_work", magics_commands_and_await_work),
        in_each("loops_of_asyncio_run_in_cells", loops_of_asyncio_run),
        in_each("interrupted_loop_leaves_the_kernel_usable", interrupted_loop),
        in_policies(&[Policy::Full, Policy::Weak], "errors_name_the_missing_network", &[], missing_network),
        in_each("exit_does_not_end_the_session", exit_does_not_end_the_session),
        in_each("modules_in_the_session_directory_are_importable", modules_in_the_session_directory_are_importable),
        in_each("comms_are_ignored", comms_are_ignored),
        in_each("lone_surrogates_are_printed", lone_surrogates_are_printed),
        in_each("random_state_differs_between_kernels", random_state_differs),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn output_and_values_arrive_in_order(session: &mut Session) {
    let executed = session.run("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')\n1 + 1");
    let text = |stream, text: &str| Output::Text { stream, text: text.into() };
    assert_eq!(executed.status, CellStatus::Ok);
    assert_eq!(
        executed.outputs[..3],
        [text(Stream::Stdout, "a\n"), text(Stream::Stderr, "b\n"), text(Stream::Stdout, "c\n")]
    );
    assert!(
        matches!(&executed.outputs[3..], [Output::ExecuteResult(bundle)] if bundle["text/plain"] == "2"),
        "{executed:?}"
    );
}

fn variables_persist_and_cells_are_numbered(session: &mut Session) {
    assert_eq!(session.run("x = 20").execution_count, 1);
    let second = session.run("x + 22");
    assert_eq!((second.execution_count, text_of(&second).as_str()), (2, "42"));
    assert_eq!(session.text("_ + Out[2]"), "84");
}

fn error_has_a_traceback(session: &mut Session) {
    let executed = session.run("def f():\n    return 1 / 0\nprint('before')\nf()");
    assert_eq!(text_of(&executed), "before\n");
    let CellStatus::Error(error) = executed.status else { panic!("{executed:?}") };
    assert_eq!(error.to_string(), "ZeroDivisionError: division by zero");
    let traceback = error.traceback.join("\n");
    assert!(traceback.contains("return 1 / 0") && !traceback.contains('\x1b'), "{traceback}");
    assert!(session.error("1 +").starts_with("SyntaxError"));
    assert_eq!(session.text("'alive'"), "'alive'");
}

fn output_is_streamed_while_the_cell_runs(session: &mut Session) {
    // The cell ends only because its output arrived before.
    let interrupt = session.kernel.interrupt_handle();
    let interrupter = session.after_first_output(move || interrupt.interrupt());
    let error = session.error("import time\nprint('first', flush=True)\ntime.sleep(100)\nprint('second')");
    interrupter.join().unwrap();
    assert!(error.starts_with("KeyboardInterrupt"), "{error}");
    assert_eq!(*session.listener.written.lock().unwrap(), [(Stream::Stdout, "first\n".to_owned())]);
}

fn displays_are_updated_and_cleared(session: &mut Session) {
    let code = "from IPython.display import display, clear_output\nprint('gone')\nclear_output()\n\
                handle = display('one', display_id=True)\nprint('between')\nhandle.update('two')";
    let executed = session.run(code);
    let shown: Vec<String> = executed
        .outputs
        .iter()
        .map(|output| match output {
            Output::Display(bundle) | Output::ExecuteResult(bundle) => {
                bundle["text/plain"].as_str().unwrap().to_owned()
            }
            Output::Text { text, .. } => text.clone(),
        })
        .collect();
    assert_eq!(shown, ["'two'", "between\n"]);
    assert_eq!(session.shown("handle.update('three')")[0]["text/plain"], "'three'");
    let waited = session.run("print('old')\nclear_output(wait=True)\nprint('new')");
    assert_eq!(text_of(&waited), "new\n");
}

fn input_requests(session: &mut Session) {
    session.listener.answers.lock().unwrap().extend([Ok("Ada".into()), Ok("hush".into())]);
    assert_eq!(
        session.text("name = input('Who? ')\nimport getpass\nprint(name, getpass.getpass('Word: '))"),
        "Ada hush\n"
    );
    assert_eq!(*session.listener.asked.lock().unwrap(), [("Who? ".to_owned(), false), ("Word: ".to_owned(), true)]);
    let refused = session.error("input('Again? ')");
    assert_eq!(refused, "StdinNotImplementedError: input() is not available here: set the value in the code instead");
    session.listener.answers.lock().unwrap().push(Err(InputError::Declined));
    assert_eq!(session.error("input()"), "StdinNotImplementedError: the question was declined");
}

fn magics_commands_and_await_work(session: &mut Session) {
    assert_eq!(session.text("!echo hello from $HOME | wc -w").trim(), "3");
    assert_eq!(session.text("!printf 'a\\nb\\n'; echo c"), "a\nb\nc\n", "the line ends are not those of a terminal");
    assert!(session.text("%timeit -n1 -r1 1").contains("loop"));
    assert_eq!(session.text("import asyncio\nawait asyncio.sleep(0, 'awaited')"), "'awaited'");
    assert_eq!(
        session.text("import subprocess\nsubprocess.run(['echo', 'x'], capture_output=True, text=True).stdout"),
        "'x\\n'"
    );
}

fn loops_of_asyncio_run(session: &mut Session) {
    session.text("import asyncio, sys\nasync def f(value=1):\n    await asyncio.sleep(0.001)\n    return value");
    for (code, expected) in [
        ("asyncio.run(f(5))", "5"),
        ("await f(6)", "6"),
        ("asyncio.run(asyncio.wait_for(f(7), 60))", "7"),
        ("asyncio.get_event_loop().run_until_complete(asyncio.gather(*[f(n) for n in range(3)]))", "[0, 1, 2]"),
        // The tasks belong to the loop that runs the cell.
        (
            "loop = asyncio.get_event_loop()\ntasks = [loop.create_task(f(n)) for n in range(3)]\n\
             results = loop.run_until_complete(asyncio.gather(*tasks))\nloop.close()\nresults",
            "[0, 1, 2]",
        ),
        (
            "loop = asyncio.new_event_loop()\nasyncio.set_event_loop(loop)\nresult = loop.run_until_complete(f(8))\n\
             loop.close()\nresult",
            "8",
        ),
        ("asyncio.Runner().run(f(9)) if sys.version_info >= (3, 11) else 9", "9"),
        ("first = await f(1); second = asyncio.run(f(2)); (first, second, await f(3))", "(1, 2, 3)"),
        ("async def main(): return await asyncio.to_thread(lambda: 10)\nasyncio.run(main())", "10"),
        (
            "async def main():\n    pipe = asyncio.subprocess.PIPE\n    \
             process = await asyncio.create_subprocess_exec('echo', 'x', stdout=pipe)\n    \
             return (await process.communicate())[0]\nasyncio.run(main())",
            "b'x\\n'",
        ),
        (
            "import threading\nresults = []\nthread = threading.Thread(target=lambda: results.append(asyncio.run(f(11))))\n\
          thread.start(); thread.join()\nresults",
            "[11]",
        ),
        // Jupyter's way: the task goes on between the cells.
        ("task = asyncio.create_task(f(12))\nNone", ""),
        ("await task", "12"),
        ("import gc\ngc.collect()\n'no warnings'", "'no warnings'"),
    ] {
        assert_eq!(session.text(code), expected, "{code}");
    }
    assert_eq!(session.error("async def fail(): 1 / 0\nasyncio.run(fail())"), "ZeroDivisionError: division by zero");
    // Inside a loop of the program, as in any Python.
    let nested = "async def main():\n    inner = f()\n    try: asyncio.run(inner)\n    finally: inner.close()\nasyncio.run(main())";
    assert!(
        session.error(nested).starts_with("RuntimeError: asyncio.run() cannot be called from a running event loop")
    );
}

fn interrupted_loop(session: &mut Session) {
    session.text("import asyncio");
    for code in ["asyncio.run(asyncio.sleep(100))", "asyncio.get_event_loop().run_until_complete(asyncio.sleep(100))"] {
        let executed = session.run_within(code, Some(Duration::from_secs(1)));
        assert!(matches!(executed.status, CellStatus::TimedOut { .. }), "{code}: {executed:?}");
        assert_eq!(session.text("asyncio.run(asyncio.sleep(0, 'alive'))"), "'alive'");
    }
}

fn missing_network(session: &mut Session) {
    session.text("import asyncio, http.client, socket, urllib.request");
    for (code, expected) in [
        (
            "socket.getaddrinfo('example.org', 443)",
            "gaierror: [Errno -2] this sandbox has no network access (cannot look up example.org)",
        ),
        ("socket.gethostbyname('example.org')", "gaierror: [Errno -2] this sandbox has no network access"),
        ("socket.create_connection(('192.0.2.1', 80), 2)", "this sandbox has no network access"),
        ("await asyncio.open_connection('example.org', 80)", "gaierror: [Errno -2] this sandbox has no network access"),
        (
            "urllib.request.urlopen('https://example.org')",
            "URLError: <urlopen error [Errno -2] this sandbox has no network access",
        ),
    ] {
        let executed = session.run(code);
        let CellStatus::Error(error) = &executed.status else { panic!("{code}: {executed:?}") };
        assert!(error.to_string().contains(expected), "{code}: {error}");
        let traceback = error.traceback.join("\n");
        assert!(traceback.len() < 600, "{code}: {traceback}");
        assert!(traceback.contains("Cell In[") && traceback.contains(code), "{code}: {traceback}");
    }
    // Libraries hide the cause in a chain of exceptions.
    let chained =
        "try:\n    urllib.request.urlopen('https://example.org')\nexcept OSError:\n    raise RuntimeError('failed')";
    let executed = session.run(chained);
    let CellStatus::Error(error) = &executed.status else { panic!("{executed:?}") };
    let last = error.traceback.last().unwrap();
    assert!(last.starts_with("Caused by ") && last.contains("this sandbox has no network access"), "{error:?}");
    // Other errors have the usual traceback.
    assert!(session.error("socket.getaddrinfo('localhost', 'no-such-service')").starts_with("gaierror: [Errno -8]"));
    let executed = session.run("try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise ValueError('x')");
    let CellStatus::Error(error) = &executed.status else { panic!("{executed:?}") };
    assert!(error.traceback.join("\n").contains("During handling of the above exception"), "{error:?}");
}

fn exit_does_not_end_the_session(session: &mut Session) {
    let executed = session.run("kept = 1\nexit()");
    assert!(text_of(&executed).contains("exit() does not end the session"), "{executed:?}");
    assert_eq!(session.text("kept"), "1");
    assert_eq!(session.error("import sys\nsys.exit(3)"), "SystemExit: 3");
    assert_eq!(session.text("kept"), "1");
}

fn modules_in_the_session_directory_are_importable(session: &mut Session) {
    session.text("open('mine.py', 'w').write('value = 5')");
    assert_eq!(session.text("import mine\nmine.value"), "5");
}

fn comms_are_ignored(session: &mut Session) {
    let code = "from comm import create_comm\ncomm = create_comm(target_name='unknown', data={'a': 1})\n\
                comm.send({'b': 2})\ncomm.close()\n'done'";
    assert_eq!(session.text(code), "'done'");
}

fn lone_surrogates_are_printed(session: &mut Session) {
    let shown = session.text("print('a\\udcffb', 'é')");
    assert!(shown.starts_with('a') && shown.contains("b é"), "{shown:?}");
    assert_eq!(session.text("'alive'"), "'alive'");
}

fn random_state_differs(session: &mut Session) {
    const CODE: &str = "import random, numpy\nprint(random.random(), numpy.random.random())";
    let first = session.text(CODE);
    session.kernel.restart().unwrap();
    assert_ne!(first, session.text(CODE));
}
