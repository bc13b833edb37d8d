//! Error numbers as the guest knows them.
//!
//! Emscripten's libc uses the numbering of WASI preview 1 (`system/lib/libc/musl/arch/emscripten/bits/errno.h`), which
//! differs from Linux: `ENOENT` is 44, not 2.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An error number that a system call returns. Never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Errno(u16);

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($number);)*

            /// Returns the symbolic name, for example `ENOENT`.
            pub fn name(self) -> &'static str {
                match self { $(Errno::$name => stringify!($name),)* _ => "E?" }
            }

            fn text(self) -> &'static str {
                match self { $(Errno::$name => $text,)* _ => "unknown error" }
            }
        }
    };
}

errnos! {
    E2BIG = 1, "argument list too long";
    EACCES = 2, "permission denied";
    EADDRINUSE = 3, "address in use";
    EADDRNOTAVAIL = 4, "address not available";
    EAFNOSUPPORT = 5, "address family not supported";
    EAGAIN = 6, "resource unavailable, try again";
    EALREADY = 7, "connection already in progress";
    EBADF = 8, "bad file descriptor";
    EBUSY = 10, "device or resource busy";
    ECHILD = 12, "no child processes";
    ECONNABORTED = 13, "connection aborted";
    ECONNREFUSED = 14, "connection refused";
    ECONNRESET = 15, "connection reset";
    EDESTADDRREQ = 17, "destination address required";
    EDOM = 18, "argument out of domain";
    EEXIST = 20, "file exists";
    EFAULT = 21, "bad address";
    EFBIG = 22, "file too large";
    EHOSTUNREACH = 23, "host is unreachable";
    EILSEQ = 25, "illegal byte sequence";
    EINPROGRESS = 26, "operation in progress";
    EINTR = 27, "interrupted";
    EINVAL = 28, "invalid argument";
    EIO = 29, "I/O error";
    EISCONN = 30, "socket is connected";
    EISDIR = 31, "is a directory";
    ELOOP = 32, "too many levels of symbolic links";
    EMFILE = 33, "too many open files";
    EMLINK = 34, "too many links";
    ENAMETOOLONG = 37, "file name too long";
    ENETUNREACH = 40, "network unreachable";
    ENFILE = 41, "too many files open in system";
    ENODEV = 43, "no such device";
    ENOENT = 44, "no such file or directory";
    ENOEXEC = 45, "exec format error";
    ENOMEM = 48, "out of memory";
    ENOPROTOOPT = 50, "protocol not available";
    ENOSPC = 51, "no space left on device";
    ENOSYS = 52, "function not implemented";
    ENOTCONN = 53, "not connected";
    ENOTDIR = 54, "not a directory";
    ENOTEMPTY = 55, "directory not empty";
    ENOTSOCK = 57, "not a socket";
    ENOTTY = 59, "not a typewriter";
    ENXIO = 60, "no such device or address";
    EOVERFLOW = 61, "value too large";
    EPERM = 63, "operation not permitted";
    EPIPE = 64, "broken pipe";
    EPROTONOSUPPORT = 66, "protocol not supported";
    EPROTOTYPE = 67, "protocol wrong type for socket";
    ERANGE = 68, "result too large";
    EROFS = 69, "read-only file system";
    ESPIPE = 70, "invalid seek";
    ESRCH = 71, "no such process";
    ETIMEDOUT = 73, "timed out";
    ETXTBSY = 74, "text file busy";
    EXDEV = 75, "cross-device link";
    EOPNOTSUPP = 138, "operation not supported";
}

impl Errno {
    /// Returns the number as WASI calls return it: positive.
    pub fn positive(self) -> i32 {
        i32::from(self.0)
    }

    /// Returns the number as `__syscall_*` functions return it: negative.
    pub fn negative(self) -> i32 {
        -i32::from(self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl std::error::Error for Errno {}
