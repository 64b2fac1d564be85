//! Streams of an HTTP/2 connection whose client must take what it is sent.
//!
//! The client gives each stream a window of its own, so that one of them may stand still while the
//! connection goes on. Every piece of an answer is followed until it has been written to the
//! connection; a stream none of whose pieces was written for too long is reset. One whose answer
//! is complete cannot be reset any more: then the connection ends.

use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use hyper::rt::Executor;
use reveille_core::Millis;
use reveille_engine::ReplyRoom;
use reveille_engine::doors::Clock;
use tokio::sync::Notify;

use super::write_timeout::{LOOK_MS, PRESSED_MS};

tokio::task_local! {
    /// The stream whose request is being answered.
    static STREAM: Arc<StreamProgress>;
}

/// Runs the streams of one connection.
#[derive(Clone)]
pub(crate) struct StreamExecutor {
    clock: Arc<dyn Clock>,
    timeout_ms: u64,
    /// Told when the connection must end.
    hang_up: Arc<Notify>,
}

/// How much of a stream's answer has been taken.
pub(crate) struct StreamProgress {
    clock: Arc<dyn Clock>,
    timeout_ms: u64,
    /// Pieces that have been given and not been taken.
    waiting: AtomicUsize,
    /// Since when none of them has been taken.
    since: AtomicU64,
    given: Notify,
    taken: Notify,
    /// Where what waits for the client is counted.
    room: OnceLock<ReplyRoom>,
}

impl StreamExecutor {
    pub(crate) fn new(clock: &Arc<dyn Clock>, timeout_ms: u64) -> StreamExecutor {
        StreamExecutor { clock: clock.clone(), timeout_ms, hang_up: Arc::default() }
    }

    /// Ends when the connection must end.
    pub(crate) fn hang_up(&self) -> Arc<Notify> {
        self.hang_up.clone()
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let progress = Arc::new(StreamProgress {
            clock: self.clock.clone(),
            timeout_ms: self.timeout_ms,
            waiting: AtomicUsize::new(0),
            since: AtomicU64::new(0),
            given: Notify::new(),
            taken: Notify::new(),
            room: OnceLock::new(),
        });
        let hang_up = self.hang_up.clone();
        let run = run(stream, progress.clone(), hang_up);
        tokio::spawn(STREAM.scope(progress, run));
    }
}

async fn run(
    stream: impl Future<Output = ()>,
    progress: Arc<StreamProgress>,
    hang_up: Arc<Notify>,
) {
    tokio::select! {
        biased;
        () = stream => {}
        // To drop the stream is to reset it.
        () = progress.stalled() => return,
    }
    tokio::select! {
        biased;
        () = progress.all_taken() => {}
        () = progress.stalled() => hang_up.notify_one(),
    }
}

impl StreamProgress {
    /// That of the stream whose request is being answered.
    pub(crate) fn current() -> Option<Arc<StreamProgress>> {
        STREAM.try_with(Arc::clone).ok()
    }

    /// Says where what waits for the client is counted.
    pub(crate) fn set_room(&self, room: &ReplyRoom) {
        let _ = self.room.set(room.clone());
    }

    /// Follows a piece until it has been taken.
    pub(crate) fn follow(self: &Arc<Self>, bytes: Bytes) -> Bytes {
        if self.waiting.fetch_add(1, Ordering::AcqRel) == 0 {
            self.since.store(self.clock.now().0, Ordering::Release);
            self.given.notify_one();
        }
        Bytes::from_owner(Piece { bytes, progress: self.clone() })
    }

    fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    async fn all_taken(&self) {
        while self.is_waiting() {
            self.taken.notified().await;
        }
    }

    /// Ends when nothing was taken for too long of what there is.
    async fn stalled(&self) {
        loop {
            while !self.is_waiting() {
                self.given.notified().await;
            }
            let since = self.since.load(Ordering::Acquire);
            let (now, deadline) = (self.clock.now(), Millis(since) + self.timeout_ms);
            let is_pressed = now >= Millis(since) + PRESSED_MS
                && self.room.get().is_some_and(ReplyRoom::is_short);
            if now >= deadline || is_pressed {
                return;
            }
            let look = (Millis(since) + PRESSED_MS).max(now + LOOK_MS);
            tokio::select! {
                () = self.clock.sleep_until(deadline) => {}
                () = self.clock.sleep_until(look) => {}
            }
        }
    }
}

/// A piece of an answer that has not been taken.
struct Piece {
    bytes: Bytes,
    progress: Arc<StreamProgress>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.progress.since.store(self.progress.clock.now().0, Ordering::Release);
        if self.progress.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.progress.taken.notify_one();
        }
    }
}
