//! A connection of `belljar-network` as a stream of tokio.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use atomic_waker::AtomicWaker;
use belljar_network::Connection;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection as a stream.
pub(crate) struct ConnectionStream {
    connection: Connection,
    wakers: Arc<Wakers>,
}

/// The wakers of the task, or of the two, that read and write.
#[derive(Default)]
struct Wakers {
    reader: AtomicWaker,
    writer: AtomicWaker,
}

impl ConnectionStream {
    pub(crate) fn new(connection: Connection) -> Self {
        let wakers: Arc<Wakers> = Arc::default();
        let woken = wakers.clone();
        connection.on_change(Arc::new(move || {
            woken.reader.wake();
            woken.writer.wake();
        }));
        Self { connection, wakers }
    }

    /// Waits until the connection is established.
    ///
    /// # Errors
    /// Returns the error of the connection: see [`Connection::take_error`].
    pub(crate) async fn connected(&self) -> io::Result<()> {
        poll_fn(|context| {
            self.wakers.writer.register(context.waker());
            if let Some(error) = self.connection.take_error() {
                return Poll::Ready(Err(error));
            }
            if self.connection.is_connected() {
                return Poll::Ready(Ok(()));
            }
            // It was reset, and its error was taken.
            if self.connection.readiness().hung_up {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            Poll::Pending
        })
        .await
    }

    /// Waits until the server has sent something, or the connection has ended.
    pub(crate) async fn readable(&self) {
        poll_fn(|context| {
            self.wakers.reader.register(context.waker());
            if self.connection.readiness().readable { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Returns the connection.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Runs an operation that does not block, and waits if it would.
    fn poll<T>(
        waker: &AtomicWaker,
        current: &Waker,
        mut operation: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        // Before the operation: a change after it wakes the task.
        waker.register(current);
        match operation() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            result => Poll::Ready(result),
        }
    }
}

impl AsyncRead for ConnectionStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = Self::poll(&self.wakers.reader, context.waker(), || {
            self.connection.read(buffer.initialize_unfilled(), false)
        });
        read.map_ok(|length| buffer.advance(length))
    }
}

impl AsyncWrite for ConnectionStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Self::poll(&self.wakers.writer, context.waker(), || self.connection.write(data))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.shutdown(false, true);
        Poll::Ready(Ok(()))
    }
}
