//! Devices of the host that are passed through to the code, and others.

use std::path::{Path, PathBuf};

use belljar_sandbox::{Error, ExitStatus, Hint, Policy, Spec};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use crate::trials::host_user::TestResult;
use crate::trials::scenarios::{equal, python_spec, run_under};

/// The number of `/dev/full`: reading returns zeros, writing fails with `ENOSPC`, and no `ioctl` is supported.
const FULL: (u32, u32) = (1, 7);

/// A device of the host, which is removed on drop.
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

pub(crate) fn only_the_given_device_is_usable() -> TestResult {
    let (given, other) = (Device::new("given", 0o666)?, Device::new("other", 0o666)?);
    let code = "import errno, fcntl, os\n\
                def result(call, *arguments):\n\
                \x20   try: return call(*arguments)\n\
                \x20   except OSError as error: return errno.errorcode[error.errno]\n\
                device = os.open('GIVEN', os.O_RDWR)\n\
                print(os.read(device, 2), result(os.write, device, b'x'), result(fcntl.ioctl, device, 0x5401, b'-' * 64))\n\
                print(result(os.open, 'OTHER', os.O_RDWR), result(os.unlink, 'GIVEN'))";
    let code = code.replace("GIVEN", &given.0.display().to_string()).replace("OTHER", &other.0.display().to_string());
    // The driver rejects the `ioctl`, so the sandbox let it pass. In the weak sandbox the other device is visible, but
    // cannot be opened.
    for (policy, hidden) in [(Policy::Full, "ENOENT"), (Policy::Weak, "EACCES")] {
        let spec = Spec { devices: vec![given.0.clone()], directory: "/".into(), ..python_spec(&code) };
        let mut running = run_under(&spec, policy)?;
        let text = running.rest()?;
        let (answers, [first, second]) = (text.lines().next().unwrap_or_default().to_owned(), second_line_words(&text));
        equal!(answers.as_str(), "b'\\x00\\x00' ENOSPC ENOTTY");
        equal!((first.as_str(), second == "None"), (hidden, false));
        equal!(running.sandbox.wait()?, ExitStatus::Exited(0));
    }
    // A device that is not passed through is not visible.
    let spec = Spec { directory: "/".into(), ..python_spec(&code) };
    let mut running = run_under(&spec, Policy::Full)?;
    equal!(running.rest()?.contains("FileNotFoundError"), true);
    Ok(())
}

/// Returns the two words of the second line.
fn second_line_words(text: &str) -> [String; 2] {
    let mut words = text.lines().nth(1).unwrap_or_default().split(' ').map(str::to_owned);
    [words.next().unwrap_or_default(), words.next().unwrap_or_default()]
}

pub(crate) fn device_without_permission_is_refused() -> TestResult {
    let closed = Device::new("closed", 0o600)?;
    let spec = Spec { devices: vec![closed.0.clone()], ..python_spec("pass") };
    let refused = run_under(&spec, Policy::Full).err().ok_or("the device was accepted")?;
    let refused = refused.downcast_ref::<Error>().ok_or("not an error of the sandbox")?;
    equal!((refused.to_string().contains("mode 600"), refused.hint()), (true, Some(Hint::OpenDevice)));
    Ok(())
}
