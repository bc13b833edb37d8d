//! Monty's worker protocol, versions 5 and 6, over any backend of sessions that supports feeds.
//!
//! A worker has one peer, its *parent*: a program with pydantic-monty's client. The parent sends a request, and the
//! worker answers with events, of which the last ends the *turn*. Code that calls a function of the parent, or uses its
//! files, suspends the feed: the event asks, and the next request answers.
//!
//! | file | subject |
//! | --- | --- |
//! | `proto` | the messages, which are also the JSON that the guest reads and writes |
//! | `budget` | bounds of messages before they are decoded |
//! | `arena` | the checks of values that the parent sends |
//! | `link` | the connection to the parent |
//! | `frame` | frames on standard streams |
//! | `question` | questions to the parent, and the requests that answer them: pure functions |
//! | `questions` | the questions of one feed and their answers, as a state without effects |
//! | `observer` | the observer of a feed, which receives the questions |
//! | `turn_clock` | the limit of the time that code runs in one turn |
//! | `events`, `prints` | events and output on their way to the parent |
//! | `session` | a session: its kernel and its feeds |
//! | `feed_record` | the records of feeds in the audit log, and their spans |
//! | `feed_view` | what operators see of feeds |
//! | `dump` | sessions as bytes |
//! | `worker` | the requests between feeds |

mod arena;
mod budget;
mod dump;
mod events;
mod feed_record;
mod feed_view;
mod frame;
mod link;
mod observer;
mod prints;
mod proto;
mod question;
mod questions;
mod session;
mod turn_clock;
mod worker;

pub use dump::DumpKey;
pub use feed_view::{FeedView, OpenFeedView};
pub use frame::{MAX_FRAME, serve_stream};
pub use link::{Link, ParentEnd};
pub use worker::{Worker, WorkerOptions};
