//! What a call's code needs, put into its kernel before it runs: what its PEP 723 block or the call says, else what its
//! imports tell and the environment does not have.

use std::collections::BTreeMap;

use belljar_core::PythonError;
use belljar_core::kernel::Kernel;
use belljar_packages::Requirement;
use belljar_packages::needs::{Inferred, Needs};
use rmcp::model::LoggingLevel;
use serde::Deserialize;

use super::aside;
use crate::listener::Listener;

/// The body of a function of `pairs`, packages and modules of theirs: which of them an interpreter lacks. A namespace tells
/// nothing of its parts, which are packages of their own.
const LACKING: &str = "
    from importlib import metadata, util
    def lacks(package, module):
        try:
            found = util.find_spec(module.partition('.')[0])
            if found is not None and found.origin is None:
                metadata.version(package)
        except (ImportError, ValueError):
            return True
        return found is None
    return {'lacking': [package for package, module in pairs if lacks(package, module)]}";

/// What became of a call's packages.
pub(super) struct Packages {
    /// The names of those that are there because the call, or its code, says or shows that it needs them.
    pub(super) installed: Vec<String>,
    /// What cannot be had of that which imports tell, by module: why not.
    lacking: BTreeMap<String, String>,
}

impl Packages {
    /// Installs what the environment lacks. Whatever code imports in case that it is there counts as it is.
    ///
    /// # Errors
    /// Why something is not there that the code, or the call, says must be.
    pub(super) fn install(needs: &Needs, kernel: &mut dyn Kernel, listener: &Listener) -> Result<Self, String> {
        let mut packages = Self { installed: names(needs.requirements.iter()), lacking: BTreeMap::new() };
        if !needs.requirements.is_empty() {
            install(&needs.requirements, kernel, listener)?;
        }
        let missing = lacking(&needs.inferred, kernel, listener);
        let together: Vec<Requirement> = missing.iter().map(|inferred| inferred.requirement.clone()).collect();
        let failed = if together.is_empty() { None } else { install(&together, kernel, listener).err() };
        match failed {
            None => packages.installed.extend(names(together.iter())),
            Some(reason) => packages.install_each(&missing, reason, kernel, listener),
        }
        Ok(packages)
    }

    /// One is at fault that all of them cannot be had. It may be a module that the code makes, or misspells.
    fn install_each(
        &mut self,
        missing: &[&Inferred],
        mut reason: String,
        kernel: &mut dyn Kernel,
        listener: &Listener,
    ) {
        for inferred in missing {
            if missing.len() > 1 {
                match install(std::slice::from_ref(&inferred.requirement), kernel, listener) {
                    Ok(()) => {
                        self.installed.push(inferred.requirement.name().to_owned());
                        continue;
                    }
                    Err(of_this) => reason = of_this,
                }
            }
            listener.log(LoggingLevel::Debug, "belljar", format!("{}: {reason}", inferred.module));
            self.lacking.insert(inferred.module.clone(), reason.clone());
        }
    }

    /// Adds to an error that is for want of a package why it is not there.
    pub(super) fn explain(&self, error: &mut PythonError) {
        if error.kind != "ModuleNotFoundError" {
            return;
        }
        for (module, reason) in &self.lacking {
            let top = module.split('.').next().unwrap_or(module);
            if error.message.contains(&format!("'{top}'")) || error.message.contains(&format!("'{module}'")) {
                error.traceback.push_str(&format!("{module} cannot be installed: {reason}\n"));
            }
        }
    }
}

/// Those of `inferred` that cannot be imported. All, if the kernel does not say.
fn lacking<'a>(inferred: &'a [Inferred], kernel: &mut dyn Kernel, listener: &Listener) -> Vec<&'a Inferred> {
    #[derive(Deserialize)]
    struct Answer {
        lacking: Vec<String>,
    }
    let pairs: Vec<_> = inferred.iter().map(|inferred| (inferred.requirement.name(), &inferred.module)).collect();
    let Ok(list) = serde_json::to_string(&pairs) else { return Vec::new() };
    if pairs.is_empty() {
        return Vec::new();
    }
    let code = format!("def _belljar_told(pairs={list}):{LACKING}");
    let answer: Option<Answer> = aside::told(kernel, &code, listener);
    let is_lacking = |inferred: &&Inferred| {
        answer.as_ref().is_none_or(|answer| answer.lacking.iter().any(|name| name == inferred.requirement.name()))
    };
    inferred.iter().filter(is_lacking).collect()
}

fn install(requirements: &[Requirement], kernel: &mut dyn Kernel, listener: &Listener) -> Result<(), String> {
    let wanted: Vec<String> = requirements.iter().map(ToString::to_string).collect();
    kernel.install(&wanted, listener).map_err(|error| error.to_string())
}

fn names<'a>(requirements: impl Iterator<Item = &'a Requirement>) -> Vec<String> {
    requirements.map(|requirement| requirement.name().to_owned()).collect()
}
