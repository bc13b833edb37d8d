//! Lines of a cell that call pip: `%pip install NAME`.
//!
//! A sealed process gets packages before its code runs only, so that the packages of such lines are prepared
//! beforehand. The line itself installs them, or reports why it cannot: what is not found here is an error there.

use belljar_packages::Requirement;

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

/// Returns the requirements of each line of `code` that installs packages by pip. Lines with other options, or with
/// requirements that are not valid, are left out.
pub(crate) fn pip_lines(code: &str) -> Vec<Vec<Requirement>> {
    code.lines().filter_map(requirements_of_line).collect()
}

fn requirements_of_line(line: &str) -> Option<Vec<Requirement>> {
    let command = line.trim_start().strip_prefix(['%', '!'])?;
    let words = shlex::split(command)?;
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
    let mut requirements = Vec::new();
    for argument in arguments {
        if argument.starts_with('-') {
            FLAGS.contains(argument).then_some(())?;
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

    #[test]
    fn lines_that_install_are_found() {
        let code = "import x\n%pip install -q gamma 'beta>=1'  # quietly\nif True:\n    !pip3 install alpha==2\n\
                    % uv pip install delta\n!{sys.executable} -m pip install -U epsilon[extra]\n%pip list\n\
                    %pip install -r r.txt\n%pip install\n%pip install not/a/name\n!ls; pip install zeta\n\
                    pip install eta\n!python3.14 -m pip install theta\n!pip install 'iota";
        let found: Vec<Vec<String>> = pip_lines(code)
            .into_iter()
            .map(|line| line.iter().map(|requirement| requirement.name().to_owned()).collect())
            .collect();
        assert_eq!(found, [vec!["gamma", "beta"], vec!["alpha"], vec!["delta"], vec!["epsilon"], vec!["theta"]]);
    }
}
