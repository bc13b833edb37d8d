//! The capabilities that `BELLJAR_REQUIRE` names.

use std::sync::LazyLock;

use crate::Capability;

const VARIABLE: &str = "BELLJAR_REQUIRE";

/// The capabilities that this process requires.
pub(crate) static REQUIRED: LazyLock<Required> = LazyLock::new(|| {
    let list = std::env::var(VARIABLE).unwrap_or_default();
    Required::parse(&list).unwrap_or_else(|error| panic!("{VARIABLE}={list}: {error}"))
});

/// A set of capabilities.
#[derive(Debug, PartialEq)]
pub(crate) struct Required(Vec<Capability>);

impl Required {
    /// Parses a list like `all,-browser` or `node,npm`. Later elements override earlier ones.
    pub(crate) fn parse(list: &str) -> Result<Self, String> {
        let mut required = Vec::new();
        for element in list.split(',').map(str::trim).filter(|element| !element.is_empty()) {
            let (name, is_exception) = element.strip_prefix('-').map_or((element, false), |name| (name, true));
            if name == "all" && !is_exception {
                required = Capability::ALL.to_vec();
                continue;
            }
            let capability = Capability::ALL.into_iter().find(|capability| capability.name() == name);
            let capability = capability.ok_or_else(|| format!("{name} is not a capability"))?;
            required.retain(|other| *other != capability);
            if !is_exception {
                required.push(capability);
            }
        }
        Ok(Self(required))
    }

    pub(crate) fn contains(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_capabilities() {
        assert_eq!(Required::parse("").unwrap(), Required(vec![]));
        assert_eq!(Required::parse("node, npm,").unwrap(), Required(vec![Capability::Node, Capability::Npm]));
    }

    #[test]
    fn all_has_exceptions() {
        let required = Required::parse("all,-browser").unwrap();
        let missing: Vec<_> =
            Capability::ALL.into_iter().filter(|capability| !required.contains(*capability)).collect();
        assert_eq!(missing, [Capability::Browser]);
    }

    #[test]
    fn an_unknown_name_is_an_error() {
        for list in ["nodes", "-nodes", "-all"] {
            assert!(Required::parse(list).unwrap_err().contains("is not a capability"), "{list}");
        }
    }
}
