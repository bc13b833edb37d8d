//! Tasks over servers of the registries, with the tools called directly by a model, and by code: the characters that
//! enter the model's context, which are the definitions of tools and the results.
//!
//! A direct task has the definitions of all servers' tools, and the results of its calls. A task by code has Belljar's
//! definitions, the result of one search for tools, and the result of one call of `run_python_code`. Both give the same
//! answer, which the benchmark compares. Definitions count once for a task.

mod support;
#[path = "../tests/support/tool_servers.rs"]
mod tool_servers;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use belljar_mcp_client::protocol::Tool;
use belljar_mcp_client::{CallOptions, McpServer, McpServerStdio};
use serde_json::{Value, json};
use support::{Finding, Table, program};
use tool_servers::{ToolServer, registry_servers};

/// The number of text files, of commits and of rows of a table.
const FILES: usize = 20;
const COMMITS: usize = 5;
const ROWS: usize = 60;

/// A task: its calls, and the code that makes them.
struct Task {
    name: &'static str,
    calls: Vec<(&'static str, &'static str, Value)>,
    /// The words of the search for tools.
    search: &'static str,
    code: String,
    /// A part of the answer of the code.
    answer: &'static str,
}

fn main() -> Finding<()> {
    support::main(|| {
        drop(support::python()?);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(measure())
    })
}

async fn measure() -> Finding<()> {
    let folder = tempfile::tempdir()?;
    let root = folder.path().canonicalize()?;
    prepare(&root)?;
    let servers = registry_servers(&root);
    let mut clients = HashMap::new();
    let mut guards = Vec::new();
    let mut direct_definitions = 0;
    for server in &servers {
        let client = server.client();
        guards.push(client.connect().await?);
        direct_definitions += definitions(&client.list_tools().await?);
        clients.insert(server.name, client);
    }
    let options: Vec<String> = servers.iter().map(ToolServer::option).collect();
    let belljar = McpServerStdio::new(program())
        .args(["stdio", "--isolation", "thread"])
        .args(&options)
        .args(["--approve", "none"]);
    let belljar = belljar.timeout(Duration::from_secs(120)).build();
    let running = belljar.connect().await?;
    let code_definitions = definitions(&belljar.list_tools().await?);
    // The rows of the table of tasks, and the only table with data.
    for query in setup_queries() {
        let tool = if query.starts_with("create") { "create_table" } else { "write_query" };
        text(&clients["sqlite"], tool, json!({ "query": query })).await?;
    }
    let heads = ["task", "calls", "direct: results", "direct: all", "code: search and result", "code: all", "ratio"];
    let mut table = Table::new(&heads);
    for task in tasks(&root) {
        let mut results = 0;
        for (server, tool, arguments) in &task.calls {
            results += text(&clients[server], tool, arguments.clone()).await?.chars().count();
        }
        let search = json!({ "query": task.search, "limit": 3 });
        let found = text(&belljar, "search_tools", search).await?;
        let outcome = text(&belljar, "run_python_code", json!({ "python_code": task.code })).await?;
        if !outcome.contains(task.answer) {
            return Err(format!("{}: expected {:?} in {outcome}", task.name, task.answer).into());
        }
        let by_code = found.chars().count() + outcome.chars().count();
        let (direct, code) = (direct_definitions + results, code_definitions + by_code);
        let ratio = code as f64 / direct as f64;
        let calls = task.calls.len();
        let cells = [task.name.to_owned(), calls.to_string(), results.to_string(), direct.to_string()];
        table.row(&[&cells[..], &[by_code.to_string(), code.to_string(), format!("{ratio:.2}")]].concat());
    }
    table.print("Characters in the context");
    let mut sizes = Table::new(&["definitions", "characters"]);
    sizes.row(&["the tools of 7 servers", &direct_definitions.to_string()]);
    sizes.row(&["`belljar stdio` with these servers", &code_definitions.to_string()]);
    sizes.print("Definitions");
    running.close().await?;
    for guard in guards {
        guard.close().await?;
    }
    Ok(())
}

/// Returns the length of the definitions as a model gets them: names, descriptions and schemas.
fn definitions(tools: &[Tool]) -> usize {
    let definition = |tool: &Tool| {
        json!({ "name": tool.name, "description": tool.description, "input_schema": tool.input_schema }).to_string()
    };
    tools.iter().map(|tool| definition(tool).chars().count()).sum()
}

/// Calls a tool, and returns the text of its result.
async fn text(server: &McpServer, tool: &str, arguments: Value) -> Finding<String> {
    let result = server.call_tool_raw(tool, arguments, CallOptions::new()).await?;
    let parts = result.content.iter().filter_map(|part| part.as_text());
    let text = parts.fold(String::new(), |text, part| text + &part.text);
    if result.is_error == Some(true) {
        return Err(format!("{tool}: {text}").into());
    }
    Ok(text)
}

/// Writes the files and the repository of the tasks.
fn prepare(root: &Path) -> Finding<()> {
    for at in 0..FILES {
        let mut text = String::new();
        for line in 0..20 {
            writeln!(text, "Line {line} of report {at}: the value is {}.", (at * 37 + line * 11) % 100)?;
        }
        if at == 13 {
            text.push_str("The needle is here.\n");
        }
        std::fs::write(root.join(format!("report_{at:02}.txt")), text)?;
    }
    let repository = root.join("repository");
    std::fs::create_dir(&repository)?;
    let git = |arguments: &[&str]| -> Finding<()> {
        let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"];
        let done = Command::new("git").current_dir(&repository).args(identity).args(arguments).output()?;
        if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into()) }
    };
    git(&["init", "-q", "-b", "main"])?;
    for at in 0..COMMITS {
        let lines: String = (0..(at + 1) * 10).map(|line| format!("line {line} of commit {at}\n")).collect();
        std::fs::write(repository.join(format!("module_{at}.py")), lines)?;
        git(&["add", "."])?;
        git(&["commit", "-q", "-m", &format!("Add module {at}")])?;
    }
    Ok(())
}

fn setup_queries() -> Vec<String> {
    let mut queries: Vec<String> = ["orders", "customers", "products", "invoices", "returns"]
        .map(|name| format!("create table {name} (id integer, region text, amount integer)"))
        .into();
    let values: Vec<String> = (0..ROWS).map(|at| format!("({at}, 'region {}', {})", at % 4, (at * 7) % 50)).collect();
    queries.push(format!("insert into orders values {}", values.join(", ")));
    queries
}

fn tasks(root: &Path) -> Vec<Task> {
    let path = |name: &str| root.join(name).display().to_string();
    let reports: Vec<String> = (0..FILES).map(|at| path(&format!("report_{at:02}.txt"))).collect();
    let repository = path("repository");
    let folder = root.display().to_string();
    let read = |paths: &[String]| -> Vec<(&'static str, &'static str, Value)> {
        paths.iter().map(|path| ("files", "read_text_file", json!({ "path": path }))).collect()
    };
    let zones = ["Asia/Tokyo", "Europe/Paris", "America/New_York", "Asia/Kolkata", "Australia/Sydney"];
    let convert = |zone: &str| {
        ("time", "convert_time", json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": zone }))
    };
    let query = |query: &str| ("sqlite", "read_query", json!({ "query": query }));
    let tables = ["orders", "customers", "products", "invoices", "returns"];
    let read_all = format!(
        "import asyncio\nfrom tools import files\npaths = [f'{folder}/report_{{at:02}}.txt' for at in range({FILES})]\n\
         async def text(path):\n    read = await files.read_text_file(path=path)\n    \
         return read if isinstance(read, str) else read['content']\n\
         texts = await asyncio.gather(*map(text, paths))\n"
    );
    let convert_all = format!(
        "import asyncio\nfrom tools import time\nzones = {zones:?}\n\
         times = await asyncio.gather(*(time.convert_time(source_timezone='UTC', time='12:00', target_timezone=zone) \
         for zone in zones))\nhours = {{zone: each['target']['datetime'][11:16] for zone, each in zip(zones, times)}}\n"
    );
    let revisions: Vec<String> = (0..COMMITS).map(|at| format!("HEAD~{at}")).collect();
    let entity =
        |at: usize| json!({ "name": format!("e{at}"), "entityType": "part", "observations": [format!("o{at}")] });
    vec![
        Task {
            name: "the time in one zone",
            calls: vec![convert("Asia/Tokyo")],
            search: "convert time zone",
            code: "from tools import time\n(await time.convert_time(source_timezone='UTC', time='12:00', \
                   target_timezone='Asia/Tokyo'))['target']['datetime'][11:16]"
                .into(),
            answer: "21:00",
        },
        Task {
            name: "one file",
            calls: read(&reports[..1]),
            search: "read text file",
            code: format!("from tools import files\nawait files.read_text_file(path={:?})", reports[0]),
            answer: "Line 19 of report 0",
        },
        Task {
            name: "one sum",
            calls: vec![("everything", "get-sum", json!({ "a": 19, "b": 23 }))],
            search: "sum of numbers",
            code: "from tools import everything\nawait everything.get_sum(a=19, b=23)".into(),
            answer: "42",
        },
        Task {
            name: "the average of a column",
            calls: vec![query("select avg(amount) from orders")],
            search: "sql select query",
            code: "from tools import sqlite\nawait sqlite.read_query(query='select avg(amount) from orders')".into(),
            answer: "avg(amount)",
        },
        Task {
            name: "the order of five zones",
            calls: zones.iter().map(|zone| convert(zone)).collect(),
            search: "convert time zone",
            code: format!("{convert_all}sorted(hours, key=hours.get)"),
            answer: "America/New_York",
        },
        Task {
            name: "the file with a word",
            calls: read(&reports),
            search: "read text file",
            code: format!("{read_all}[path for path, text in zip(paths, texts) if 'needle' in text]"),
            answer: "report_13.txt",
        },
        Task {
            name: "the sum of a value in ten files",
            calls: read(&reports[..10]),
            search: "read text file",
            code: format!(
                "{read_all}import re\nsum(int(n) for text in texts[:10] for n in re.findall(r'value is (\\d+)', text))"
            ),
            answer: "<return_value>",
        },
        Task {
            name: "the largest file",
            calls: [("files", "list_directory", json!({ "path": folder }))]
                .into_iter()
                .chain(reports.iter().map(|path| ("files", "get_file_info", json!({ "path": path }))))
                .collect(),
            search: "file size information, list directory",
            code: format!(
                "import asyncio\nfrom tools import files\npaths = [f'{folder}/report_{{at:02}}.txt' for at in \
                 range({FILES})]\ninfos = await asyncio.gather(*(files.get_file_info(path=path) for path in paths))\n\
                 texts = [info if isinstance(info, str) else info['content'] for info in infos]\n\
                 size = lambda text: int(text.split('size: ')[1].split()[0])\n\
                 max(zip(map(size, texts), paths))[1]"
            ),
            answer: "report_13.txt",
        },
        Task {
            name: "the largest of five commits",
            calls: [("git", "git_log", json!({ "repo_path": repository, "max_count": COMMITS }))]
                .into_iter()
                .chain(
                    revisions
                        .iter()
                        .map(|revision| ("git", "git_show", json!({ "repo_path": repository, "revision": revision }))),
                )
                .collect(),
            search: "commits: log, show the changes",
            code: format!(
                "import asyncio\nfrom tools import git\nshown = await asyncio.gather(*(git.git_show(repo_path=\
                 {repository:?}, revision=f'HEAD~{{at}}') for at in range({COMMITS})))\n\
                 largest = max(shown, key=lambda text: text.count('\\n+'))\n\
                 next(line.strip() for line in largest.splitlines() if 'Add module' in line)"
            ),
            answer: "Add module 4",
        },
        Task {
            name: "the rows of five tables",
            calls: [("sqlite", "list_tables", json!({}))]
                .into_iter()
                .chain(tables.iter().map(|table| ("sqlite", "describe_table", json!({ "table_name": table }))))
                .chain(tables.iter().map(|table| query(&format!("select count(*) from {table}"))))
                .collect(),
            search: "list tables, sql select query",
            code: format!(
                "import ast\nfrom tools import sqlite\n{{table: ast.literal_eval(await sqlite.read_query(query=f'select \
                 count(*) as n from {{table}}'))[0]['n'] for table in {tables:?}}}"
            ),
            answer: "60",
        },
        Task {
            name: "amounts by region, with all rows",
            calls: (0..6).map(|page| query(&format!("select * from orders limit 10 offset {}", page * 10))).collect(),
            search: "sql select query",
            code: "import ast\nfrom collections import Counter\nfrom tools import sqlite\nsums = Counter()\n\
                   for page in range(6):\n    \
                   query = f'select * from orders limit 10 offset {page * 10}'\n    \
                   for row in ast.literal_eval(await sqlite.read_query(query=query)):\n        \
                   sums[row['region']] += row['amount']\nsums.most_common(1)"
                .into(),
            answer: "region",
        },
        Task {
            name: "times of files in memory: three servers",
            calls: read(&reports[..5])
                .into_iter()
                .chain(zones.iter().map(|zone| convert(zone)))
                .chain((0..5).map(|at| ("memory", "create_entities", json!({ "entities": [entity(at)] }))))
                .chain([("memory", "read_graph", json!({}))])
                .collect(),
            search: "read text file, convert time zone, create entities",
            code: format!(
                "{convert_all}from tools import memory\n{read_all}for text, (zone, hour) in zip(texts, hours.items()):\n    \
                 await memory.create_entities(entities=[{{'name': zone, 'entityType': 'zone', 'observations': [hour, \
                 text.split('.')[0]]}}])\nlen((await memory.read_graph())['entities'])"
            ),
            answer: "<return_value>",
        },
    ]
}
