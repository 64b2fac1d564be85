//! An endpoint that answers everything alike, until it is told otherwise.

use serde_json::Value;

use super::sink::Sink;

/// Somebody who is called.
pub(crate) struct Responder {
    pub(crate) url: String,
    sink: Sink,
    answer: (u16, String),
}

/// What it was sent, and has answered.
pub(crate) struct Posted {
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Posted {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Responder {
    pub(crate) async fn start(status: u16, body: &str) -> Responder {
        let sink = Sink::start().await;
        Responder { url: sink.url(), sink, answer: (status, body.to_owned()) }
    }

    /// Answers like this from now on.
    pub(crate) fn answers(&mut self, status: u16, body: &str) {
        self.answer = (status, body.to_owned());
    }

    /// The next request, which is answered.
    pub(crate) async fn next(&mut self) -> Posted {
        let call = self.sink.next().await;
        let posted = Posted { headers: call.headers.clone(), body: call.body.clone() };
        call.answer(self.answer.0, &self.answer.1);
        posted
    }
}
