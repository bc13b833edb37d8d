//! A zygote for tests: a Python with `attacks.py` imported, whose forks enter idle sandboxes.

use std::fs;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use belljar_native::{ENTRY_PYTHON, zygote_command};
use belljar_sandbox::{EnteredProcess, Entry, EntryHandle, Sandbox};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::trials::attack_trials::ATTACKS_PYTHON;

const ZYGOTE_PYTHON: &str = include_str!("attacks/zygote.py");

pub(crate) struct Zygote {
    process: Child,
    control: UnixStream,
}

impl Zygote {
    /// Starts a zygote whose modules are written to `folder`.
    pub(crate) fn start(python: &Path, folder: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        for (name, text) in [("entry.py", ENTRY_PYTHON), ("attacks.py", ATTACKS_PYTHON), ("zygote.py", ZYGOTE_PYTHON)] {
            fs::write(folder.join(name), text)?;
        }
        let (control, zygote_end) = UnixStream::pair()?;
        let mut command = zygote_command(python)?;
        let process = command
            .arg("-B")
            .arg(folder.join("zygote.py"))
            .arg(folder)
            .env_clear()
            .stdin(OwnedFd::from(zygote_end))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { process, control })
    }

    /// Returns the zygote's process ID on the host.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns whether the zygote has neither ended nor been stopped.
    pub(crate) fn is_running(&mut self) -> Result<bool, Box<dyn std::error::Error>> {
        if self.process.try_wait()?.is_some() {
            return Ok(false);
        }
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).ok_or("no state")?;
        Ok(!matches!(state, 'T' | 't' | 'Z' | 'X'))
    }

    /// Runs `code` in the sandbox `idle`, with `output` as standard output and standard error.
    pub(crate) fn run(
        &mut self,
        idle: &Sandbox,
        code: &str,
        output: OwnedFd,
    ) -> Result<EnteredProcess, Box<dyn std::error::Error>> {
        let errors = output.try_clone()?;
        let (entry, handle) = idle.entry([None, Some(output), Some(errors)])?;
        self.send(entry, handle, code)
    }

    /// Sends `entry` to the zygote, and waits until a fork has entered.
    pub(crate) fn send(
        &mut self,
        entry: Entry,
        handle: EntryHandle,
        code: &str,
    ) -> Result<EnteredProcess, Box<dyn std::error::Error>> {
        let lengths = [entry.plan.len() as u32, code.len() as u32];
        let head: Vec<u8> = lengths.into_iter().flat_map(u32::to_ne_bytes).collect();
        let descriptors: Vec<BorrowedFd<'_>> = entry.descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&self.control, &[IoSlice::new(&head)], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.control.write_all(entry.plan.as_bytes())?;
        self.control.write_all(code.as_bytes())?;
        // Only the process inside may hold these descriptors, or its end would not be noticed.
        drop(entry);
        Ok(handle.wait(Duration::from_secs(60))?)
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
