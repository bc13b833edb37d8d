//! Files of quotas, in TOML: `[default]`, and `[owner."NAME"]` for those of some owners.

use toml::Value;

use super::quotas::{InvalidQuota, QuotaSettings, QuotaTable, shortened};

/// The maximum size of a file, in bytes.
pub const MAX_QUOTA_FILE: u64 = 4 << 20;

/// The error of a file of quotas.
#[derive(Debug, thiserror::Error)]
pub enum QuotaFileError {
    /// The file is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// A table or a value is not where it should be.
    #[error("{place}: expected {expected}")]
    Form {
        /// The place in the file.
        place: String,
        /// The form that is expected there.
        expected: &'static str,
    },
    /// The file has a table with another name.
    #[error("unknown table `{0}`; the tables are [default] and [owner.\"NAME\"]")]
    UnknownTable(String),
    /// A quota is not valid.
    #[error("{place}: {source}")]
    Quota {
        /// The table.
        place: String,
        /// The reason.
        source: InvalidQuota,
    },
}

impl QuotaTable {
    /// Parses a file.
    ///
    /// # Errors
    /// Fails if the text is not TOML, or has other tables, keys or values than those of quotas.
    pub fn parse(text: &str) -> Result<Self, QuotaFileError> {
        let file: toml::Table = toml::from_str(text).map_err(|error| QuotaFileError::Syntax(error.to_string()))?;
        let mut table = Self::default();
        for (name, value) in file {
            match name.as_str() {
                "default" => table.everyone = settings("[default]", value)?,
                "owner" => {
                    let Value::Table(owners) = value else {
                        return Err(QuotaFileError::Form { place: "owner".into(), expected: "a table for each owner" });
                    };
                    for (owner, value) in owners {
                        let place = format!("[owner.\"{}\"]", shortened(&owner));
                        table.owners.insert(owner, settings(&place, value)?);
                    }
                }
                _ => return Err(QuotaFileError::UnknownTable(shortened(&name))),
            }
        }
        Ok(table)
    }
}

fn settings(place: &str, value: Value) -> Result<QuotaSettings, QuotaFileError> {
    let place = place.to_owned();
    let Value::Table(quotas) = value else { return Err(QuotaFileError::Form { place, expected: "a table of quotas" }) };
    let mut settings = QuotaSettings::default();
    for (key, value) in quotas {
        let value = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
                let place = format!("{place}: {}", shortened(&key));
                return Err(QuotaFileError::Form { place, expected: "a number or a text" });
            }
        };
        settings.set(&key, &value).map_err(|source| QuotaFileError::Quota { place: place.clone(), source })?;
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenants::{QuotaKind, Quotas};

    #[test]
    fn owners_have_what_differs_for_them() {
        let table = QuotaTable::parse(
            "[default]\nruns = 2\nmemory = \"1GB\"\nqueue = 10\n\
             [owner.\"alice@example.org\"]\nruns = 8\nprocessor = 30.5\nmemory = \"unlimited\"\nweight = 2\n",
        )
        .unwrap();
        let defaults = QuotaSettings::parse_option("sessions=3").unwrap();
        let table = table.with_defaults(&defaults);
        let everyone =
            Quotas { runs: Some(2), memory: Some(1 << 30), queue: Some(10), sessions: Some(3), ..Quotas::default() };
        assert_eq!(table.quotas_for(None), everyone);
        assert_eq!(table.quotas_for(Some("bob")), everyone);
        let alice = Quotas { runs: Some(8), memory: None, processor: Some(30.5), weight: 2, ..everyone };
        assert_eq!(table.quotas_for(Some("alice@example.org")), alice);
        assert!(table.limits(QuotaKind::Processor) && !table.limits(QuotaKind::Network));
    }

    #[test]
    fn mistakes_are_named_with_their_place() {
        for (text, error) in [
            ("[default]\nrusn = 2", "[default]: unknown quota `rusn`; did you mean `runs`?"),
            ("[owner.bob]\nmemory = -1", "[owner.\"bob\"]: `-1` is not a value of `memory`"),
            ("[owner.bob]\nruns = true", "[owner.\"bob\"]: runs: expected a number or a text"),
            ("[owner]\nbob = 1", "[owner.\"bob\"]: expected a table of quotas"),
            ("owner = 1", "owner: expected a table for each owner"),
            ("[defaults]\nruns = 1", "unknown table `defaults`; the tables are [default] and [owner.\"NAME\"]"),
            ("[default", "TOML parse error at line 1"),
        ] {
            let found = QuotaTable::parse(text).unwrap_err().to_string();
            assert!(found.starts_with(error), "{found}");
        }
    }
}
