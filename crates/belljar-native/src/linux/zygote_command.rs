//! The command that starts a zygote so that code which runs in its forks cannot change the file it was started from.
//!
//! A process can follow `/proc/self/exe` to the file that it was started from, out of every mount namespace, and change
//! the mode of that file if the file belongs to its user. For an interpreter that belongs to the user that the code
//! runs as, the executed file is therefore the dynamic loader, which belongs to root, and the loader loads the
//! interpreter.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The reason why [`zygote_command`] returns no command.
#[derive(Debug, thiserror::Error)]
pub enum ZygoteCommandError {
    /// The interpreter could not be opened.
    #[error("failed to open the interpreter {}: {source}", python.display())]
    OpenInterpreter {
        /// The path of the interpreter.
        python: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The interpreter belongs to the user that the code runs as, and its dynamic loader could not be determined.
    #[error("failed to find the dynamic loader of {}: {source}", python.display())]
    FindLoader {
        /// The path of the interpreter.
        python: PathBuf,
        /// The system's error, or `InvalidData` if the file is not a dynamically linked ELF program.
        source: io::Error,
    },
    /// Both the interpreter and its dynamic loader belong to the user that the code runs as.
    #[error("the dynamic loader {} belongs to the user that the code runs as", loader.display())]
    LoaderNotProtected {
        /// The path of the loader.
        loader: PathBuf,
    },
}

impl ZygoteCommandError {
    /// Returns whether the interpreter exists, but is only safe to run as the program of a sandbox of its own.
    #[must_use]
    pub fn allows_program(&self) -> bool {
        !matches!(self, Self::OpenInterpreter { .. })
    }
}

/// Returns a command that runs `python` as a zygote: processes that it forks may enter sandboxes.
///
/// # Errors
///
/// Returns [`ZygoteCommandError`] if `python` cannot be read, or belongs to this user and is not a dynamically linked
/// ELF program whose loader belongs to another user.
pub fn zygote_command(python: &Path) -> Result<Command, ZygoteCommandError> {
    let open_error = |source| ZygoteCommandError::OpenInterpreter { python: python.to_owned(), source };
    let user = rustix::process::geteuid();
    let file = File::open(python).map_err(open_error)?;
    // As root, the code runs as a user that does not own the file.
    if user.is_root() || file.metadata().map_err(open_error)?.uid() != user.as_raw() {
        return Ok(Command::new(python));
    }
    let loader_error = |source| ZygoteCommandError::FindLoader { python: python.to_owned(), source };
    let loader = read_loader_path(file).map_err(loader_error)?;
    if loader.metadata().map_err(loader_error)?.uid() == user.as_raw() {
        return Err(ZygoteCommandError::LoaderNotProtected { loader });
    }
    let mut command = Command::new(&loader);
    command.arg0("ld.so").arg("--argv0").arg(python).arg(python);
    Ok(command)
}

/// Reads the path of the dynamic loader from a 64-bit ELF program: its `PT_INTERP` segment (`elf(5)`).
fn read_loader_path(mut file: File) -> io::Result<PathBuf> {
    const PT_INTERP: u32 = 3;
    const MAX_SEGMENTS: u16 = 128;
    const MAX_PATH_BYTES: u64 = 4096;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not a dynamically linked ELF program");
    let mut header = [0; 64];
    file.read_exact(&mut header).map_err(|_| invalid())?;
    // The magic number, the class (64-bit) and the byte order (little-endian) of both supported architectures.
    if header[..6] != *b"\x7fELF\x02\x01" {
        return Err(invalid());
    }
    let u64_at =
        |bytes: &[u8], at: usize| -> Option<u64> { Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?)) };
    let u16_at =
        |bytes: &[u8], at: usize| -> Option<u16> { Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)) };
    // e_phoff and e_phnum.
    let (Some(table), Some(count)) = (u64_at(&header, 32), u16_at(&header, 56)) else { return Err(invalid()) };
    file.seek(SeekFrom::Start(table))?;
    for _ in 0..count.min(MAX_SEGMENTS) {
        let mut segment = [0; 56];
        file.read_exact(&mut segment).map_err(|_| invalid())?;
        if segment[..4] != PT_INTERP.to_le_bytes() {
            continue;
        }
        // p_offset and p_filesz.
        let (Some(offset), Some(length)) = (u64_at(&segment, 8), u64_at(&segment, 32)) else { return Err(invalid()) };
        file.seek(SeekFrom::Start(offset))?;
        let mut path = Vec::new();
        file.take(length.min(MAX_PATH_BYTES)).read_to_end(&mut path)?;
        let path = String::from_utf8(path).map_err(|_| invalid())?;
        return Ok(PathBuf::from(path.trim_end_matches('\0')));
    }
    Err(invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loader_of_a_program_is_found() {
        let loader = read_loader_path(File::open("/bin/sh").unwrap()).unwrap();
        assert!(loader.is_absolute() && loader.exists(), "{}", loader.display());
    }

    #[test]
    fn script_has_no_loader() {
        let script = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let error = read_loader_path(script.reopen().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
