//! Interpreters of sessions: an image in which IPython's shell waits for cells, what a cell comes to, and the state of a
//! session as bytes.
//!
//! The image is an entry of the cache that is made once and then kept, since the saved states of sessions are differences
//! from it. It names the wheels that it stands on, so that it never has to be resolved again.

use std::collections::BTreeMap;

use belljar_cache::{CacheError, EntryKey, NewEntry};
use belljar_core::progress::{Progress, Step};
use belljar_core::{Limits, Outcome};
use belljar_emscripten::fs::Filesystem;
use belljar_emscripten::{Difference, InstanceError, Setup};
use belljar_packages::{Installer, Known, Needs, Request, Requirement, needs};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::image::Image;
use crate::install::{InstallerSource, PrepareError};
use crate::interpreter::{Interpreter, Streams, console, machine_limits};
use crate::packages::{Member, PackageSet};
use crate::python::{OpenError, Python};

/// The shell and what it is asked for.
const SHELL: &str = "ipython>=9,<10";
/// Modules that are imported in the image of sessions.
const MODULES: [&str; 3] = ["IPython", "IPython.display", "IPython.core.magics"];
/// The cache's kind of entry. It is not among those that are thrown away to make room.
const KIND: &str = "session";
const IMAGE: &str = "session.image";
const MEMBERS: &str = "wheels.json";

/// The directory that cells begin in, and whose files belong to the session.
pub const SESSION_DIRECTORY: &str = "/home";

/// A cell to be run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CellRequest<'a> {
    /// Its source, in IPython's Python.
    pub code: &'a str,
    /// Whether tracebacks have colours; the first cell decides.
    pub color: bool,
    /// Whether packages were installed since the last cell, other than by it.
    pub installed: bool,
    /// Whether its value is not shown and it has no record.
    pub silent: bool,
    /// Whether it has no record.
    pub off_record: bool,
    /// Whether what is meant for a frontend is kept for it, instead of shown.
    pub payloads: bool,
}

/// A question of a frontend, in the words of the guest's `_belljar.ask`.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "question", rename_all = "snake_case")]
pub enum ShellQuestion<'a> {
    /// What may stand at the cursor.
    Complete {
        /// The source so far.
        code: &'a str,
        /// In code points.
        cursor: usize,
    },
    /// What the name at the cursor is.
    Inspect {
        /// The source so far.
        code: &'a str,
        /// In code points.
        cursor: usize,
        /// 0, or 1 for more.
        detail: u8,
    },
    /// Whether the source can be run.
    IsComplete {
        /// The source so far.
        code: &'a str,
    },
    /// What the last cell left for its frontend.
    Aftermath {
        /// Expressions to evaluate, by name.
        expressions: &'a BTreeMap<String, String>,
    },
}

/// How a cell ended that the shell has run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    /// Its number, from 1 on; an empty one has the number of the one before.
    pub count: u64,
    /// `ZeroDivisionError: division by zero`; `None` when it ran to its end.
    pub error: Option<String>,
    /// What the shell prints of the error, piece by piece.
    pub traceback: Vec<String>,
}

impl Python {
    /// The image in which IPython's shell waits for cells: from the cache, else built, which `progress` hears of.
    ///
    /// Must be called on a guest thread. `source` is asked only while the image is built, or when wheels that it stands
    /// on were thrown away.
    ///
    /// # Errors
    /// When IPython cannot be installed or does not work.
    pub fn session_image(&self, source: &dyn InstallerSource, progress: &dyn Progress) -> Result<Image, PrepareError> {
        let key = EntryKey::new(KIND).part("base", self.base_key().to_string()).part("shell", SHELL);
        let entry = self
            .cache()
            .hold_or_make(&key, progress, |new| self.build_session(&*source.installer()?, new, progress))?;
        let path = entry.file(MEMBERS)?;
        let listed = std::fs::read(&path).map_err(|error| OpenError::File { path, error })?;
        let members: Vec<Member> = serde_json::from_slice(&listed)
            .map_err(|_| OpenError::Instance(InstanceError::Snapshot("its list of wheels is damaged".into())))?;
        let set = self.set_of(&members, source, progress)?;
        let layers = self.layers_with(&set);
        Ok(Image::open(&entry.file(IMAGE)?, self.program(), &layers, set)?)
    }

    fn build_session(
        &self,
        installer: &Installer,
        new: &NewEntry,
        progress: &dyn Progress,
    ) -> Result<(), PrepareError> {
        let shell = Requirement::parse(SHELL).map_err(needs::NeedsError::from)?;
        let request = Request { requirements: vec![shell], ..Request::default() };
        let (set, _) = self.install(installer, &request, progress)?;
        let step = progress.start(Step::unmeasured("building the image of sessions"));
        let members: Vec<&Member> = set.members().collect();
        let listed = serde_json::to_vec(&members).unwrap_or_default();
        new.write(MEMBERS, &listed)?;
        self.preloader(progress).build_shell(&set, &MODULES.map(String::from), &new.path().join(IMAGE))?;
        step.finish();
        Ok(())
    }

    /// The set of these very wheels, those that were thrown away fetched anew.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// When one of them cannot be had any more.
    pub fn set_of(
        &self,
        members: &[Member],
        source: &dyn InstallerSource,
        progress: &dyn Progress,
    ) -> Result<PackageSet, PrepareError> {
        if !self.has_packages(members)? {
            let pinned = |member: &Member| Requirement::parse(&format!("{}=={}", member.name, member.version));
            let requirements = members.iter().map(pinned).collect::<Result<_, _>>().map_err(needs::NeedsError::from)?;
            self.install(&*source.installer()?, &Request { requirements, ..Request::default() }, progress)?;
        }
        Ok(self.packages(members, |missing| Err(lost(missing).into()), progress)?)
    }

    /// What a cell needs that neither `set` nor the session's own `modules` provide.
    ///
    /// # Errors
    /// When the cell says what it needs in a way that cannot be read or met.
    pub fn needs_of_cell(
        &self,
        code: &str,
        set: &PackageSet,
        modules: &[String],
        source: &dyn InstallerSource,
    ) -> Result<Needs, PrepareError> {
        let wheels = || set.wheels().iter().flat_map(|wheel| wheel.modules.iter().cloned());
        let own = || self.base().further_modules().iter().cloned().chain(modules.iter().cloned());
        let present = || wheels().chain(own()).chain(crate::install::PROVIDED.map(String::from));
        let needs = needs::of_code(code, &Known::new(&self.platform()).with_modules(present()))?;
        if needs.is_empty() {
            return Ok(needs);
        }
        Ok(needs::of_code(code, &source.installer()?.known()?.with_modules(present()))?)
    }

    /// A copy of the interpreter that `difference` was taken of, with its wheels, `set`.
    ///
    /// # Errors
    /// When the difference is not one from `image`, or needs more memory than the limits give.
    pub fn wake(
        &self,
        image: &Image,
        difference: &Difference,
        set: &PackageSet,
        limits: Limits,
        streams: Streams,
    ) -> Result<Interpreter, OpenError> {
        let machine = machine_limits(&limits);
        let setup = Setup {
            files: Filesystem::new(machine.files),
            console: console(&limits, streams),
            environment: Vec::new(),
            limits: machine,
        };
        let layers = self.layers_with(set);
        let instance = self.program().restore_changed(image.snapshot(), difference, &layers, setup)?;
        Ok(Interpreter::woken(instance, image, limits))
    }
}

fn lost(missing: &[Member]) -> String {
    let names: Vec<String> = missing.iter().map(|member| format!("{} {}", member.name, member.version)).collect();
    format!("{} cannot be had any more as it was", names.join(", "))
}

impl Interpreter {
    /// Runs a cell in the shell of a session's image. What does not end in the shell is an `Err`: a limit, a crash, an
    /// exit.
    pub fn execute(&mut self, request: &CellRequest<'_>) -> Result<Cell, Outcome> {
        #[derive(Serialize)]
        struct Guest<'a> {
            #[serde(flatten)]
            request: &'a CellRequest<'a>,
            fresh: bool,
        }
        let request = Guest { request, fresh: self.take_fresh() };
        self.execute_request(&serde_json::to_string(&request).unwrap_or_default())
    }

    /// Puts a question to the shell of a session's image; the content of its answer, which is the guest's word. An `Err`
    /// is what ended the question, or the interpreter ([`Interpreter::is_dead`]).
    pub fn ask_shell(&mut self, question: &ShellQuestion<'_>) -> Result<Value, Outcome> {
        #[derive(Serialize)]
        struct Guest<'a> {
            #[serde(flatten)]
            question: &'a ShellQuestion<'a>,
            fresh: bool,
        }
        // The first cell is still to choose the colours: it stays the first.
        let request = Guest { question, fresh: self.is_fresh() };
        self.ask_request(&serde_json::to_string(&request).unwrap_or_default())
    }

    /// Has output go, and input come from, elsewhere; as much output may be written as before the first.
    pub fn redirect(&mut self, streams: Streams) {
        let console = console(self.limits(), streams);
        self.host_mut().console = console;
    }

    /// Gives it the files of another one, from which its image came too: the restart of a program that keeps its files.
    ///
    /// # Errors
    /// When the files of the other one cannot be made to start with.
    pub fn adopt_files(&mut self, mut files: Filesystem) -> Result<(), belljar_emscripten::fs::FileError> {
        files.restart(SESSION_DIRECTORY)?;
        *self.files() = files;
        Ok(())
    }

    /// How it differs from `image`, of which it is a copy: see [`Python::wake`].
    ///
    /// # Errors
    /// When it has ended.
    pub fn difference(&mut self, image: &Image) -> Result<Difference, InstanceError> {
        if self.is_dead() {
            return Err(InstanceError::Dead);
        }
        self.instance_mut().difference(image.snapshot())
    }
}

/// What the guest answers to `execute`.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The shell has run the cell.
    Cell {
        count: u64,
        error: Option<String>,
        traceback: Vec<String>,
    },
    /// Something left the shell.
    Error(belljar_core::PythonError),
    Exit {
        code: i32,
    },
}

impl Answer {
    pub(crate) fn into_result(self) -> Result<Cell, Outcome> {
        match self {
            Self::Cell { count, error, traceback } => Ok(Cell { count, error, traceback }),
            // An interrupt that came when the cell had ended already.
            Self::Error(error) if error.kind == "KeyboardInterrupt" => {
                Ok(Cell { count: 0, error: Some(error.kind), traceback: vec![error.traceback] })
            }
            Self::Error(error) => Err(Outcome::Error(error)),
            Self::Exit { code } => Err(Outcome::Exit(code & 0xff)),
        }
    }
}

/// What the guest answers to `ask`.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Told {
    Answer {
        content: Value,
    },
    /// Something that it looked at raised, or an interrupt came.
    Error(belljar_core::PythonError),
    Exit {
        code: i32,
    },
}

impl Told {
    pub(crate) fn into_result(self) -> Result<Value, Outcome> {
        match self {
            Self::Answer { content } => Ok(content),
            Self::Error(error) => Err(Outcome::Error(error)),
            Self::Exit { code } => Err(Outcome::Exit(code & 0xff)),
        }
    }
}

impl From<CacheError> for PrepareError {
    fn from(error: CacheError) -> Self {
        Self::Open(error.into())
    }
}
