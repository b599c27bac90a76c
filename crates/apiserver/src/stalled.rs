//! A connection whose other end takes nothing of what it has asked for ends.
//!
//! Answers are made as they are read, but what was made, and the connection, would otherwise wait for as long as the client likes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::http::respond::Answer;

/// Nothing was taken for so long. Less would end connections over bad lines, more would keep what dead clients have asked for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether a connection has become somebody's console or port: these may stand still for as long as people like.
#[derive(Clone, Default)]
pub struct Upgraded(Arc<AtomicBool>);

impl Upgraded {
    /// Looks at an answer on its way to the client.
    pub fn note(&self, answer: &Answer) {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// A stream that fails when writing to it makes no progress.
pub struct Stalled<S> {
    stream: S,
    upgraded: Upgraded,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Stalled<S> {
    /// Watches over `stream` until it is `upgraded`.
    pub fn new(stream: S, upgraded: Upgraded) -> Self {
        Self { stream, upgraded, waiting: None }
    }

    fn judge<T>(&mut self, context: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if progress.is_ready() || self.upgraded.0.load(Ordering::Relaxed) {
            self.waiting = None;
            return progress;
        }
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
        waiting.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Stalled<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Stalled<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.judge(context, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(context, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(context, progress)
    }
}
