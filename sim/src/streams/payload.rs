//! Bodies: as they are sent, and as streams store them.

use bytes::{BufMut, Bytes, BytesMut};
use reveille_core::media::{ContentType, Framing};
use reveille_core::stream::Body;

/// A body before it is framed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Payload {
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

/// One append as it is stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Piece {
    pub(super) data: Bytes,
    /// Where its JSON messages end.
    ends: Vec<usize>,
}

impl Payload {
    /// As it is sent.
    pub(super) fn sent(&self) -> Bytes {
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

    pub(super) fn body(&self, kind: Option<&ContentType>) -> Body {
        Body::new(self.sent(), kind)
    }

    /// As a stream of this kind stores it; `None` if it is not JSON and should be.
    pub(super) fn stored(&self, kind: &ContentType) -> Option<Piece> {
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

impl Piece {
    fn raw(data: Bytes) -> Piece {
        Piece { data, ends: Vec::new() }
    }

    fn messages(messages: &[Bytes]) -> Piece {
        let mut data = BytesMut::new();
        let mut ends = Vec::new();
        for message in messages {
            data.put_slice(message);
            data.put_u8(b',');
            ends.push(data.len());
        }
        Piece { data: data.freeze(), ends }
    }

    pub(super) fn len(&self) -> u64 {
        self.data.len() as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty()
    }

    /// Its first messages if it is JSON, its first bytes if not.
    pub(super) fn first(&self, count: u64, json: bool) -> Option<Piece> {
        let count = usize::try_from(count).ok()?;
        let len = if json { *self.ends.get(count.checked_sub(1)?)? } else { count };
        (len <= self.data.len()).then(|| Piece {
            data: self.data.slice(..len),
            ends: self.ends.iter().copied().take(count).collect(),
        })
    }
}
