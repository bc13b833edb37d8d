//! The stdin channel, on which code requests input from the user of a frontend.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use belljar_core::kernel::{InputError, InputReply};
use jupyter_protocol::messaging::{self, InputRequest, ReplyStatus};
use parking_lot::Mutex;

use crate::message::Request;
use crate::reply_sender::ReplySender;

/// Sends input requests, and routes the replies. Clones share the pending request.
#[derive(Clone)]
pub(crate) struct InputRequests {
    replies: ReplySender,
    pending: Arc<Mutex<Option<Sender<InputReply>>>>,
}

impl InputRequests {
    /// Creates the channel over the sending half of the stdin socket.
    pub(crate) fn new(replies: ReplySender) -> Self {
        Self { replies, pending: Arc::default() }
    }

    /// Sends an input request to the sender of `request`. The returned channel is closed without a reply if another
    /// request takes the place of this one.
    pub(crate) fn request_input(&self, request: &Request, prompt: &str, secret: bool) -> Receiver<InputReply> {
        let (sender, receiver) = channel();
        *self.pending.lock() = Some(sender);
        self.replies.reply(request, "input_request", &InputRequest { prompt: prompt.into(), password: secret });
        receiver
    }

    /// Handles a message from the stdin channel.
    pub(crate) fn on_message(&self, message: &Request) {
        if message.header.msg_type != "input_reply" {
            return;
        }
        let reply = match serde_json::from_value::<messaging::InputReply>(message.content.clone()) {
            Ok(messaging::InputReply { status: ReplyStatus::Ok, value, .. }) => Ok(value),
            Ok(_) => Err(InputError::NoAnswer("the frontend sent no input".into())),
            Err(_) => Err(InputError::NoAnswer("the frontend sent an invalid input_reply".into())),
        };
        if let Some(pending) = self.pending.lock().take() {
            // Fails if the cell was interrupted: the reply is dropped.
            let _ = pending.send(reply);
        }
    }
}
