//! The parts from which interpreters of `belljar run` are created.

use belljar_emscripten::fs::HostDirectory;
use belljar_python::{Image, Interpreter, Python, Streams};

use crate::command_error::CommandError;
use crate::packages::Packages;
use crate::run_arguments::RunArguments;

/// The parts from which interpreters are created.
pub(crate) struct RunContext<'a> {
    pub(crate) python: &'a Python,
    pub(crate) packages: &'a Packages,
    pub(crate) image: &'a Image,
    pub(crate) arguments: &'a RunArguments,
}

impl RunContext<'_> {
    /// Creates an interpreter with the limits, mounts and packages of the arguments.
    pub(crate) fn interpreter(&self, streams: Streams) -> Result<Interpreter, CommandError> {
        let Self { arguments, image, .. } = self;
        let mut interpreter = self.python.interpreter_with(image, arguments.limits.for_run(), streams)?;
        self.packages.serve(&mut interpreter, image);
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
