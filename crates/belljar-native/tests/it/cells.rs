//! Tests of cells: their output, errors and input requests.

use belljar_core::kernel::InputError;
use belljar_core::{CellStatus, Output, Stream};
use belljar_testing::Trial;

use crate::trials::harness::{Session, in_each, text_of};

pub(crate) fn trials() -> Vec<Trial> {
    [
        in_each("output_and_values_arrive_in_order", output_and_values_arrive_in_order),
        in_each("variables_persist_and_cells_are_numbered", variables_persist_and_cells_are_numbered),
        in_each("error_has_a_traceback_and_session_continues", error_has_a_traceback),
        in_each("output_is_streamed_while_the_cell_runs", output_is_streamed_while_the_cell_runs),
        in_each("displays_are_updated_and_cleared", displays_are_updated_and_cleared),
        in_each("input_is_answered_or_refused_with_a_reason", input_requests),
        in_each("magics_commands_and_await_work", magics_commands_and_await_work),
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
    assert_eq!(*session.listener.heard.lock().unwrap(), [(Stream::Stdout, "first\n".to_owned())]);
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
    assert!(session.text("%timeit -n1 -r1 1").contains("loop"));
    assert_eq!(session.text("import asyncio\nawait asyncio.sleep(0, 'awaited')"), "'awaited'");
    assert_eq!(
        session.text("import subprocess\nsubprocess.run(['echo', 'x'], capture_output=True, text=True).stdout"),
        "'x\\n'"
    );
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
