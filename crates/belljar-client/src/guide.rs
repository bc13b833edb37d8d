//! The code of the guide and of the README, compiled as documentation tests.

macro_rules! pages {
    ($($name:ident: $path:literal),* $(,)?) => {
        $(
            #[doc = include_str!(concat!("../../../docs/", $path))]
            struct $name;
        )*
    };
}

pages! {
    Walk: "client.md",
    AgentLoop: "client/agent-loop.md",
    ApprovalPage: "client/approval.md",
    Configuration: "client/configuration.md",
    HandlersPage: "client/handlers.md",
    OAuthPage: "client/oauth.md",
    SearchPage: "client/search.md",
    SeveralServers: "client/several-servers.md",
    Adapters: "client/adapters.md",
    Http: "client/http.md",
    Identity: "client/identity.md",
    Migration: "client/migration.md",
    Reconnecting: "client/reconnecting.md",
    Resources: "client/resources.md",
    Results: "client/results.md",
    Tracing: "client/tracing.md",
}

#[doc = include_str!("../README.md")]
struct Readme;
