//! Opening a kernel's socket by its name, in a folder that belongs to the guest: it may put anything in its place, at any
//! time. The name is resolved once, without following links, and what was found is held while it is looked at and
//! connected to.

use std::io::{Error, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Connects to the socket of this name in a folder.
///
/// # Errors
/// [`ErrorKind::NotFound`], [`ErrorKind::ConnectionRefused`] or [`ErrorKind::WouldBlock`] while nobody takes connections there, yet;
/// others when it is no socket, or behind a link.
pub(crate) fn connect_in(folder: impl AsFd, name: &str) -> std::io::Result<UnixStream> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let found = openat2(folder, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
    if FileType::from_raw_mode(fstat(&found)?.st_mode) != FileType::Socket {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{name} is no socket")));
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The kernel resolves this to what is held, whatever the name leads to by now.
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
    connect(&socket, &address)?;
    Ok(UnixStream::from(socket))
}

/// Opens a folder to resolve names in.
///
/// # Errors
/// When it is none.
pub(crate) fn open_folder(path: &std::path::Path) -> std::io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_socket_is_connected_to_and_nothing_else_is() {
        let place = tempfile::tempdir().unwrap();
        let folder = open_folder(place.path()).unwrap();
        let at = |name: &str| place.path().join(name);
        let _listener = UnixListener::bind(at("k-1")).unwrap();
        connect_in(&folder, "k-1").unwrap();

        let missing = connect_in(&folder, "k-2").unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        symlink("k-1", at("link")).unwrap();
        assert!(connect_in(&folder, "link").is_err(), "a link to a socket");
        symlink(place.path(), at("folder")).unwrap();
        assert!(connect_in(&folder, "folder/k-1").is_err(), "a socket behind a link");
        assert!(connect_in(&folder, "../k-1").is_err(), "a way out");
        std::fs::write(at("file"), "").unwrap();
        assert!(connect_in(&folder, "file").is_err(), "a regular file");
        rustix::fs::mknodat(CWD, at("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(connect_in(&folder, "fifo").is_err(), "a FIFO, which an open would wait for");
        std::fs::create_dir(at("d")).unwrap();
        assert!(connect_in(&folder, "d").is_err(), "a directory");
    }

    #[test]
    fn nobody_is_waited_for_who_takes_no_connections() {
        let place = tempfile::tempdir().unwrap();
        let folder = open_folder(place.path()).unwrap();
        let listener = UnixListener::bind(place.path().join("k")).unwrap();
        // Its queue fills up, as it never accepts.
        let held: Vec<_> = (0..10_000).map_while(|_| connect_in(&folder, "k").ok()).collect();
        assert_eq!(connect_in(&folder, "k").unwrap_err().kind(), ErrorKind::WouldBlock);
        drop((listener, held));
        assert_eq!(connect_in(&folder, "k").unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
