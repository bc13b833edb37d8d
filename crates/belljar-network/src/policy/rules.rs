//! Rules of a host: the requests that they match, and the headers that they set.

use globset::{Glob, GlobBuilder, GlobMatcher};
use percent_encoding::percent_decode_str;

use super::path::decoded_path;

/// Headers that a rule must not set: they determine where a request goes and where it ends.
const FIXED_HEADERS: [&str; 11] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "accept-encoding",
];

/// Headers by which some servers replace the method or the path of a request.
const OVERRIDE_HEADERS: [&str; 6] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
    "x-original-uri",
];

/// A request as rules see it.
pub(crate) struct RequestView<'a> {
    pub(crate) method: &'a str,
    /// The path and the query.
    pub(crate) target: &'a str,
    pub(crate) headers: &'a [(String, Vec<u8>)],
}

/// A pattern of text.
#[derive(Debug, Clone)]
pub(crate) enum TextPattern {
    /// The whole text.
    Exact(String),
    /// `/repos/*`: everything that begins with the text before the asterisk.
    Prefix(String),
    /// Other patterns with `*`, `**`, `?`, `[…]` or `{…}`.
    Glob(GlobMatcher),
}

impl TextPattern {
    /// Reads a pattern of paths, in which `*` does not match a slash unless it is the last segment.
    pub(crate) fn for_path(text: &str) -> Result<Self, String> {
        if !text.starts_with('/') && !text.starts_with('*') {
            return Err(format!("the path `{text}` does not begin with `/`"));
        }
        if let Some(prefix) = text.strip_suffix('*')
            && prefix.ends_with('/')
            && !has_wildcards(prefix)
        {
            return Ok(Self::Prefix(prefix.to_owned()));
        }
        Self::new(text, true)
    }

    /// Reads a pattern of values, in which `*` matches everything.
    pub(crate) fn for_value(text: &str) -> Result<Self, String> {
        Self::new(text, false)
    }

    fn new(text: &str, literal_separator: bool) -> Result<Self, String> {
        if !has_wildcards(text) {
            return Ok(Self::Exact(text.to_owned()));
        }
        let glob: Result<Glob, _> = GlobBuilder::new(text).literal_separator(literal_separator).build();
        glob.map(|glob| Self::Glob(glob.compile_matcher())).map_err(|error| error.to_string())
    }

    fn matches(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == text,
            Self::Prefix(prefix) => text.starts_with(prefix.as_str()),
            Self::Glob(glob) => glob.is_match(text),
        }
    }
}

fn has_wildcards(text: &str) -> bool {
    text.contains(['*', '?', '[', '{', '\\'])
}

/// A rule of a host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rule {
    /// Upper-case methods. All, if empty.
    pub(crate) methods: Vec<String>,
    /// Patterns of the decoded path, of which one has to match. All paths, if empty.
    pub(crate) paths: Vec<TextPattern>,
    /// Parameters of the query. Each has to be there, and each of its values has to match.
    pub(crate) query: Vec<(String, TextPattern)>,
    /// Headers, by lower-case names. Each has to be there, and each of its values has to match.
    pub(crate) headers: Vec<(String, TextPattern)>,
    /// Headers that replace those of the code. Values contain secrets as `${NAME}`.
    pub(crate) transform: Vec<(String, String)>,
}

impl Rule {
    /// Returns whether the rule matches every request and changes none.
    pub(crate) fn is_trivial(&self) -> bool {
        !self.restricts_target() && self.query.is_empty() && self.headers.is_empty() && self.transform.is_empty()
    }

    fn restricts_target(&self) -> bool {
        !self.methods.is_empty() || !self.paths.is_empty()
    }

    /// Returns whether the rule matches the request.
    fn matches(&self, request: &RequestView<'_>, path: &str, query: &str) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|method| method == request.method))
            && (self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.matches(path)))
            && self.query.iter().all(|(name, pattern)| {
                all_match(
                    form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| key == name).map(|(_, value)| value),
                    pattern,
                )
            })
            && self.headers.iter().all(|(name, pattern)| {
                let values = request.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
                all_match(values.map(|(_, value)| String::from_utf8_lossy(value)), pattern)
            })
    }
}

/// Returns whether there are values and all of them match.
fn all_match(values: impl Iterator<Item = impl AsRef<str>>, pattern: &TextPattern) -> bool {
    let mut any = false;
    for value in values {
        if !pattern.matches(value.as_ref()) {
            return false;
        }
        any = true;
    }
    any
}

/// Returns the index of the first rule that matches.
///
/// # Errors
/// Returns the reason if none does.
pub(crate) fn matching_rule(rules: &[&Rule], request: &RequestView<'_>) -> Result<usize, String> {
    let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
    let decoded = if rules.iter().any(|rule| !rule.paths.is_empty()) {
        decoded_path(path).map_err(|reason| format!("the path contains {reason}"))?
    } else {
        percent_decode_str(path).decode_utf8_lossy().into_owned()
    };
    if rules.iter().any(|rule| rule.restricts_target()) {
        let overrides =
            |(name, _): &&(String, Vec<u8>)| OVERRIDE_HEADERS.iter().any(|header| name.eq_ignore_ascii_case(header));
        if let Some((name, _)) = request.headers.iter().find(overrides) {
            return Err(format!("the header {name} replaces the method or the path"));
        }
    }
    rules
        .iter()
        .position(|rule| rule.matches(request, &decoded, query))
        .ok_or_else(|| "no rule matches its method, path, query and headers".to_owned())
}

/// Checks a header that a rule sets.
///
/// # Errors
/// Returns the reason if it is not a header, or one that rules must not set.
pub(crate) fn check_transform(name: &str, value: &str) -> Result<(), String> {
    if name.is_empty() || !name.bytes().all(is_token_byte) {
        return Err(format!("`{name}` is not the name of a header"));
    }
    if FIXED_HEADERS.iter().any(|fixed| name.eq_ignore_ascii_case(fixed)) {
        return Err(format!("the header {name} cannot be set by a rule"));
    }
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err(format!("the value of {name} contains control characters"));
    }
    Ok(())
}

/// Returns whether a byte may be part of a name or a method (a `tchar` of RFC 9110).
pub(crate) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(rule: &Rule, method: &str, target: &str, headers: &[(&str, &str)]) -> bool {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect();
        matching_rule(&[rule], &RequestView { method, target, headers: &headers }).is_ok()
    }

    fn paths(patterns: &[&str]) -> Rule {
        Rule { paths: patterns.iter().map(|p| TextPattern::for_path(p).unwrap()).collect(), ..Rule::default() }
    }

    #[test]
    fn paths_match_exactly_by_prefix_and_by_glob() {
        let rule = paths(&["/user", "/repos/*", "/v?/**/items/{a,b}"]);
        for target in
            ["/user", "/user?x=1", "/%75ser", "/repos/", "/repos/a/b?c=/../", "/v1/x/y/items/a", "/v2/items/b"]
        {
            assert!(allowed(&rule, "GET", target, &[]), "{target}");
        }
        for target in
            ["/users", "/User", "/user/", "/repos", "/", "/repos/../user/x", "/repos/%2e%2e/x", "/v1/x/items/c"]
        {
            assert!(!allowed(&rule, "GET", target, &[]), "{target}");
        }
    }

    #[test]
    fn every_value_of_a_parameter_or_header_has_to_match() {
        let rule = Rule {
            query: vec![("state".to_owned(), TextPattern::for_value("open*").unwrap())],
            headers: vec![("x-team".to_owned(), TextPattern::for_value("a").unwrap())],
            ..Rule::default()
        };
        assert!(allowed(&rule, "GET", "/?state=open&state=opened", &[("X-Team", "a")]));
        assert!(!allowed(&rule, "GET", "/?state=open&state=closed", &[("X-Team", "a")]));
        assert!(!allowed(&rule, "GET", "/?st%61te=closed&state=open", &[("X-Team", "a")]));
        assert!(!allowed(&rule, "GET", "/?state=open", &[("X-Team", "a"), ("x-team", "b")]));
        assert!(!allowed(&rule, "GET", "/?state=open", &[]));
        assert!(!allowed(&rule, "GET", "/", &[("X-Team", "a")]));
    }

    #[test]
    fn headers_that_replace_method_or_path_are_refused_with_such_rules() {
        let rule = Rule { methods: vec!["GET".to_owned()], ..Rule::default() };
        assert!(allowed(&rule, "GET", "/", &[]));
        assert!(!allowed(&rule, "POST", "/", &[]));
        assert!(!allowed(&rule, "get", "/", &[]));
        assert!(!allowed(&rule, "GET", "/", &[("X-HTTP-Method-Override", "DELETE")]));
        assert!(allowed(&Rule::default(), "GET", "/", &[("X-HTTP-Method-Override", "DELETE")]));
    }
}
