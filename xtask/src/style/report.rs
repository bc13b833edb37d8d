//! The printed report: a table, and a list of hits.

use std::fmt::Write as _;

use super::count::{Counts, Rate, Row};

/// Returns the table for a terminal, with failing rows marked.
pub(super) fn table(counts: &Counts) -> String {
    let mut text = format!("{} words of comments and docs, {} doc comments\n\n", counts.words, counts.docs);
    let _ = writeln!(text, "{:47} {:>6} {:>10} {:>7} {:>7}", "pattern", "count", "per 10,000", "limit", "anchor");
    for row in counts.rows() {
        let [rate, limit, anchor] = numbers(row.rate, row.limit, row.anchor);
        let mark = if row.passes() { "" } else { "  FAILS" };
        let _ = writeln!(text, "{:47} {:>6} {rate:>10} {limit:>7} {anchor:>7}{mark}", row.name, row.hits.len());
    }
    text
}

/// Returns the table in Markdown.
pub(super) fn markdown(counts: &Counts) -> String {
    let mut text = "| pattern | count | per 10,000 words | limit | highest anchor |\n".to_owned();
    text.push_str("| --- | --- | --- | --- | --- |\n");
    for row in counts.rows() {
        let [rate, limit, anchor] = numbers(row.rate, row.limit, row.anchor);
        let _ = writeln!(text, "| {} | {} | {rate} | {limit} | {anchor} |", row.name, row.hits.len());
    }
    text
}

/// Returns every hit as `path:line: text`, by pattern.
pub(super) fn hits(counts: &Counts) -> String {
    hits_of(counts, |_| true)
}

/// Returns the hits of failing rows that may have none.
pub(super) fn failures(counts: &Counts) -> String {
    hits_of(counts, |row| matches!(row.rate, Rate::Count(_)) && !row.passes())
}

fn hits_of(counts: &Counts, is_wanted: impl Fn(&Row<'_>) -> bool) -> String {
    let mut text = String::new();
    for row in counts.rows().iter().filter(|row| !row.hits.is_empty() && is_wanted(row)) {
        let _ = writeln!(text, "{}:", row.name);
        for hit in row.hits {
            let _ = writeln!(text, "{}:{}: {}", hit.path, hit.line, hit.text);
        }
        text.push('\n');
    }
    text
}

fn numbers(rate: Rate, limit: Option<f64>, anchor: Option<f64>) -> [String; 3] {
    let unit = if matches!(rate, Rate::PercentOfDocs(_)) { " %" } else { "" };
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}{unit}"));
    match rate {
        Rate::Per10000Words(rate) | Rate::PercentOfDocs(rate) => [number(Some(rate)), number(limit), number(anchor)],
        Rate::Count(_) => {
            ["-".to_owned(), limit.map_or_else(|| "-".to_owned(), |limit| format!("{limit:.0}")), number(anchor)]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::count::count;
    use super::super::files::File;
    use super::*;

    #[test]
    fn failing_rows_are_marked_and_hits_listed() {
        let counts = count(&[File { path: "a.md".to_owned(), text: "One.\nNobody here.\n".to_owned() }]);
        let row = table(&counts);
        let row = row.lines().find(|line| line.starts_with("nobody")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["nobody", "1", "3333.3", "0.0", "0.0", "FAILS"]);
        assert_eq!(hits(&counts), "nobody:\na.md:2: Nobody here.\n\n");
        assert!(markdown(&counts).contains("| nobody | 1 | 3333.3 | 0.0 | 0.0 |"));
        assert_eq!(failures(&counts), "");
    }

    #[test]
    fn hits_that_must_not_occur_are_failures() {
        let counts = count(&[File { path: "a.rs".to_owned(), text: "// One.\nstruct Cradle;\n".to_owned() }]);
        assert_eq!(failures(&counts), "denied identifiers:\na.rs:2: struct Cradle;\n\n");
    }
}
