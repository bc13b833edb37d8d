//! Reads OpenMetrics' text format, in which the server's metrics are. It is the one table of metrics: the collector of
//! OpenTelemetry converts the same text when it scrapes a server.

use std::collections::BTreeMap;

/// A family of metrics.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Family {
    pub(crate) name: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub(crate) kind: String,
    pub(crate) unit: String,
    pub(crate) help: String,
    pub(crate) series: Vec<Series>,
}

/// The labels of a series.
pub(crate) type Labels = BTreeMap<String, String>;

/// A series of a family: its samples with the same labels.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Series {
    pub(crate) labels: Labels,
    /// The value of a counter or gauge, or the sum of a histogram.
    pub(crate) value: f64,
    /// The number of observations of a histogram.
    pub(crate) count: u64,
    /// The upper bounds of a histogram's buckets, and the number of observations up to each.
    pub(crate) buckets: Vec<(f64, u64)>,
}

/// Returns the families in a text. Lines that are not understood are left out.
pub(crate) fn families(text: &str) -> Vec<Family> {
    let mut families: Vec<Family> = Vec::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (Some(keyword), Some(name), text) = (words.next(), words.next(), words.next().unwrap_or_default())
            else {
                continue;
            };
            if families.last().is_none_or(|family| family.name != name) {
                families.push(Family { name: name.to_owned(), ..Family::default() });
            }
            let Some(family) = families.last_mut() else { continue };
            match keyword {
                "TYPE" => text.clone_into(&mut family.kind),
                "UNIT" => text.clone_into(&mut family.unit),
                "HELP" => text.trim_end_matches('.').clone_into(&mut family.help),
                _ => {}
            }
        } else if let (Some(family), Some((name, labels, value))) = (families.last_mut(), sample(line)) {
            let suffix = name.strip_prefix(family.name.as_str()).unwrap_or_default();
            family.add(suffix, labels, value);
        }
    }
    families
}

impl Family {
    fn add(&mut self, suffix: &str, mut labels: Labels, value: f64) {
        let bound = if suffix == "_bucket" { labels.remove("le") } else { None };
        let at = match self.series.iter().position(|series| series.labels == labels) {
            Some(at) => at,
            None => {
                self.series.push(Series { labels, ..Series::default() });
                self.series.len() - 1
            }
        };
        let Some(series) = self.series.get_mut(at) else { return };
        match (suffix, bound) {
            ("_bucket", Some(bound)) => {
                let bound = if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap_or(f64::NAN) };
                series.buckets.push((bound, whole(value)));
            }
            ("_count", _) => series.count = whole(value),
            _ => series.value = value,
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are below 2^53")]
fn whole(value: f64) -> u64 {
    value.max(0.0) as u64
}

/// Takes a sample apart: `name{label="value"} 1`.
fn sample(line: &str) -> Option<(&str, Labels, f64)> {
    let mut labels = Labels::new();
    let Some((name, rest)) = line.split_once('{') else {
        let (name, value) = line.split_once(' ')?;
        return Some((name, labels, value.split(' ').next()?.parse().ok()?));
    };
    let mut rest = rest;
    loop {
        rest = rest.trim_start_matches(',');
        if let Some(after) = rest.strip_prefix('}') {
            let value = after.trim_start().split(' ').next()?.parse().ok()?;
            return Some((name, labels, value));
        }
        let (label, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.insert(label.to_owned(), value);
        rest = after.get(end..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_the_servers_registry_is_read() {
        let text = "# HELP belljar_calls Tool calls.\n# TYPE belljar_calls counter\n\
                    belljar_calls_total{tool=\"a\",status=\"s,}\\\"\"} 3\nbelljar_calls_total{tool=\"b\",status=\"\"} 1\n\
                    # HELP belljar_wait_seconds Time.\n# TYPE belljar_wait_seconds histogram\n\
                    # UNIT belljar_wait_seconds seconds\nbelljar_wait_seconds_sum 1.5\nbelljar_wait_seconds_count 2\n\
                    belljar_wait_seconds_bucket{le=\"0.5\"} 1\nbelljar_wait_seconds_bucket{le=\"+Inf\"} 2\n# EOF\n";
        let families = families(text);
        let series = &families[0].series;
        assert_eq!((families[0].kind.as_str(), families[0].help.as_str()), ("counter", "Tool calls"));
        assert_eq!(series[0].labels["status"], "s,}\"");
        assert_eq!((series[0].value, series[1].value), (3.0, 1.0));
        assert_eq!(families[1].unit, "seconds");
        let histogram = &families[1].series[0];
        assert_eq!((histogram.value, histogram.count), (1.5, 2));
        assert_eq!(histogram.buckets, [(0.5, 1), (f64::INFINITY, 2)]);
    }
}
