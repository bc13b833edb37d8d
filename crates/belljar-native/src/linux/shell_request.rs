//! Sends requests to the shell that are not cells: completions, inspection, the completeness of code, user expressions.
//!
//! A kernel may fail to reply, reply to another request, or send an invalid reply. The caller waits a few seconds at
//! most. After that the shell is interrupted, and the next cell finds it in the state in which it is then.

use std::time::{Duration, Instant};

use belljar_core::ExitReason;
use belljar_core::kernel::{ShellError, ShellRequest};
use serde_json::Value;

use crate::linux::cell::{EXIT_AFTER_CLOSE_TIMEOUT, MESSAGE_BATCH};
use crate::linux::client::{Channel, Client};
use crate::linux::content::{self, IopubMessage};
use crate::linux::interrupt::{InterruptFlag, InterruptRequest};
use crate::linux::kernel_process::KernelProcess;
use crate::linux::zmtp::ZmtpError;
use crate::linux::zmtp::message::ReceivedMessage;

/// The time that the kernel has to reply.
pub(crate) const SHELL_REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// The time that the shell has to become idle after an interrupt, and the time by which a reply may arrive after the
/// idle status.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why a request has no reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ShellRequestError {
    /// The shell failed to reply, or the kernel was killed.
    Failed(ShellError),
    /// The kernel's process exited.
    Exited,
}

/// Sends a request and returns the content of the reply.
///
/// # Errors
/// Returns an error if no valid reply arrives within `timeout` and [`SETTLE_TIMEOUT`]. A kernel that breaks the
/// protocol is killed.
pub(crate) fn send(
    client: &mut Client,
    process: &KernelProcess,
    interrupt: &InterruptFlag,
    request: &ShellRequest,
    timeout: Duration,
) -> Result<Value, ShellRequestError> {
    let connection_lost = |error: &ZmtpError| {
        if matches!(error, ZmtpError::Closed) && process.wait_until(Instant::now() + EXIT_AFTER_CLOSE_TIMEOUT) {
            return ShellRequestError::Exited;
        }
        process.kill();
        ShellRequestError::Failed(ShellError::Exited(ExitReason::Crash(error.to_string())))
    };
    let (id, reply_kind) = client.send_shell_request(request).map_err(|error| connection_lost(&error))?;
    let mut pending = PendingRequest { id, reply_kind, busy: false, idle_since: None, reply: None };
    let started_at = Instant::now();
    let mut interrupted: Option<(Instant, ShellError)> = None;
    loop {
        let deadline = match (&interrupted, pending.idle_since) {
            (Some((since, _)), _) => *since + SETTLE_TIMEOUT,
            (None, Some(since)) => since + SETTLE_TIMEOUT,
            (None, None) => started_at + timeout,
        };
        let others = [process.exit_fd(), interrupt.wakeup_fd()];
        let ready = client.wait(&others, deadline).map_err(|error| connection_lost(&error))?;
        pending.poll_channels(client).map_err(|error| connection_lost(&error))?;
        if let Some(reply) = &pending.reply {
            return content::shell_reply(reply).map_err(ShellRequestError::Failed);
        }
        let interrupt_request = interrupt.take();
        if ready[0] {
            let is_killed = interrupt_request == InterruptRequest::Kill;
            return Err(if is_killed { cancelled() } else { ShellRequestError::Exited });
        }
        if interrupt_request == InterruptRequest::Kill {
            process.kill();
            return Err(cancelled());
        }
        let is_interrupt = interrupt_request == InterruptRequest::Interrupt;
        if let Some((since, error)) = &interrupted {
            if pending.idle_since.is_some() || since.elapsed() >= SETTLE_TIMEOUT {
                return Err(ShellRequestError::Failed(error.clone()));
            }
        } else if is_interrupt || started_at.elapsed() >= timeout {
            // A shell that has not started the request does something else, which must not be interrupted.
            if pending.busy {
                process.interrupt();
            }
            let error = if is_interrupt { ShellError::Interrupted } else { ShellError::TimedOut };
            interrupted = Some((Instant::now(), error));
        } else if pending.idle_since.is_some_and(|since| since.elapsed() >= SETTLE_TIMEOUT) {
            return Err(ShellRequestError::Failed(ShellError::InvalidReply));
        }
    }
}

fn cancelled() -> ShellRequestError {
    ShellRequestError::Failed(ShellError::Exited(ExitReason::Cancelled))
}

/// A request and the kernel's messages that belong to it.
struct PendingRequest {
    /// The id of the request.
    id: String,
    /// The type of the message that is its reply.
    reply_kind: &'static str,
    busy: bool,
    /// The time at which the shell became idle.
    idle_since: Option<Instant>,
    reply: Option<ReceivedMessage>,
}

impl PendingRequest {
    /// Reads the messages that have arrived. Those of other requests are dropped.
    fn poll_channels(&mut self, client: &mut Client) -> Result<(), ZmtpError> {
        for channel in [Channel::Shell, Channel::Iopub, Channel::Stdin, Channel::Control] {
            for _ in 0..MESSAGE_BATCH {
                let Some(message) = client.receive(channel)? else { break };
                if message.parent != self.id {
                    continue;
                }
                match channel {
                    Channel::Shell if message.kind == self.reply_kind => {
                        self.reply.get_or_insert(message);
                    }
                    Channel::Iopub => match IopubMessage::parse(&message) {
                        Some(IopubMessage::Busy) => self.busy = true,
                        Some(IopubMessage::Idle) => {
                            self.idle_since.get_or_insert_with(Instant::now);
                        }
                        _ => {}
                    },
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use belljar_core::kernel::InterruptHandle as _;

    use super::*;
    use crate::linux::client::tests::{Kernel, Reply};

    /// The timeout of requests that have no reply.
    const SHORT_TIMEOUT: Duration = Duration::from_millis(200);
    /// The timeout of requests whose reply a busy machine may delay.
    const LONG_TIMEOUT: Duration = Duration::from_secs(60);

    /// Sends a fake kernel a request for completions.
    fn complete(reply: Reply, timeout: Duration) -> Result<Value, ShellRequestError> {
        let request = ShellRequest::Complete { code: "im".into(), cursor: 2 };
        let mut kernel = Kernel::start(reply);
        let interrupt = InterruptFlag::new(kernel.process.clone()).unwrap();
        let started = Instant::now();
        let result = send(&mut kernel.client, &kernel.process, &interrupt, &request, timeout);
        assert!(started.elapsed() < timeout + Duration::from_secs(30), "it took {:?}", started.elapsed());
        result
    }

    /// Asks a fake kernel whether code is complete, after `before` has been done.
    fn is_complete(kernel: &mut Kernel, before: impl FnOnce(&InterruptFlag)) -> Result<Value, ShellRequestError> {
        let request = ShellRequest::IsComplete { code: "(".into() };
        let interrupt = InterruptFlag::new(kernel.process.clone()).unwrap();
        before(&interrupt);
        send(&mut kernel.client, &kernel.process, &interrupt, &request, LONG_TIMEOUT)
    }

    #[test]
    fn reply_to_the_same_request_is_returned() {
        let expected = r#"{"status": "ok", "matches": ["import"]}"#;
        let replies = move |id: &str| {
            vec![
                ("complete_reply", "another".to_owned(), r#"{"status": "ok", "matches": ["wrong"]}"#.to_owned()),
                ("inspect_reply", id.to_owned(), r#"{"status": "ok", "found": true}"#.to_owned()),
                ("complete_reply", id.to_owned(), expected.to_owned()),
                ("complete_reply", id.to_owned(), r#"{"status": "ok", "matches": ["late"]}"#.to_owned()),
            ]
        };
        let reply = complete(Box::new(replies), LONG_TIMEOUT);
        assert_eq!(reply.unwrap()["matches"], serde_json::json!(["import"]));
    }

    #[test]
    fn missing_reply_times_out() {
        for reply in [
            Box::new(|_: &str| Vec::new()) as Reply,
            Box::new(|_: &str| vec![("complete_reply", "another".into(), r#"{"status": "ok"}"#.into())]),
            Box::new(|id: &str| vec![("execute_reply", id.into(), r#"{"status": "ok"}"#.into())]),
        ] {
            assert_eq!(complete(reply, SHORT_TIMEOUT), Err(ShellRequestError::Failed(ShellError::TimedOut)));
        }
    }

    #[test]
    fn invalid_reply_is_an_error() {
        for content in ["", "[", "null", "{\"status\": []}", &"[".repeat(1 << 20)] {
            let content = content.to_owned();
            let reply = move |id: &str| vec![("complete_reply", id.to_owned(), content.clone())];
            let result = complete(Box::new(reply), LONG_TIMEOUT);
            assert_eq!(result, Err(ShellRequestError::Failed(ShellError::InvalidReply)));
        }
    }

    #[test]
    fn flood_of_messages_does_not_prevent_the_timeout() {
        let flood =
            |id: &str| vec![("stream", id.to_owned(), r#"{"name": "stdout", "text": "x"}"#.to_owned()); 100_000];
        assert_eq!(complete(Box::new(flood), SHORT_TIMEOUT), Err(ShellRequestError::Failed(ShellError::TimedOut)));
    }

    #[test]
    fn kernel_that_breaks_the_protocol_is_killed() {
        let mut kernel = Kernel::start(Box::new(|_| vec![("\u{0}broken", String::new(), String::new())]));
        let error = is_complete(&mut kernel, |_| {}).unwrap_err();
        let is_crash = matches!(&error, ShellRequestError::Failed(ShellError::Exited(ExitReason::Crash(_))));
        assert!(is_crash, "{error:?}");
        assert!(kernel.process.wait_until(Instant::now() + LONG_TIMEOUT));
    }

    #[test]
    fn exited_kernel_is_reported() {
        let mut kernel = Kernel::start(Box::new(|_| Vec::new()));
        kernel.process.kill();
        assert_eq!(is_complete(&mut kernel, |_| {}), Err(ShellRequestError::Exited));
    }

    #[test]
    fn killing_the_kernel_ends_the_request() {
        let mut kernel = Kernel::start(Box::new(|_| Vec::new()));
        assert_eq!(is_complete(&mut kernel, |interrupt| interrupt.kill()), Err(cancelled()));
    }
}
