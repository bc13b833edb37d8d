//! Translation of uv's errors to [`InstallError`]: unknown package, no wheel, conflict, offline, network.

use std::collections::BTreeSet;
use std::str::FromStr;

use uv_client::{ErrorKind, MetadataFormat, OwnedArchive};
use uv_distribution_filename::{DistFilename, WheelFilename};
use uv_distribution_types::{IndexCapabilities, Name, Node, Resolution as UvResolution};
use uv_errors::Hint;
use uv_normalize::PackageName;
use uv_resolver::{NoSolutionError, ResolveError};

use super::engine::{Engine, error_chain};
use super::resolve::ResolveRequest;
use crate::error::{InstallError, shorten};
use crate::requirement::Requirement;
use crate::suggestions;

/// The maximum number of versions, newest first, and of names in a message.
const MAX_SHOWN: usize = 8;
/// The maximum length of the resolver's proof in a message, in bytes. Longer proofs are about hundreds of versions.
const MAX_PROOF: usize = 800;
/// The maximum number of the resolver's hints in a message, and the maximum length of each in bytes.
const MAX_HINTS: usize = 2;
const MAX_HINT: usize = 250;
/// The maximum length of the causes of a failed request in a message, in bytes.
const MAX_CAUSE: usize = 800;
/// The maximum number of packages of a failed resolution whose availability is checked.
const MAX_EXAMINED: usize = 40;

/// The versions of a package on the indexes, or the reason that they cannot be listed.
pub(super) enum Availability {
    Unknown,
    Offline,
    Failed(InstallError),
    Found(Vec<Version>),
}

/// A version of a package on an index.
pub(super) struct Version {
    pub(super) version: uv_pep440::Version,
    /// The time of the first upload, in milliseconds since 1970. `None` if the index does not give it, if the release
    /// was yanked, or if the settings exclude releases of that time.
    pub(super) uploaded: Option<i64>,
    wheels: Vec<WheelFilename>,
    has_source: bool,
}

/// Converts the error of a failed resolution.
pub(super) async fn install_error(
    engine: &Engine,
    request: &ResolveRequest,
    requirements: &[Requirement],
    error: ResolveError,
) -> InstallError {
    match error {
        ResolveError::NoSolution(error) => no_solution(engine, request, requirements, &error).await,
        ResolveError::Client(error) => client_error(&error),
        ResolveError::Dependencies(error, ..) => Box::pin(install_error(engine, request, requirements, *error)).await,
        ResolveError::DisallowedUrl { name, url } => {
            InstallError::UrlDependency { name: name.to_string(), url: url.to_string() }
        }
        ResolveError::PackageUnavailable(name) => unknown_package(engine, &name),
        other if is_offline(engine, &other) => InstallError::Offline { name: first_names(requirements) },
        other => InstallError::Network { cause: shorten(&plain_line(&error_chain(&other)), MAX_CAUSE) },
    }
}

/// Returns whether fetching a package's metadata failed because the network is not used.
fn is_offline(engine: &Engine, error: &ResolveError) -> bool {
    let error: &uv_distribution::Error = match error {
        ResolveError::Distribution(error) => error,
        ResolveError::Dist(_, _, _, error) => error,
        _ => return false,
    };
    match error {
        uv_distribution::Error::Client(error) => matches!(error.kind(), ErrorKind::Offline(_)),
        uv_distribution::Error::Reqwest(_) => engine.settings.offline,
        _ => false,
    }
}

async fn no_solution(
    engine: &Engine,
    request: &ResolveRequest,
    requirements: &[Requirement],
    error: &NoSolutionError,
) -> InstallError {
    // Requirements of the code itself come first, since they are the most useful to report.
    let direct: BTreeSet<&str> = requirements.iter().map(Requirement::name).collect();
    let proof = plain_line(error.report());
    tracing::debug!(proof, "the requirements cannot be met together");
    let mut newest_without_wheel = None;
    let mut packages: Vec<&PackageName> = error.packages().collect();
    packages.sort_by_key(|name| (!direct.contains(name.as_ref()), (*name).clone()));
    for name in packages.into_iter().take(MAX_EXAMINED) {
        match engine.availability(name).await {
            Availability::Unknown if !may_be_unlisted(engine, request, name) => return unknown_package(engine, name),
            Availability::Offline if !may_be_unlisted(engine, request, name) => {
                return InstallError::Offline { name: name.to_string() };
            }
            Availability::Failed(error) => return error,
            Availability::Found(versions)
                if !may_be_unlisted(engine, request, name)
                    && !versions.iter().any(|version| version.is_compatible(engine)) =>
            {
                let required_by = (!direct.contains(name.as_ref())).then(|| dependent_on(name, &proof)).flatten();
                return no_wheel(engine, name, required_by, &versions);
            }
            // Old versions have a wheel, but do not fit, or are too old. A long proof lists all of them and the
            // reasons.
            Availability::Found(versions)
                if (proof.len() > MAX_PROOF || request.is_recent_only)
                    && newest_without_wheel.is_none()
                    && !may_be_unlisted(engine, request, name)
                    && !newest(&versions).is_some_and(|version| version.is_compatible(engine)) =>
            {
                let required_by = (!direct.contains(name.as_ref())).then(|| dependent_on(name, &proof)).flatten();
                newest_without_wheel = Some(no_wheel(engine, name, required_by, &versions));
            }
            Availability::Found(_) | Availability::Unknown | Availability::Offline => {}
        }
    }
    if let Some(error) = newest_without_wheel {
        return error;
    }
    let hints = error.hints().into_owned().into_iter().map(|hint| plain_line(&hint));
    let hints = hints.filter(|hint| !mentions_uv_cli(hint)).take(MAX_HINTS).map(|hint| shorten(&hint, MAX_HINT));
    InstallError::Conflict { explanation: shorten(&proof, MAX_PROOF), hints: hints.collect() }
}

/// Returns the newest version of a sorted list, a stable one if there is any.
fn newest(versions: &[Version]) -> Option<&Version> {
    versions.iter().find(|version| !version.version.any_prerelease()).or_else(|| versions.first())
}

/// Returns whether a package may have wheels for this platform that no index lists.
fn may_be_unlisted(engine: &Engine, request: &ResolveRequest, name: &PackageName) -> bool {
    let locked = engine.lock.as_ref().is_some_and(|lock| lock.wheel(name.as_ref()).is_some());
    if locked && !request.without_pyodide {
        return true;
    }
    let is_compatible = |file: std::fs::DirEntry| {
        let wheel = file.file_name().to_str().and_then(|file| WheelFilename::from_str(file).ok());
        wheel.is_some_and(|wheel| wheel.name == *name && wheel.is_compatible(&engine.tags))
    };
    engine.settings.find_links.iter().any(|location| match std::fs::read_dir(location) {
        Ok(files) => files.flatten().any(is_compatible),
        // The location is a page of links, which may list any package.
        Err(_) => true,
    })
}

impl Engine {
    /// Returns the versions of a package on the indexes, newest first.
    pub(super) async fn availability(&self, name: &PackageName) -> Availability {
        let found = self.client.simple_detail(name, None, &IndexCapabilities::default(), &self.downloads).await;
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                return match error.kind() {
                    ErrorKind::RemotePackageNotFound(_)
                    | ErrorKind::LocalPackageNotFound(_)
                    | ErrorKind::NoIndex(_) => Availability::Unknown,
                    ErrorKind::Offline(_) => Availability::Offline,
                    _ => Availability::Failed(client_error(&error)),
                };
            }
        };
        let excluded_from = self.exclude_newer.global.as_ref().map(|value| value.timestamp().as_millisecond());
        let mut versions: Vec<Version> = Vec::new();
        for (_, metadata) in found {
            match metadata {
                MetadataFormat::Simple(archive) => {
                    for datum in OwnedArchive::deserialize(&archive) {
                        let mut version =
                            Version { version: datum.version, uploaded: None, wheels: Vec::new(), has_source: false };
                        for (filename, file) in datum.files.all(name) {
                            match filename {
                                DistFilename::WheelFilename(wheel) => version.wheels.push(wheel),
                                DistFilename::SourceDistFilename(_) => version.has_source = true,
                            }
                            let is_excluded = |time: &i64| excluded_from.is_some_and(|excluded| *time >= excluded);
                            let time = file.upload_time_utc_ms.filter(|time| !is_excluded(time));
                            if let (Some(time), None) = (time, &file.yanked) {
                                version.uploaded = Some(version.uploaded.map_or(time, |first| first.min(time)));
                            }
                        }
                        versions.push(version);
                    }
                }
                MetadataFormat::Flat(entries) => {
                    for entry in entries {
                        if let (DistFilename::WheelFilename(wheel), ..) = entry.into_parts() {
                            let version = wheel.version.clone();
                            versions.push(Version { version, uploaded: None, wheels: vec![wheel], has_source: false });
                        }
                    }
                }
            }
        }
        versions.sort_by(|one, other| other.version.cmp(&one.version));
        Availability::Found(versions)
    }
}

impl Version {
    fn is_compatible(&self, engine: &Engine) -> bool {
        self.wheels.iter().any(|wheel| wheel.is_compatible(&engine.tags))
    }
}

fn unknown_package(engine: &Engine, name: &PackageName) -> InstallError {
    InstallError::UnknownPackage {
        name: name.to_string(),
        suggestions: suggestions::for_name(name.as_ref(), engine.lock.as_deref()),
    }
}

fn no_wheel(engine: &Engine, name: &PackageName, required_by: Option<String>, versions: &[Version]) -> InstallError {
    let stable: Vec<_> = versions.iter().filter(|version| !version.version.any_prerelease()).collect();
    let shown = if stable.is_empty() { versions.iter().collect() } else { stable };
    let list: Vec<_> = shown.iter().take(MAX_SHOWN).map(|version| version.version.to_string()).collect();
    let more = if shown.len() > list.len() { format!(", … ({} in all)", shown.len()) } else { String::new() };
    let mut detail = match list.is_empty() {
        true => "the index lists no version of it".to_owned(),
        false => format!("available versions: {}{more}", list.join(", ")),
    };
    let mut for_linux = false;
    if let Some(newest) = shown.first() {
        for_linux = platforms(&newest.wheels).iter().any(|platform| platform == LINUX);
        detail.push_str(&format!("; {} has ", newest.version));
        detail.push_str(&match (newest.wheels.is_empty(), newest.has_source) {
            (false, _) => format!("wheels for {} only", platforms(&newest.wheels).join(", ")),
            (true, true) => "a source distribution only, and building from source is not supported".to_owned(),
            (true, false) => "no files".to_owned(),
        });
    }
    let pyodide = engine.lock.as_ref().and_then(|lock| lock.wheel(name.as_ref()));
    if let Some(entry) = pyodide {
        let version = &entry.version;
        detail.push_str(&format!("; Pyodide has a wheel of version {version}, but its server is unreachable"));
    }
    InstallError::NoWheel {
        name: name.to_string(),
        platform: format!("CPython {}, {}", engine.platform.python_full_version(), engine.platform.tag()),
        required_by,
        detail,
        in_pyodide: pyodide.is_some(),
        for_linux,
    }
}

/// The name of Linux among [`platforms`].
const LINUX: &str = "Linux";

/// Returns the names of the wheels' platforms, without duplicates.
fn platforms(wheels: &[WheelFilename]) -> Vec<String> {
    let tags = wheels.iter().flat_map(|wheel| wheel.platform_tags()).map(ToString::to_string);
    let words: BTreeSet<String> = tags
        .map(|tag| match tag.split('_').next().unwrap_or_default() {
            "manylinux" | "manylinux1" | "manylinux2010" | "manylinux2014" | "musllinux" | "linux" => LINUX.to_owned(),
            "macosx" => "macOS".to_owned(),
            "win" | "win32" => "Windows".to_owned(),
            "any" => "other Python versions".to_owned(),
            "android" => "Android".to_owned(),
            "ios" => "iOS".to_owned(),
            _ => tag,
        })
        .collect();
    words.into_iter().collect()
}

fn client_error(error: &uv_client::Error) -> InstallError {
    match error.kind() {
        ErrorKind::Offline(url) => InstallError::Offline { name: url.clone() },
        _ => InstallError::Network { cause: shorten(&plain_line(&error_chain(error)), MAX_CAUSE) },
    }
}

/// Returns the package that requires another one in a completed resolution, or `None` if the code itself requires it.
pub(super) fn required_by(resolution: &UvResolution, name: &str) -> Option<String> {
    let graph = resolution.graph();
    let name_of = |node: &Node| match node {
        Node::Dist { dist, .. } => Some(dist.name().to_string()),
        Node::Root => None,
    };
    let target = graph.node_indices().find(|index| name_of(&graph[*index]).as_deref() == Some(name))?;
    let mut parents = graph.raw_edges().iter().filter(|edge| edge.target() == target).map(|edge| edge.source());
    parents.find_map(|parent| name_of(&graph[parent]))
}

/// Returns the package that requires another one according to uv's proof: `… jinja2>=3 depends on markupsafe>=2.0 …`.
fn dependent_on(name: &PackageName, report: &str) -> Option<String> {
    let (before, _) =
        [" depends on ", " depend on "].iter().find_map(|verb| report.split_once(&format!("{verb}{name}")))?;
    let word = before.rsplit(' ').next()?;
    let end = word.find(['=', '<', '>', '!', '~', '[']).unwrap_or(word.len());
    PackageName::from_str(&word[..end]).ok().map(|name| name.to_string())
}

fn first_names(requirements: &[Requirement]) -> String {
    let names: Vec<_> = requirements.iter().take(MAX_SHOWN).map(Requirement::name).collect();
    names.join(", ")
}

/// Returns uv's text on one line and without colour codes.
fn plain_line(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether a hint refers to uv's command line, which does not apply here.
fn mentions_uv_cli(hint: &str) -> bool {
    hint.contains("--") || hint.contains("`uv ") || hint.contains("pyproject.toml")
}
