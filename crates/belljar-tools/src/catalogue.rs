//! The servers and their tools, under the names that code sees.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use belljar_mcp_client::{McpServer, ToolDefinition, ToolIndex};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::approval::Fingerprint;
use crate::connection::{Connection, Definition};
use crate::durations::RequestDurations;
use crate::error::ToolFailure;
use crate::function::Function;
use crate::limits::ToolLimits;
use crate::names::identifiers;
use crate::policy::ToolPolicy;
use crate::python_text::shorten;

/// The names that the guest's module `tools` has itself.
const MODULE_NAMES: [&str; 15] = [
    "Call",
    "File",
    "NotAwaitedError",
    "Resource",
    "ToolDenied",
    "ToolError",
    "ToolException",
    "ToolInterrupted",
    "ToolLimitExceeded",
    "ToolTimeout",
    "ToolUnavailable",
    "call",
    "describe",
    "search",
    "servers",
];
/// The names that each server's module has itself.
const SERVER_NAMES: [&str; 1] = ["resources"];
/// The size in bytes up to which a schema is used for checking arguments; those of a larger one the server checks.
const MAX_CHECKED_SCHEMA: usize = 256 << 10;
/// The maximum number of problems in an error message, and the maximum length of one, in characters.
const MAX_PROBLEMS: usize = 5;
const MAX_PROBLEM: usize = 300;
/// The maximum number of names in an error message.
const MAX_NAMES: usize = 40;

/// The tools of MCP servers, for any number of runs.
pub struct Tools {
    pub(crate) servers: Vec<Server>,
    pub(crate) policy: ToolPolicy,
    pub(crate) limits: ToolLimits,
    pub(crate) durations: RequestDurations,
    changes: watch::Sender<u64>,
    /// The last index for searches.
    searched: Mutex<Option<SearchedTools>>,
}

/// Tools, and the index for searches in them.
struct SearchedTools {
    tools: Vec<Arc<Tool>>,
    index: Arc<ToolIndex>,
}

impl Tools {
    /// Creates the tools of `servers`, none of which is connected before it is needed. The connections do not share
    /// those of the given handles, and their handlers of messages are replaced.
    pub fn new(servers: &[McpServer], policy: ToolPolicy, limits: ToolLimits) -> Self {
        let (changes, _) = watch::channel(0);
        let connections: Vec<Connection> =
            servers.iter().map(|server| Connection::new(server, changes.clone())).collect();
        let originals: Vec<String> = connections.iter().map(Connection::name).collect();
        let names = identifiers(originals.iter().map(String::as_str), "server", &MODULE_NAMES);
        let durations = RequestDurations::new(names.iter().map(String::as_str));
        let servers = connections
            .into_iter()
            .zip(originals.into_iter().zip(names))
            .map(|(connection, (original, name))| Server { name, original, connection, listing: Mutex::default() })
            .collect();
        Self { servers, policy, limits, durations, changes, searched: Mutex::default() }
    }

    /// Returns the durations of requests to the servers.
    pub fn durations(&self) -> &RequestDurations {
        &self.durations
    }

    /// Returns a receiver of the number of changes: a server has announced other tools, lists others than before, or
    /// can be reached again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Closes the connections to the servers. Later calls connect again.
    pub async fn close(&self) {
        for server in &self.servers {
            server.connection.close().await;
        }
    }

    /// Returns the names of the servers in Python.
    pub fn server_names(&self) -> Vec<&str> {
        self.servers.iter().map(|server| server.name.as_str()).collect()
    }

    /// Returns the server of a name: that in Python, or the original one.
    pub(crate) fn server(&self, name: &str) -> Result<&Server, ToolFailure> {
        let by_name = self.servers.iter().find(|server| server.name == name);
        let found = by_name.or_else(|| self.servers.iter().find(|server| server.original == name));
        found.ok_or_else(|| {
            let known = self.server_names().join(", ");
            ToolFailure::Failed(format!("there is no server `{}`; the servers are {known}", shorten(name, 80)))
        })
    }

    /// Returns a server's tools that the policy allows.
    pub(crate) async fn listing(&self, server: &Server) -> Result<Arc<Listing>, ToolFailure> {
        let definitions = server.connection.tools().await?;
        let mut listing = server.listing.lock();
        if let Some(known) = listing.as_ref().filter(|known| Arc::ptr_eq(&known.definitions, &definitions)) {
            return Ok(known.clone());
        }
        let new = Arc::new(Listing::new(server, definitions, &self.policy));
        *listing = Some(new.clone());
        Ok(new)
    }

    /// Returns the allowed tools of all servers, by relevance for `query` if it has words. Servers that are down are
    /// left out; their names and reasons are returned, too.
    pub(crate) async fn search(&self, query: &str) -> (Vec<Arc<Tool>>, Vec<(String, ToolFailure)>) {
        let (mut tools, mut failures) = (Vec::new(), Vec::new());
        for server in &self.servers {
            match self.listing(server).await {
                Ok(listing) => tools.extend(listing.tools.iter().cloned()),
                Err(failure) => failures.push((server.name.clone(), failure)),
            }
        }
        if !query.contains(char::is_alphanumeric) {
            return (tools, failures);
        }
        let index = self.index(&tools);
        let by_path: HashMap<String, &Arc<Tool>> = tools.iter().map(|tool| (tool.path(), tool)).collect();
        let found = index.search(query, tools.len());
        let found = found.iter().filter_map(|found| by_path.get(&found.tool.name).map(|tool| (*tool).clone()));
        (found.collect(), failures)
    }

    /// Returns the index of `tools`, which is made once for the same tools.
    fn index(&self, tools: &[Arc<Tool>]) -> Arc<ToolIndex> {
        let mut known = self.searched.lock();
        let is_same = |indexed: &[Arc<Tool>]| {
            indexed.len() == tools.len() && indexed.iter().zip(tools).all(|(one, other)| Arc::ptr_eq(one, other))
        };
        if let Some(searched) = known.as_ref().filter(|searched| is_same(&searched.tools)) {
            return searched.index.clone();
        }
        let definitions: Vec<ToolDefinition> = tools.iter().map(|tool| tool.for_search()).collect();
        let index = Arc::new(ToolIndex::new(&definitions.into()));
        *known = Some(SearchedTools { tools: tools.to_vec(), index: index.clone() });
        index
    }
}

/// A server and the tools that it listed last.
pub(crate) struct Server {
    /// The name in Python.
    pub(crate) name: String,
    pub(crate) original: String,
    pub(crate) connection: Connection,
    listing: Mutex<Option<Arc<Listing>>>,
}

/// The tools of a server that the policy allows, and the names of the others.
pub(crate) struct Listing {
    definitions: Arc<Vec<Definition>>,
    pub(crate) tools: Vec<Arc<Tool>>,
    by_name: HashMap<String, usize>,
    by_original: HashMap<String, usize>,
    denied: HashMap<String, ()>,
}

impl Listing {
    fn new(server: &Server, definitions: Arc<Vec<Definition>>, policy: &ToolPolicy) -> Self {
        let originals = definitions.iter().map(|definition| definition.name.as_str());
        let names = identifiers(originals, "tool", &SERVER_NAMES);
        let mut listing = Self {
            definitions: definitions.clone(),
            tools: Vec::new(),
            by_name: HashMap::new(),
            by_original: HashMap::new(),
            denied: HashMap::new(),
        };
        for (name, definition) in names.into_iter().zip(definitions.iter()) {
            let patterns = [
                format!("{}.{name}", server.name),
                format!("{}.{}", server.name, definition.name),
                format!("{}.{}", server.original, definition.name),
            ];
            if !policy.allows(&patterns) {
                listing.denied.extend([(name, ()), (definition.name.clone(), ())]);
                continue;
            }
            let at = listing.tools.len();
            listing.by_name.insert(name.clone(), at);
            listing.by_original.entry(definition.name.clone()).or_insert(at);
            listing.tools.push(Arc::new(Tool::new(server, name, definition.clone())));
        }
        listing
    }

    /// Returns the tool of a name: that in Python, or the original one with `is_original`.
    pub(crate) fn find(&self, server: &str, name: &str, is_original: bool) -> Result<Arc<Tool>, ToolLookupError> {
        let (first, second) =
            if is_original { (&self.by_original, &self.by_name) } else { (&self.by_name, &self.by_original) };
        let at = first.get(name).or_else(|| second.get(name));
        if let Some(tool) = at.and_then(|at| self.tools.get(*at)) {
            return Ok(tool.clone());
        }
        if self.denied.contains_key(name) {
            return Err(ToolLookupError::Denied(format!("the policy denies `{server}.{name}`")));
        }
        let mut known: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).take(MAX_NAMES).collect();
        if self.tools.len() > MAX_NAMES {
            known.push("…");
        }
        let name = shorten(name, 80);
        Err(ToolLookupError::Unknown(format!("server `{server}` has no tool `{name}`; it has {}", known.join(", "))))
    }
}

/// The reason why a tool was not found.
#[derive(Debug)]
pub(crate) enum ToolLookupError {
    Denied(String),
    Unknown(String),
}

impl From<ToolLookupError> for ToolFailure {
    fn from(missing: ToolLookupError) -> Self {
        match missing {
            ToolLookupError::Denied(message) => Self::Denied(message),
            ToolLookupError::Unknown(message) => Self::Failed(message),
        }
    }
}

/// A tool that code may call.
pub(crate) struct Tool {
    /// The names in Python.
    pub(crate) server: String,
    pub(crate) name: String,
    original_server: String,
    pub(crate) definition: Definition,
    function: OnceLock<Function>,
    identity: OnceLock<Identity>,
    validator: OnceLock<Option<jsonschema::Validator>>,
}

struct Identity {
    fingerprint: Fingerprint,
    /// The size of the schema of arguments, in bytes.
    schema_bytes: usize,
}

impl Tool {
    fn new(server: &Server, name: String, definition: Definition) -> Self {
        Self {
            server: server.name.clone(),
            name,
            original_server: server.original.clone(),
            definition,
            function: OnceLock::new(),
            identity: OnceLock::new(),
            validator: OnceLock::new(),
        }
    }

    /// Returns the names in Python: `github.search_issues`.
    pub(crate) fn path(&self) -> String {
        format!("{}.{}", self.server, self.name)
    }

    pub(crate) fn function(&self) -> &Function {
        self.function.get_or_init(|| {
            let Definition { title, description, input, output, .. } = &self.definition;
            let about = match title {
                Some(title) if description.is_empty() => title,
                _ => description,
            };
            let input = Value::Object((**input).clone());
            let output = output.as_ref().map(|schema| Value::Object((**schema).clone()));
            Function::new(&self.name, about, &input, output.as_ref())
        })
    }

    fn identity(&self) -> &Identity {
        self.identity.get_or_init(|| {
            let Definition { name, title, description, input, output, effects } = &self.definition;
            let schema = serde_json::to_vec(&**input).unwrap_or_default();
            let output = output.as_ref().map(|schema| serde_json::to_vec(&**schema).unwrap_or_default());
            let mut digest = Sha256::new();
            let effects = [effects.read_only, effects.destructive, effects.idempotent].map(u8::from);
            let title = title.as_deref().unwrap_or_default();
            let texts = [&self.original_server, name, title, description].map(|text| text.as_bytes());
            for part in texts.into_iter().chain([&schema[..], output.as_deref().unwrap_or_default(), &effects]) {
                digest.update((part.len() as u64).to_le_bytes());
                digest.update(part);
            }
            Identity { fingerprint: digest.finalize().into(), schema_bytes: schema.len() }
        })
    }

    /// Returns the identity of the tool's definition.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.identity().fingerprint
    }

    /// Returns the texts that searches look in, under the name in Python.
    fn for_search(&self) -> ToolDefinition {
        let Definition { description, input, .. } = &self.definition;
        ToolDefinition::new(self.path(), Value::Object((**input).clone())).with_description(description.as_str())
    }

    /// Checks the arguments of the Python function, and leaves out those that count as missing.
    ///
    /// # Errors
    /// Returns the problems, with the signature of the tool.
    pub(crate) fn check(&self, arguments: Map<String, Value>) -> Result<Value, ToolFailure> {
        let function = self.function();
        let arguments = function.without_missing(arguments);
        let unknown = function.unknown_argument(&arguments);
        let unknown = unknown.map(|name| format!("there is no parameter `{}`", shorten(name, 80)));
        self.check_with(arguments, unknown.into_iter().collect())
    }

    /// Checks arguments as the schema has them.
    ///
    /// # Errors
    /// The same as those of [`Tool::check`].
    pub(crate) fn check_schema(&self, arguments: Map<String, Value>) -> Result<Value, ToolFailure> {
        self.check_with(arguments, Vec::new())
    }

    fn check_with(&self, arguments: Map<String, Value>, mut problems: Vec<String>) -> Result<Value, ToolFailure> {
        let arguments = Value::Object(arguments);
        let validator = self.validator.get_or_init(|| {
            if self.identity().schema_bytes > MAX_CHECKED_SCHEMA {
                return None;
            }
            let schema = Value::Object((*self.definition.input).clone());
            let built = jsonschema::options().build(&schema);
            built.inspect_err(|error| tracing::debug!(%error, "ignoring an invalid schema")).ok()
        });
        // Collecting the errors of arguments that have none takes longer.
        if let Some(validator) = validator.as_ref().filter(|validator| !validator.is_valid(&arguments)) {
            problems.extend(validator.iter_errors(&arguments).take(MAX_PROBLEMS).map(|error| {
                let place = error.instance_path().to_string();
                let problem = shorten(&error.to_string(), MAX_PROBLEM);
                if place.is_empty() { problem } else { format!("{}: {problem}", place.trim_start_matches('/')) }
            }));
        }
        if problems.is_empty() {
            return Ok(arguments);
        }
        let signature = self.function().signature();
        let problems = problems.join("; ");
        Err(ToolFailure::Failed(format!("invalid arguments of {}: {problems}\n{signature}", self.path())))
    }
}
