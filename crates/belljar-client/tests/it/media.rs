//! Binary results for the APIs of models: data of a type that an API refuses would end the run.

use belljar_mcp_client::adapters::genai::GenaiTools;
use belljar_mcp_client::adapters::provider::{Provider, ProviderTools};
use belljar_mcp_client::{Binary, ToolCall, ToolList, ToolOutcome, ToolOutput, ToolReturn};
use serde_json::{Value, json};

fn result(media_type: &str) -> ToolReturn {
    let output = ToolOutput::Binary(Binary::new(vec![1, 2, 3], media_type));
    ToolReturn::new(&ToolCall::new("c1", "t", json!({})), ToolOutcome::from(output))
}

/// Returns the messages with a result of this media type.
fn messages(provider: Provider, media_type: &str) -> String {
    let tools = ProviderTools::new(provider, &ToolList::new());
    Value::Array(tools.results(&[result(media_type)])).to_string()
}

#[test]
fn binary_data_is_sent_if_the_api_accepts_its_type_and_else_noted() {
    let accepted: [(Provider, &[&str]); 4] = [
        (Provider::OpenAiChat, &["image/gif", "audio/wav", "audio/mpeg", "application/pdf"]),
        (Provider::OpenAiResponses, &["image/gif", "application/pdf"]),
        (Provider::Anthropic, &["image/gif", "application/pdf"]),
        (Provider::Gemini, &["image/webp", "audio/x-wav", "audio/ogg", "video/mp4", "application/pdf"]),
    ];
    for (provider, types) in accepted {
        for media_type in types {
            let text = messages(provider, media_type);
            assert!(text.contains("AQID"), "{provider:?}, {media_type}: {text}");
        }
        for media_type in ["application/zip", "image/svg+xml", "audio/midi"] {
            let text = messages(provider, media_type);
            let is_noted = text.contains(&format!("[{media_type}, 3 bytes]"));
            assert!(is_noted && !text.contains("AQID"), "{provider:?}: {text}");
        }
    }
    assert!(messages(Provider::Gemini, "audio/x-wav").contains("\"audio/wav\""));
}

#[test]
fn genai_gets_only_data_that_apis_accept() {
    let tools = GenaiTools::new(&ToolList::new());
    assert_eq!(tools.messages(&[result("image/png")]).len(), 2);
    let noted = tools.messages(&[result("application/zip")]);
    assert_eq!(noted.len(), 1);
    assert!(format!("{noted:?}").contains("[application/zip, 3 bytes]"), "{noted:?}");
}
