//! Devices that are handed in, and those that are not.

use std::path::{Path, PathBuf};

use belljar_jupyter::sandbox::{Ended, Error, Policy, Spec};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::trials::person::Outcome;
use crate::trials::scenarios::{equal, python_spec, run_under};

/// Another `/dev/full`: it gives zeros, takes nothing, and knows no calls.
const FULL: (u32, u32) = (1, 7);

/// A device of the host's, gone with this.
struct Device(PathBuf);

impl Device {
    fn new(name: &str, mode: u32) -> Result<Self, Box<dyn std::error::Error>> {
        let path = Path::new("/dev").join(format!("belljar-{name}-{}", std::process::id()));
        let device = Self(path);
        mknodat(CWD, &device.0, FileType::CharacterDevice, Mode::empty(), makedev(FULL.0, FULL.1))?;
        rustix::fs::chmod(&device.0, Mode::from_raw_mode(mode))?;
        Ok(device)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

pub(crate) fn a_device_that_is_handed_in_answers_and_no_other_is_there() -> Outcome {
    let (given, other) = (Device::new("given", 0o666)?, Device::new("other", 0o666)?);
    let code = "import errno, fcntl, os\n\
                def word(call, *arguments):\n\
                \x20   try: return call(*arguments)\n\
                \x20   except OSError as error: return errno.errorcode[error.errno]\n\
                device = os.open('GIVEN', os.O_RDWR)\n\
                print(os.read(device, 2), word(os.write, device, b'x'), word(fcntl.ioctl, device, 0x5401, b'-' * 64))\n\
                print(word(os.open, 'OTHER', os.O_RDWR), word(os.unlink, 'GIVEN'))";
    let code = code.replace("GIVEN", &given.0.display().to_string()).replace("OTHER", &other.0.display().to_string());
    // The driver says that it has no such call: nothing keeps the code from asking. The weak sandbox sees that the other
    // one exists, and no more.
    for (policy, hidden) in [(Policy::Full, "ENOENT"), (Policy::Weak, "EACCES")] {
        let spec = Spec { devices: vec![given.0.clone()], directory: "/".into(), ..python_spec(&code) };
        let mut running = run_under(&spec, policy)?;
        let text = running.rest()?;
        let (answers, [first, second]) = (text.lines().next().unwrap_or_default().to_owned(), two(&text));
        equal!(answers.as_str(), "b'\\x00\\x00' ENOSPC ENOTTY");
        equal!((first.as_str(), second == "None"), (hidden, false));
        equal!(running.sandbox.wait()?, Ended::Exited(0));
    }
    // It is there inside, and may not be called, unless it is handed in.
    let spec = Spec { directory: "/".into(), ..python_spec(&code) };
    let mut running = run_under(&spec, Policy::Full)?;
    equal!(running.rest()?.contains("FileNotFoundError"), true);
    Ok(())
}

/// The words of the second line.
fn two(text: &str) -> [String; 2] {
    let mut words = text.lines().nth(1).unwrap_or_default().split(' ').map(str::to_owned);
    [words.next().unwrap_or_default(), words.next().unwrap_or_default()]
}

pub(crate) fn a_device_that_the_sessions_user_cannot_open_is_refused_beforehand() -> Outcome {
    let closed = Device::new("closed", 0o600)?;
    let spec = Spec { devices: vec![closed.0.clone()], ..python_spec("pass") };
    let refused = run_under(&spec, Policy::Full).err().ok_or("it was handed in")?;
    let words = refused.downcast_ref::<Error>().map(ToString::to_string).unwrap_or_default();
    equal!((words.contains("mode 600"), words.contains("chmod o+rw")), (true, true));
    Ok(())
}
