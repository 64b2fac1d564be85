//! A consumer's endpoint that is polite: what the test does not answer is answered `200 {}`.

use super::sink::{Call, Sink};

/// An endpoint on a port of its own.
pub(crate) struct Endpoint {
    pub(crate) url: String,
    sink: Sink,
}

impl Endpoint {
    pub(crate) async fn open() -> Endpoint {
        let sink = Sink::polite().await;
        Endpoint { url: sink.url(), sink }
    }

    /// The next request.
    pub(crate) async fn call(&mut self) -> Call {
        self.sink.next().await
    }

    /// Whether nobody calls now.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.sink.come().is_none()
    }
}
