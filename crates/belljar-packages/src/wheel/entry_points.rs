//! `entry_points.txt`: the commands of a package, which become scripts in `bin/`.
//!
//! Format: <https://packaging.python.org/specifications/entry-points/>.

/// The first line of scripts, which finds the guest's interpreter on `PATH`.
pub(super) const SHEBANG: &str = "#!/usr/bin/env python3\n";

/// Returns the names and texts of scripts for the console and GUI entry points. Malformed entry points are skipped.
pub(super) fn scripts(entry_points: &str) -> Vec<(String, String)> {
    let mut section = "";
    let mut scripts = Vec::new();
    for line in entry_points.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim();
            continue;
        }
        if !matches!(section, "console_scripts" | "gui_scripts") {
            continue;
        }
        let script = line.split_once('=').and_then(|(name, target)| script(name.trim(), target.trim()));
        match script {
            Some(script) => scripts.push(script),
            None => tracing::debug!(line, "skipping a malformed entry point"),
        }
    }
    scripts
}

fn script(name: &str, target: &str) -> Option<(String, String)> {
    // The format is `module:function [extra]`.
    let target = target.split('[').next()?.trim();
    let (module, function) = target.split_once(':')?;
    let (module, function) = (module.trim(), function.trim());
    if !is_command(name) || !is_dotted(module) || !is_dotted(function) {
        return None;
    }
    let imported = function.split('.').next()?;
    let text = format!(
        "{SHEBANG}import sys\n\nfrom {module} import {imported}\n\nif __name__ == \"__main__\":\n    sys.exit({function}())\n"
    );
    Some((name.to_owned(), text))
}

/// Returns whether a name is a plain file name that shells parse as one word.
pub(super) fn is_command(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 100
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+'))
}

fn is_dotted(name: &str) -> bool {
    name.split('.').all(|part| {
        !part.is_empty()
            && !part.starts_with(|first: char| first.is_ascii_digit())
            && part.chars().all(|character| character == '_' || character.is_alphanumeric())
    })
}

#[cfg(test)]
mod tests {
    use super::scripts;

    #[test]
    fn only_commands_become_scripts() {
        let found = scripts(
            "[console_scripts]\npygmentize = pygments.cmdline:main\n; comment\nx=a.b:C.run [extra]\n\n[pytest11]\np = q:r\n",
        );
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["pygmentize", "x"]);
        assert!(found[0].1.contains("from pygments.cmdline import main\n"), "{}", found[0].1);
        assert!(
            found[1].1.contains("from a.b import C\n") && found[1].1.contains("sys.exit(C.run())"),
            "{}",
            found[1].1
        );
    }

    #[test]
    fn malformed_names_and_targets_are_skipped() {
        for line in
            ["../evil = a:b", "x/y = a:b", "x = os;import evil:main", "x = a", "x = a:b()", " = a:b", "-x = a:b"]
        {
            assert!(scripts(&format!("[console_scripts]\n{line}\n")).is_empty(), "{line}");
        }
    }
}
