//! A zygote for tests: a Python with `attacks.py` imported, whose children enter sandboxes that wait.

use std::fs;
use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use belljar_jupyter::sandbox::{self, Arrival, ENTER_PYTHON, Entered, Entry, Sandbox};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::trials::attacked::ATTACKS_PYTHON;

const ZYGOTE_PYTHON: &str = include_str!("../attacks/zygote.py");

pub(crate) struct Zygote {
    process: Child,
    control: UnixStream,
}

impl Zygote {
    /// Starts one whose modules are written to `folder`.
    pub(crate) fn start(python: &Path, folder: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        for (name, text) in [("enter.py", ENTER_PYTHON), ("attacks.py", ATTACKS_PYTHON), ("zygote.py", ZYGOTE_PYTHON)] {
            fs::write(folder.join(name), text)?;
        }
        let (control, theirs) = UnixStream::pair()?;
        let mut command = sandbox::zygote_command(python)?;
        let process = command
            .arg("-B")
            .arg(folder.join("zygote.py"))
            .arg(folder)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { process, control })
    }

    /// Runs `code` in `waiting`, its output going to `output`.
    pub(crate) fn run(
        &mut self,
        waiting: &Sandbox,
        code: &str,
        output: OwnedFd,
    ) -> Result<Entered, Box<dyn std::error::Error>> {
        let errors = output.try_clone()?;
        let (entry, arrival) = waiting.entry([None, Some(output), Some(errors)])?;
        self.send(entry, arrival, code)
    }

    /// Has a child enter by `entry`.
    pub(crate) fn send(
        &mut self,
        entry: Entry,
        arrival: Arrival,
        code: &str,
    ) -> Result<Entered, Box<dyn std::error::Error>> {
        let lengths = [entry.plan.len() as u32, code.len() as u32];
        let head: Vec<u8> = lengths.into_iter().flat_map(u32::to_ne_bytes).collect();
        let descriptors: Vec<BorrowedFd<'_>> = entry.descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        sendmsg(&self.control, &[IoSlice::new(&head)], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.control.write_all(entry.plan.as_bytes())?;
        self.control.write_all(code.as_bytes())?;
        // What the process inside holds must be held by nobody else, or its end would not be seen.
        drop(entry);
        Ok(arrival.wait(Duration::from_secs(60))?)
    }
}

impl Drop for Zygote {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
