//! MCP servers of the registries: processes of real packages, which are installed once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_mcp_client::{McpServer, McpServerStdio};

/// Versions are pinned: the tests expect the servers' exact tools.
const PACKAGES: &[&str] = &["mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19"];
/// It does not run with version 2 of the SDK.
const SQLITE: &[&str] = &["mcp-server-sqlite==2025.4.25", "mcp<2"];
const NPM: &[&str] = &[
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
    "@modelcontextprotocol/server-sequential-thinking@2026.8.31",
];

/// A server over standard streams.
pub(crate) struct ToolServer {
    pub(crate) name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
}

impl ToolServer {
    /// Returns the option `--server`.
    pub(crate) fn option(&self) -> String {
        let words = [self.program.display().to_string()].into_iter().chain(self.arguments.iter().cloned());
        let quoted: Vec<String> = words.map(|word| format!("'{word}'")).collect();
        format!("--server={}={}", self.name, quoted.join(" "))
    }

    /// Returns a client of the server.
    pub(crate) fn client(&self) -> McpServer {
        let server = McpServerStdio::new(&self.program).args(&self.arguments).id(self.name);
        server.timeout(Duration::from_secs(180)).build()
    }
}

/// Returns servers whose files and database are in `folder`.
pub(crate) fn registry_servers(folder: &Path) -> Vec<ToolServer> {
    let root = Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/belljar-tool-servers"));
    let python = belljar_testing::install::pip(root, "python", PACKAGES).join("python");
    let sqlite = belljar_testing::install::pip(root, "sqlite", SQLITE).join("mcp-server-sqlite");
    let modules = belljar_testing::install::npm(root, "npm", NPM).join("@modelcontextprotocol");
    let npm = |name, package: &str, argument: Option<String>| {
        let program = modules.join(package).join("dist/index.js").display().to_string();
        ToolServer { name, program: "node".into(), arguments: [program].into_iter().chain(argument).collect() }
    };
    let pip =
        |name, module: &str| ToolServer { name, program: python.clone(), arguments: vec!["-m".into(), module.into()] };
    let database = folder.join("data.db").display().to_string();
    vec![
        npm("everything", "server-everything", Some("stdio".into())),
        npm("files", "server-filesystem", Some(folder.display().to_string())),
        npm("memory", "server-memory", None),
        npm("thinking", "server-sequential-thinking", None),
        pip("time", "mcp_server_time"),
        ToolServer { name: "sqlite", program: sqlite, arguments: vec!["--db-path".into(), database] },
        pip("git", "mcp_server_git"),
    ]
}
