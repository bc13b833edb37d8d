//! `belljar run -i` on a terminal: editing, history and Ctrl-C.

use std::process::Command;

use rexpect::session::{PtySession, spawn_command};

use crate::harness::Belljar;
use crate::wheels::Wheels;

const ENTER: &str = "\r";
const UP: &str = "\x1b[A";

/// Starts a prompt on a new terminal and waits until it reads input.
fn prompt(args: &[&str]) -> PtySession {
    let belljar = Belljar::new().args(["run", "-i", "-q"]).args(args).into_command();
    // A shell's job in the background ignores interrupts, and its children inherit that.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(belljar.get_program()).args(belljar.get_args());
    for (name, value) in belljar.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("TERM", "xterm");
    let mut session = spawn_command(command, Some(180_000)).unwrap();
    session.exp_string(">>> ").unwrap();
    session
}

fn type_in(session: &mut PtySession, keys: &str) {
    session.send(keys).unwrap();
    session.flush().unwrap();
}

#[test]
fn terminal_prompt_has_editing_blocks_and_history() {
    let mut session = prompt(&[]);
    // The cursor moves left over the 1, and a 2 is inserted before it.
    type_in(&mut session, &format!("x = 1\x1b[D2{ENTER}"));
    session.exp_string(">>> ").unwrap();
    type_in(&mut session, &format!("for i in range(2):{ENTER}    print('item', x + i){ENTER}{ENTER}"));
    session.exp_string("item 21").unwrap();
    session.exp_string("item 22").unwrap();
    type_in(&mut session, &format!("'once' + ' more'{ENTER}"));
    session.exp_string("'once more'").unwrap();
    type_in(&mut session, &format!("{UP}{ENTER}"));
    session.exp_string("'once more'").unwrap();
    type_in(&mut session, "\x04");
    session.exp_eof().unwrap();
}

#[test]
fn control_c_stops_code_and_clears_input_but_keeps_the_prompt() {
    let mut session = prompt(&["-c", "kept = 'still here'"]);
    type_in(&mut session, &format!("import time; print('begun'); time.sleep(1000){ENTER}"));
    session.exp_string("begun\r\n").unwrap();
    session.send_control('c').unwrap();
    session.exp_string("KeyboardInterrupt").unwrap();
    session.exp_string(">>> ").unwrap();
    type_in(&mut session, "half a line");
    session.send_control('c').unwrap();
    session.exp_string("KeyboardInterrupt").unwrap();
    session.exp_string(">>> ").unwrap();
    type_in(&mut session, &format!("kept + '!'{ENTER}"));
    session.exp_string("'still here!'").unwrap();
    type_in(&mut session, "\x04");
    session.exp_eof().unwrap();
}

#[test]
fn tab_completes_names_attributes_and_modules() {
    let mut session = prompt(&[
        "-c",
        "unmistakable = 'a text'\nclass Odd:\n    def __dir__(self): return ['\\x1b]0;T\\x07x', 'plain_one']",
    ]);
    type_in(&mut session, &format!("unmis\t + '!'{ENTER}"));
    session.exp_string("'a text!'").unwrap();
    type_in(&mut session, &format!("unmistakable.upp\t{ENTER}"));
    session.exp_string("'A TEXT'").unwrap();
    type_in(&mut session, &format!("import jso\t; print('imported'){ENTER}"));
    session.exp_string("imported\r\n").unwrap();
    session.exp_string(">>> ").unwrap();
    type_in(&mut session, &format!("json.JSONDecodeE\t'not JSON', '', 0).msg + '!'{ENTER}"));
    session.exp_string("'not JSON!'").unwrap();
    // At the start of a line, Tab indents. A name that the code made cannot act on the terminal.
    type_in(&mut session, &format!("if True:{ENTER}\todd = Odd(); print('made'){ENTER}{ENTER}"));
    session.exp_string("made\r\n").unwrap();
    session.exp_string(">>> ").unwrap();
    type_in(&mut session, "odd.\t");
    let shown = session.exp_string("odd.plain_one").unwrap();
    assert!(!shown.contains("\x1b]"), "{shown:?}");
    session.send_control('c').unwrap();
    session.exp_string(">>> ").unwrap();
    type_in(&mut session, "\x04");
    session.exp_eof().unwrap();
}

#[test]
fn completion_that_never_ends_is_stopped() {
    let mut session = prompt(&["-c", "class Slow:\n    def __dir__(self):\n        while True: pass\nslow = Slow()"]);
    type_in(&mut session, "slow.\t");
    // The line is edited on after two seconds.
    type_in(&mut session, &format!("\x15'still ' + 'here'{ENTER}"));
    session.exp_string("'still here'").unwrap();
    type_in(&mut session, &format!("type(slow).__name__{ENTER}"));
    session.exp_string("'Slow'").unwrap();
    type_in(&mut session, "\x04");
    session.exp_eof().unwrap();
}

#[test]
fn prompt_installs_what_input_imports() {
    let wheels = Wheels::with_dependency();
    let mut command =
        Belljar::new().env("UV_NO_INDEX", "1").args(["run", "-i", "--find-links", wheels.path()]).into_command();
    command.env("TERM", "xterm");
    let mut session = spawn_command(command, Some(180_000)).unwrap();
    session.exp_string(">>> ").unwrap();
    type_in(&mut session, &format!("import gamma{ENTER}"));
    session.exp_string("installed gamma 1.0 and 1 dependency").unwrap();
    session.exp_string(">>> ").unwrap();
    type_in(&mut session, &format!("gamma.beta.name * 2{ENTER}"));
    session.exp_string("'betabeta'").unwrap();
    type_in(&mut session, &format!("import no_such_package_at_all{ENTER}"));
    session.exp_string("ModuleNotFoundError").unwrap();
    session.exp_string(">>> ").unwrap();
    type_in(&mut session, "\x04");
    session.exp_eof().unwrap();
}

#[test]
fn call_shows_that_a_server_is_being_started() {
    // A server that never answers.
    let arguments = ["call", "python3 -c 'input(); input()'", "--start-timeout", "180"];
    let mut command = Belljar::without_cache().args(arguments).into_command();
    command.env("TERM", "xterm");
    let mut session = spawn_command(command, Some(180_000)).unwrap();
    session.exp_string("starting python3 -c 'input(); input()'").unwrap();
    session.send_control('c').unwrap();
    session.exp_eof().unwrap();
}
