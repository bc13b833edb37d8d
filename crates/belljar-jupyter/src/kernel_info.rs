//! The `kernel_info_reply` of the kernel.

use jupyter_protocol::messaging::{CodeMirrorMode, HelpLink, KernelInfoReply, LanguageInfo, ReplyStatus};
use serde_json::json;

use crate::message::PROTOCOL_VERSION;

/// The versions and the banner of a kernel.
#[derive(Debug, Clone)]
pub struct KernelInfo {
    /// The version of Python, `3.14`.
    pub python: String,
    /// The version of Belljar.
    pub version: String,
    /// The text that consoles print first.
    pub banner: String,
}

impl KernelInfo {
    /// Returns the content of the `kernel_info_reply`.
    pub(crate) fn reply(&self) -> KernelInfoReply {
        // The CodeMirror mode that ipykernel reports, by which editors select their highlighting.
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
