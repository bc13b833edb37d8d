//! The stdin channel: what code asks of the person at the frontend.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use belljar_core::kernel::Answer;
use jupyter_protocol::messaging::{InputReply, InputRequest, ReplyStatus};

use super::message::Request;
use super::sockets::Replies;

/// Puts questions. Clones share the one that may be open.
#[derive(Clone)]
pub(crate) struct Questions {
    replies: Replies,
    open: Arc<Mutex<Option<Sender<Answer>>>>,
}

impl Questions {
    /// Over the sending half of the stdin socket.
    pub(crate) fn new(replies: Replies) -> Self {
        Self { replies, open: Arc::default() }
    }

    /// Asks whoever sent `request`; the answer comes some time, or another question takes its place.
    pub(crate) fn ask(&self, request: &Request, prompt: &str, secret: bool) -> Receiver<Answer> {
        let (sender, receiver) = channel();
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        self.replies.reply(request, "input_request", &InputRequest { prompt: prompt.into(), password: secret });
        receiver
    }

    /// Takes what came in on the channel.
    pub(crate) fn answered(&self, message: &Request) {
        if message.header.msg_type != "input_reply" {
            return;
        }
        let answer = match serde_json::from_value::<InputReply>(message.content.clone()) {
            Ok(InputReply { status: ReplyStatus::Ok, value, .. }) => Ok(value),
            Ok(_) => Err("the frontend gave no answer".into()),
            Err(_) => Err("the frontend's answer cannot be read".into()),
        };
        if let Some(open) = self.open.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Fails when the cell was interrupted meanwhile.
            let _ = open.send(answer);
        }
    }
}
