//! Cells: what they write, show, raise and ask.

use std::time::{Duration, Instant};

use belljar_core::kernel::{End, Output, Stream};
use libtest_mimic::Trial;

use crate::trials::harness::{Session, in_each, text_of};

pub(crate) fn trials() -> Vec<Trial> {
    [
        in_each("streams_and_values_come_in_order", streams_and_values_come_in_order),
        in_each("variables_stay_and_cells_are_counted", variables_stay_and_cells_are_counted),
        in_each("an_error_has_a_traceback_and_the_session_goes_on", an_error_has_a_traceback),
        in_each("output_is_heard_while_the_cell_runs", output_is_heard_while_the_cell_runs),
        in_each("displays_are_updated_and_cleared", displays_are_updated_and_cleared),
        in_each("a_question_is_answered_or_refused_with_words", questions),
        in_each("magics_commands_and_await_work", magics_commands_and_await_work),
        in_each("exit_leaves_the_session_alive", exit_leaves_the_session_alive),
        in_each("modules_of_the_session_are_imported", modules_of_the_session_are_imported),
        in_each("comms_harm_nobody", comms_harm_nobody),
        in_each("text_that_is_no_unicode_is_shown", text_that_is_no_unicode_is_shown),
        in_each("sessions_have_random_numbers_of_their_own", random_numbers_of_their_own),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn streams_and_values_come_in_order(session: &mut Session) {
    let executed = session.run("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c')\n1 + 1");
    let text = |stream, text: &str| Output::Text { stream, text: text.into() };
    assert_eq!(executed.end, End::Success);
    assert_eq!(
        executed.outputs[..3],
        [text(Stream::Stdout, "a\n"), text(Stream::Stderr, "b\n"), text(Stream::Stdout, "c\n")]
    );
    assert!(matches!(&executed.outputs[3..], [Output::Value(bundle)] if bundle["text/plain"] == "2"), "{executed:?}");
}

fn variables_stay_and_cells_are_counted(session: &mut Session) {
    assert_eq!(session.run("x = 20").count, 1);
    let second = session.run("x + 22");
    assert_eq!((second.count, text_of(&second).as_str()), (2, "42"));
    assert_eq!(session.text("_ + Out[2]"), "84");
}

fn an_error_has_a_traceback(session: &mut Session) {
    let executed = session.run("def f():\n    return 1 / 0\nprint('before')\nf()");
    assert_eq!(text_of(&executed), "before\n");
    let End::Raised { error, traceback } = executed.end else { panic!("{executed:?}") };
    assert_eq!(error, "ZeroDivisionError: division by zero");
    let traceback = traceback.join("\n");
    assert!(traceback.contains("return 1 / 0") && !traceback.contains('\x1b'), "{traceback}");
    assert!(session.error("1 +").starts_with("SyntaxError"));
    assert_eq!(session.text("'alive'"), "'alive'");
}

fn output_is_heard_while_the_cell_runs(session: &mut Session) {
    let listener = session.listener.clone();
    let watch = std::thread::spawn(move || {
        let begun = Instant::now();
        while listener.heard.lock().unwrap().is_empty() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let heard = listener.heard.lock().unwrap().clone();
        // The cell waits for this.
        heard
    });
    session.text("import time\nprint('first', flush=True)\ntime.sleep(1.5)\nprint('second')");
    assert_eq!(watch.join().unwrap(), [(Stream::Stdout, "first\n".to_owned())]);
}

fn displays_are_updated_and_cleared(session: &mut Session) {
    let code = "from IPython.display import display, clear_output\nprint('gone')\nclear_output()\n\
                handle = display('one', display_id=True)\nprint('between')\nhandle.update('two')";
    let executed = session.run(code);
    let shown: Vec<String> = executed
        .outputs
        .iter()
        .map(|output| match output {
            Output::Shown(bundle) | Output::Value(bundle) => bundle["text/plain"].as_str().unwrap().to_owned(),
            Output::Text { text, .. } => text.clone(),
        })
        .collect();
    assert_eq!(shown, ["'two'", "between\n"]);
    assert_eq!(session.shown("handle.update('three')")[0]["text/plain"], "'three'");
    let waited = session.run("print('old')\nclear_output(wait=True)\nprint('new')");
    assert_eq!(text_of(&waited), "new\n");
}

fn questions(session: &mut Session) {
    session.listener.answers.lock().unwrap().extend([Ok("Ada".into()), Ok("hush".into())]);
    assert_eq!(
        session.text("name = input('Who? ')\nimport getpass\nprint(name, getpass.getpass('Word: '))"),
        "Ada hush\n"
    );
    assert_eq!(*session.listener.asked.lock().unwrap(), [("Who? ".to_owned(), false), ("Word: ".to_owned(), true)]);
    let refused = session.error("input('Again? ')");
    assert_eq!(refused, "StdinNotImplementedError: nobody is there to be asked");
    session.listener.answers.lock().unwrap().push(Err("declined".into()));
    assert_eq!(session.error("input()"), "StdinNotImplementedError: declined");
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

fn exit_leaves_the_session_alive(session: &mut Session) {
    let executed = session.run("kept = 1\nexit()");
    assert!(text_of(&executed).contains("The session lives on"), "{executed:?}");
    assert_eq!(session.text("kept"), "1");
    assert_eq!(session.error("import sys\nsys.exit(3)"), "SystemExit: 3");
    assert_eq!(session.text("kept"), "1");
}

fn modules_of_the_session_are_imported(session: &mut Session) {
    session.text("open('mine.py', 'w').write('value = 5')");
    assert_eq!(session.text("import mine\nmine.value"), "5");
}

fn comms_harm_nobody(session: &mut Session) {
    let code = "from comm import create_comm\ncomm = create_comm(target_name='nobody', data={'a': 1})\n\
                comm.send({'b': 2})\ncomm.close()\n'done'";
    assert_eq!(session.text(code), "'done'");
}

fn text_that_is_no_unicode_is_shown(session: &mut Session) {
    let shown = session.text("print('a\\udcffb', 'é')");
    assert!(shown.starts_with('a') && shown.contains("b é"), "{shown:?}");
    assert_eq!(session.text("'alive'"), "'alive'");
}

fn random_numbers_of_their_own(session: &mut Session) {
    const CODE: &str = "import random, numpy\nprint(random.random(), numpy.random.random())";
    let first = session.text(CODE);
    session.kernel.restart().unwrap();
    assert_ne!(first, session.text(CODE));
}
