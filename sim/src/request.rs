//! What a client asks for: the command as the engine gets it, and what the model knows of it.

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::media::{ContentType, Framing};
use reveille_core::stream::Body;
use reveille_engine::command::Command;

use crate::model::{Anchor, Piece};

/// A command on its way, with what the model needs to foretell its outcome.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) payload: Payload,
    /// What the model says stands at the fork's offset, when the engine looked.
    pub(crate) anchor: Option<Anchor>,
}

/// A body before it is framed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Payload {
    #[default]
    Empty,
    Raw(Bytes),
    /// Messages of a JSON array.
    Messages(Vec<Bytes>),
    /// Not JSON.
    Broken,
    /// An empty JSON array.
    NoMessages,
}

impl Request {
    pub(crate) fn plain(command: Command) -> Request {
        Request { command, payload: Payload::Empty, anchor: None }
    }

    /// What it adds to a batch at most.
    pub(crate) fn weight(&self) -> u64 {
        let found = match &self.command {
            Command::Obligation { found, .. } => found.len() * 32,
            _ => 0,
        };
        600 + (self.payload.sent().len() + found) as u64
    }
}

impl Payload {
    /// As it is sent.
    pub(crate) fn sent(&self) -> Bytes {
        match self {
            Payload::Empty => Bytes::new(),
            Payload::Raw(bytes) => bytes.clone(),
            Payload::Messages(messages) => {
                let mut body = BytesMut::new();
                for message in messages {
                    body.put_u8(if body.is_empty() { b'[' } else { b',' });
                    body.put_slice(message);
                }
                body.put_u8(b']');
                body.freeze()
            }
            Payload::Broken => Bytes::from_static(b"{\"broken\":"),
            Payload::NoMessages => Bytes::from_static(b"[]"),
        }
    }

    pub(crate) fn body(&self, kind: Option<&ContentType>) -> Body {
        Body::new(self.sent(), kind)
    }

    /// As a stream of this kind stores it; `None` if it is not JSON and should be.
    pub(crate) fn stored(&self, kind: &ContentType) -> Option<Piece> {
        if kind.framing() != Framing::Json {
            return Some(Piece::raw(self.sent()));
        }
        match self {
            Payload::Messages(messages) => Some(Piece::messages(messages)),
            Payload::Empty | Payload::NoMessages => Some(Piece::default()),
            Payload::Raw(_) | Payload::Broken => None,
        }
    }
}
