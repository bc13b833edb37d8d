//! Adapters to the APIs of language models and to other libraries.
//!
//! [`provider`] converts tools, calls and results to and from the JSON of OpenAI, Anthropic and Gemini, for programs
//! that send requests themselves. The others need a feature: `openai` (of `async-openai`), `rig` and `genai`.

#[cfg(feature = "genai")]
pub mod genai;
#[cfg(feature = "openai")]
pub mod openai;
pub mod provider;
#[cfg(feature = "rig")]
pub mod rig;
