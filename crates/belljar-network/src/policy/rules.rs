//! Rules of a host: the requests that they match, and the headers that they set.

use globset::{Glob, GlobBuilder, GlobMatcher};
use percent_encoding::percent_decode_str;

use super::path::{decoded_path, has_whole_escapes};

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

/// Headers by which some servers replace the method, the path or the host of a request.
const OVERRIDE_HEADERS: [&str; 19] = [
    "forwarded",
    "x-envoy-original-path",
    "x-forwarded-host",
    "x-forwarded-method",
    "x-forwarded-path",
    "x-forwarded-uri",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-host",
    "x-original-method",
    "x-original-path",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-rewrite-path",
    "x-rewrite-uri",
    "x-rewrite-url",
];

/// Parameters of the query by which some servers replace the method.
const OVERRIDE_PARAMETERS: [&str; 4] = ["_method", "x-http-method", "x-http-method-override", "x-method-override"];

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
    /// Parameters of the query. Each has to be there, and each of its values has to match, also by names that servers
    /// may read as this one.
    pub(crate) query: Vec<(String, TextPattern)>,
    /// Headers. Each has to be there, and each of its values has to match, also by names that servers may read as this
    /// one.
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
            && (self.query.is_empty() || is_unambiguous(query))
            && self.query.iter().all(|(name, pattern)| query_matches(query, name, pattern))
            && self.headers.iter().all(|(name, pattern)| headers_match(request.headers, name, pattern))
    }
}

/// Returns whether the query has the parameter, and all values match, also of names that servers may read as this one.
fn query_matches(query: &str, name: &str, pattern: &TextPattern) -> bool {
    let mut is_there = false;
    for (key, value) in parameters(query).filter(|(key, _)| is_same_parameter(key, name)) {
        if !pattern.matches(&value) {
            return false;
        }
        is_there |= key == name;
    }
    is_there
}

/// Returns whether the header is there, and all values match, also of names that servers may read as this one.
fn headers_match(headers: &[(String, Vec<u8>)], name: &str, pattern: &TextPattern) -> bool {
    let mut is_there = false;
    for (key, value) in headers.iter().filter(|(key, _)| is_same_header(key, name)) {
        if !pattern.matches(&String::from_utf8_lossy(value)) {
            return false;
        }
        is_there |= key.eq_ignore_ascii_case(name);
    }
    is_there
}

/// Returns the parameters of a query, decoded.
fn parameters(query: &str) -> form_urlencoded::Parse<'_> {
    form_urlencoded::parse(query.as_bytes())
}

/// Returns whether servers split and decode the query in the same way: some read `;` as `&`, or decode `%u0041`.
fn is_unambiguous(query: &str) -> bool {
    !query.contains(';') && has_whole_escapes(query)
}

/// Returns whether some servers read the two names of parameters as one: they ignore case and spaces, cut arrays
/// (`name[]`) off, or replace dots and spaces by underscores.
fn is_same_parameter(sent: &str, named: &str) -> bool {
    let folded = |name: &str| {
        let end = if named.contains('[') { name.len() } else { name.find(['[', '\0']).unwrap_or(name.len()) };
        let name = name.get(..end).unwrap_or_default().trim();
        name.replace(['.', ' '], "_").to_ascii_lowercase()
    };
    folded(sent) == folded(named)
}

/// Returns whether servers may read the two names of headers as one: gateways to programs (CGI, WSGI) read `_` as `-`.
pub(crate) fn is_same_header(a: &str, b: &str) -> bool {
    let folded = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    a.bytes().map(folded).eq(b.bytes().map(folded))
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
            |(name, _): &&(String, Vec<u8>)| OVERRIDE_HEADERS.iter().any(|header| is_same_header(name, header));
        if let Some((name, _)) = request.headers.iter().find(overrides) {
            return Err(format!("the header {name} replaces the method, the path or the host"));
        }
        let replaces = |name: &str| OVERRIDE_PARAMETERS.iter().any(|parameter| is_same_parameter(name, parameter));
        if parameters(query).any(|(name, _)| replaces(name.as_ref())) {
            return Err("a parameter of the query replaces the method".to_owned());
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
    fn parameters_and_headers_that_servers_may_read_as_the_named_one_have_to_match() {
        let rule = Rule {
            query: vec![("my_state".to_owned(), TextPattern::for_value("open*").unwrap())],
            headers: vec![("x-team".to_owned(), TextPattern::for_value("a*").unwrap())],
            ..Rule::default()
        };
        let team = ("X-Team", "a");
        assert!(allowed(&rule, "GET", "/?my_state=open&MY.STATE=opened&state=x", &[team, ("X_TEAM", "ab")]));
        for query in [
            "my_state=open&My_State=all",
            "my_state=open&my.state=all",
            "my_state=open&my+state=all",
            "my_state=open&my_state[]=all",
            "my_state=open&my_state[x]=all",
            "my_state=open&%20my_state=all",
            "my_state=open&my_state%00=all",
            "my_state=open;my_state=all",
            "my_state=open&my_stat%u0065=all",
            "my_state=open&x=%",
            "my.state=open",
        ] {
            assert!(!allowed(&rule, "GET", &format!("/?{query}"), &[team]), "{query}");
        }
        assert!(!allowed(&rule, "GET", "/?my_state=open", &[team, ("X_Team", "b")]));
        assert!(!allowed(&rule, "GET", "/?my_state=open", &[("X_Team", "a")]));
        let array = Rule {
            query: vec![("filter[state]".to_owned(), TextPattern::for_value("open").unwrap())],
            ..Rule::default()
        };
        assert!(allowed(&array, "GET", "/?filter[state]=open&filter[kind]=x", &[]));
        assert!(!allowed(&array, "GET", "/?filter[state]=open&filter[STATE]=all", &[]));
    }

    #[test]
    fn headers_that_replace_method_or_path_are_refused_with_such_rules() {
        let rule = Rule { methods: vec!["GET".to_owned()], ..Rule::default() };
        assert!(allowed(&rule, "GET", "/", &[]));
        assert!(!allowed(&rule, "POST", "/", &[]));
        assert!(!allowed(&rule, "get", "/", &[]));
        for name in ["X-HTTP-Method-Override", "X_HTTP_Method_Override", "X-Forwarded-Host", "Forwarded"] {
            assert!(!allowed(&rule, "GET", "/", &[(name, "DELETE")]), "{name}");
        }
        for query in ["_method=DELETE", "_METHOD=DELETE", "a=b&%5fmethod=DELETE", "X-HTTP-Method-Override=DELETE"] {
            assert!(!allowed(&rule, "GET", &format!("/?{query}"), &[]), "{query}");
        }
        assert!(allowed(&rule, "GET", "/?method=DELETE", &[("X-Forwarded-For", "192.0.2.1")]));
        assert!(allowed(&Rule::default(), "GET", "/", &[("X-HTTP-Method-Override", "DELETE")]));
    }
}
