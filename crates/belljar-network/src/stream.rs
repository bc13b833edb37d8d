//! The stream to a server, plain or over TLS, and a reader that takes no memory while it waits.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The most bytes of one read.
const SCRATCH_SIZE: usize = 64 * 1024;

thread_local! {
    /// The buffer of every read of a thread. Its bytes are copied before the read returns.
    static SCRATCH_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; SCRATCH_SIZE]);
}

/// The stream to a server.
pub(crate) enum ServerStream {
    /// Without TLS.
    Plain(TcpStream),
    /// With TLS.
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for ServerStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, data),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// A reader of what a server sends.
pub(crate) struct ServerReader<'a> {
    stream: ReadHalf<&'a mut ServerStream>,
    /// Bytes that arrived and were not used.
    pub(crate) buffer: BytesMut,
}

impl<'a> ServerReader<'a> {
    pub(crate) fn new(stream: ReadHalf<&'a mut ServerStream>) -> Self {
        Self { stream, buffer: BytesMut::new() }
    }

    /// Reads bytes into the buffer, at most as many as given, and returns how many; 0 is the end.
    ///
    /// A server that closes its connection without the message of TLS has ended its stream, as for Python's `ssl`.
    pub(crate) async fn fill(&mut self, limit: usize) -> io::Result<usize> {
        std::future::poll_fn(|context| {
            SCRATCH_BUFFER.with_borrow_mut(|scratch| {
                let length = limit.clamp(1, SCRATCH_SIZE);
                let mut read = ReadBuf::new(scratch.get_mut(..length).unwrap_or_default());
                match Pin::new(&mut self.stream).poll_read(context, &mut read) {
                    Poll::Pending => Poll::Pending,
                    Poll::Ready(Ok(())) => {
                        self.buffer.extend_from_slice(read.filled());
                        Poll::Ready(Ok(read.filled().len()))
                    }
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(0)),
                    Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                }
            })
        })
        .await
    }

    /// Waits until there are bytes, or the end.
    pub(crate) async fn arrival(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            self.fill(1).await?;
        }
        Ok(())
    }

    /// Takes bytes from the buffer. An empty buffer returns its memory.
    pub(crate) fn take(&mut self, length: usize) -> BytesMut {
        if length >= self.buffer.len() {
            return std::mem::take(&mut self.buffer);
        }
        self.buffer.split_to(length)
    }
}
