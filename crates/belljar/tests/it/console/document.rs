//! The OpenAPI document: compared with the routes, with their answers, and with the documentation.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use crate::operator::Operator;

#[test]
fn document_describes_the_routes() {
    let operator = Operator::start(&[]);
    let document = operator.get("/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    let session = operator.create();
    operator.run(&session, "1");
    let mut count = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let concrete = path
            .replace("{handle}", &session)
            .replace("{number}", "1")
            .replace("{output}", "0")
            .replace("{question}", "1");
        for method in ["get", "post", "delete", "put"] {
            // Streams do not end, and a session ends only once.
            if path.ends_with("/events") || (method, path.as_str()) == ("delete", "/sessions/{handle}") {
                continue;
            }
            let status = operator.send(&method.to_uppercase(), &concrete, None).status;
            let is_described = item[method].is_object();
            count += usize::from(is_described);
            assert_eq!(status != 405, is_described, "{method} {path}: {status}");
        }
    }
    assert!(count >= 17, "{count}");
}

/// Checks that an answer has the form that the document describes for an operation and a status.
fn check(document: &Value, method: &str, path: &str, status: &str, answer: &Value) {
    let described = &document["paths"][path][method]["responses"][status];
    let described = match described["$ref"].as_str() {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => described,
    };
    let mut schema = described["content"]["application/json"]["schema"].clone();
    assert!(schema.is_object(), "{method} {path} has no answer with status {status}");
    // References in it lead there.
    schema["components"] = document["components"].clone();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(answer).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{method} {path}: {errors:?} in {answer:#}");
}

#[test]
fn answers_have_the_form_of_the_document() {
    let operator = Operator::start(&[]);
    let document = operator.get("/openapi.json");
    let created = operator.send("POST", "/sessions", None).with_status(201);
    check(&document, "post", "/sessions", "201", &created);
    let session = created["handle"].as_str().unwrap().to_owned();
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\nopen('a.txt', 'w').write('a')\nx = 1\nx";
    operator.run(&session, code);
    operator.run(&session, "1 / 0");
    let check_gets = |number: u64, leave_out: &[&str]| {
        let mut count = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            let content = &item["get"]["responses"]["200"]["content"];
            if content["application/json"].is_object() && !leave_out.iter().any(|end| path.ends_with(end)) {
                let concrete = path.replace("{handle}", &session).replace("{number}", &number.to_string());
                check(&document, "get", path, "200", &operator.get(&concrete));
                count += 1;
            }
        }
        count
    };
    assert!(check_gets(1, &[]) >= 8);
    check_gets(2, &[]);
    let body = json!({ "code": "name = input('Who? ')" });
    let submitted = operator.send("POST", &format!("/sessions/{session}/cells"), Some(&body)).with_status(202);
    check(&document, "post", "/sessions/{handle}/cells", "202", &submitted);
    let asks = |cell: &Value| cell["questions"].as_array().is_some_and(|all| !all.is_empty());
    operator.wait_for_cell(&session, 3, asks);
    check_gets(3, &["/files", "/variables"]);
    let refused = operator.send("GET", &format!("/sessions/{session}/variables"), None);
    check(&document, "get", "/sessions/{handle}/variables", "default", &refused.with_status(409));
    let done = operator.send("POST", &format!("/sessions/{session}/interrupt"), None).with_status(200);
    check(&document, "post", "/sessions/{handle}/interrupt", "200", &done);
}

#[test]
fn every_operation_is_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/admin-api.md");
    let page = std::fs::read_to_string(page).unwrap();
    let begin = page.find("| request | meaning |").unwrap();
    let rows = page[begin..].lines().skip(2).take_while(|line| line.starts_with('|'));
    let requests = rows.flat_map(|row| row.split('|').nth(1).unwrap().split(", "));
    let documented: Vec<String> = requests.map(|request| request.trim().trim_matches('`').to_owned()).collect();
    let document = Operator::start(&[]).get("/openapi.json");
    let mut described = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().unwrap().iter();
            let names = parameters.filter(|parameter| parameter["in"] == "query").map(|parameter| &parameter["name"]);
            let query: Vec<String> = names.map(|name| format!("{}=", name.as_str().unwrap())).collect();
            let mark = if query.is_empty() { "" } else { "?" };
            described.insert(format!("{} {path}{mark}{}", method.to_uppercase(), query.join("&")));
        }
    }
    assert_eq!(documented.iter().cloned().collect::<BTreeSet<_>>(), described);
    assert_eq!(documented.len(), described.len(), "{documented:?}");
}
