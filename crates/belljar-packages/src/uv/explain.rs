//! uv's failures in words that help: unknown name, no wheel, conflict, offline, network.

use std::collections::BTreeSet;
use std::str::FromStr;

use uv_client::{ErrorKind, MetadataFormat, OwnedArchive};
use uv_distribution_filename::{DistFilename, WheelFilename};
use uv_distribution_types::{IndexCapabilities, Name, Node, Resolution as UvResolution};
use uv_errors::Hint;
use uv_normalize::PackageName;
use uv_resolver::{NoSolutionError, ResolveError};

use super::engine::{Engine, chain};
use super::resolve::Demand;
use crate::error::InstallError;
use crate::requirement::Requirement;
use crate::suggestions;

/// Versions that are listed in a message, newest first.
const VERSIONS_SHOWN: usize = 8;
/// Packages of a failed resolution that are looked at more closely.
const EXAMINED: usize = 40;

/// What the indexes have of a package.
enum Availability {
    Unknown,
    Offline,
    Failed(InstallError),
    Found(Vec<Version>),
}

/// One version of a package on an index.
struct Version {
    version: uv_pep440::Version,
    wheels: Vec<WheelFilename>,
    has_source: bool,
}

/// Turns a failed resolution into an error of ours.
pub(super) async fn failure(
    engine: &Engine,
    demand: &Demand,
    requirements: &[Requirement],
    error: ResolveError,
) -> InstallError {
    match error {
        ResolveError::NoSolution(error) => no_solution(engine, demand, requirements, &error).await,
        ResolveError::Client(error) => client(&error),
        ResolveError::Dependencies(error, ..) => Box::pin(failure(engine, demand, requirements, *error)).await,
        ResolveError::DisallowedUrl { name, url } => InstallError::Refused {
            name: name.to_string(),
            rule: format!("a package asks for it by address ({url}), and packages come from the configured index only"),
            required_by: None,
        },
        ResolveError::PackageUnavailable(name) => unknown(engine, &name),
        other => {
            let cause = plain(&chain(&other));
            match cause.contains("Network connectivity is disabled") {
                true => InstallError::Offline { what: first_name(requirements) },
                false => InstallError::Network { cause },
            }
        }
    }
}

async fn no_solution(
    engine: &Engine,
    demand: &Demand,
    requirements: &[Requirement],
    error: &NoSolutionError,
) -> InstallError {
    // Those that the code asks for come first: their trouble is the one to tell.
    let asked: BTreeSet<&str> = requirements.iter().map(Requirement::name).collect();
    let mut blamed: Vec<&PackageName> = error.packages().collect();
    blamed.sort_by_key(|name| (!asked.contains(name.as_ref()), (*name).clone()));
    for name in blamed.into_iter().take(EXAMINED) {
        match availability(engine, name).await {
            Availability::Unknown if !is_elsewhere(engine, demand, name) => return unknown(engine, name),
            Availability::Offline if !is_elsewhere(engine, demand, name) => {
                return InstallError::Offline { what: name.to_string() };
            }
            Availability::Failed(error) => return error,
            Availability::Found(versions)
                if !is_elsewhere(engine, demand, name) && !versions.iter().any(|v| v.fits(engine)) =>
            {
                let required_by = match asked.contains(name.as_ref()) {
                    true => None,
                    false => dependent_on(name, &plain(error.report())),
                };
                return no_wheel(engine, name, required_by, &versions);
            }
            Availability::Found(_) | Availability::Unknown | Availability::Offline => {}
        }
    }
    let hints = error.hints().into_owned().into_iter().map(|hint| plain(&hint)).filter(|hint| !speaks_of_uv(hint));
    InstallError::Conflict { explanation: plain(error.report()), hints: hints.collect() }
}

/// Whether there may be wheels of a package for this platform that no index lists.
fn is_elsewhere(engine: &Engine, demand: &Demand, name: &PackageName) -> bool {
    let locked = engine.lock.as_ref().is_some_and(|lock| lock.wheel(name.as_ref()).is_some());
    if locked && !demand.without_pyodide {
        return true;
    }
    let fits = |file: std::fs::DirEntry| {
        let wheel = file.file_name().to_str().and_then(|file| WheelFilename::from_str(file).ok());
        wheel.is_some_and(|wheel| wheel.name == *name && wheel.is_compatible(&engine.tags))
    };
    engine.settings.find_links.iter().any(|place| match std::fs::read_dir(place) {
        Ok(files) => files.flatten().any(fits),
        // A page of links, which may list anything.
        Err(_) => true,
    })
}

async fn availability(engine: &Engine, name: &PackageName) -> Availability {
    let found = engine.client.simple_detail(name, None, &IndexCapabilities::default(), &engine.downloads).await;
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            return match error.kind() {
                ErrorKind::RemotePackageNotFound(_) | ErrorKind::LocalPackageNotFound(_) | ErrorKind::NoIndex(_) => {
                    Availability::Unknown
                }
                ErrorKind::Offline(_) => Availability::Offline,
                _ => Availability::Failed(client(&error)),
            };
        }
    };
    let mut versions: Vec<Version> = Vec::new();
    for (_, metadata) in found {
        match metadata {
            MetadataFormat::Simple(archive) => {
                for datum in OwnedArchive::deserialize(&archive).iter() {
                    let names = datum.files.wheels.iter();
                    let wheels = names.filter_map(|file| WheelFilename::from_str(file.filename()).ok()).collect();
                    let has_source = !datum.files.source_dists.is_empty();
                    versions.push(Version { version: datum.version.clone(), wheels, has_source });
                }
            }
            MetadataFormat::Flat(entries) => {
                for entry in entries {
                    if let (DistFilename::WheelFilename(wheel), ..) = entry.into_parts() {
                        let version = wheel.version.clone();
                        versions.push(Version { version, wheels: vec![wheel], has_source: false });
                    }
                }
            }
        }
    }
    versions.sort_by(|one, other| other.version.cmp(&one.version));
    Availability::Found(versions)
}

impl Version {
    fn fits(&self, engine: &Engine) -> bool {
        self.wheels.iter().any(|wheel| wheel.is_compatible(&engine.tags))
    }
}

fn unknown(engine: &Engine, name: &PackageName) -> InstallError {
    InstallError::Unknown {
        name: name.to_string(),
        suggestions: suggestions::for_name(name.as_ref(), engine.lock.as_deref()),
    }
}

fn no_wheel(engine: &Engine, name: &PackageName, required_by: Option<String>, versions: &[Version]) -> InstallError {
    let stable: Vec<_> = versions.iter().filter(|version| !version.version.any_prerelease()).collect();
    let shown = if stable.is_empty() { versions.iter().collect() } else { stable };
    let list: Vec<_> = shown.iter().take(VERSIONS_SHOWN).map(|version| version.version.to_string()).collect();
    let more = if shown.len() > list.len() { format!(", … ({} in all)", shown.len()) } else { String::new() };
    let mut detail = match list.is_empty() {
        true => "the index lists no version of it".to_owned(),
        false => format!("available versions: {}{more}", list.join(", ")),
    };
    if let Some(newest) = shown.first() {
        detail.push_str(&format!("; {} has ", newest.version));
        detail.push_str(&match (newest.wheels.is_empty(), newest.has_source) {
            (false, _) => format!("wheels for {} only", platforms(&newest.wheels).join(", ")),
            (true, true) => "a source distribution only, and nothing is built from source here".to_owned(),
            (true, false) => "no files".to_owned(),
        });
    }
    let pyodide = engine.lock.as_ref().and_then(|lock| lock.wheel(name.as_ref()));
    let hint = match pyodide {
        Some(entry) => {
            format!("Pyodide has a wheel of version {}, but its server cannot be reached from here", entry.version)
        }
        None => "use another package that is pure Python, or the standard library".to_owned(),
    };
    InstallError::NoWheel {
        name: name.to_string(),
        platform: format!("CPython {}, {}", engine.platform.python_full_version(), engine.platform.tag()),
        required_by,
        detail,
        hint,
    }
}

/// The platforms that wheels are for, in words, without repetition.
fn platforms(wheels: &[WheelFilename]) -> Vec<String> {
    let tags = wheels.iter().flat_map(|wheel| wheel.platform_tags()).map(ToString::to_string);
    let words: BTreeSet<String> = tags
        .map(|tag| match tag.split('_').next().unwrap_or_default() {
            "manylinux" | "manylinux1" | "manylinux2010" | "manylinux2014" | "musllinux" | "linux" => {
                "Linux".to_owned()
            }
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

fn client(error: &uv_client::Error) -> InstallError {
    match error.kind() {
        ErrorKind::Offline(what) => InstallError::Offline { what: what.clone() },
        _ => InstallError::Network { cause: plain(&chain(error)) },
    }
}

/// The package that asks for another in a finished resolution. `None`: the code itself does.
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

/// The package that asks for another, as uv's proof tells: `… jinja2>=3 depends on markupsafe>=2.0 …`.
fn dependent_on(name: &PackageName, report: &str) -> Option<String> {
    let (before, _) =
        [" depends on ", " depend on "].iter().find_map(|verb| report.split_once(&format!("{verb}{name}")))?;
    let word = before.rsplit(' ').next()?;
    let end = word.find(['=', '<', '>', '!', '~', '[']).unwrap_or(word.len());
    PackageName::from_str(&word[..end]).ok().map(|name| name.to_string())
}

fn first_name(requirements: &[Requirement]) -> String {
    let names: Vec<_> = requirements.iter().take(VERSIONS_SHOWN).map(Requirement::name).collect();
    names.join(", ")
}

/// uv colours its texts for terminals, and breaks them into lines.
fn plain(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Hints that name options of uv's command line help nobody here.
fn speaks_of_uv(hint: &str) -> bool {
    hint.contains("--") || hint.contains("`uv ") || hint.contains("pyproject.toml")
}
