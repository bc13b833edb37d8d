//! The interpreter of a session in a process of its own, on the side of that process.
//!
//! All bytes come from another process of the session, which its code may have taken over.

use std::sync::Arc;

use belljar_core::Limits;
use belljar_emscripten::SnapshotDelta;
use belljar_emscripten::fs::{FilesystemSnapshot, Layer};

use crate::image::Image;
use crate::interpreter::{Interpreter, Streams};
use crate::isolation::{SavedPart, SessionStart};
use crate::packages::PackageSet;
use crate::python::Python;

impl Python {
    /// Starts the interpreter of a session with these packages, those of the image of sessions among them.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns the reason why the interpreter cannot be started or restored.
    pub fn session_interpreter(
        &self,
        image: &Image,
        packages: &PackageSet,
        limits: Limits,
        start: SessionStart<'_>,
        streams: Streams,
    ) -> Result<Interpreter, String> {
        let mut interpreter = match start {
            SessionStart::State(bytes) => {
                let delta = SnapshotDelta::from_bytes(bytes).map_err(|error| error.to_string())?;
                self.restore_interpreter(image, &delta, packages, limits, streams)
            }
            SessionStart::New | SessionStart::Files(_) => self.interpreter_with(image, limits, streams),
        }
        .map_err(|error| error.to_string())?;
        if let SessionStart::Files(bytes) = start {
            let files: FilesystemSnapshot =
                postcard::from_bytes(bytes).map_err(|_| "its files are damaged".to_owned())?;
            let layers: Vec<Arc<Layer>> = image.base_layers().iter().chain(packages.layers()).cloned().collect();
            let quota = interpreter.files().quota();
            let files = files.load(&layers, quota).map_err(|error| error.to_string())?;
            interpreter.replace_filesystem(files).map_err(|error| error.to_string())?;
        }
        // Packages that were installed since, and those of a new session that are not in its image.
        let missing: Vec<_> = {
            let present = interpreter.files().layers();
            let is_missing = |layer: &&Arc<Layer>| !present.iter().any(|there| there.id() == layer.id());
            packages.layers().filter(is_missing).cloned().collect()
        };
        for layer in missing {
            interpreter.files().add_layer(layer);
        }
        Ok(interpreter)
    }
}

impl Interpreter {
    /// Saves a part of the interpreter of a session, which was started from `image`.
    ///
    /// # Errors
    /// Returns the reason why it cannot be saved.
    pub fn save_part(&mut self, part: SavedPart, image: &Image) -> Result<Vec<u8>, String> {
        match part {
            SavedPart::Files => postcard::to_stdvec(&self.files().save()).map_err(|error| error.to_string()),
            SavedPart::State => {
                let delta = self.delta(image).map_err(|error| error.to_string())?;
                delta.to_bytes().map_err(|error| error.to_string())
            }
        }
    }

    /// Sets the interpreter's clock forward.
    pub fn advance_clock(&mut self, time: std::time::Duration) {
        if !time.is_zero() {
            self.host_mut().clock.advance(time);
        }
    }
}
