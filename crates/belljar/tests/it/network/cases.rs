//! Programs with their output, in files of `tests/network/cases`.
//!
//! The lines before the first program begin each of them. A line `# %% Title` begins a program, lines `#> …` are its
//! output, and lines `#! …` parts of its error; `…` is any text. `PORT_NAME` is the port of a server.

use serde_json::json;

use crate::isolations::ISOLATIONS;
use crate::network_servers::{KEY, TOKEN, site};
use crate::wire::Wire;

struct Case {
    title: String,
    code: String,
    output: Vec<String>,
    error: Vec<String>,
}

fn cases(file: &str) -> Vec<Case> {
    let path = format!("{}/tests/network/cases/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let (start, rest) = text.split_once("# %% ").unwrap();
    let case = |text: &str| {
        let (title, body) = text.split_once('\n').unwrap();
        let marked = |mark| body.lines().filter_map(move |line| line.strip_prefix(mark)).map(str::to_owned).collect();
        Case { title: title.into(), code: format!("{start}{body}"), output: marked("#> "), error: marked("#! ") }
    };
    rest.split("# %% ").map(case).collect()
}

/// Returns whether a line equals a pattern, in which `…` is any text.
fn matches(pattern: &str, line: &str) -> bool {
    let parts: Vec<&str> = pattern.split('…').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return pattern == line };
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns the forms of the secrets that no output may contain.
fn secrets() -> Vec<String> {
    let python = "import base64, json, sys, urllib.parse\n\
                  for value in json.loads(sys.argv[1]):\n    \
                  forms = [value, base64.b64encode(value.encode()).decode(), value.encode().hex(), value[::-1]]\n    \
                  forms += [urllib.parse.quote(value, safe=''), json.dumps(value)[1:-1], value.swapcase()]\n    \
                  print(*forms, sep='\\n')";
    let values = json!([TOKEN, KEY]).to_string();
    let run = std::process::Command::new("python3").args(["-c", python, &values]).output().unwrap();
    let forms: Vec<String> = String::from_utf8(run.stdout).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(forms.len(), 14);
    forms
}

/// Runs a program and returns its answer if it differs from the expected one.
fn difference(wire: &mut Wire, case: &Case, secrets: &[String]) -> Option<String> {
    let code = site().filled(&case.code);
    let answer = wire.call(json!({ "python_code": code }));
    let fields = &answer["structuredContent"];
    let output: Vec<&str> =
        fields["output"].as_array().into_iter().flatten().filter_map(|line| line.as_str()).collect();
    let error = fields["error"].as_str().unwrap_or_default();
    let expected: Vec<String> = case.output.iter().map(|line| site().filled(line)).collect();
    let has_output =
        output.len() == expected.len() && output.iter().zip(&expected).all(|(line, pattern)| matches(pattern, line));
    let has_error = case.error.iter().all(|part| error.contains(&site().filled(part)));
    let ends = case.error.is_empty() == error.is_empty();
    let shown = format!("{}\n{error}", output.join("\n"));
    // Also the records of connections are without secrets.
    let everything = format!("{shown}\n{answer}");
    if let Some(secret) = secrets.iter().find(|secret| everything.contains(secret.as_str())) {
        return Some(format!("## {}: contains the secret as {secret}\n{shown}\n", case.title));
    }
    (!(has_output && has_error && ends)).then(|| format!("## {}\n{shown}\n", case.title))
}

/// Runs the programs of a file with each isolation, and returns their number.
pub(super) fn check(file: &str) -> usize {
    let cases = cases(file);
    let secrets = secrets();
    for isolation in ISOLATIONS {
        let mut wire = site().serve_in(isolation, &["--timeout", "180"]);
        let differences: Vec<String> = cases.iter().filter_map(|case| difference(&mut wire, case, &secrets)).collect();
        let (count, all) = (differences.len(), cases.len());
        assert!(differences.is_empty(), "{count} of {all}, {isolation}:\n{}", differences.join("\n"));
    }
    cases.len()
}

#[test]
fn every_file_of_cases_is_checked() {
    let tests = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let source: String = crate::harness::names_in(&tests.join("it/network"))
        .iter()
        .map(|name| std::fs::read_to_string(tests.join("it/network").join(name)).unwrap())
        .collect();
    for name in crate::harness::names_in(&tests.join("network/cases")) {
        assert!(source.contains(&format!("check(\"{name}\")")), "{name} is not checked");
    }
}

#[test]
fn patterns_match_whole_lines() {
    assert!(matches("a…c…", "abcd") && matches("abc", "abc") && matches("…", ""));
    assert!(!matches("a…c", "abcd") && !matches("abc", "abcd") && !matches("a…b…c", "ac"));
}
