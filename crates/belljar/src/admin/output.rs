//! The answers of the admin API as text for terminals.

use serde_json::Value;

use super::questions::QuestionName;
use crate::console::print_line;
use crate::untrusted_text::strip_control_chars;

/// Returns the items of a list.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns a string.
pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn print_sessions(listed: &Value) {
    for session in items(&listed["sessions"]) {
        let questions = if session["questions"].as_u64() > Some(0) { "  asks" } else { "" };
        let code = text(&session["code"]);
        let unit = if session["cells"].as_u64() == Some(1) { "cell " } else { "cells" };
        let line = format!(
            "{}  {:8}  {:>4} {unit}{questions}  {}  {}",
            text(&session["handle"]),
            text(&session["state"]),
            session["cells"],
            text(&session["owner"]),
            code.lines().next().unwrap_or_default(),
        );
        print_line(strip_control_chars(line.trim_end()));
    }
    let count = items(&listed["sessions"]).count();
    let more = if listed["matching"].as_u64() > u64::try_from(count).ok() { "; --limit lists more" } else { "" };
    eprintln!("{count} of {} sessions{more}", listed["matching"]);
}

pub(super) fn print_files(listed: &Value) {
    for file in items(&listed["files"]) {
        print_line(format!("{:>12}  {}", file["size"].to_string(), on_one_line(&text(&file["path"]))));
    }
}

pub(super) fn print_variables(listed: &Value) {
    for variable in items(&listed["variables"]) {
        let [name, kind, value] = ["name", "type", "value"].map(|field| on_one_line(&text(&variable[field])));
        print_line(format!("{name}  {kind}  {value}").trim_end());
    }
    if listed["omitted"].as_u64() > Some(0) {
        eprintln!("{} more variables", listed["omitted"]);
    }
}

pub(super) fn print_questions(open: &Value) {
    for question in items(&open["questions"]) {
        let [session, kind, message] = ["session", "kind", "message"].map(|field| on_one_line(&text(&question[field])));
        let name = QuestionName::new(&question["cell"], &question["number"]);
        print_line(format!("{session}  {name}  {kind}  {message}").trim_end());
    }
    if open["has_more"] == true {
        eprintln!("more questions are open; `belljar admin sessions --asking` lists their sessions");
    }
}

/// Returns an untrusted text on one line.
pub(super) fn on_one_line(text: &str) -> String {
    strip_control_chars(text).replace(['\n', '\t'], " ")
}

pub(super) fn print_cell(cell: &Value) {
    print_line(format!("── [{}] {} ──", cell["number"], text(&cell["state"])));
    print_line(strip_control_chars(&text(&cell["code"])));
    for call in items(&cell["calls"]) {
        let line = format!("  {}.{}({})", text(&call["server"]), text(&call["tool"]), text(&call["arguments"]));
        print_line(strip_control_chars(&format!("{line}: {}", text(&call["status"]))));
    }
    print_outputs(cell);
    for question in items(&cell["questions"]) {
        let name = QuestionName::new(&cell["number"], &question["number"]);
        print_line(format!("asks {name}: {}", strip_control_chars(&text(&question["message"]))));
    }
}

/// Prints the output of a cell as text.
pub(super) fn print_outputs(cell: &Value) {
    for output in items(&cell["outputs"]) {
        let shown = match output["type"].as_str() {
            Some("stream") => text(&output["text"]),
            _ => text(&output["data"]["text/plain"]),
        };
        if !shown.is_empty() {
            print_line(strip_control_chars(shown.trim_end_matches('\n')));
        }
    }
    if let Some(error) = cell.get("error").filter(|error| error.is_object()) {
        let traceback: Vec<String> = items(&error["traceback"]).map(text).collect();
        let shown = match traceback.is_empty() {
            true => format!("{}: {}", text(&error["name"]), text(&error["message"])),
            false => traceback.join("\n"),
        };
        print_line(strip_control_chars(shown.trim_start_matches(": ")));
    }
}
