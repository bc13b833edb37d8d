//! The reason why uv or pip installed nothing, from what they wrote: the sentence that matters, and advice.
//!
//! Their own texts are long: pip lists every version of a package, and uv proves that none of them fits.

use belljar_packages::lookalike;

/// The number of the newest versions that a message lists.
const MAX_VERSIONS: usize = 5;
/// The maximum length of a name, a requirement or a version that the installer wrote, in characters.
const MAX_NAME: usize = 120;
/// The maximum length of an explanation that the installer wrote, in characters.
const MAX_EXPLANATION: usize = 700;
/// The number of lines of an unknown error that are reported.
const MAX_LINES: usize = 6;

/// The reason why an installer failed. Its texts are uv's and pip's, and their length is bounded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstallerFailure {
    /// The index has no package of this name.
    #[error("{name}: the package index has no package of this name")]
    UnknownPackage {
        /// The package.
        name: String,
    },
    /// The index has no package of this name, or none of its releases can be installed: pip does not distinguish them.
    #[error(
        "{requirement}: the package index has no package of this name, or no release of it has a wheel for this Python \
         and machine"
    )]
    NothingUsable {
        /// The requirement.
        requirement: String,
    },
    /// The package exists, but no release matches the requirement.
    #[error("{requirement}: no version that can be installed matches{}", newest(.available))]
    NoVersion {
        /// The requirement.
        requirement: String,
        /// The newest versions that can be installed, newest first; empty if they are not known.
        available: Vec<String>,
    },
    /// The releases that match have no wheel for this Python or this machine.
    #[error(
        "{requirement}: no release that matches has a wheel for this Python and machine, and nothing is built here"
    )]
    NoWheel {
        /// The requirement.
        requirement: String,
    },
    /// The releases that match need another version of Python.
    #[error("{package} needs another version of Python: {needed}")]
    OtherPython {
        /// The package or its requirement.
        package: String,
        /// The versions of Python that it needs.
        needed: String,
    },
    /// The requirements exclude each other.
    #[error("the requirements conflict: {explanation}")]
    Conflict {
        /// The installer's explanation.
        explanation: String,
    },
    /// The package index does not answer.
    #[error("the package index cannot be reached: {cause}")]
    Unreachable {
        /// The error of the system or of the index.
        cause: String,
    },
    /// The disk of the installed packages, or of the installer's cache, is full.
    #[error("the disk of this machine is full")]
    DiskFull,
    /// Another error.
    #[error("the installer failed: {text}")]
    Other {
        /// The installer's last lines.
        text: String,
    },
}

fn newest(available: &[String]) -> String {
    if available.is_empty() { String::new() } else { format!("; the newest: {}", available.join(", ")) }
}

impl InstallerFailure {
    /// Returns the reason that an installer's output and errors give.
    pub(crate) fn parse(stdout: &str, stderr: &str) -> Self {
        if stderr.contains("No space left on device") {
            return Self::DiskFull;
        }
        from_pip(stdout, stderr).or_else(|| from_uv(stderr)).unwrap_or_else(|| Self::Other { text: last_lines(stderr) })
    }

    /// Returns what the author of the code, or the operator, can do.
    pub fn advice(&self) -> Option<String> {
        Some(match self {
            Self::UnknownPackage { name } | Self::NothingUsable { requirement: name } => {
                match lookalike(name_of(name)) {
                    Some(belljar_packages::InstallError::Lookalike { suggestions, .. }) => {
                        format!("did you mean {}?", suggestions.join(" or "))
                    }
                    _ => "check the name: a package may be named unlike its module. Only wheels can be installed".into(),
                }
            }
            Self::NoVersion { .. } => "leave out the version, or name one that exists".into(),
            Self::NoWheel { .. } => "leave out the version, or use another package: only wheels are installed".into(),
            Self::OtherPython { .. } => {
                "leave out the version, or name an older one; an environment with another Python has others".into()
            }
            Self::Conflict { .. } => "leave out one of the requirements, or its version".into(),
            Self::Unreachable { .. } => {
                "this is not an error of the code: the network or the proxy of the machine that runs Belljar, or the index \
                 that uv or pip is configured with"
                    .into()
            }
            Self::DiskFull => "this is not an error of the code: free space on the machine that runs Belljar".into(),
            Self::Other { .. } => return None,
        })
    }
}

/// Returns the reason in pip's output, if it is pip's.
fn from_pip(stdout: &str, stderr: &str) -> Option<InstallerFailure> {
    let errors: Vec<&str> = stderr.lines().filter_map(|line| line.strip_prefix("ERROR: ")).collect();
    if let Some(missing) =
        errors.iter().find_map(|line| line.strip_prefix("Could not find a version that satisfies the requirement "))
    {
        let (requirement, versions) = missing.split_once(" (from versions: ")?;
        // A dependency is followed by the package that requires it.
        let requirement = name(requirement.split(" (from ").next().unwrap_or(requirement));
        let versions = versions.trim_end_matches(')');
        if versions == "none" && stderr.contains("Retrying (Retry(") {
            return Some(InstallerFailure::Unreachable { cause: broken_connection(stderr) });
        }
        let ignored = errors.iter().find_map(|line| {
            line.strip_prefix("Ignored the following versions that require a different python version: ")
        });
        if let Some(needed) = ignored.and_then(|ignored| needed_python(ignored, &requirement, versions == "none")) {
            return Some(InstallerFailure::OtherPython { package: requirement, needed });
        }
        if versions == "none" {
            return Some(InstallerFailure::NothingUsable { requirement });
        }
        let available = versions.rsplit(", ").take(MAX_VERSIONS).map(name).collect();
        return Some(InstallerFailure::NoVersion { requirement, available });
    }
    if errors.iter().any(|line| line.starts_with("ResolutionImpossible") || line.starts_with("Cannot install ")) {
        let mut lines = stdout.lines().map(str::trim).skip_while(|line| *line != "The conflict is caused by:").skip(1);
        let causes: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let explanation = if causes.is_empty() { errors[0].to_owned() } else { causes.join("; ") };
        return Some(InstallerFailure::Conflict { explanation: cut(&explanation, MAX_EXPLANATION) });
    }
    (!errors.is_empty()).then(|| InstallerFailure::Other { text: cut(&errors.join("\n"), MAX_EXPLANATION) })
}

/// Returns the Python that releases need which pip ignored, as in `1.0 Requires-Python >=3.12; 1.1 Requires-Python
/// >=3.12`: that of the required release, or of the newest if there is no other.
fn needed_python(ignored: &str, requirement: &str, is_any: bool) -> Option<String> {
    let releases = ignored.split(';').filter_map(|release| release.trim().split_once(" Requires-Python "));
    let pinned = requirement.split_once("==").map(|(_, version)| version);
    let mut releases: Vec<(&str, &str)> = releases.collect();
    releases.retain(|(version, _)| is_any || Some(*version) == pinned);
    releases.last().map(|(_, python)| format!("Python {}", name(python)))
}

/// Returns the error of the last connection that pip retried.
fn broken_connection(stderr: &str) -> String {
    let retry = stderr.lines().rev().find(|line| line.contains("connection broken by")).unwrap_or_default();
    let cause = retry.split_once("connection broken by ").map_or(retry, |(_, cause)| cause);
    let cause = cause.split_once(">: ").map_or(cause, |(_, cause)| cause);
    let cause = cause.split("')").next().unwrap_or(cause);
    cut(cause.trim_matches(['\'', '"']), MAX_EXPLANATION)
}

/// Returns the reason in uv's errors, if it is one that uv is known to give.
fn from_uv(stderr: &str) -> Option<InstallerFailure> {
    let (_, rest) = stderr.split_once("error: ").or_else(|| stderr.split_once("× "))?;
    let causes: Vec<String> = paragraphs(rest.split("\nhint: ").next().unwrap_or(rest));
    let is_network = |text: &String| {
        ["Failed to fetch", "Request failed after", "error sending request", "Failed to download", "Could not connect"]
            .iter()
            .any(|sign| text.starts_with(sign))
    };
    if causes.iter().any(is_network) {
        let cause = causes.last().map_or("", String::as_str);
        return Some(InstallerFailure::Unreachable { cause: cut(cause, MAX_EXPLANATION) });
    }
    if !causes.first()?.starts_with("No solution found") {
        return None;
    }
    let proof = causes.get(1..)?.join(" ");
    let proof = proof.strip_prefix("Because ").unwrap_or(&proof);
    // The requirement of the call, if uv names one.
    let requirement = proof.rsplit_once("you require ").map(|(_, end)| name(end.split(", ").next().unwrap_or(end)));
    let package = |text: &str| requirement.clone().unwrap_or_else(|| name(text));
    if let Some((before, _)) = proof.split_once(" was not found in the ") {
        return Some(InstallerFailure::UnknownPackage { name: name(last_word(before)) });
    }
    if let Some((_, rest)) = proof.split_once(") does not satisfy ") {
        let (needed, rest) = rest.split_once(" and ").unwrap_or((rest, ""));
        let package =
            rest.split_once(" depends on ").map_or_else(|| package(""), |(package, _)| name(last_word(package)));
        let needed = needed.trim_start_matches("all of: ").replace(" Python", " or Python");
        return Some(InstallerFailure::OtherPython { package, needed: cut(&needed, MAX_NAME) });
    }
    let is_about_one =
        !proof.contains(" depends on ") && !requirement.as_ref().is_some_and(|several| several.contains(" and "));
    let without_wheel = ["no usable wheels", "no wheels with a matching", "no wheels are available"];
    if is_about_one && without_wheel.iter().any(|words| proof.contains(words)) {
        return Some(InstallerFailure::NoWheel { requirement: package(proof.split(' ').next().unwrap_or_default()) });
    }
    if is_about_one && let Some(requirement) = &requirement {
        let available = proof.strip_prefix("only ").and_then(|rest| rest.split_once(" is available"));
        let available = available.map(|(versions, _)| vec![name(versions)]).unwrap_or_default();
        return Some(InstallerFailure::NoVersion { requirement: requirement.clone(), available });
    }
    let explanation = proof.trim_end_matches(", we can conclude that your requirements are unsatisfiable.");
    Some(InstallerFailure::Conflict { explanation: cut(explanation, MAX_EXPLANATION) })
}

/// Returns an error and its causes, each on one line. uv marks causes with `cause:` or, in a terminal's way, with lines
/// and arrows.
fn paragraphs(text: &str) -> Vec<String> {
    let mut paragraphs: Vec<String> = Vec::new();
    for line in text.lines() {
        let plain = line.trim_start_matches([' ', '│', '├', '╰', '─', '▶']);
        let marked = plain.strip_prefix("cause: ").or_else(|| plain.strip_prefix("Caused by: "));
        let begins = marked.is_some() || line.contains('▶') || paragraphs.is_empty();
        let plain = marked.unwrap_or(plain).split_whitespace().collect::<Vec<_>>().join(" ");
        match paragraphs.last_mut() {
            Some(last) if !begins => {
                if !plain.is_empty() {
                    last.push(' ');
                    last.push_str(&plain);
                }
            }
            _ => paragraphs.push(plain),
        }
    }
    paragraphs
}

fn last_word(text: &str) -> &str {
    text.rsplit(' ').next().unwrap_or(text)
}

/// Returns the name of a requirement's package.
fn name_of(requirement: &str) -> &str {
    let end = requirement.find(|c: char| !c.is_ascii_alphanumeric() && !"-_.".contains(c));
    &requirement[..end.unwrap_or(requirement.len())]
}

/// Returns a name, requirement or version that the installer wrote, of bounded length.
fn name(text: &str) -> String {
    cut(text.trim(), MAX_NAME)
}

/// Returns the last lines of an error, of bounded length.
fn last_lines(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return "it gave no reason".into();
    }
    cut(&lines[lines.len().saturating_sub(MAX_LINES)..].join("\n"), MAX_EXPLANATION)
}

/// Cuts a text off after this many characters.
fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outputs of pip 23 to 26 and uv 0.5 to 0.12, in Python 3.11.
    const CASES: &[(&str, &str, &str)] = &[
        (
            "",
            "ERROR: Could not find a version that satisfies the requirement reqeusts (from versions: none)\nERROR: No \
             matching distribution found for reqeusts",
            "reqeusts: the package index has no package of this name, or no release of it has a wheel for this Python \
             and machine | did you mean requests?",
        ),
        (
            "",
            "ERROR: Could not find a version that satisfies the requirement numpy<1.20 (from versions: 1.23.2, 1.23.3, \
             2.0.0, 2.4.0rc1, 2.4.0, 2.4.1)\nERROR: No matching distribution found for numpy<1.20",
            "numpy<1.20: no version that can be installed matches; the newest: 2.4.1, 2.4.0, 2.4.0rc1, 2.0.0, 1.23.3 \
             | leave out the version, or name one that exists",
        ),
        (
            "",
            "ERROR: Ignored the following versions that require a different python version: 3.6 Requires-Python \
             !=3.14.1,>=3.11; 3.7 Requires-Python !=3.14.1,>=3.12\nERROR: Could not find a version that satisfies the \
             requirement networkx==3.7 (from versions: 3.5, 3.6)\nERROR: No matching distribution found for networkx==3.7",
            "networkx==3.7 needs another version of Python: Python !=3.14.1,>=3.12 | leave out the version, or name an \
             older one; an environment with another Python has others",
        ),
        (
            "",
            "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError('<HTTPConnection \
             object at 0x7f>: Failed to establish a new connection: [Errno 111] Connection refused')': /simple/a/\nERROR: \
             Could not find a version that satisfies the requirement a (from versions: none)",
            "the package index cannot be reached: Failed to establish a new connection: [Errno 111] Connection refused",
        ),
        (
            "\nThe conflict is caused by:\n    The user requested werkzeug==1.0\n    flask 3.0.0 depends on \
             Werkzeug>=3.0.0\n\nTo fix this you could try to:\n1. loosen\n",
            "ERROR: Cannot install flask==3.0.0 and werkzeug==1.0 because these package versions have conflicting \
             dependencies.\nERROR: ResolutionImpossible: for help visit https://pip.pypa.io/",
            "the requirements conflict: The user requested werkzeug==1.0; flask 3.0.0 depends on Werkzeug>=3.0.0 | leave \
             out one of the requirements, or its version",
        ),
        (
            "",
            "Using Python 3.11.7 environment at: p\nerror: No solution found when resolving dependencies\n  cause: Because \
             belljar-no-such was not found in the package registry and you require belljar-no-such, we can conclude that \
             your requirements are unsatisfiable.",
            "belljar-no-such: the package index has no package of this name | check the name: a package may be named \
             unlike its module. Only wheels can be installed",
        ),
        (
            "",
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because there is no version of numpy==99.0 and you \
             require numpy==99.0,\n      we can conclude that your requirements are unsatisfiable.\n",
            "numpy==99.0: no version that can be installed matches | leave out",
        ),
        (
            "",
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because you require humanize==4.9.0 and \
             humanize==4.8.0, we can conclude that your requirements are\n      unsatisfiable.\n",
            "the requirements conflict: you require humanize==4.9.0 and humanize==4.8.0",
        ),
        (
            "",
            "  × No solution found when resolving dependencies:\n  ╰─▶ Because only numpy<=2.4.6 is available and you require \
             numpy>=99, we can conclude that\n      your requirements are unsatisfiable.\n",
            "numpy>=99: no version that can be installed matches; the newest: numpy<=2.4.6",
        ),
        (
            "",
            "error: No solution found when resolving dependencies\n  cause: Because docopt==0.6.2 has no usable wheels and \
             you require docopt==0.6.2, we can conclude that your requirements are unsatisfiable.\n\nhint: Wheels are \
             required for `docopt` because building from source is disabled for all packages (i.e., with `--no-build`)",
            "docopt==0.6.2: no release that matches has a wheel for this Python and machine, and nothing is built here | \
             leave out the version, or use another package",
        ),
        (
            "",
            "error: No solution found when resolving dependencies\n  cause: Because all of:\n             numpy<=1.9.3\n   \
             numpy>=1.10.4,<=1.19.5\n          have no usable wheels and only the following versions of numpy are \
             available:\n             numpy<=1.9.3\n         And because all of:\n             numpy==1.10.0\n  have no wheels \
             with a matching Python ABI tag (e.g., `cp311`), we can conclude that numpy<=1.19.5 cannot be used.\n         and \
             you require numpy<1.20, we can conclude that your requirements are unsatisfiable.",
            "numpy<1.20: no release that matches has a wheel",
        ),
        (
            "",
            "error: No solution found when resolving dependencies\n  cause: Because the current Python version (3.11.7) does \
             not satisfy all of:\n             Python>=3.12,<3.14.1\n             Python>3.14.1\n         and networkx==3.7 \
             depends on one of:\n             Python>=3.12,<3.14.1\n             Python>3.14.1\n         we can conclude that \
             networkx==3.7 cannot be used.",
            "networkx==3.7 needs another version of Python: Python>=3.12,<3.14.1 or Python>3.14.1",
        ),
        (
            "",
            "error: No solution found when resolving dependencies\n  cause: Because flask==3.0.0 depends on werkzeug>=3.0.0 \
             and you require flask==3.0.0, we can conclude that you require werkzeug>=3.0.0.\n         And because you require \
             werkzeug==1.0, we can conclude that your requirements are unsatisfiable.",
            "the requirements conflict: flask==3.0.0 depends on werkzeug>=3.0.0 and you require flask==3.0.0, we can conclude \
             that you require werkzeug>=3.0.0. And because you require werkzeug==1.0 | leave out one",
        ),
        (
            "",
            "error: Request failed after 1 retry in 1.8s\n  cause: Failed to fetch: http://127.0.0.1:9/simple/cowsay/\n  \
             cause: client error (Connect)\n  cause: Connection refused (os error 111)",
            "the package index cannot be reached: Connection refused (os error 111) | this is not an error of the code",
        ),
        (
            "",
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device",
            "the disk of this",
        ),
        ("", "\n  × something else\n", "the installer failed: × something else"),
        ("", "", "the installer failed: it gave no reason"),
    ];

    #[test]
    fn failures_are_summarised() {
        for (stdout, stderr, expected) in CASES {
            let failure = InstallerFailure::parse(stdout, stderr);
            let advice = failure.advice().map(|advice| format!(" | {advice}")).unwrap_or_default();
            let text = format!("{failure}{advice}");
            assert!(text.starts_with(expected), "{text}\ninstead of\n{expected}");
        }
    }

    #[test]
    fn summaries_are_short_whatever_the_installer_writes() {
        let long = "é1.0, ".repeat(20_000);
        let list = long.replace(", ", "\n    ");
        for (stdout, stderr) in [
            ("", format!("ERROR: Could not find a version that satisfies the requirement a (from versions: {long})")),
            (
                "",
                format!("ERROR: Could not find a version that satisfies the requirement {long} (from versions: none)"),
            ),
            ("", format!("ERROR: {long}")),
            ("", long.clone()),
            ("", format!("error: No solution found\n  cause: Because {long} depends on x and {list}")),
            (
                "",
                format!("error: No solution found\n  cause: Because a) does not satisfy {long} and {list} depends on"),
            ),
            ("", format!("error: Failed to fetch: {long}\n  cause: {long}")),
            (&*format!("The conflict is caused by:\n{list}"), "ERROR: ResolutionImpossible: x".to_owned()),
        ] {
            let failure = InstallerFailure::parse(stdout, &stderr);
            let length = failure.to_string().len() + failure.advice().unwrap_or_default().len();
            assert!(length < 2000, "{length}: {failure}");
        }
    }
}
