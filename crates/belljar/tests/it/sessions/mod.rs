//! Sessions, through the server and through the library.

mod answers;
#[cfg(unix)]
mod data_directory;
pub(crate) mod durable;
mod durable_programs;
mod figures;
mod files;
mod folders;
mod input;
mod ipython;
mod kept_images;
mod life;
mod limits;
mod many;
mod modern;
mod notebooks;
mod order;
mod program_tasks;
mod programs;
mod replays;
mod scenario;
mod secrets;
mod sleeping;
mod tasks;
mod waiting;

use std::sync::{Arc, OnceLock};

use belljar_packages::{InstallError, Installer, Settings};
use belljar_python::install::InstallerSource;
use serde_json::{Value, json};

use crate::library::python;
use crate::wire::{Wire, text};

/// A session with a server of its own.
struct Session {
    wire: Wire,
    id: String,
}

impl Session {
    /// Starts a server with these options and opens a session.
    fn start<'a>(options: impl IntoIterator<Item = &'a str>) -> Self {
        let mut wire = serve(options);
        let id = open(&mut wire);
        Self { wire, id }
    }

    /// Runs a cell and returns the answer.
    fn run(&mut self, code: &str) -> Value {
        run(&mut self.wire, &self.id, code)
    }

    /// Runs a cell and returns the value of its last line, which must have one.
    fn value(&mut self, code: &str) -> String {
        let answer = self.run(code);
        match answer["result"].as_str() {
            Some(value) => value.to_owned(),
            None => panic!("no value of {code:?}: {answer:#}"),
        }
    }

    /// Runs a cell, which must succeed, and returns its output.
    fn output(&mut self, code: &str) -> String {
        let answer = self.run(code);
        assert_eq!(answer["success"], true, "{code:?}: {answer:#}");
        joined(&answer["output"])
    }

    /// Runs a cell, which must fail, and returns its error.
    fn error(&mut self, code: &str) -> String {
        let answer = self.run(code);
        match answer["error"].as_str() {
            Some(error) => error.to_owned(),
            None => panic!("no error of {code:?}: {answer:#}"),
        }
    }

    /// Calls a tool on the session.
    fn tool(&mut self, name: &str, mut arguments: Value) -> Value {
        arguments["session_id"] = self.id.clone().into();
        fields(&self.wire.tool(name, arguments))
    }
}

/// Starts `belljar stdio --toolset interpreter`, with no package but IPython.
fn serve<'a>(options: impl IntoIterator<Item = &'a str>) -> Wire {
    Wire::start(["--toolset", "interpreter"].into_iter().chain(options))
}

/// Opens a session and returns its ID.
fn open(wire: &mut Wire) -> String {
    let answer = fields(&wire.tool("execute_code", json!({ "code": "pass" })));
    match answer["session_info"]["session_id"].as_str() {
        Some(id) => id.to_owned(),
        None => panic!("no session: {answer:#}"),
    }
}

fn run(wire: &mut Wire, id: &str, code: &str) -> Value {
    fields(&wire.tool("execute_code", json!({ "code": code, "session_id": id })))
}

/// Returns a tool's answer: the JSON in its text, with the fields of a cell's answer that the text leaves out.
/// Structured content, if present, must equal it.
fn fields(result: &Value) -> Value {
    let mut fields: Value = serde_json::from_str(&text(result)).unwrap_or_else(|error| panic!("{error}: {result:#}"));
    if fields.get("output").is_some() {
        for (name, empty) in
            [("error", Value::Null), ("traceback", json!([])), ("files", json!([])), ("session_info", Value::Null)]
        {
            let field = fields.as_object_mut().unwrap().entry(name);
            field.or_insert(empty);
        }
    }
    if let Some(structured) = result.get("structuredContent") {
        assert_eq!(structured, &fields);
    }
    fields
}

fn joined(lines: &Value) -> String {
    lines.as_array().map(|lines| lines.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
}

/// Returns the installer that the library's sessions get IPython from, with the server's settings.
fn installer() -> Arc<dyn InstallerSource> {
    struct Source(OnceLock<Arc<Installer>>);

    impl InstallerSource for Source {
        fn installer(&self) -> Result<Arc<Installer>, InstallError> {
            let settings = Settings::from_environment(python().cache().clone())?;
            Ok(self.0.get_or_init(|| Arc::new(Installer::new(python().platform(), settings))).clone())
        }
    }
    Arc::new(Source(OnceLock::new()))
}
