//! Search in the tools of a toolset by the words of a task.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::toolset::{ToolDefinition, ToolList};

/// The usual parameters of BM25: the saturation of repeated words, and the influence of a document's length.
const K1: f32 = 1.2;
const B: f32 = 0.75;
/// The number of times that the words of a name count.
const NAME_WEIGHT: usize = 3;
/// The maximum number of bytes of a tool's texts that are indexed, and of a query. The texts are untrusted.
const MAX_INDEXED: usize = 8 * 1024;
const MAX_QUERY: usize = 1024;

/// An index of tools by the words of their names, descriptions and parameters, ranked with BM25.
///
/// ```
/// use belljar_mcp_client::{ToolDefinition, ToolIndex, ToolList};
/// use serde_json::json;
///
/// let tool = |name: &str, description: &str| ToolDefinition::new(name, json!({})).with_description(description);
/// let tools: ToolList = [tool("git_log", "Shows the commits."), tool("readTextFile", "Returns the content.")]
///     .into_iter()
///     .collect();
/// let index = ToolIndex::new(&tools);
/// assert_eq!(index.search("read a file", 5)[0].tool.name, "readTextFile");
/// ```
#[derive(Debug, Clone)]
pub struct ToolIndex {
    tools: ToolList,
    /// For each word the tools that contain it, with the number of occurrences.
    postings: HashMap<String, Vec<(usize, f32)>>,
    lengths: Vec<f32>,
    average_length: f32,
}

/// A tool that matches a query.
///
/// ```
/// fn show(found: &belljar_mcp_client::ToolMatch) {
///     println!("{}: {:.1}", found.tool.name, found.score);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolMatch {
    /// The tool.
    pub tool: Arc<ToolDefinition>,
    /// The relevance, greater than 0. Only scores of one query can be compared.
    pub score: f32,
}

impl ToolIndex {
    /// Indexes the tools of a list.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolIndex, ToolList};
    /// let index = ToolIndex::new(&ToolList::new());
    /// assert!(index.search("file", 5).is_empty());
    /// ```
    pub fn new(tools: &ToolList) -> Self {
        let mut postings: HashMap<String, Vec<(usize, f32)>> = HashMap::new();
        let mut lengths = Vec::with_capacity(tools.len());
        for (position, tool) in tools.iter().enumerate() {
            let mut counts: HashMap<String, usize> = HashMap::new();
            for word in words(&tool.name) {
                *counts.entry(word).or_default() += NAME_WEIGHT;
            }
            for word in words(&text(tool)) {
                *counts.entry(word).or_default() += 1;
            }
            lengths.push(counts.values().sum::<usize>() as f32);
            for (word, count) in counts {
                postings.entry(word).or_default().push((position, count as f32));
            }
        }
        let average_length = lengths.iter().sum::<f32>() / (lengths.len().max(1) as f32);
        Self { tools: tools.clone(), postings, lengths, average_length }
    }

    /// Returns the tools that match best, at most `limit`, the most relevant first.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolIndex, ToolList};
    /// for found in ToolIndex::new(&ToolList::new()).search("send an e-mail", 5) {
    ///     println!("{}", found.tool.name);
    /// }
    /// ```
    pub fn search(&self, query: &str, limit: usize) -> Vec<ToolMatch> {
        let mut query: Vec<String> = words(prefix(query, MAX_QUERY)).collect();
        query.sort();
        query.dedup();
        let mut scores: HashMap<usize, f32> = HashMap::new();
        for postings in query.iter().filter_map(|word| self.postings.get(word)) {
            let (tools, with_word) = (self.tools.len() as f32, postings.len() as f32);
            let rarity = (1.0 + (tools - with_word + 0.5) / (with_word + 0.5)).ln();
            for &(position, count) in postings {
                let length = self.lengths.get(position).copied().unwrap_or(0.0) / self.average_length;
                let weight = count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
                *scores.entry(position).or_default() += rarity * weight;
            }
        }
        let mut ranked: Vec<(usize, f32)> = scores.into_iter().collect();
        // Tools of the same score are in the order of the list.
        ranked.sort_by(|(one, a), (other, b)| b.total_cmp(a).then(one.cmp(other)));
        let found = ranked.into_iter().take(limit);
        found.filter_map(|(position, score)| Some(ToolMatch { tool: self.tools.get_at(position)?, score })).collect()
    }

    /// Returns the indexed tools.
    ///
    /// ```
    /// # use belljar_mcp_client::{ToolIndex, ToolList};
    /// assert!(ToolIndex::new(&ToolList::new()).tools().is_empty());
    /// ```
    pub fn tools(&self) -> &ToolList {
        &self.tools
    }

    /// Returns the description of a tool for a model, as JSON: name, description, parameters and result.
    ///
    /// ```
    /// use belljar_mcp_client::{ToolDefinition, ToolIndex, ToolList};
    /// use serde_json::json;
    ///
    /// let tools = ToolList::from(vec![ToolDefinition::new("now", json!({"type": "object"}))]);
    /// let description = ToolIndex::new(&tools).describe("now").unwrap();
    /// assert_eq!(description, json!({"name": "now", "parameters": {"type": "object"}}));
    /// ```
    pub fn describe(&self, name: &str) -> Option<Value> {
        let tool = self.tools.get(name)?;
        let mut description = json!({"name": tool.name});
        if let Some(text) = &tool.description {
            description["description"] = json!(text);
        }
        description["parameters"] = (*tool.input_schema).clone();
        if let Some(result) = tool.output_schema.as_ref().filter(|_| tool.include_return_schema != Some(false)) {
            description["result"] = (**result).clone();
        }
        Some(description)
    }
}

/// Returns the first bytes of a text, at most `limit`, up to a boundary of characters.
pub(crate) fn prefix(text: &str, limit: usize) -> &str {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

/// Returns the texts of a tool apart from its name.
fn text(tool: &ToolDefinition) -> String {
    let mut text = String::new();
    let mut add = |more: &str| {
        text.push_str(prefix(more, MAX_INDEXED.saturating_sub(text.len())));
        text.push(' ');
    };
    tool.title.iter().chain(&tool.description).for_each(|more| add(more));
    if let Some(parameters) = tool.input_schema.get("properties").and_then(Value::as_object) {
        for (name, parameter) in parameters {
            add(name);
            add(parameter.get("description").and_then(Value::as_str).unwrap_or_default());
        }
    }
    text
}

/// Returns the words of a text in lower case: letters and digits, separated also where a capital begins. The plural of
/// English words counts as the singular.
fn words(text: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for character in text.chars() {
        let begins = character.is_uppercase() && was_lower;
        if (begins || !character.is_alphanumeric()) && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if character.is_alphanumeric()
            && let Some(word) = words.last_mut()
        {
            word.extend(character.to_lowercase());
        }
        was_lower = character.is_lowercase() || character.is_numeric();
    }
    words.into_iter().filter(|word| !word.is_empty()).map(|mut word| {
        if word.len() > 3 && word.ends_with('s') && !word.ends_with("ss") {
            word.pop();
        }
        word
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(tools: &[(&str, &str)]) -> ToolIndex {
        let tools = tools.iter().map(|(name, text)| ToolDefinition::new(*name, json!({})).with_description(*text));
        ToolIndex::new(&tools.collect())
    }

    fn found(index: &ToolIndex, query: &str) -> Vec<String> {
        index.search(query, 3).iter().map(|found| found.tool.name.clone()).collect()
    }

    #[test]
    fn words_are_split_at_capitals_and_signs() {
        let split: Vec<String> = words("readTextFiles get_HTTP-url2 Über class").collect();
        assert_eq!(split, ["read", "text", "file", "get", "http", "url2", "über", "class"]);
    }

    #[test]
    fn rare_words_and_names_count_most() {
        let index = index(&[
            ("files_read", "Reads a file from the disk."),
            ("files_write", "Writes a file to the disk."),
            ("mail_send", "Sends a message with a file."),
        ]);
        assert_eq!(found(&index, "send the file")[0], "mail_send");
        assert_eq!(found(&index, "read file")[0], "files_read");
        assert_eq!(found(&index, "disk"), ["files_read", "files_write"]);
        assert_eq!(found(&index, "weather"), [""; 0]);
        assert_eq!(found(&index, ""), [""; 0]);
        assert_eq!(index.search("file", 1).len(), 1);
    }

    #[test]
    fn parameters_are_indexed_and_texts_are_bounded() {
        let schema = json!({"properties": {"city": {"description": "The place of the forecast."}}});
        let long = ToolDefinition::new("long", json!({})).with_description("word ".repeat(100_000) + "needle");
        let index = ToolIndex::new(&vec![ToolDefinition::new("weather", schema), long].into());
        assert_eq!(found(&index, "forecast"), ["weather"]);
        assert_eq!(found(&index, "city"), ["weather"]);
        assert_eq!(found(&index, "needle"), [""; 0]);
        assert_eq!(prefix("aé", 2), "a");
    }
}
