//! Search for tools by relevance: Okapi BM25 over names, descriptions and parameters.

use std::collections::HashMap;

/// BM25's parameters: how soon repetitions of a word count less, and how much the length of a text counts.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// The maximum number of words of a text.
const MAX_WORDS: usize = 500;

/// Returns the words of a text: `searchIssues_v2` has three. Plurals are reduced to singulars.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut previous = ' ';
    let mut end = |word: &mut String| {
        let is_plural = word.len() > 2 && word.ends_with('s') && !word.ends_with("ss");
        if is_plural {
            word.pop();
        }
        if !word.is_empty() {
            words.push(std::mem::take(word));
        }
    };
    for c in text.chars() {
        let is_boundary = previous.is_lowercase() && c.is_uppercase();
        if !c.is_alphanumeric() || is_boundary {
            end(&mut word);
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        previous = c;
    }
    end(&mut word);
    words.truncate(MAX_WORDS);
    words
}

/// Returns the positions of the texts that contain words of `query`, the most relevant first.
pub(crate) fn rank(texts: &[Vec<String>], query: &str) -> Vec<usize> {
    let mut query = words(query);
    query.sort();
    query.dedup();
    let average = texts.iter().map(Vec::len).sum::<usize>() as f64 / texts.len().max(1) as f64;
    let counts: Vec<HashMap<&str, f64>> = texts
        .iter()
        .map(|text| {
            let mut counts = HashMap::new();
            for word in text {
                *counts.entry(word.as_str()).or_insert(0.0) += 1.0;
            }
            counts
        })
        .collect();
    let mut scores = vec![0.0_f64; texts.len()];
    for word in &query {
        let containing = counts.iter().filter(|counts| counts.contains_key(word.as_str())).count() as f64;
        let rarity = (1.0 + (texts.len() as f64 - containing + 0.5) / (containing + 0.5)).ln();
        for ((score, counts), text) in scores.iter_mut().zip(&counts).zip(texts) {
            let count = counts.get(word.as_str()).copied().unwrap_or(0.0);
            let length = text.len() as f64 / average.max(1.0);
            *score += rarity * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
        }
    }
    let mut found: Vec<usize> =
        (0..texts.len()).filter(|at| scores.get(*at).is_some_and(|score| *score > 0.0)).collect();
    let score = |at: &usize| scores.get(*at).copied().unwrap_or(0.0);
    found.sort_by(|one, other| score(other).total_cmp(&score(one)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_and_reduced() {
        assert_eq!(words("searchIssues_v2 of-the HTTPServer"), ["search", "issue", "v2", "of", "the", "httpserver"]);
        assert_eq!(words("ss class bus ids"), ["ss", "class", "bu", "id"]);
    }

    #[test]
    fn rare_words_count_more() {
        let texts = ["list issues", "list files", "list pull requests", "create an issue"].map(words);
        assert_eq!(rank(&texts, "list of issues").first(), Some(&0));
        assert_eq!(rank(&texts, "pull request"), [2]);
        assert_eq!(rank(&texts, "weather"), [0_usize; 0]);
        assert_eq!(rank(&[], "x"), [0_usize; 0]);
    }
}
