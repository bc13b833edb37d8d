//! Why a module was refused.

use std::convert::Infallible;

use wasm_encoder::reencode;

/// A module that is not translated. Nothing was written: there is no half-translated module.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The bytes are not a valid module, or use a proposal beyond those that Emscripten emits
    /// (see [`translate`](super::translate) for the list).
    #[error("not a WebAssembly module of the kind Emscripten builds: {0}")]
    Invalid(#[from] wasmparser::Error),

    /// A data segment that cannot be turned into bytes at an address.
    #[error("data segment {index} cannot be placed: {reason}")]
    DataSegment {
        /// Its index in the data section.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },

    /// An element segment whose slots cannot be told.
    #[error("element segment {index} cannot be placed: {reason}")]
    ElementSegment {
        /// Its index in the element section.
        index: usize,
        /// What is wrong with it.
        reason: &'static str,
    },

    /// The function table is not what Emscripten makes it, or has no room.
    #[error("the function table cannot take the module's exports: {0}")]
    Table(&'static str),

    /// An instruction that has no translation.
    #[error("function {function} uses {instruction}, which cannot be translated: {reason}")]
    Instruction {
        /// The function's index, imports included.
        function: u32,
        /// The instruction's name in the text format.
        instruction: &'static str,
        /// Why not.
        reason: &'static str,
    },

    /// [`Options::ballast`](super::Options::ballast) names what cannot carry it.
    #[error("`{name}` cannot take extra shadow stack: {reason}")]
    Ballast {
        /// The export named.
        name: String,
        /// Why not.
        reason: &'static str,
    },

    /// The module exports a name that the translation needs for itself.
    #[error("the module already uses the name `{0}`, which the translator adds; rename that export")]
    ReservedName(String),

    /// The `dylink.0` section is nonsense.
    #[error("malformed dylink.0 section: {0}")]
    Dylink(&'static str),

    /// The translator and the validator disagree about the module. A defect of the translator.
    #[error("the module's structure was not understood ({0}); please report this")]
    Structure(&'static str),
}

impl From<reencode::Error<Infallible>> for TranslateError {
    fn from(error: reencode::Error<Infallible>) -> Self {
        match error {
            reencode::Error::ParseError(error) => Self::Invalid(error),
            reencode::Error::InvalidConstExpr => Self::Structure("constant expression"),
            reencode::Error::CanonicalizedHeapTypeReference => Self::Structure("type reference"),
            _ => Self::Structure("section"),
        }
    }
}
