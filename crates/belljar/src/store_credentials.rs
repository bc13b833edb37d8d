//! The credentials of a store: variables of the environment, and for S3 the access key of the profile that
//! `AWS_PROFILE` names. The library for object storage does not read profiles.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use belljar_sessions::{StoreKind, StoreUrl, Variables};

use crate::command_error::CommandError;

/// The names and values of variables, or of a profile's settings.
type Pairs = Vec<(String, String)>;

/// The settings of a profile that are its access key, and the variables with the same meaning.
const ACCESS_KEY: [(&str, &str); 2] =
    [("aws_access_key_id", "AWS_ACCESS_KEY_ID"), ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY")];
/// Those that a profile may have in addition. A variable that is set has precedence.
const OTHERS: [(&str, &str); 3] =
    [("aws_session_token", "AWS_SESSION_TOKEN"), ("region", "AWS_REGION"), ("endpoint_url", "AWS_ENDPOINT_URL")];

/// Returns the variables from which a store and a coordinator take their credentials.
///
/// # Errors
/// Fails if the profile that `AWS_PROFILE` names cannot be read, or has no access key.
pub(crate) fn variables(store: &StoreUrl) -> Result<Variables, CommandError> {
    // The values of other variables may not be Unicode.
    let unicode =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut variables: Pairs = unicode.collect();
    if store.kind() == StoreKind::S3 {
        let profile = profile_variables(&variables, std::env::home_dir().as_deref())?;
        variables.extend(profile);
    }
    Ok(variables.into_iter().collect())
}

/// Returns the variables that are not set and that the profile has. An access key in the environment has precedence
/// over a profile.
fn profile_variables(variables: &[(String, String)], home: Option<&Path>) -> Result<Pairs, CommandError> {
    let get = |name: &str| find(variables, name).filter(|value| !value.is_empty());
    let Some(profile) = get("AWS_PROFILE").filter(|_| get("AWS_ACCESS_KEY_ID").is_none()) else {
        return Ok(Vec::new());
    };
    let path = |variable: &str, name: &str| match get(variable) {
        Some(path) => PathBuf::from(path),
        None => home.unwrap_or(Path::new("/")).join(".aws").join(name),
    };
    let paths = [path("AWS_SHARED_CREDENTIALS_FILE", "credentials"), path("AWS_CONFIG_FILE", "config")];
    // The two files name sections differently.
    let in_config = if profile == "default" { profile.to_owned() } else { format!("profile {profile}") };
    let sections = [read_section(&paths[0], profile)?, read_section(&paths[1], &in_config)?];
    if sections.iter().all(Option::is_none) {
        let [credentials, config] = paths.map(|path| path.display().to_string());
        return Err(CommandError::new(format!("AWS_PROFILE: {credentials} and {config} have no profile {profile:?}")));
    }
    let settings: Pairs = sections.into_iter().flatten().flatten().collect();
    let mut added = Vec::new();
    for (setting, variable) in ACCESS_KEY {
        let Some(value) = find(&settings, setting) else {
            let hint = format!("eval \"$(aws configure export-credentials --profile {profile} --format env)\"");
            let error = CommandError::new(format!("AWS_PROFILE: the profile {profile:?} has no {setting}"));
            return Err(error.with_hint(format!("set the variables of its credentials: {hint}")));
        };
        added.push((variable.to_owned(), value.to_owned()));
    }
    for (setting, variable) in OTHERS {
        let is_set = get(variable).is_some() || (setting == "region" && get("AWS_DEFAULT_REGION").is_some());
        if let Some(value) = find(&settings, setting).filter(|_| !is_set) {
            added.push((variable.to_owned(), value.to_owned()));
        }
    }
    Ok(added)
}

fn find<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

/// Reads a section of a file. Returns `None` if there is no such file or section.
fn read_section(path: &Path, section: &str) -> Result<Option<Pairs>, CommandError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(parse_section(&text, section)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(CommandError::new(format!("AWS_PROFILE: failed to read {}: {error}", path.display()))),
    }
}

/// Returns the settings of a section: lines `NAME = VALUE` after `[SECTION]`. Indented lines belong to a setting with
/// settings of its own.
fn parse_section(text: &str, section: &str) -> Option<Pairs> {
    let mut lines = text.lines().skip_while(|line| section_name(line).is_none_or(|name| name != section));
    lines.next()?;
    let settings = lines.take_while(|line| section_name(line).is_none()).filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        let is_plain = !name.starts_with([' ', '\t', '#', ';']);
        is_plain.then(|| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    });
    Some(settings.collect())
}

/// Returns the name of the section that a line begins.
fn section_name(line: &str) -> Option<String> {
    let (name, _) = line.strip_prefix('[')?.split_once(']')?;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key = B==\n\n[team]\n\
                               aws_access_key_id=C\naws_secret_access_key=D\naws_session_token=E\n";
    const CONFIG: &str = "[default]\nregion = eu-central-1\ns3 =\n  region = nested\n[profile  team]\nRegion = us-east-1\n\
                          [profile role]\nrole_arn = x\n";

    /// Returns the variables that a profile adds to these.
    fn added(set: &[(&str, &str)]) -> Result<Pairs, CommandError> {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/credentials"), CREDENTIALS).unwrap();
        std::fs::write(home.path().join(".aws/config"), CONFIG).unwrap();
        let set: Pairs = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        profile_variables(&set, Some(home.path()))
    }

    fn values(pairs: &[(String, String)]) -> Vec<&str> {
        pairs.iter().map(|(_, value)| value.as_str()).collect()
    }

    #[test]
    fn profile_has_a_key_and_a_region() {
        assert_eq!(values(&added(&[("AWS_PROFILE", "default")]).unwrap()), ["A", "B==", "eu-central-1"]);
        let team = added(&[("AWS_PROFILE", "team"), ("AWS_ACCESS_KEY_ID", "")]).unwrap();
        assert_eq!(values(&team), ["C", "D", "E", "us-east-1"]);
    }

    #[test]
    fn variables_have_precedence() {
        assert!(added(&[]).unwrap().is_empty());
        assert!(added(&[("AWS_PROFILE", "team"), ("AWS_ACCESS_KEY_ID", "X")]).unwrap().is_empty());
        let team = added(&[("AWS_PROFILE", "team"), ("AWS_DEFAULT_REGION", "x")]).unwrap();
        assert_eq!(values(&team), ["C", "D", "E"]);
    }

    #[test]
    fn profile_without_a_key_is_refused() {
        let error = added(&[("AWS_PROFILE", "role")]).unwrap_err().to_string();
        assert!(error.contains("\"role\" has no aws_access_key_id") && error.contains("export-credentials"), "{error}");
        let error = added(&[("AWS_PROFILE", "absent")]).unwrap_err().to_string();
        assert!(error.contains("have no profile \"absent\""), "{error}");
    }
}
