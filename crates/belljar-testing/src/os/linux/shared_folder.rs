//! A folder and a Python that every user of the machine can reach. If root runs the tests, weak kernels run as other
//! users, who can often enter neither root's home nor a build folder in it.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_sandbox::SESSION_USERS;

/// The Python of the system, which root's home does not contain.
pub const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// The folders in which a folder for all users may be created, in the order of preference: those that outlive a restart
/// come first.
const PARENTS: [&str; 4] = ["/var/tmp", "/opt", "/srv", "/tmp"];

/// Creates the folder `name`, unless it exists, where all users can enter it. The system's Python can be executed by
/// all users, too.
///
/// # Errors
/// Returns the reasons if no such folder can be created, or if the users cannot execute Python. Only root can create
/// it.
pub fn shared_folder(name: &str) -> Result<PathBuf, String> {
    let run = |arguments: &[&str]| -> Result<(), String> {
        let (program, arguments) = arguments.split_first().ok_or("no program")?;
        let output = Command::new(program).args(arguments).uid(SESSION_USERS.start).gid(SESSION_USERS.start).output();
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(format!("{program} {}: {}", arguments.join(" "), output.status)),
            Err(error) => Err(format!("{program} {}: {error}", arguments.join(" "))),
        }
    };
    run(&[SYSTEM_PYTHON, "--version"])?;
    let mut reasons = Vec::new();
    for parent in PARENTS {
        let folder = Path::new(parent).join(name);
        let created = std::fs::create_dir_all(&folder)
            .and_then(|()| std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)))
            .map_err(|error| format!("{}: {error}", folder.display()))
            .and_then(|()| run(&["/usr/bin/test", "-x", &folder.display().to_string()]));
        match created {
            Ok(()) => return Ok(folder),
            Err(reason) => reasons.push(reason),
        }
    }
    Err(reasons.join("; "))
}
