//! What a kernel says of itself.

use jupyter_protocol::messaging::{CodeMirrorMode, HelpLink, KernelInfoReply, LanguageInfo, ReplyStatus};
use serde_json::json;

use super::message::PROTOCOL_VERSION;

/// What a kernel is.
#[derive(Debug, Clone)]
pub struct About {
    /// Python's version, `3.14`.
    pub python: String,
    /// Belljar's version.
    pub version: String,
    /// What consoles print first.
    pub banner: String,
}

impl About {
    /// The content of `kernel_info_reply`.
    pub(crate) fn reply(&self) -> KernelInfoReply {
        // What editors know the mode by: as ipykernel has it.
        let mode: Option<CodeMirrorMode> = serde_json::from_value(json!({ "name": "ipython", "version": 3 })).ok();
        KernelInfoReply {
            status: ReplyStatus::Ok,
            protocol_version: PROTOCOL_VERSION.into(),
            implementation: "belljar".into(),
            implementation_version: self.version.clone(),
            language_info: LanguageInfo {
                name: "python".into(),
                version: self.python.clone(),
                mimetype: Some("text/x-python".into()),
                file_extension: Some(".py".into()),
                pygments_lexer: Some("ipython3".into()),
                codemirror_mode: mode,
                nbconvert_exporter: Some("python".into()),
            },
            banner: self.banner.clone(),
            help_links: vec![HelpLink {
                text: "Python Reference".into(),
                url: format!("https://docs.python.org/{}", self.python),
            }],
            debugger: false,
            error: None,
        }
    }
}
