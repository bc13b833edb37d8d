//! Agents that run Python in Belljar: the example programs, with a scripted model behind the API of each provider,
//! which checks requests as the provider does.

use std::path::PathBuf;
use std::process::Command;

use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
use belljar_mcp_client::{RunContext, ToolRunner, ToolsetExt};
use serde_json::{Value, json};

use crate::harness::{TestServer, everything, script};

/// The sum of the first 1000 primes, which the scripted model computes in Python.
const SUM: &str = "3682913";

/// Returns the directory in which Cargo builds the examples and the binaries of the workspace.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(2).unwrap().to_owned()
}

/// Returns the program `belljar`, which the workspace's tests build.
fn belljar() -> PathBuf {
    let program = std::env::var_os("BELLJAR_TEST_PROGRAM").map_or_else(|| target().join("belljar"), PathBuf::from);
    assert!(program.exists(), "{} is not there: run `cargo build -p belljar`", program.display());
    program
}

fn scripted_model() -> TestServer {
    TestServer::start("python3", &["-u", &script("scripted_model.py")])
}

/// Runs an example program and returns the agent's answer.
fn answer(example: &str, variables: &[(&str, &str)]) -> String {
    let program = target().join("examples").join(example);
    assert!(program.exists(), "{} is not there: run `cargo test -p belljar-mcp-client`", program.display());
    let variables = variables.iter().copied().chain([("MODEL", "gpt-scripted"), ("API_KEY", "key")]);
    let output = Command::new(program).env("BELLJAR", belljar()).envs(variables).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn agents_of_all_providers_run_python() {
    let model = scripted_model();
    for provider in ["openai", "openai-responses", "anthropic", "gemini"] {
        let answer = answer("provider_agent", &[("PROVIDER", provider), ("API_URL", &model.url(""))]);
        assert!(answer.contains(SUM), "{provider}: {answer}");
    }
}

#[test]
fn agents_of_other_libraries_run_python() {
    let model = scripted_model();
    let base = model.url("/v1");
    for example in ["openai_agent", "rig_agent"] {
        let answer = answer(example, &[("OPENAI_BASE_URL", &base), ("OPENAI_API_KEY", "key")]);
        assert!(answer.contains(SUM), "{example}: {answer}");
    }
    let answer = answer("genai_agent", &[("API_URL", &format!("{base}/"))]);
    assert!(answer.contains(SUM), "{answer}");
}

/// Runs an agent with npm's reference server, whose names and schemas are made difficult, and returns its answer.
async fn run(provider: Provider, path: &str, script_of_calls: Value) -> String {
    let model = TestServer::start_with(
        "python3",
        &["-u", &script("scripted_model.py")],
        &[("SCRIPT", script_of_calls.to_string())],
    );
    let server = everything().build().renamed([("get-sum", "math.sum")]);
    let (runner, run) = (ToolRunner::new(server), RunContext::new());
    let connections = runner.enter(&run).await.unwrap();
    let mut messages = vec![provider.user_message("Go on.")];
    let answer = loop {
        let step = runner.step(&run).await.unwrap();
        let tools = ProviderTools::new(provider, step.tools());
        let mut request = tools.request(Some("Be brief."), &messages);
        request["model"] = json!("scripted");
        request["max_tokens"] = json!(100);
        let response = reqwest::Client::new().post(model.url(path)).json(&request).send().await.unwrap();
        let turn = tools.read(&response.json().await.unwrap()).unwrap();
        messages.extend(turn.messages);
        if turn.calls.is_empty() {
            break turn.text;
        }
        messages.extend(tools.results(&step.call_all(turn.calls).await.unwrap()));
    };
    connections.close().await.unwrap();
    answer
}

#[tokio::test]
async fn images_errors_and_changed_names_reach_every_provider() {
    let calls = json!([
        [["math_sum", {"a": "two", "b": 3}], ["made_up", {}]],
        [["math_sum", {"a": 2, "b": 3}], ["get-tiny-image", {}], ["echo", {"message": "hi"}]],
    ]);
    for (provider, path, image) in [
        (Provider::OpenAiChat, "/v1/chat/completions", "image_url"),
        (Provider::OpenAiResponses, "/v1/responses", "input_image"),
        (Provider::Anthropic, "/v1/messages", "image"),
        (Provider::Gemini, "/v1beta/models/scripted:generateContent", "inlineData"),
    ] {
        let answer = run(provider, path, calls.clone()).await;
        assert!(answer.contains("The sum of 2 and 3 is 5"), "{provider:?}: {answer}");
        assert!(answer.contains("Echo: hi"), "{provider:?}: {answer}");
        assert!(answer.lines().any(|line| line == image), "{provider:?}: {answer}");
        let failed = run(provider, path, json!([calls[0]])).await;
        assert!(failed.contains("made_up") && failed.contains("math.sum"), "{provider:?}: {failed}");
        assert!(failed.contains("\"two\""), "{provider:?}: {failed}");
    }
}

mod live {
    //! Tools of a `rig` agent that change during the run.

    use std::sync::atomic::{AtomicBool, Ordering};

    use belljar_mcp_client::adapters::rig::RigTools;
    use belljar_mcp_client::{
        McpError, RunContext, ToolDefinition, ToolList, ToolOutcome, ToolRunner, Toolset, async_trait,
    };
    use rig_agent::AgentBuilder;
    use rig_agent::tool::server::ToolServer;
    use rig_core::providers::openai::OpenAIConfig;
    use serde_json::{Map, Value, json};

    use crate::harness::{TestServer, script};

    /// A door: only an open one can be walked through.
    #[derive(Default)]
    struct Door(AtomicBool);

    #[async_trait]
    impl Toolset for Door {
        fn label(&self) -> String {
            "door".into()
        }

        async fn tools(&self, _run: &RunContext) -> Result<ToolList, McpError> {
            let name = if self.0.load(Ordering::Relaxed) { "walk" } else { "open" };
            Ok(vec![ToolDefinition::new(name, json!({"type": "object"}))].into())
        }

        async fn call(&self, _: &RunContext, name: &str, _: Map<String, Value>) -> Result<ToolOutcome, McpError> {
            self.0.store(true, Ordering::Relaxed);
            Ok(ToolOutcome::text(format!("done: {name}")))
        }

        async fn instructions(&self, _run: &RunContext) -> Result<Option<String>, McpError> {
            Ok(Some("Open it first.".into()))
        }
    }

    #[tokio::test]
    async fn rig_agent_gets_tools_that_appear_during_its_run() {
        let calls = json!([[["open", {}]], [["walk", {}]]]).to_string();
        let model = TestServer::start_with("python3", &["-u", &script("scripted_model.py")], &[("SCRIPT", calls)]);
        let tools = RigTools::new(ToolRunner::new(Door::default()), RunContext::new());
        assert_eq!(tools.instructions().await.unwrap().as_deref(), Some("Open it first."));
        let server = ToolServer::new().run();
        tools.install(server.clone()).await.unwrap();
        let names = || server.static_tool_defs().into_iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(), ["open"]);
        let client = OpenAIConfig::new("key").with_base_url(model.url("/v1")).client();
        let agent = AgentBuilder::new(client.chat("scripted")).tool_server_handle(server.clone()).build();
        let answer = agent.prompt("Walk through the door.").max_turns(10).await.unwrap().to_string();
        assert_eq!(names(), ["walk"]);
        assert!(answer.contains("done: walk"), "{answer}");
    }
}
