//! A proxy between clients and a service over HTTP/1.1: requests that are reset before they arrive, answers that are
//! lost after the request was carried out, and requests and answers that are late.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// The maximum delay, in milliseconds. Requests to etcd time out earlier, so that some are carried out after that.
const MAX_DELAY: u64 = 3000;

/// The failures of a link: probabilities in thousandths, and the number of failures so far.
#[derive(Default)]
struct Faults {
    reset: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    lost_answers: AtomicU64,
    state: AtomicU64,
}

impl Faults {
    fn random(&self) -> u64 {
        let state = self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 29)
    }

    fn happens(&self, probability: &AtomicU64) -> bool {
        self.random() % 1000 < probability.load(Ordering::Relaxed)
    }

    /// Decides about a message, and waits if it is late. Returns whether it is lost.
    async fn loses(&self, message: Message) -> bool {
        let is_lost = match message {
            Message::Request => self.happens(&self.reset),
            Message::Answer => self.happens(&self.lost),
        };
        if is_lost && message == Message::Answer {
            self.lost_answers.fetch_add(1, Ordering::Relaxed);
        }
        if !is_lost && self.happens(&self.late) {
            tokio::time::sleep(Duration::from_millis(self.random() % MAX_DELAY)).await;
        }
        is_lost
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Request,
    Answer,
}

/// A link to a service on this machine, without failures at first. It ends with its runtime.
pub(crate) struct UnreliableLink {
    port: u16,
    faults: Arc<Faults>,
}

impl UnreliableLink {
    /// Starts a link to the service at this port.
    pub(crate) async fn to(service: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let link = Self { port: listener.local_addr().unwrap().port(), faults: Arc::default() };
        let faults = link.faults.clone();
        tokio::spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { continue };
                let faults = faults.clone();
                // A connection that is cut is an error here.
                tokio::spawn(async move { pass_on(client, service, &faults).await });
            }
        });
        link
    }

    /// Returns the port at which clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Sets the probabilities of all failures, in thousandths.
    pub(crate) fn set(&self, thousandths: u64) {
        for fault in [&self.faults.reset, &self.faults.lost, &self.faults.late] {
            fault.store(thousandths, Ordering::Relaxed);
        }
    }

    /// Sets the probability of lost answers alone, in thousandths.
    pub(crate) fn lose_answers(&self, thousandths: u64) {
        self.faults.lost.store(thousandths, Ordering::Relaxed);
    }

    /// Returns the number of answers that were lost.
    pub(crate) fn lost_answers(&self) -> u64 {
        self.faults.lost_answers.load(Ordering::Relaxed)
    }
}

/// Passes one connection on until one of its sides ends it, or a message is lost. Both sides are closed then: a socket
/// with bytes that were not read is reset.
async fn pass_on(mut client: TcpStream, service: u16, faults: &Faults) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", service)).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut requests, mut to_client) = client.split();
    let (mut answers, mut to_server) = server.split();
    // HTTP/1.1 has one request at a time, so that the first bytes after those of the other side begin a message.
    let is_answering = AtomicBool::new(true);
    tokio::select! {
        end = pass(Message::Request, &mut requests, &mut to_server, &is_answering, faults) => end,
        end = pass(Message::Answer, &mut answers, &mut to_client, &is_answering, faults) => end,
    }
}

/// Passes the messages of one side on.
async fn pass(
    message: Message,
    from: &mut ReadHalf<'_>,
    to: &mut WriteHalf<'_>,
    is_answering: &AtomicBool,
    faults: &Faults,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        if from.peek(&mut buffer[..1]).await? == 0 {
            return Ok(());
        }
        let is_answer = message == Message::Answer;
        let begins = is_answering.swap(is_answer, Ordering::Relaxed) != is_answer;
        if begins && faults.loses(message).await {
            return Ok(());
        }
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
    }
}
