//! Errors of the translation.

use std::convert::Infallible;

use wasm_encoder::reencode;

/// An error in translating a module. No output is written: a module is translated completely or not at all.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The bytes are not a valid module, or use a proposal beyond those that Emscripten emits (see
    /// [`translate`](super::translate) for the list).
    #[error("not a WebAssembly module of the kind Emscripten builds: {0}")]
    Invalid(#[from] wasmparser::Error),

    /// A data segment cannot be converted to bytes at an address.
    #[error("data segment {index} cannot be placed: {reason}")]
    DataSegment {
        /// The index in the data section.
        index: usize,
        /// The reason.
        reason: &'static str,
    },

    /// The slots of an element segment cannot be determined.
    #[error("element segment {index} cannot be placed: {reason}")]
    ElementSegment {
        /// The index in the element section.
        index: usize,
        /// The reason.
        reason: &'static str,
    },

    /// The function table does not have the form that Emscripten gives it, or is full.
    #[error("the function table cannot take the module's exports: {0}")]
    Table(&'static str),

    /// An instruction without a translation.
    #[error("function {function} uses {instruction}, which cannot be translated: {reason}")]
    Instruction {
        /// The function's index, counting imports.
        function: u32,
        /// The instruction's name in the text format.
        instruction: &'static str,
        /// The reason.
        reason: &'static str,
    },

    /// [`Options::stack_padding`](super::Options::stack_padding) names an unsuitable function.
    #[error("`{name}` cannot take extra shadow stack: {reason}")]
    ShadowStackPadding {
        /// The name of the export.
        name: String,
        /// The reason.
        reason: &'static str,
    },

    /// The end of the shadow stack is not known, so that it cannot be checked.
    #[error("the shadow stack cannot be checked: no constant `__stack_low` is exported")]
    StackChecks,

    /// The module exports a name that the translation reserves.
    #[error("the module exports the reserved name `{0}`")]
    ReservedName(String),

    /// The `dylink.0` section is malformed.
    #[error("malformed dylink.0 section: {0}")]
    Dylink(&'static str),

    /// The translator and the validator disagree about the module: an internal error of the translator.
    #[error("internal error: unexpected module structure: {0}")]
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
