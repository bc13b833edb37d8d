//! Opens a kernel's socket by its name, in a directory that belongs to the guest, which may replace the socket with
//! anything at any time. The name is resolved once, without following links; the resulting descriptor is then checked
//! and connected to.

use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Connects to the socket of this name in a directory.
///
/// # Errors
/// Returns [`ErrorKind::NotFound`], [`ErrorKind::ConnectionRefused`] or [`ErrorKind::WouldBlock`] while the kernel does
/// not accept connections yet, and other errors if the file is not a socket, or is behind a link.
pub(crate) fn connect_in(directory: impl AsFd, name: &str) -> std::io::Result<UnixStream> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(directory, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Socket {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{name} is not a socket")));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // This path resolves to the open descriptor, even if the name leads elsewhere by now.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
    connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// Opens a directory to resolve names in.
///
/// # Errors
/// Returns an error if the path is not a directory.
pub(crate) fn open_directory(path: &std::path::Path) -> std::io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_sockets_are_connected_to() {
        let root = tempfile::tempdir().unwrap();
        let directory = open_directory(root.path()).unwrap();
        let at = |name: &str| root.path().join(name);
        let _listener = UnixListener::bind(at("k-1")).unwrap();
        connect_in(&directory, "k-1").unwrap();

        let missing = connect_in(&directory, "k-2").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        symlink("k-1", at("link")).unwrap();
        assert!(connect_in(&directory, "link").is_err(), "a link to a socket");
        symlink(root.path(), at("folder")).unwrap();
        assert!(connect_in(&directory, "folder/k-1").is_err(), "a socket behind a link");
        assert!(connect_in(&directory, "../k-1").is_err(), "a path out of the directory");
        std::fs::write(at("file"), "").unwrap();
        assert!(connect_in(&directory, "file").is_err(), "a regular file");
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(connect_in(&directory, "fifo").is_err(), "a FIFO, which blocks a plain open");
        std::fs::create_dir(at("d")).unwrap();
        assert!(connect_in(&directory, "d").is_err(), "a directory");
    }

    #[test]
    fn full_or_closed_socket_does_not_block() {
        let root = tempfile::tempdir().unwrap();
        let directory = open_directory(root.path()).unwrap();
        let listener = UnixListener::bind(root.path().join("k")).unwrap();
        // The queue of the listener fills up, since it never accepts.
        let connections: Vec<_> = (0..10_000).map_while(|_| connect_in(&directory, "k").ok()).collect();
        assert_eq!(connect_in(&directory, "k").unwrap_err().kind(), ErrorKind::WouldBlock);
        drop((listener, connections));
        assert_eq!(connect_in(&directory, "k").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
