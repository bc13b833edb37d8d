//! `belljar run -i` on a terminal: editing, history and Ctrl-C.

use rexpect::session::{PtySession, spawn_command};

use crate::harness::Belljar;

const ENTER: &str = "\r";
const UP: &str = "\x1b[A";

/// Starts a prompt on a new terminal and waits until it reads input.
fn prompt(args: &[&str]) -> PtySession {
    let mut command = Belljar::new().args(["run", "-i", "-q"]).args(args).into_command();
    command.env("TERM", "xterm");
    let mut session = spawn_command(command, Some(60_000)).unwrap();
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
