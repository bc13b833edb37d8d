//! Errors of resolving that stay the same until an index changes, in a form that can be stored.

use serde::{Deserialize, Serialize};

use crate::error::InstallError;
use crate::policy::PolicyViolation;

/// An [`InstallError`] that depends on nothing but the request, the settings and the content of the indexes: resolving
/// again would give the same error. Failures of the network and of this machine are not among them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Refusal {
    Denied {
        name: String,
        violation: PolicyViolation,
        required_by: Option<String>,
    },
    UrlDependency {
        name: String,
        url: String,
    },
    UnknownPackage {
        name: String,
        suggestions: Vec<String>,
    },
    NoWheel {
        name: String,
        platform: String,
        required_by: Option<String>,
        detail: String,
        in_pyodide: bool,
        for_linux: bool,
    },
    OldRelease {
        name: String,
        version: String,
        year: i64,
        newest: String,
        reason: Box<Refusal>,
    },
    Conflict {
        explanation: String,
        hints: Vec<String>,
    },
}

impl Refusal {
    /// Returns the refusal that an error is, or `None` for other errors.
    pub(crate) fn from_error(error: &InstallError) -> Option<Self> {
        Some(match error {
            InstallError::Denied { name, violation, required_by } => {
                Self::Denied { name: name.clone(), violation: violation.clone(), required_by: required_by.clone() }
            }
            InstallError::UrlDependency { name, url } => Self::UrlDependency { name: name.clone(), url: url.clone() },
            InstallError::UnknownPackage { name, suggestions } => {
                Self::UnknownPackage { name: name.clone(), suggestions: suggestions.clone() }
            }
            InstallError::NoWheel { name, platform, required_by, detail, in_pyodide, for_linux } => Self::NoWheel {
                name: name.clone(),
                platform: platform.clone(),
                required_by: required_by.clone(),
                detail: detail.clone(),
                in_pyodide: *in_pyodide,
                for_linux: *for_linux,
            },
            InstallError::OldRelease { name, version, year, newest, reason } => Self::OldRelease {
                name: name.clone(),
                version: version.clone(),
                year: *year,
                newest: newest.clone(),
                reason: Box::new(Self::from_error(reason)?),
            },
            InstallError::Conflict { explanation, hints } => {
                Self::Conflict { explanation: explanation.clone(), hints: hints.clone() }
            }
            _ => return None,
        })
    }
}

impl From<Refusal> for InstallError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Denied { name, violation, required_by } => Self::Denied { name, violation, required_by },
            Refusal::UrlDependency { name, url } => Self::UrlDependency { name, url },
            Refusal::UnknownPackage { name, suggestions } => Self::UnknownPackage { name, suggestions },
            Refusal::NoWheel { name, platform, required_by, detail, in_pyodide, for_linux } => {
                Self::NoWheel { name, platform, required_by, detail, in_pyodide, for_linux }
            }
            Refusal::OldRelease { name, version, year, newest, reason } => {
                Self::OldRelease { name, version, year, newest, reason: Box::new((*reason).into()) }
            }
            Refusal::Conflict { explanation, hints } => Self::Conflict { explanation, hints },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Refusal;
    use crate::error::{GeneralHint, InstallError};

    fn no_wheel() -> InstallError {
        InstallError::NoWheel {
            name: "numpy".into(),
            platform: "Python 3.14".into(),
            required_by: Some("pandas".into()),
            detail: "2.4.3".into(),
            in_pyodide: false,
            for_linux: true,
        }
    }

    fn old_release(reason: InstallError) -> InstallError {
        let name = "pandas".to_owned();
        let (version, newest) = ("1.0".to_owned(), "3.0".to_owned());
        InstallError::OldRelease { name, version, year: 2020, newest, reason: Box::new(reason) }
    }

    #[test]
    fn stored_refusal_is_the_same_error() {
        for error in [
            no_wheel(),
            old_release(no_wheel()),
            InstallError::UnknownPackage { name: "a".into(), suggestions: vec!["b".into()] },
            InstallError::Conflict { explanation: "a>1 and a<1".into(), hints: vec!["x".into()] },
        ] {
            let bytes = serde_json::to_vec(&Refusal::from_error(&error).unwrap()).unwrap();
            let read = InstallError::from(serde_json::from_slice::<Refusal>(&bytes).unwrap());
            assert_eq!(read.with_general_hint(), error.with_general_hint());
        }
    }

    #[test]
    fn failures_of_the_network_are_not_refusals() {
        let network = || InstallError::Network { cause: "connection reset".into() };
        assert_eq!(Refusal::from_error(&network()), None);
        assert_eq!(Refusal::from_error(&old_release(network())), None);
        assert_eq!(Refusal::from_error(&InstallError::Offline { name: "a".into() }), None);
    }
}
