//! The parts from which interpreters of `belljar run` are created.

use belljar_emscripten::fs::HostDirectory;
use belljar_python::{Image, Interpreter, Python, Streams};

use crate::command_error::CommandError;
use crate::packages::Packages;
use crate::run_arguments::RunArguments;
use crate::siblings::Siblings;

/// The parts from which interpreters are created.
pub(crate) struct RunContext<'a> {
    pub(crate) python: &'a Python,
    pub(crate) packages: &'a Packages,
    pub(crate) image: &'a Image,
    pub(crate) arguments: &'a RunArguments,
    /// The modules that the program imports from its own folder.
    pub(crate) siblings: &'a Siblings,
}

impl RunContext<'_> {
    /// Creates an interpreter with the limits, mounts and packages of the arguments, and the program's modules.
    pub(crate) fn interpreter(&self, streams: Streams) -> Result<Interpreter, CommandError> {
        let Self { arguments, image, .. } = self;
        let mut interpreter = self.python.interpreter_with(image, arguments.limits.for_run(), streams)?;
        self.packages.serve(&mut interpreter, image);
        // A directory that is mounted over the working directory hides the copies.
        self.siblings.copy_into(interpreter.files())?;
        for mount in &arguments.mount {
            let host = mount.host.display();
            let directory = HostDirectory::open(&mount.host, mount.writable)
                .map_err(|error| format!("failed to mount {host}: {error}"))?;
            interpreter
                .files()
                .mount(&mount.guest, directory)
                .map_err(|error| format!("failed to mount {host} at {}: {error}", mount.guest))?;
        }
        Ok(interpreter)
    }
}
