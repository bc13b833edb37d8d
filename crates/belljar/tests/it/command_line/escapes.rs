//! Output of `belljar run` on a terminal: hostile code reaches it with text and styles only.

use rexpect::session::spawn_command;

use crate::harness::Belljar;

/// Sequences that terminals act on: a title, the clipboard, a link, requests for answers, modes, a reset, and text
/// in another direction. After each, the terminal prints the following mark.
const HOSTILE: &str = r"\x1b]0;TITLE\x07<1>\x1b]52;c;Q0xJUA==\x1b\\<2>\x1b]8;;http://LINK\x1b\\<3>\x1b[6n\x1b[c\x05<4>\
\x1bP$q\x22p\x1b\\<5>\x1b[?1049h\x1b[2J\x1b[H\x1bc<6>\x9d0;TITLE\x9c\x9b6n\u202e\u2066<7>\x07\x00\x7f<8>";
/// The text that remains of it. The C1 characters are left out, and the text that followed them is only text.
const HARMLESS: &str = "<1><2><3><4><5><6>0;TITLE6n<7><8>";

/// Runs `belljar` on a new terminal to its end, and returns the bytes that the terminal received, with `\n` for line
/// ends.
fn on_terminal(args: &[&str]) -> String {
    let mut command = Belljar::new().args(args).into_command();
    command.env("TERM", "xterm");
    let mut session = spawn_command(command, Some(180_000)).unwrap();
    // The session converts each byte to a character.
    let bytes: Vec<u8> =
        session.exp_eof().unwrap().chars().map(|byte| u8::try_from(u32::from(byte)).unwrap()).collect();
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

#[test]
fn control_sequences_of_the_code_do_not_reach_the_terminal() {
    let code = format!("import sys\nprint('{HOSTILE}')\nsys.stderr.write('{HOSTILE}\\n')");
    assert_eq!(on_terminal(&["run", "-c", &code]), format!("{HARMLESS}\n{HARMLESS}\n"));
}

#[test]
fn sequences_in_pieces_do_not_reach_the_terminal() {
    let code = format!(
        "import os\nfor piece in '{HOSTILE}'.encode():\n    os.write(1, bytes([piece]))\n    os.write(2, b'.')\nos.write(1, b'\\n')"
    );
    let shown = on_terminal(&["run", "-c", &code]);
    assert_eq!(shown.replace('.', ""), format!("{HARMLESS}\n"));
}

#[test]
fn errors_exits_and_values_with_control_sequences_are_harmless() {
    let error = on_terminal(&["run", "-c", &format!("raise ValueError('{HOSTILE}')")]);
    assert!(error.ends_with(&format!("\nValueError: {HARMLESS}\n")), "{error:?}");
    assert_eq!(on_terminal(&["run", "-c", &format!("import sys; sys.exit('{HOSTILE}')")]), format!("{HARMLESS}\n"));
    assert_eq!(on_terminal(&["run", "-p", "-c", &format!("'{HOSTILE}'")]), format!("{HARMLESS}\n"));
    // JSON escapes what is not shown, so that the value is complete.
    let json = on_terminal(&["run", "--json", "-c", &format!("'{HOSTILE}'")]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["value"].as_str().unwrap().matches('\u{1b}').count(), 13, "{report}");
    assert!(!json.trim_end().contains(|character: char| character.is_control() || character == '\u{202e}'), "{json:?}");
}

#[test]
fn styles_and_progress_bars_look_as_the_code_intends() {
    // As tqdm and rich write them: a line is written again, and bars on several lines.
    let code = r"print('\x1b[1;38;5;196mred\x1b[0m', end='', flush=True)
print('\r 10%|#   |\r100%|####|\x1b[K\n', end='')
print('one\ntwo\n\x1b[2A\r\x1b[2KONE\x1b[1B\rTWO\n')";
    let wanted =
        "\x1b[1;38;5;196mred\x1b[0m\r 10%|#   |\r100%|####|\x1b[0K\none\ntwo\n\x1b[2A\r\x1b[2KONE\x1b[1B\rTWO\n\n";
    assert_eq!(on_terminal(&["run", "-c", code]), wanted);
    // The code does not reach lines above its own.
    let above = on_terminal(&["run", "-c", r"print('\x1b[5Aabove\n\x1b[5Fover', end='')"]);
    assert_eq!(above, "above\n\r\x1b[1Aover");
}

#[test]
fn hidden_text_ends_with_the_output_of_the_code() {
    let shown = on_terminal(&[
        "run",
        "--timeout",
        "3",
        "-c",
        r"print('\x1b[8m', end='')
while True: pass",
    ]);
    assert_eq!(shown, "\x1b[8m\x1b[0mbelljar: the code ran out of time\nhint: --timeout SECONDS sets the limit\n");
}

#[test]
fn raw_output_and_output_to_pipes_are_not_filtered() {
    let code = r"import os; os.write(1, b'\x1b]0;TITLE\x07\x1b[6n\xff\n')";
    let raw = Belljar::new().args(["run", "-c", code]).into_command().output().unwrap();
    assert_eq!(raw.stdout, b"\x1b]0;TITLE\x07\x1b[6n\xff\n");
    let code = r"import os; os.write(1, b'\x1b]0;TITLE\x07\x1b[6n\n')";
    assert_eq!(on_terminal(&["run", "--raw", "-c", code]), "\x1b]0;TITLE\x07\x1b[6n\n");
}

#[test]
fn notebooks_are_shown_without_control_sequences() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.ipynb");
    let source = format!("print('{HOSTILE}')\nraise ValueError('{HOSTILE}')");
    let cell = serde_json::json!({ "cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": null });
    let notebook = serde_json::json!({ "cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5 });
    std::fs::write(&path, notebook.to_string()).unwrap();
    let shown = on_terminal(&["run", "-q", path.to_str().unwrap()]);
    assert!(shown.contains("\\u009d0;TITLE") && shown.contains(&format!("ValueError: {HARMLESS}")), "{shown:?}");
    let is_hostile = |character: char| character.is_control() && character != '\n' || character == '\u{202e}';
    assert!(!shown.contains(is_hostile), "{shown:?}");
}
