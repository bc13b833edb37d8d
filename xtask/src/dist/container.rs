//! The build context of a container image that contains the program of the release.
//!
//! Its Dockerfile is the last stage of the one in the workspace, which builds the program from the sources: both images
//! have the same user, cache and health check.

use super::archive::Entry;
use super::release::Release;
use super::{LICENSES, read};

/// The instruction that copies the program from the stage before, and that which takes it from the context.
const FROM_STAGE: &str = "COPY --from=build /usr/local/bin/belljar /usr/local/bin/belljar";
const FROM_CONTEXT: &str = "COPY --chmod=0755 belljar /usr/local/bin/belljar";
const HEADER: &str = "\
# Belljar in a container, with the program of a release. In this folder:
#
#   docker build --tag belljar .
#
# docs/operations.md in the sources describes its use.
";

/// Returns the files of the context.
///
/// # Errors
///
/// Fails if a file cannot be read, or the Dockerfile of the workspace has another form.
pub(super) fn entries(release: &Release, program: &[u8]) -> Result<Vec<Entry>, String> {
    let path = release.root.join("Dockerfile");
    let dockerfile = String::from_utf8(read(&path)?).map_err(|_| "the Dockerfile is not UTF-8")?;
    let mut entries = vec![Entry::file("Dockerfile", last_stage(&dockerfile)?), Entry::program("belljar", program)];
    for name in LICENSES {
        entries.push(Entry::file(name, read(&release.root.join(name))?));
    }
    Ok(entries)
}

/// Returns the last stage of a Dockerfile, with the program from the context.
fn last_stage(dockerfile: &str) -> Result<String, String> {
    let start = dockerfile.rfind("\nFROM ").ok_or("the Dockerfile has no stage")?;
    let stage = &dockerfile[start + 1..];
    if !stage.contains(FROM_STAGE) || stage.matches("--from=").count() != 1 {
        return Err(format!("the last stage of the Dockerfile should copy once, by `{FROM_STAGE}`"));
    }
    Ok(format!("{HEADER}\n{}", stage.replace(FROM_STAGE, FROM_CONTEXT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_stage_takes_the_program_from_the_context() {
        let dockerfile = std::fs::read_to_string(crate::workspace::workspace().unwrap().join("Dockerfile")).unwrap();
        let stage = last_stage(&dockerfile).unwrap();
        assert_eq!(stage.matches("\nFROM ").count(), 1, "{stage}");
        assert!(stage.contains("\nFROM debian:") && stage.contains(FROM_CONTEXT), "{stage}");
        assert!(!stage.contains("--from="), "{stage}");
        assert!(stage.contains("\nUSER 10001:10001\n") && stage.contains("\nENTRYPOINT "), "{stage}");
        assert!(last_stage(&dockerfile.replace("--from=build", "--from=other")).is_err());
        assert!(last_stage("# no instructions\n").is_err());
    }
}
