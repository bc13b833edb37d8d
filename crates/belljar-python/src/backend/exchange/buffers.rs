//! The buffers of values, which cross as files of a directory in the guest.
//!
//! The guest can change them, as it can change all of its files: what is read from them is as untrusted as the value
//! itself.

use std::borrow::Cow;

use belljar_core::{Buffer, Exchange};
use belljar_emscripten::fs::Filesystem;
use belljar_network::Scrubber;

use crate::host_calls::CallError;
use crate::isolation::ValueFile;

/// The directory of the files.
const DIRECTORY: &str = "/var/lib/belljar";
/// The maximum number of buffers of one value.
const MAX_BUFFERS: usize = 10_000;
/// The maximum size of the buffers of the arguments of a call, in bytes.
const MAX_ARGUMENTS: u64 = 256 << 20;

/// Returns the buffers of the variables for code in another process.
pub(in crate::backend) fn variables_of(exchange: &Exchange) -> Vec<ValueFile> {
    let buffers = exchange.buffers.iter().enumerate();
    buffers.map(|(at, buffer)| ValueFile { name: format!("in-{at}"), bytes: buffer.contiguous().into() }).collect()
}

/// Removes buffers with these names and returns those that exist, at most `limit` bytes.
pub(in crate::backend) fn take_files(
    files: &mut Filesystem,
    names: impl IntoIterator<Item = String>,
    limit: u64,
) -> Vec<ValueFile> {
    let mut left = limit;
    let take = |name: String| {
        let parts = files.take_file(&format!("{DIRECTORY}/{name}"), left).ok()?;
        let bytes = parts.concat();
        left -= bytes.len() as u64;
        Some(ValueFile { name, bytes })
    };
    names.into_iter().filter_map(take).collect()
}

/// Returns the buffers with these names, at most `limit` bytes, for another process. The guest chose the names.
///
/// # Errors
/// Fails if a buffer cannot be read, or there are too many.
pub(crate) fn read_files(files: &mut Filesystem, names: Vec<String>, limit: u64) -> Result<Vec<ValueFile>, CallError> {
    let mut left = limit;
    if names.len() > MAX_BUFFERS {
        return Err(CallError::Refused(format!("a call has at most {MAX_BUFFERS} large arguments")));
    }
    let read = |name: String| {
        let bytes = match ValueFile::is_valid_name(&name) {
            true => files.read_file(&format!("{DIRECTORY}/{name}"), left).map_err(|error| error.to_string()),
            false => Err("its name is not one of a buffer".into()),
        };
        let bytes = bytes.map_err(|reason| CallError::Refused(format!("failed to read an argument: {reason}")))?;
        left -= bytes.len() as u64;
        Ok(ValueFile { name, bytes })
    };
    names.into_iter().map(read).collect()
}

/// Removes the buffers of a value and returns them, at most `limit` bytes, for another process.
pub(crate) fn take_value(files: &mut Filesystem, limit: u64) -> Vec<ValueFile> {
    // Code in a process of its own has no network, and so no secrets.
    let buffers = take_buffers(files, limit, &Scrubber::default()).into_iter().enumerate();
    buffers.map(|(at, buffer)| ValueFile { name: format!("out-{at}"), bytes: buffer.contiguous().into() }).collect()
}

/// Reads and removes the buffers of a value, at most `limit` bytes. Returns them without secrets.
pub(in crate::backend) fn take_buffers(files: &mut Filesystem, limit: u64, scrubber: &Scrubber) -> Vec<Buffer> {
    let (mut buffers, mut left) = (Vec::new(), limit);
    while buffers.len() < MAX_BUFFERS {
        let path = format!("{DIRECTORY}/out-{}", buffers.len());
        let Ok(parts) = files.take_file(&path, left) else { break };
        let buffer = Buffer::from(parts);
        left -= buffer.len() as u64;
        buffers.push(scrubbed(buffer, scrubber));
    }
    buffers
}

/// Returns a buffer without secrets.
pub(super) fn scrubbed(buffer: Buffer, scrubber: &Scrubber) -> Buffer {
    if scrubber.is_empty() {
        return buffer;
    }
    match scrubber.scrub(&buffer.contiguous()) {
        Cow::Owned(bytes) => bytes.into(),
        Cow::Borrowed(_) => buffer,
    }
}

/// Writes a buffer of a value that has come from another process, or goes to it.
///
/// # Errors
/// Fails if the buffer does not fit.
pub(crate) fn write_buffer(
    files: &mut Filesystem,
    name: &str,
    bytes: &[u8],
) -> Result<(), belljar_emscripten::fs::FileError> {
    files.create_dir_all(DIRECTORY)?;
    files.write_file(&format!("{DIRECTORY}/{name}"), bytes)
}

/// Reads the buffers of the arguments of a call, which the guest removes.
pub(super) fn read_arguments(files: &mut Filesystem, names: &[String]) -> Result<Vec<Buffer>, CallError> {
    let mut left = MAX_ARGUMENTS;
    if names.len() > MAX_BUFFERS {
        return Err(CallError::Refused(format!("a call has at most {MAX_BUFFERS} large arguments")));
    }
    let mut buffers = Vec::with_capacity(names.len());
    for name in names {
        let path = format!("{DIRECTORY}/{name}");
        let bytes = files.read_file(&path, left);
        let bytes = bytes.map_err(|error| CallError::Refused(format!("failed to read an argument: {error}")))?;
        left -= bytes.len() as u64;
        buffers.push(bytes.into());
    }
    Ok(buffers)
}
