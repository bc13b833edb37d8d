//! The quotas of owners: their names, units and values.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use belljar_core::{format_size, parse_size};

use super::fair_queue::MAX_WEIGHT;
use super::spending::Rate;

/// The period of [`QuotaKind::Processor`].
const PROCESSOR_PERIOD: Duration = Duration::from_secs(60);
/// The period of [`QuotaKind::Network`].
const NETWORK_PERIOD: Duration = Duration::from_secs(3600);

/// The subject of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuotaKind {
    /// Pieces of code that run at the same time. More wait.
    Runs,
    /// Calls that wait.
    Queue,
    /// Sessions, awake or asleep.
    Sessions,
    /// Bytes of memory of awake sessions and of running code.
    Memory,
    /// Seconds of processor time per minute.
    Processor,
    /// Bytes of sessions in the data directory.
    Storage,
    /// Bytes that code sends and receives per hour.
    Network,
}

/// The unit of a quota's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Count,
    Bytes,
    Seconds,
}

impl QuotaKind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Runs, Self::Queue, Self::Sessions, Self::Memory, Self::Processor, Self::Storage, Self::Network];

    /// Returns the name in files, options, errors and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Queue => "queue",
            Self::Sessions => "sessions",
            Self::Memory => "memory",
            Self::Processor => "processor",
            Self::Storage => "storage",
            Self::Network => "network",
        }
    }

    fn unit(self) -> Unit {
        match self {
            Self::Runs | Self::Queue | Self::Sessions => Unit::Count,
            Self::Memory | Self::Storage | Self::Network => Unit::Bytes,
            Self::Processor => Unit::Seconds,
        }
    }

    /// Writes an amount with its unit.
    pub(crate) fn format(self, amount: f64) -> String {
        match self.unit() {
            Unit::Count => format!("{amount:.0}"),
            // Amounts are far below 2^53.
            Unit::Bytes => format_size(amount as u64),
            Unit::Seconds => format!("{amount:.1} s"),
        }
    }

    /// Returns what the quota counts, for errors.
    pub(crate) fn subject(self) -> &'static str {
        match self {
            Self::Runs => "pieces of code that run at the same time",
            Self::Queue => "calls that wait",
            Self::Sessions => "sessions",
            Self::Memory => "memory of awake sessions and running code",
            Self::Processor => "processor time per minute",
            Self::Storage => "bytes of stored sessions",
            Self::Network => "bytes over the network per hour",
        }
    }
}

impl fmt::Display for QuotaKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The name of the weight in files and options.
pub(crate) const WEIGHT: &str = "weight";

/// The quotas of one owner. `None` is unlimited.
#[derive(Debug, Clone, PartialEq)]
pub struct Quotas {
    /// See [`QuotaKind::Runs`].
    pub runs: Option<u64>,
    /// See [`QuotaKind::Queue`].
    pub queue: Option<u64>,
    /// See [`QuotaKind::Sessions`].
    pub sessions: Option<u64>,
    /// See [`QuotaKind::Memory`].
    pub memory: Option<u64>,
    /// See [`QuotaKind::Processor`].
    pub processor: Option<f64>,
    /// See [`QuotaKind::Storage`].
    pub storage: Option<u64>,
    /// See [`QuotaKind::Network`].
    pub network: Option<u64>,
    /// The share in relation to other owners while calls wait.
    pub weight: u32,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            runs: None,
            queue: None,
            sessions: None,
            memory: None,
            processor: None,
            storage: None,
            network: None,
            weight: 1,
        }
    }
}

impl Quotas {
    /// Returns the processor time per minute.
    pub(crate) fn processor_rate(&self) -> Option<Rate> {
        self.processor.map(|amount| Rate { amount, period: PROCESSOR_PERIOD })
    }

    /// Returns the bytes over the network per hour.
    pub(crate) fn network_rate(&self) -> Option<Rate> {
        // Quotas are far below 2^53 bytes, and rounding does no harm above.
        self.network.map(|amount| Rate { amount: amount as f64, period: NETWORK_PERIOD })
    }
}

/// The reason why a value is not one of a quota.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuota {
    /// The key does not exist.
    #[error("unknown quota `{key}`; did you mean `{nearest}`?")]
    UnknownKey {
        /// The key.
        key: String,
        /// The key that resembles it most.
        nearest: &'static str,
    },
    /// The value does not have the form of the key's values.
    #[error("`{value}` is not a value of `{key}`; write {expected}")]
    Value {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// The form.
        expected: &'static str,
    },
    /// The option does not have the form `KEY=VALUE`.
    #[error("`{0}` is not a quota; write KEY=VALUE, such as runs=4")]
    Form(String),
}

/// Some quotas, which replace those of another level.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QuotaSettings(BTreeMap<&'static str, Option<f64>>);

impl QuotaSettings {
    /// Sets a quota to the value of a file or an option.
    ///
    /// # Errors
    /// Fails if the key does not exist, or the value is not valid for it.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<(), InvalidQuota> {
        let is_unlimited = value == "unlimited";
        if key == WEIGHT {
            let invalid =
                || InvalidQuota::Value { key: WEIGHT, value: shortened(value), expected: "a number from 1 to 1000" };
            let weight: u32 = value.parse().map_err(|_| invalid())?;
            if !(1..=MAX_WEIGHT).contains(&weight) {
                return Err(invalid());
            }
            self.0.insert(WEIGHT, Some(weight.into()));
            return Ok(());
        }
        let Some(kind) = QuotaKind::ALL.into_iter().find(|kind| kind.name() == key) else {
            return Err(InvalidQuota::UnknownKey { key: shortened(key), nearest: nearest_key(key) });
        };
        let parsed = match kind.unit() {
            _ if is_unlimited => Some(None),
            Unit::Count => value.parse::<u32>().ok().map(|count| Some(f64::from(count))),
            // Quotas are far below 2^53 bytes, and rounding does no harm above.
            Unit::Bytes => parse_size(value).ok().map(|bytes| Some(bytes as f64)),
            Unit::Seconds => value.parse::<f64>().ok().filter(|time| time.is_finite() && *time >= 0.0).map(Some),
        };
        let expected = match kind.unit() {
            Unit::Count => "a whole number, or \"unlimited\"",
            Unit::Bytes => "a size such as \"512MB\", or \"unlimited\"",
            Unit::Seconds => "seconds as a number, or \"unlimited\"",
        };
        let value = parsed.ok_or(InvalidQuota::Value { key: kind.name(), value: shortened(value), expected })?;
        self.0.insert(kind.name(), value);
        Ok(())
    }

    /// Parses `KEY=VALUE`.
    ///
    /// # Errors
    /// Fails if the text does not have that form, or the key or the value does not exist.
    pub fn parse_option(text: &str) -> Result<Self, InvalidQuota> {
        let (key, value) = text.split_once('=').ok_or_else(|| InvalidQuota::Form(shortened(text)))?;
        let mut settings = Self::default();
        settings.set(key.trim(), value.trim())?;
        Ok(settings)
    }

    /// Adds the quotas of `other`, which replace those of before.
    pub fn extend(&mut self, other: &Self) {
        self.0.extend(other.0.iter().map(|(key, value)| (*key, *value)));
    }

    /// Returns whether a quota of this kind is set.
    pub fn limits(&self, kind: QuotaKind) -> bool {
        self.0.get(kind.name()).copied().flatten().is_some()
    }

    /// Replaces those of `quotas` that are set.
    fn apply(&self, quotas: &mut Quotas) {
        // Counts and sizes were whole numbers when they were parsed.
        let whole = |value: Option<f64>| value.map(|value| value as u64);
        for (key, value) in &self.0 {
            match QuotaKind::ALL.into_iter().find(|kind| kind.name() == *key) {
                Some(QuotaKind::Runs) => quotas.runs = whole(*value),
                Some(QuotaKind::Queue) => quotas.queue = whole(*value),
                Some(QuotaKind::Sessions) => quotas.sessions = whole(*value),
                Some(QuotaKind::Memory) => quotas.memory = whole(*value),
                Some(QuotaKind::Processor) => quotas.processor = *value,
                Some(QuotaKind::Storage) => quotas.storage = whole(*value),
                Some(QuotaKind::Network) => quotas.network = whole(*value),
                None => quotas.weight = value.map_or(1, |weight| weight as u32),
            }
        }
    }
}

/// The quotas of all owners: those of everyone, and what differs for some.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QuotaTable {
    pub(crate) everyone: QuotaSettings,
    /// By the subject of an OAuth token, or by the name of a token.
    pub(crate) owners: BTreeMap<String, QuotaSettings>,
}

impl QuotaTable {
    /// Creates a table whose quotas for everyone are those of `defaults`, where this table has no others.
    #[must_use]
    pub fn with_defaults(mut self, defaults: &QuotaSettings) -> Self {
        let mut everyone = defaults.clone();
        everyone.extend(&self.everyone);
        self.everyone = everyone;
        self
    }

    /// Returns the quotas of the owner with this name.
    pub fn quotas_for(&self, name: Option<&str>) -> Quotas {
        let mut quotas = Quotas::default();
        self.everyone.apply(&mut quotas);
        if let Some(settings) = name.and_then(|name| self.owners.get(name)) {
            settings.apply(&mut quotas);
        }
        quotas
    }

    /// Returns whether any owner has a quota of this kind.
    pub fn limits(&self, kind: QuotaKind) -> bool {
        std::iter::once(&self.everyone).chain(self.owners.values()).any(|settings| settings.limits(kind))
    }
}

/// Returns the key that resembles `key` most.
fn nearest_key(key: &str) -> &'static str {
    let keys = QuotaKind::ALL.into_iter().map(QuotaKind::name).chain([WEIGHT]);
    keys.min_by_key(|known| strsim::damerau_levenshtein(known, &shortened(key))).unwrap_or(WEIGHT)
}

/// Returns the beginning of a text, for an error.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_set_quotas() {
        let mut settings = QuotaSettings::default();
        for option in ["runs=4", "memory = 1GB", "processor=1.5", "weight=3", "queue=unlimited", "runs=5"] {
            settings.extend(&QuotaSettings::parse_option(option).unwrap());
        }
        let quotas = QuotaTable { everyone: settings, ..QuotaTable::default() }.quotas_for(Some("any"));
        let expected =
            Quotas { runs: Some(5), memory: Some(1 << 30), processor: Some(1.5), weight: 3, ..Quotas::default() };
        assert_eq!(quotas, expected);
    }

    #[test]
    fn errors_name_the_nearest_key_and_the_form() {
        for (option, error) in [
            ("memmory=1GB", "unknown quota `memmory`; did you mean `memory`?"),
            ("run=1", "unknown quota `run`; did you mean `runs`?"),
            ("cpu", "`cpu` is not a quota; write KEY=VALUE, such as runs=4"),
            ("runs=-1", "`-1` is not a value of `runs`; write a whole number, or \"unlimited\""),
            ("memory=lots", "`lots` is not a value of `memory`; write a size such as \"512MB\", or \"unlimited\""),
            ("processor=nan", "`nan` is not a value of `processor`; write seconds as a number, or \"unlimited\""),
            ("weight=0", "`0` is not a value of `weight`; write a number from 1 to 1000"),
        ] {
            assert_eq!(QuotaSettings::parse_option(option).unwrap_err().to_string(), error);
        }
    }
}
