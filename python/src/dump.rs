//! Sessions and paused runs as bytes.
//!
//! ```text
//! "belljar2" │ SHA-256 of the rest │ length of the header │ header (JSON) │ memory and files (zstd)
//! ```

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::kernel::KernelSnapshot;
use belljar_core::{EncodedValue, FunctionCall};
use belljar_tools::SavedRun;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::deferred::PendingApproval;
use crate::error::{Error, ErrorKind};
use crate::paused::Pauses;

/// The first bytes of a dump, with the version of the format.
const MAGIC: &[u8; 8] = b"belljar2";
/// The zstd level of dumps.
const COMPRESSION_LEVEL: i32 = 1;
/// The maximum size of a dump's contents, in bytes: memory is at most 4 GiB.
const MAX_CONTENTS: u64 = (4 << 30) + (128 << 20);
const DIGEST_SIZE: usize = 32;

/// A session or a run, for another process.
pub(crate) struct Dump {
    pub(crate) snapshot: KernelSnapshot,
    /// True for a session, false for code in an interpreter of its own.
    pub(crate) is_session: bool,
    /// The code that is paused.
    pub(crate) paused: Option<SavedCode>,
}

/// The library's half of paused code.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SavedCode {
    /// The time limit of the call that began the code.
    pub(crate) timeout: Option<f64>,
    /// The output so far, each piece with whether it was written to standard output.
    pub(crate) output: Vec<(bool, String)>,
    /// The calls that wait for answers.
    pub(crate) pending: Vec<SavedCall>,
    /// The names of the deferred functions.
    pub(crate) deferred: Vec<String>,
    /// The calls of MCP servers' tools that wait for approval.
    pub(crate) approvals: Vec<PendingApproval>,
    /// True if the code pauses for them.
    pub(crate) pauses_for_approval: bool,
    /// The calls of MCP servers' tools.
    pub(crate) tools: Option<SavedRun>,
}

impl SavedCode {
    /// Returns the reasons for which the code pauses.
    pub(crate) fn pauses(&self) -> Pauses {
        Pauses { deferred: self.deferred.clone(), for_approval: self.pauses_for_approval }
    }
}

/// A call that waits for its answer.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct SavedCall {
    id: u64,
    name: String,
    arguments: Box<RawValue>,
    /// In base64.
    buffers: Vec<String>,
}

impl From<FunctionCall> for SavedCall {
    fn from(FunctionCall { id, name, arguments }: FunctionCall) -> Self {
        let EncodedValue { json, buffers } = arguments;
        let buffers = buffers.iter().map(|buffer| STANDARD.encode(buffer.contiguous())).collect();
        Self { id, name, arguments: json, buffers }
    }
}

impl From<SavedCall> for FunctionCall {
    fn from(SavedCall { id, name, arguments, buffers }: SavedCall) -> Self {
        // The checksum of the dump has been compared.
        let buffers = buffers.iter().map(|text| STANDARD.decode(text).unwrap_or_default().into()).collect();
        Self { id, name, arguments: EncodedValue { json: arguments, buffers } }
    }
}

/// The description of a dump, before its data.
#[derive(Deserialize)]
struct Header {
    metadata: serde_json::Value,
    base: Option<String>,
    is_session: bool,
    paused: Option<SavedCode>,
}

/// The same, to be written.
#[derive(Serialize)]
struct WrittenHeader<'a> {
    metadata: &'a serde_json::Value,
    base: Option<&'a str>,
    is_session: bool,
    paused: Option<&'a SavedCode>,
}

impl Dump {
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, Error> {
        let failed = |error: String| Error::new(ErrorKind::Dump, error);
        let Self { snapshot: KernelSnapshot { metadata, data, base, .. }, is_session, paused } = self;
        let header =
            WrittenHeader { metadata, base: base.as_deref(), is_session: *is_session, paused: paused.as_ref() };
        let header = serde_json::to_vec(&header);
        let header = header.map_err(|error| failed(error.to_string()))?;
        let length = u32::try_from(header.len()).map_err(|error| failed(error.to_string()))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend([0; DIGEST_SIZE]);
        bytes.extend(length.to_le_bytes());
        bytes.extend(header);
        zstd::stream::copy_encode(&data[..], &mut bytes, COMPRESSION_LEVEL)
            .map_err(|error| failed(error.to_string()))?;
        let start = MAGIC.len() + DIGEST_SIZE;
        let digest = Sha256::digest(&bytes[start..]);
        bytes[MAGIC.len()..start].copy_from_slice(&digest);
        Ok(bytes)
    }

    /// Reads a dump.
    ///
    /// # Errors
    /// Fails if the bytes are not a dump of this version, or were changed.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let damaged =
            || Error::new(ErrorKind::Dump, "the bytes are not a session or a run that was saved by this version");
        let rest = bytes.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let (digest, rest) = rest.split_at_checked(DIGEST_SIZE).ok_or_else(damaged)?;
        if digest != Sha256::digest(rest).as_slice() {
            return Err(Error::new(ErrorKind::Dump, "the bytes were changed, or are not complete"));
        }
        let (length, rest) = rest.split_at_checked(4).ok_or_else(damaged)?;
        let length = u32::from_le_bytes(length.try_into().map_err(|_| damaged())?) as usize;
        let (header, compressed) = rest.split_at_checked(length).ok_or_else(damaged)?;
        let Header { metadata, base, is_session, paused } = serde_json::from_slice(header).map_err(|_| damaged())?;
        let mut data = Vec::new();
        let decoder = zstd::Decoder::new(compressed).map_err(|_| damaged())?;
        decoder.take(MAX_CONTENTS).read_to_end(&mut data).map_err(|_| damaged())?;
        // Other copies may continue from the same bytes.
        Ok(Self { snapshot: KernelSnapshot { metadata, data, is_copy: true, base }, is_session, paused })
    }
}
