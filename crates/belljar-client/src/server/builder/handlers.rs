//! The handlers of the notifications and requests that a server sends, and the model that it may use.

use std::sync::Arc;

use rmcp::model::ServerNotification;

use super::ServerBuilder;
use crate::handlers::{ElicitationHandler, LogMessage, Model, ModelSlot, Progress, Root, RootsHandler};

impl<T> ServerBuilder<T> {
    /// Sets the handler of the server's log messages. Messages arrive in order, each before the result of its call. It
    /// must not block.
    ///
    /// ```
    /// use belljar_mcp_client::McpServerStdio;
    ///
    /// let server = McpServerStdio::new("server").log_handler(|message| eprintln!("{}", message.text()));
    /// ```
    pub fn log_handler(mut self, handler: impl Fn(LogMessage) + Send + Sync + 'static) -> Self {
        self.settings.handlers.log = Some(Arc::new(handler));
        self
    }

    /// Sets the handler of progress for calls without a handler of their own. It must not block.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").progress_handler(|step| eprintln!("{:?}", step.message));
    /// ```
    pub fn progress_handler(mut self, handler: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.settings.handlers.progress = Some(Arc::new(handler));
        self
    }

    /// Sets a handler of all notifications in the protocol's types, called before the other handlers. It must not
    /// block.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").message_handler(|notification| eprintln!("{notification:?}"));
    /// ```
    pub fn message_handler(mut self, handler: impl Fn(&ServerNotification) + Send + Sync + 'static) -> Self {
        self.settings.handlers.message = Some(Arc::new(handler));
        self
    }

    /// Sets the model that the server may use.
    ///
    /// ```
    /// # use belljar_mcp_client::{McpServerStdio, Model};
    /// # fn with(model: impl Model) {
    /// let server = McpServerStdio::new("server").sampling_model(model);
    /// # }
    /// ```
    pub fn sampling_model(mut self, model: impl Model) -> Self {
        self.settings.handlers.model = ModelSlot::new(model);
        self
    }

    /// Sets whether the server may use the model. Defaults to true; has no effect without a model.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").allow_sampling(false);
    /// ```
    pub fn allow_sampling(mut self, allow: bool) -> Self {
        self.settings.allow_sampling = allow;
        self
    }

    /// Sets the handler of the server's requests to the user.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # use belljar_mcp_client::ElicitationResponse;
    /// let server = McpServerStdio::new("server").elicitation_handler(async |_form| Ok(ElicitationResponse::Decline));
    /// ```
    pub fn elicitation_handler(mut self, handler: impl ElicitationHandler) -> Self {
        self.settings.handlers.elicitation = Some(Arc::new(handler));
        self
    }

    /// Sets the directories that the server may work on, as `file://` URIs.
    ///
    /// ```
    /// use belljar_mcp_client::{McpServerStdio, Root};
    ///
    /// let server = McpServerStdio::new("server").roots([Root::new("file:///home/me/project")]);
    /// ```
    pub fn roots(self, roots: impl IntoIterator<Item = Root>) -> Self {
        let roots: Vec<Root> = roots.into_iter().collect();
        self.roots_handler(move || std::future::ready(Ok(roots.clone())))
    }

    /// Sets a handler that provides the [`roots`](Self::roots) each time the server requests them. Call
    /// [`notify_roots_changed`](crate::McpServer::notify_roots_changed) after a change.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// # use belljar_mcp_client::Root;
    /// let server = McpServerStdio::new("server").roots_handler(async || Ok(vec![Root::new("file:///tmp")]));
    /// ```
    pub fn roots_handler(mut self, handler: impl RootsHandler) -> Self {
        self.settings.handlers.roots = Some(Arc::new(handler));
        self
    }

    /// Announces that the program shows pages of [MCP Apps](https://modelcontextprotocol.io/extensions/apps/overview);
    /// some servers offer pages only then. Defaults to false.
    ///
    /// ```
    /// # use belljar_mcp_client::McpServerStdio;
    /// let server = McpServerStdio::new("server").supports_apps(true);
    /// ```
    pub fn supports_apps(mut self, shows: bool) -> Self {
        self.settings.handlers.supports_apps = shows;
        self
    }
}
