//! The places of a cell that call pip: lines like `%pip install NAME`, and commands that are written out.
//!
//! A sealed process gets packages before its code runs only, so that the packages of such places are prepared
//! beforehand. The line or the command itself installs them, or reports why it cannot: what is not found here is an
//! error there, unless it consists of Python alone.

use belljar_packages::{PipCall, Requirement};

/// Options without a value that change nothing here.
const FLAGS: [&str; 13] = [
    "-q",
    "-qq",
    "--quiet",
    "-v",
    "--verbose",
    "-U",
    "--upgrade",
    "--user",
    "--no-cache-dir",
    "--no-input",
    "--disable-pip-version-check",
    "--break-system-packages",
    "--prefer-binary",
];

/// Returns the requirements of each place of `code` that installs packages by pip. Those with other options, or with
/// requirements that are not valid, are left out.
pub(crate) fn pip_installs(code: &str) -> Vec<Vec<Requirement>> {
    let lines = code.lines().filter_map(requirements_of_line);
    let calls = belljar_packages::pip_calls(code);
    let calls = calls.iter().filter_map(|call| match call {
        PipCall::Words(words) => requirements_of_command(words),
        PipCall::Shell(command) => requirements_of_command(&shlex::split(command)?),
        PipCall::Micropip(requirements) => requirements_of(requirements.iter().map(String::as_str)),
    });
    lines.chain(calls).collect()
}

fn requirements_of_line(line: &str) -> Option<Vec<Requirement>> {
    let command = line.trim_start().strip_prefix(['%', '!'])?;
    requirements_of_command(&shlex::split(command)?)
}

fn requirements_of_command(words: &[String]) -> Option<Vec<Requirement>> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let arguments = match words.as_slice() {
        ["uv", pip, "install", arguments @ ..] | [pip, "install", arguments @ ..] if is_named(pip, "pip") => arguments,
        [python, "-m", pip, "install", arguments @ ..]
            if *pip == "pip" && (is_named(python, "python") || *python == "{sys.executable}") =>
        {
            arguments
        }
        _ => return None,
    };
    requirements_of(arguments.iter().copied())
}

fn requirements_of<'a>(arguments: impl Iterator<Item = &'a str>) -> Option<Vec<Requirement>> {
    let mut requirements = Vec::new();
    for argument in arguments {
        if argument.starts_with('-') {
            FLAGS.contains(&argument).then_some(())?;
        } else {
            requirements.push(Requirement::parse(argument).ok()?);
        }
    }
    Some(requirements).filter(|requirements| !requirements.is_empty())
}

/// Returns whether a word is the name of a program, with or without a version.
fn is_named(word: &str, name: &str) -> bool {
    let is_version = |text: &str| text.chars().all(|character| character.is_ascii_digit() || character == '.');
    word.strip_prefix(name).is_some_and(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the names of the packages of each place.
    fn found(code: &str) -> Vec<Vec<String>> {
        let name = |requirement: &Requirement| requirement.name().to_owned();
        pip_installs(code).iter().map(|place| place.iter().map(name).collect()).collect()
    }

    #[test]
    fn lines_that_install_are_found() {
        let code = "import x\n%pip install -q gamma 'beta>=1'  # quietly\nif True:\n    !pip3 install alpha==2\n\
                    % uv pip install delta\n!{sys.executable} -m pip install -U epsilon[extra]\n%pip list\n\
                    %pip install -r r.txt\n%pip install\n%pip install not/a/name\n!ls; pip install zeta\n\
                    pip install eta\n!python3.14 -m pip install theta\n!pip install 'iota";
        let wanted = [vec!["gamma", "beta"], vec!["alpha"], vec!["delta"], vec!["epsilon"], vec!["theta"]];
        assert_eq!(found(code), wanted);
    }

    #[test]
    fn commands_that_install_are_found() {
        let code = "import subprocess, sys\nsubprocess.run([sys.executable, '-m', 'pip', 'install', '-q', 'alpha<2'])\n\
                    os.system(\"uv pip install beta 'gamma>1'\")\nos.system('ls; pip install eta')\n\
                    await micropip.install('delta')\nx = ['pip', 'list']\nmicropip.install(['./x.whl'])\n";
        assert_eq!(found(code), [vec!["alpha"], vec!["beta", "gamma"], vec!["delta"]]);
    }
}
