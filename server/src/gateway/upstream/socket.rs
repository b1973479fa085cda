//! The sockets of connections to the upstream, below TLS.
//!
//! The runtime reports bytes that have arrived with a delay. Where that matters, a socket asks the
//! system.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

/// A connector that makes sockets.
#[derive(Debug, Clone)]
pub(in crate::gateway) struct Sockets(pub(in crate::gateway) HttpConnector);

impl Service<Uri> for Sockets {
    type Response = TokioIo<Socket>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.0.call(uri);
        Box::pin(async move {
            let io = connecting.await?.into_inner();
            Ok(TokioIo::new(Socket { io, asks_system: false }))
        })
    }
}

/// A socket to an upstream.
#[derive(Debug)]
pub(in crate::gateway) struct Socket {
    io: TcpStream,
    asks_system: bool,
}

impl Socket {
    /// Returns `true` if there are unread bytes, and `false` at the end of the connection.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there are neither, or the error of the connection.
    pub(super) fn has_unread(&self) -> io::Result<bool> {
        SockRef::from(&self.io).peek(&mut [MaybeUninit::uninit()]).map(|unread| unread > 0)
    }

    /// While this is set, a read that the runtime would let wait asks the system for bytes.
    pub(super) fn set_asks_system(&mut self, asks: bool) {
        self.asks_system = asks;
    }
}

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        if read.is_ready() || !self.asks_system {
            return read;
        }
        // The waker is registered already, for bytes that arrive later.
        match (&*SockRef::from(&self.io)).read(buffer.initialize_unfilled()) {
            Ok(read) => {
                buffer.advance(read);
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::task::Waker;

    use super::*;

    /// The runtime reports arrived bytes when it next waits for events, which it does not in here.
    #[tokio::test]
    async fn a_socket_can_ask_the_system_for_bytes_that_were_not_reported_yet() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let io = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let mut socket = Socket { io, asks_system: false };
        let mut context = Context::from_waker(Waker::noop());
        let mut bytes = [0; 8];
        let mut read = |socket: &mut Socket| {
            let mut buffer = ReadBuf::new(&mut bytes);
            let polled = Pin::new(socket).poll_read(&mut context, &mut buffer);
            polled.map(|read| read.map(|()| buffer.filled().to_vec()).unwrap())
        };
        assert!(read(&mut socket).is_pending());
        assert_eq!(socket.has_unread().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        peer.write_all(b"stray").unwrap();
        while socket.has_unread().is_err() {
            std::thread::yield_now();
        }
        assert!(socket.has_unread().unwrap());
        assert!(read(&mut socket).is_pending());
        socket.set_asks_system(true);
        assert_eq!(read(&mut socket), Poll::Ready(b"stray".to_vec()));
        assert!(read(&mut socket).is_pending());
        drop(peer);
        while socket.has_unread().is_err() {
            std::thread::yield_now();
        }
        assert!(!socket.has_unread().unwrap());
        assert_eq!(read(&mut socket), Poll::Ready(Vec::new()));
    }
}
