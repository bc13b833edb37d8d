//! Windows 10, version 1803, and later: earlier ones have no placeholders. Never run.

use std::fs::File;
use std::io;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use windows_sys::Win32::Foundation::{CloseHandle, FILETIME};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_ATTRIBUTE_TEMPORARY, FILE_FLAG_DELETE_ON_CLOSE, FILE_FLAG_OPEN_REPARSE_POINT,
};
use windows_sys::Win32::System::IO::DeviceIoControl;
use windows_sys::Win32::System::Ioctl::FSCTL_SET_SPARSE;
use windows_sys::Win32::System::SystemInformation::{GetSystemInfo, SYSTEM_INFO};
use windows_sys::Win32::System::Threading::{
    GetCurrentThread, GetCurrentThreadId, GetThreadTimes, OpenThread, SetThreadPriority, THREAD_MODE_BACKGROUND_BEGIN,
    THREAD_QUERY_LIMITED_INFORMATION,
};

pub(crate) mod files;
mod memory;

pub(crate) use memory::{Reservation, make_inaccessible, prefault};

/// Does nothing: wasmtime catches faults by a vectored exception handler, which comes before those that others install
/// by other means.
pub(crate) mod fault_handlers {
    pub(crate) fn record() {}

    pub(crate) fn restore() {}
}

/// True if compiled code must have unwind information: the system reads it when it handles exceptions, such as faults.
pub(crate) const NEEDS_UNWIND_INFO: bool = true;

pub(super) fn query_page_size() -> usize {
    // SAFETY: the structure consists of numbers and pointers, for which zeros are valid; the call only writes it.
    let info = unsafe {
        let mut info: SYSTEM_INFO = std::mem::zeroed();
        GetSystemInfo(&raw mut info);
        info
    };
    usize::try_from(info.dwPageSize).unwrap_or(0)
}

/// Creates a file that is deleted with its last handle and view, in the directory for temporary files. No other process
/// can open it.
pub(crate) fn anonymous_file() -> io::Result<File> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let path = std::env::temp_dir().join(format!("belljar-{}", hex::encode(random)));
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .share_mode(0)
        .attributes(FILE_ATTRIBUTE_TEMPORARY)
        .custom_flags(FILE_FLAG_DELETE_ON_CLOSE)
        .open(path)
}

/// Fails: the system reports copied pages only while they are in the working set of the process. Callers compare the
/// memory with its image.
pub(crate) fn private_dirty_pages(_: *const u8, _: usize) -> io::Result<Vec<(u32, u32)>> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Reads at an offset. Moves the position in the file, which no other function of this crate uses.
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buffer, offset)
}

pub(crate) fn read_exact_at(file: &File, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buffer.is_empty() {
        match file.seek_read(buffer, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                buffer = &mut buffer[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(crate) fn write_at(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    file.seek_write(data, offset)
}

pub(crate) fn write_all_at(file: &File, mut data: &[u8], mut offset: u64) -> io::Result<()> {
    while !data.is_empty() {
        match file.seek_write(data, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                data = &data[count..];
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets the length of an empty file. Its parts that are not written take no space if the file system has sparse files.
pub(crate) fn set_sparse_length(file: &File, length: u64) -> io::Result<()> {
    let mut returned = 0;
    // Errors are ignored: on other file systems, the file takes its whole length.
    // SAFETY: the request has neither input nor output; the count is a local.
    unsafe {
        let handle = file.as_raw_handle();
        DeviceIoControl(
            handle,
            FSCTL_SET_SPARSE,
            ptr::null(),
            0,
            ptr::null_mut(),
            0,
            &raw mut returned,
            ptr::null_mut(),
        )
    };
    file.set_len(length)
}

/// Opens a regular file for reading, without following a link in the last component of its path.
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(FILE_FLAG_OPEN_REPARSE_POINT).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}

/// The processor-time clock of one thread: its identifier.
#[derive(Clone, Copy)]
pub(crate) struct ThreadClock(u32);

impl ThreadClock {
    /// Returns the calling thread's clock. Other threads can read it until the thread ends.
    pub(crate) fn current() -> Self {
        // SAFETY: returns a number.
        Self(unsafe { GetCurrentThreadId() })
    }

    /// Reads the clock, which advances by ticks of the system's timer (1/64 of a second).
    pub(crate) fn read(self) -> Duration {
        let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
        let [created, ended, kernel, user] = times.each_mut().map(ptr::from_mut);
        // SAFETY: the handle is used only if it is valid, and closed once. The four times are distinct locals.
        let is_read = unsafe {
            let thread = OpenThread(THREAD_QUERY_LIMITED_INFORMATION, 0, self.0);
            if thread.is_null() {
                return Duration::ZERO;
            }
            let result = GetThreadTimes(thread, created, ended, kernel, user);
            CloseHandle(thread);
            result != 0
        };
        if !is_read {
            return Duration::ZERO;
        }
        // Units of 100 nanoseconds.
        let time = |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
        Duration::from_nanos((time(times[2]) + time(times[3])).saturating_mul(100))
    }
}

/// Gives the calling thread the priority of background work.
pub fn lower_thread_priority() {
    // SAFETY: the handle denotes the calling thread, and need not be closed.
    unsafe { SetThreadPriority(GetCurrentThread(), THREAD_MODE_BACKGROUND_BEGIN) };
}
