//! Spans of OpenTelemetry, by its API: without an exporter they cost nothing, since none is created.
//!
//! Names and attributes follow the semantic conventions for MCP and for generative AI.

use std::time::SystemTime;

use opentelemetry::trace::{FutureExt as _, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, global};

pub use opentelemetry::KeyValue;

/// The name of the instrumentation.
const INSTRUMENTATION: &str = "belljar";

/// The attributes of a span.
pub type Attributes = Vec<KeyValue>;

macro_rules! spans {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal, $kind:ident, $meaning:literal;)+) => {
        /// The spans of a server. `docs/operations.md` has the same table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum SpanName {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl SpanName {
            /// All spans.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name, or what the name begins with.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// Returns what the span is for.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => $meaning,)+
                }
            }

            fn kind(self) -> SpanKind {
                match self {
                    $(Self::$variant => SpanKind::$kind,)+
                }
            }
        }
    };
}

spans! {
    /// A call of a tool of the server.
    Call = "tools/call", Server, "a call of one of the server's tools, with its name";
    /// Another request of MCP.
    Request = "request", Server, "another request of MCP, whose method is the name: `resources/read`, `resources/list`, `resources/templates/list`, `tools/list`";
    /// A request of the code-execution protocol.
    Execute = "execute", Server, "a call of the code-execution protocol, with the name of its tool";
    /// A turn of Monty's protocol.
    Feed = "feed", Server, "a feed of Monty's protocol";
    /// The wait for a thread.
    Queue = "queue", Internal, "the wait for a guest thread, and for earlier calls to the session";
    /// The preparation of the image.
    Image = "image", Internal, "packages are found or installed before the code runs, and the image with them is found or built";
    /// The restoration of an interpreter.
    Restore = "restore", Internal, "an interpreter is started: as a copy of its image, from the snapshot of its session, or from that of code that has waited on the disk";
    /// The code.
    Run = "run", Internal, "the code runs, and waits with its interpreter in memory";
    /// A call of a tool by code.
    ToolCall = "execute_tool", Internal, "code calls a tool of an MCP server, with the names of both. The server receives it as `traceparent`: its own spans are within it";
    /// A connection of code.
    Connection = "connection", Client, "an HTTP request, whose method is the name, or another connection of code";
}

/// The place of a call in a trace, or none. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Trace(Option<Context>);

impl Trace {
    /// Creates the place that a caller has sent: the value of `traceparent` and of `tracestate` by W3C's specification.
    /// Values that are not valid count as none.
    pub fn from_headers(traceparent: Option<&str>, tracestate: Option<&str>) -> Self {
        struct Headers<'a>(Option<&'a str>, Option<&'a str>);
        impl opentelemetry::propagation::Extractor for Headers<'_> {
            fn get(&self, key: &str) -> Option<&str> {
                match key {
                    "traceparent" => self.0,
                    "tracestate" => self.1,
                    _ => None,
                }
            }

            fn keys(&self) -> Vec<&str> {
                vec!["traceparent", "tracestate"]
            }
        }
        if traceparent.is_none_or(|parent| parent.len() > 256) {
            return Self::default();
        }
        let tracestate = tracestate.filter(|state| state.len() <= 4096);
        let headers = Headers(traceparent, tracestate);
        let context =
            global::get_text_map_propagator(|propagator| propagator.extract_with_context(&Context::new(), &headers));
        Self(context.has_active_span().then_some(context))
    }

    /// Returns the place as the values of `traceparent` and of `tracestate`, from which [`Trace::from_headers`] creates
    /// it.
    pub(super) fn headers(&self) -> (Option<String>, Option<String>) {
        #[derive(Default)]
        struct Headers(Option<String>, Option<String>);
        impl opentelemetry::propagation::Injector for Headers {
            fn set(&mut self, key: &str, value: String) {
                match key {
                    "traceparent" => self.0 = Some(value),
                    "tracestate" => self.1 = Some(value).filter(|state| !state.is_empty()),
                    _ => {}
                }
            }
        }
        let mut headers = Headers::default();
        if let Some(context) = &self.0 {
            global::get_text_map_propagator(|propagator| propagator.inject_context(context, &mut headers));
        }
        (headers.0, headers.1)
    }

    /// Returns whether there is a span.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the ID of the trace, in hexadecimal.
    pub fn id(&self) -> Option<String> {
        let context = self.0.as_ref()?;
        Some(context.span().span_context().trace_id().to_string())
    }

    /// Does work within the span: requests that it sends to servers pass it on as `traceparent`.
    pub async fn run<F: Future>(&self, work: F) -> F::Output {
        match &self.0 {
            Some(context) => work.with_context(context.clone()).await,
            None => work.await,
        }
    }
}

/// A span that has begun, or none. It ends when this is dropped.
#[derive(Debug, Default)]
#[must_use = "the span ends when this is dropped"]
pub struct Span(Option<Context>);

impl Span {
    pub(super) fn begin(span: SpanName, name: &str, parent: &Trace, attributes: Attributes) -> Self {
        Self::begin_at(span, name, parent, None, attributes)
    }

    pub(super) fn begin_at(
        span: SpanName,
        name: &str,
        parent: &Trace,
        begin: Option<SystemTime>,
        attributes: Attributes,
    ) -> Self {
        let tracer = global::tracer(INSTRUMENTATION);
        let full = match (span, name) {
            (SpanName::Connection, "") => "connect".to_owned(),
            (SpanName::Connection | SpanName::Request, method) => method.to_owned(),
            (span, "") => span.name().to_owned(),
            (span, name) => format!("{} {name}", span.name()),
        };
        let mut builder = tracer.span_builder(full).with_kind(span.kind()).with_attributes(attributes);
        if let Some(begin) = begin {
            builder = builder.with_start_time(begin);
        }
        let root = Context::new();
        let parent = parent.0.as_ref().unwrap_or(&root);
        let span = tracer.build_with_context(builder, parent);
        Self(Some(parent.with_span(span)))
    }

    /// Returns the span's place, for those within it.
    pub fn trace(&self) -> Trace {
        Trace(self.0.clone())
    }

    /// Returns whether there is a span.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Sets an attribute.
    pub fn set(&self, attribute: KeyValue) {
        if let Some(context) = &self.0 {
            context.span().set_attribute(attribute);
        }
    }

    /// Records that the work failed, with the kind of the error.
    pub fn fail(&self, kind: &str, message: &str) {
        if let Some(context) = &self.0 {
            context.span().set_attribute(KeyValue::new("error.type", kind.to_owned()));
            context.span().set_status(Status::error(message.to_owned()));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(context) = &self.0 {
            context.span().end();
        }
    }
}
