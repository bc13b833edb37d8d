//! Counting: all files' hits, by row of the report.

use super::files::File;
use super::identifiers::is_denied;
use super::patterns::{Opening, PATTERNS, QUESTION_ANCHOR, TOLERANCE, matches, opening};
use super::platforms::Platforms;
use super::prose::paragraphs;
use super::source::Source;
use super::{markdown, python, rust};

/// The widest line of prose, in characters; rustfmt.toml has the same number for code.
const MAX_COLUMNS: usize = 120;

/// The place of a match.
#[derive(Debug, PartialEq)]
pub(super) struct Hit {
    pub(super) path: String,
    pub(super) line: usize,
    /// The line's text.
    pub(super) text: String,
}

/// The hits in all files.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) words: usize,
    pub(super) docs: usize,
    /// By index into [`PATTERNS`].
    patterns: [Vec<Hit>; PATTERNS.len()],
    questions: Vec<Hit>,
    whethers: Vec<Hit>,
    names: Vec<Hit>,
    wide: Vec<Hit>,
    platforms: Vec<Hit>,
}

/// A row of the report.
pub(super) struct Row<'a> {
    pub(super) name: &'static str,
    pub(super) hits: &'a [Hit],
    pub(super) rate: Rate,
    /// The highest number of the anchors, where it was measured.
    pub(super) anchor: Option<f64>,
    /// The highest rate that passes; a row without one is for information.
    pub(super) limit: Option<f64>,
}

/// A count in proportion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rate {
    Per10000Words(f64),
    PercentOfDocs(f64),
    /// A plain count.
    Count(usize),
}

impl Row<'_> {
    pub(super) fn passes(&self) -> bool {
        let rate = match self.rate {
            Rate::Per10000Words(rate) | Rate::PercentOfDocs(rate) => rate,
            Rate::Count(_) => return self.limit.is_none() || self.hits.is_empty(),
        };
        self.limit.is_none_or(|limit| rate <= limit)
    }
}

impl Counts {
    /// Returns the rows of the report, in its order.
    pub(super) fn rows(&self) -> Vec<Row<'_>> {
        let per_words = |hits: &[Hit]| Rate::Per10000Words(ratio(hits.len(), self.words, 10_000.0));
        let of_docs = |hits: &[Hit]| Rate::PercentOfDocs(ratio(hits.len(), self.docs, 100.0));
        let mut rows: Vec<Row<'_>> = PATTERNS
            .iter()
            .zip(&self.patterns)
            .map(|(pattern, hits)| Row {
                name: pattern.name,
                hits,
                rate: per_words(hits),
                anchor: Some(pattern.anchor),
                limit: Some(pattern.anchor * TOLERANCE),
            })
            .collect();
        rows.push(Row {
            name: "docs opening with What, Why, Who, Where, When",
            hits: &self.questions,
            rate: of_docs(&self.questions),
            anchor: Some(QUESTION_ANCHOR),
            limit: Some(QUESTION_ANCHOR * TOLERANCE),
        });
        let whethers = of_docs(&self.whethers);
        rows.push(Row {
            name: "docs opening with Whether",
            hits: &self.whethers,
            rate: whethers,
            anchor: None,
            limit: None,
        });
        for (name, hits) in [
            ("denied identifiers", &self.names),
            ("lines of prose beyond 120 columns", &self.wide),
            ("platform cfgs outside of the module os", &self.platforms),
        ] {
            rows.push(Row { name, hits, rate: Rate::Count(hits.len()), anchor: None, limit: Some(0.0) });
        }
        rows
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^52")]
fn ratio(part: usize, whole: usize, scale: f64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * scale / whole as f64 }
}

/// Counts all files.
pub(super) fn count(files: &[File]) -> Counts {
    let mut counts = Counts::default();
    let mut platforms = Platforms::default();
    for file in files {
        let source = if file.path.ends_with(".rs") {
            rust::read(&file.text)
        } else if file.path.ends_with(".py") {
            python::read(&file.text)
        } else {
            markdown::read(&file.text)
        };
        let lines: Vec<&str> = file.text.lines().collect();
        let hit = |line: usize| Hit {
            path: file.path.clone(),
            line,
            text: lines.get(line - 1).map_or_else(String::new, |text| text.trim().to_owned()),
        };
        count_file(&mut counts, &source, hit);
        platforms.add(&file.path, &source, hit);
        count_wide(&mut counts, &source, &lines, &file.path);
    }
    counts.platforms = platforms.outside();
    counts
}

fn count_file(counts: &mut Counts, source: &Source, hit: impl Fn(usize) -> Hit) {
    for block in &source.blocks {
        let paragraphs = paragraphs(block);
        for paragraph in &paragraphs {
            counts.words += paragraph.words();
            for (index, hits) in counts.patterns.iter_mut().enumerate() {
                hits.extend(matches(index, &paragraph.text).into_iter().map(|at| hit(paragraph.line_at(at))));
            }
        }
        if let Some(first) = paragraphs.first().filter(|_| block.is_doc) {
            counts.docs += 1;
            match opening(&first.text) {
                Opening::Question => counts.questions.push(hit(first.line_at(0))),
                Opening::Whether => counts.whethers.push(hit(first.line_at(0))),
                Opening::Other => {}
            }
        }
    }
    for (line, identifier) in source.identifiers() {
        if is_denied(identifier) {
            counts.names.push(hit(line));
        }
    }
}

/// Counts lines of prose that are too wide. Tables, fenced code, lines with a link and the headings of cells (`# %%`)
/// in test data are exempt.
fn count_wide(counts: &mut Counts, source: &Source, lines: &[&str], path: &str) {
    for block in &source.blocks {
        let mut is_code = false;
        for (number, text) in &block.lines {
            let text = text.trim();
            if text.starts_with("```") || text.starts_with("~~~") {
                is_code = !is_code;
            }
            let is_exempt = is_code
                || text.starts_with('|')
                || text.starts_with("%%")
                || text.contains("](")
                || text.contains("://");
            let line = lines.get(number - 1).copied().unwrap_or_default();
            if !is_exempt && line.chars().count() > MAX_COLUMNS {
                counts.wide.push(Hit { path: path.to_owned(), line: *number, text: line.trim().to_owned() });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(path: &str, text: &str) -> Counts {
        count(&[File { path: path.to_owned(), text: text.to_owned() }])
    }

    fn failing(counts: &Counts) -> Vec<&'static str> {
        counts.rows().iter().filter(|row| !row.passes()).map(|row| row.name).collect()
    }

    #[test]
    fn plain_text_passes() {
        let counts = counts("a.rs", "/// Returns the number of words.\nfn words() {}\n");
        assert_eq!((counts.words, counts.docs), (5, 1));
        assert_eq!(failing(&counts), [""; 0]);
    }

    #[test]
    fn one_hit_fails_where_the_anchors_have_none() {
        let text = format!("{}nobody\n", "word ".repeat(23).trim_end().to_owned() + "\n").repeat(2000);
        let counts = counts("a.md", &text);
        assert_eq!(counts.patterns.iter().map(Vec::len).sum::<usize>(), 2000);
        assert_eq!(failing(&counts), ["nobody"]);
    }

    #[test]
    fn rates_up_to_twice_the_anchor_pass() {
        let text = |says: usize| format!("{}{}", "says ".repeat(says), "word ".repeat(10_000 - says));
        assert_eq!(failing(&counts("a.md", &text(3).replace(" word", "\nword"))), [""; 0]);
        assert_eq!(failing(&counts("a.md", &text(4).replace(" word", "\nword"))), ["say, says, said"]);
    }

    #[test]
    fn hits_name_their_lines_across_line_breaks() {
        let counts = counts("a.rs", "fn f() {}\n// Some words. This cannot be\n// had here.\n");
        let hits: Vec<_> = counts.patterns.iter().flatten().collect();
        let text = "// Some words. This cannot be".to_owned();
        assert_eq!(hits, [&Hit { path: "a.rs".to_owned(), line: 2, text }]);
    }

    #[test]
    fn docs_that_open_with_a_question_word_are_a_share() {
        let good = "/// Returns it.\nfn f() {}\n".repeat(97);
        assert_eq!(failing(&counts("a.rs", &format!("{good}{}", "/// When it ends.\nfn f() {}\n".repeat(2)))), [""; 0]);
        let bad = counts("a.rs", &format!("{good}{}", "/// When it ends.\nfn f() {}\n".repeat(3)));
        assert_eq!(failing(&bad), ["docs opening with What, Why, Who, Where, When"]);
    }

    #[test]
    fn names_are_denied_in_code_alone() {
        assert_eq!(failing(&counts("a.rs", "// A Cradle.\nlet a = \"Cradle\";\n")), [""; 0]);
        assert_eq!(failing(&counts("a.rs", "struct Cradle;\n")), ["denied identifiers"]);
        assert_eq!(failing(&counts("a.py", "class Cradle: pass\n")), ["denied identifiers"]);
    }

    #[test]
    fn conditions_on_the_platform_fail_outside_of_their_place() {
        let text = "#[cfg(unix)]\nfn f() {\n}\n#[cfg(windows)]\nfn f() {\n}\n";
        let found = counts("crates/a/src/lib.rs", text);
        assert_eq!(failing(&found), ["platform cfgs outside of the module os"]);
        let (path, text) = ("crates/a/src/lib.rs".to_owned(), "#[cfg(windows)]".to_owned());
        assert_eq!(found.platforms.last(), Some(&Hit { path, line: 4, text }));
        assert_eq!(failing(&counts("crates/a/src/os.rs", "#[cfg(unix)]\nfn f() {\n}\n")), [""; 0]);
    }

    #[test]
    fn wide_lines_fail_except_in_tables_links_and_code() {
        let wide = "word ".repeat(30);
        let name = "lines of prose beyond 120 columns";
        assert_eq!(failing(&counts("a.md", &wide)), [name]);
        assert_eq!(failing(&counts("a.rs", &format!("    // {wide}\n"))), [name]);
        assert_eq!(failing(&counts("a.rs", &format!("const A: &str = \"{wide}\";\n"))), [""; 0]);
        assert_eq!(failing(&counts("a.md", &format!("| {wide}|\n[a](b) {wide}\n```\n{wide}\n```\n"))), [""; 0]);
    }
}
