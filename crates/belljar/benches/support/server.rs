//! A server over standard streams, whose tools a benchmark calls.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::Finding;

/// A server process with its pipes.
pub(crate) struct Server {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
}

impl Server {
    /// Starts `belljar stdio` with a toolset and further options.
    pub(crate) fn start(toolset: &str, options: &[&str]) -> Finding<Self> {
        Self::start_with(toolset, options, &json!({}))
    }

    /// Starts the server for a client with these capabilities.
    pub(crate) fn start_with(toolset: &str, options: &[&str], capabilities: &Value) -> Finding<Self> {
        Self::start_in(&[], toolset, options, capabilities)
    }

    /// Does the same with these environment variables.
    pub(crate) fn start_in(
        variables: &[(String, String)],
        toolset: &str,
        options: &[&str],
        capabilities: &Value,
    ) -> Finding<Self> {
        Self::start_program(&super::program(), variables, toolset, options, capabilities)
    }

    /// Does the same with this program.
    pub(crate) fn start_program(
        program: &OsStr,
        variables: &[(String, String)],
        toolset: &str,
        options: &[&str],
        capabilities: &Value,
    ) -> Finding<Self> {
        let mut command = Command::new(program);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.args(["stdio", "--toolset", toolset]).args(super::isolation(options)).args(options);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().ok_or("no pipe")?);
        let mut server = Self { child, input, output, next: 0 };
        let client = json!({ "name": "bench", "version": "1" });
        server.write(&json!({
            "jsonrpc": "2.0", "id": 0, "method": "initialize",
            "params": { "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": client },
        }))?;
        server.answer(0)?;
        server.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(server)
    }

    /// Runs `work` and waits for the end of the server. Returns the result of `work`.
    pub(crate) fn ended<T>(mut self, work: impl FnOnce(&mut Self) -> Finding<T>) -> Finding<T> {
        let result = work(&mut self)?;
        self.end()?;
        Ok(result)
    }

    /// Ends the server's input, and waits for its end.
    pub(crate) fn end(&mut self) -> Finding<()> {
        self.input = None;
        self.child.wait()?;
        Ok(())
    }

    /// Kills the server, as a crash of its machine would.
    pub(crate) fn kill(mut self) -> Finding<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    pub(crate) fn write(&mut self, message: &Value) -> Finding<()> {
        self.input.as_mut().ok_or("ended")?.write_all(format!("{message}\n").as_bytes())?;
        Ok(())
    }

    fn answer(&mut self, id: u64) -> Finding<Value> {
        self.read(|message| message["id"] == id)
    }

    /// Reads messages until one of them is wanted.
    pub(crate) fn read(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Finding<Value> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err("the server has ended".into());
            }
            let message: Value = serde_json::from_str(&line)?;
            if is_wanted(&message) {
                return Ok(message);
            }
        }
    }

    /// Calls a tool. Returns its structured content.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Finding<Value> {
        let id = self.send(tool, arguments)?;
        let mut answer = self.answer(id)?;
        let fields = answer["result"]["structuredContent"].take();
        if fields["success"] == false { Err(format!("it failed: {fields}").into()) } else { Ok(fields) }
    }

    /// Sends a call of a tool. Returns the number of its answer.
    pub(crate) fn send(&mut self, tool: &str, arguments: Value) -> Finding<u64> {
        self.send_request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn request(&mut self, method: &str, params: &Value) -> Finding<Value> {
        let id = self.send_request(method, params)?;
        self.answer(id)
    }

    fn send_request(&mut self, method: &str, params: &Value) -> Finding<u64> {
        self.next += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }))?;
        Ok(self.next)
    }

    /// Reads the next answer to any call. Returns its structured content.
    pub(crate) fn next_answer(&mut self) -> Finding<Value> {
        let mut answer = self.read(|message| message.get("id").is_some())?;
        Ok(answer["result"]["structuredContent"].take())
    }

    /// Returns the number of the server's threads, and the processor time that it has used, in seconds.
    pub(crate) fn threads_and_processor_time(&self) -> Finding<(usize, f64)> {
        let process = Path::new("/proc").join(self.child.id().to_string());
        let threads = std::fs::read_dir(process.join("task"))?.count();
        let mut nanoseconds = 0.0;
        for task in std::fs::read_dir(process.join("task"))? {
            let statistics = std::fs::read_to_string(task?.path().join("schedstat"))?;
            nanoseconds += statistics.split(' ').next().unwrap_or_default().parse::<f64>()?;
        }
        Ok((threads, nanoseconds / 1e9))
    }

    /// Runs a cell in a session, or in a new one if its name is empty.
    pub(crate) fn run(&mut self, session: &str, code: &str) -> Finding<Value> {
        self.call("execute_code", json!({ "code": code, "session_id": session }))
    }

    /// Creates a session and runs `x = 1` in it.
    pub(crate) fn session(&mut self) -> Finding<String> {
        let answer = self.run("", "x = 1")?;
        Ok(answer["session_info"]["session_id"].as_str().ok_or("no session")?.to_owned())
    }

    /// Returns the private memory of the server, without unmodified pages of images.
    pub(crate) fn private_megabytes(&self) -> Finding<f64> {
        // Memory that was just freed would otherwise still be counted.
        std::thread::sleep(Duration::from_millis(300));
        let rollup = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.child.id()))?;
        let lines = rollup.lines().filter(|line| line.starts_with("Private_Dirty:") || line.starts_with("Swap:"));
        let kilobytes = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
        Ok(kilobytes.sum::<f64>() / 1024.0)
    }

    /// Returns the memory of the server, with the pages of images that it shares with others.
    pub(crate) fn resident_megabytes(&self) -> Finding<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
