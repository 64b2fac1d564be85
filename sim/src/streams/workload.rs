//! What clients come up with.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::media::Framing;
use reveille_core::producer::ProducerTag;
use reveille_core::stream::Expiry;
use reveille_core::stream::append::Append;
use reveille_core::stream::create::{Create, ForkRequest};
use reveille_core::{ContentType, Millis, Offset, StreamPath};

use super::Streams;
use super::action::Action;
use super::model::Stream;
use super::payload::Payload;
use super::request::StreamRequest;
use crate::base::Origin;

const KINDS: [&str; 4] =
    ["text/plain", "application/json", "application/octet-stream", "Text/Plain; charset=utf-8"];
const PRODUCERS: [&str; 3] = ["p", "q", "a producer"];

#[derive(Clone, Copy)]
enum ClientAction {
    Create,
    CreateAgain,
    Fork,
    Append,
    Close,
    Delete,
    Probe,
}

impl Streams {
    /// A client asks for something.
    pub(super) fn ask(&mut self) {
        let request = self.invent_request();
        self.base.run(Origin::Client, request);
    }

    fn invent_request(&mut self) -> StreamRequest {
        let path = self.choose_path();
        let stream = self.decided.streams.get(path.as_str()).cloned();
        let visible = self.decided.visible(path.as_str(), self.base.now, &self.memory).is_ok();
        let closed = stream.as_ref().is_some_and(|stream| stream.closed.is_some());
        let deletes = if closed { 60 } else { self.base.mode.deletes };
        let action = match stream.as_ref().filter(|_| visible) {
            None => self.base.random.weighted(&[
                (60, ClientAction::Create),
                (30, ClientAction::Fork),
                (6, ClientAction::Append),
                (4, ClientAction::Delete),
            ]),
            Some(_) => self.base.random.weighted(&[
                (80, ClientAction::Append),
                (4, ClientAction::CreateAgain),
                (2, ClientAction::Create),
                (2, ClientAction::Fork),
                (1, ClientAction::Close),
                (deletes, ClientAction::Delete),
                (1, ClientAction::Probe),
            ]),
        };
        let stream = stream.as_deref();
        match action {
            ClientAction::Create => self.create(path, None),
            ClientAction::Fork => {
                let fork = self.fork();
                self.create(path, Some(fork))
            }
            ClientAction::CreateAgain => self.create_again(path, stream),
            ClientAction::Append => self.append(path, stream, false),
            ClientAction::Close => self.append(path, stream, true),
            ClientAction::Delete => StreamRequest::new(&self.tenant, Action::Delete { path }),
            ClientAction::Probe => StreamRequest::new(&self.tenant, Action::Probe),
        }
    }

    /// Any path, but rather one where something can still happen.
    fn choose_path(&mut self) -> StreamPath {
        let mut path = self.base.random.pick(&self.paths).clone();
        for _ in 0..2 {
            let stream = self.decided.streams.get(path.as_str());
            if stream.is_some_and(|stream| stream.soft || stream.closed.is_some()) {
                path = self.base.random.pick(&self.paths).clone();
            }
        }
        path
    }

    fn kind(&mut self) -> ContentType {
        let kind: &&str = self.base.random.pick(&KINDS);
        ContentType::parse(kind).expect("a media type")
    }

    fn expiry(&mut self) -> Expiry {
        let seconds = match self.base.random.below(12) {
            0..6 => return Expiry::Never,
            6..8 => self.base.random.between(1, 40),
            8 => *self.base.random.pick(&[0, 3_600]),
            9 | 10 => {
                let at = self.base.now + self.base.random.between(1, 60_000);
                return Expiry::At(at, format!("at {}", at.0).into());
            }
            _ => {
                let at = Millis(self.base.now.0.saturating_sub(self.base.random.below(200_000)));
                return Expiry::At(at, "long ago".into());
            }
        };
        Expiry::Ttl(seconds)
    }

    fn create(&mut self, path: StreamPath, fork: Option<ForkRequest>) -> StreamRequest {
        let source = fork.as_ref().and_then(|fork| {
            let source = self.decided.streams.get(fork.source.as_str())?;
            Some(source.kind.clone())
        });
        let content_type = match source {
            Some(_) if self.base.random.one_in(2) => None,
            Some(kind) if !self.base.random.one_in(8) => Some(kind),
            _ => Some(self.kind()),
        };
        let payload = match &content_type {
            Some(kind) if self.base.random.one_in(3) => self.payload(&kind.clone()),
            _ => Payload::Empty,
        };
        let asked = Create {
            body: payload.body(content_type.as_ref()),
            content_type,
            expiry: self.expiry(),
            closed: self.base.random.one_in(20),
            fork,
        };
        self.creation(path, asked, payload)
    }

    fn creation(&self, path: StreamPath, request: Create, payload: Payload) -> StreamRequest {
        let action = Action::Create { path, request };
        StreamRequest::with_payload(&self.tenant, action, payload)
    }

    /// The same stream once more, as a client does that missed the answer.
    fn create_again(&mut self, path: StreamPath, stream: Option<&Stream>) -> StreamRequest {
        let Some(stream) = stream else {
            return self.create(path, None);
        };
        let fork = stream.fork.as_ref().map(|fork| ForkRequest {
            source: fork.source.clone(),
            at: fork.requested_at,
            sub_offset: fork.sub_offset,
        });
        let asked = Create {
            content_type: Some(stream.kind.clone()),
            expiry: stream.requested.clone(),
            closed: stream.closed.is_some() ^ self.base.random.one_in(8),
            fork,
            ..Create::default()
        };
        self.creation(path, asked, Payload::Empty)
    }

    fn fork(&mut self) -> ForkRequest {
        let source = self.base.random.pick(&self.paths).clone();
        // Mostly a place that readers have been told of, sometimes one that is decided only.
        let model = if self.base.random.one_in(4) { &self.decided } else { &self.durable };
        let stream = model.streams.get(source.as_str());
        let starts: Vec<u64> = stream
            .map(|stream| stream.starts().map(|(start, _)| start).collect())
            .unwrap_or_default();
        let tail = stream.map_or(0, |stream| stream.tail());
        let at = match self.base.random.below(10) {
            0..3 => None,
            3 => Some(self.base.random.below(tail + 3)),
            4 => Some(tail),
            _ if starts.is_empty() => None,
            _ => Some(*self.base.random.pick(&starts)),
        };
        let sub_offset = match self.base.random.below(4) {
            0 => self.base.random.between(1, 5),
            _ => 0,
        };
        ForkRequest { source, at: at.map(Offset::new), sub_offset }
    }

    /// A body that nobody else sends.
    fn payload(&mut self, kind: &ContentType) -> Payload {
        self.token += 1;
        let token = self.token;
        let filler = self.base.random.below(self.filler) as usize;
        if kind.framing() != Framing::Json {
            let text = format!("#{token}:{};", "x".repeat(filler));
            return Payload::Raw(Bytes::from(text));
        }
        match self.base.random.below(40) {
            0 => Payload::Broken,
            1 => Payload::NoMessages,
            _ => {
                let count = self.base.random.between(1, 5);
                let filler = "y".repeat(filler / 4);
                let message =
                    |n| Bytes::from(format!("{{\"n\":\"{token}.{n}\",\"f\":\"{filler}\"}}"));
                Payload::Messages((0..count).map(message).collect())
            }
        }
    }

    fn append(
        &mut self,
        path: StreamPath,
        stream: Option<&Stream>,
        close_only: bool,
    ) -> StreamRequest {
        let kind = match stream {
            Some(stream) if !self.base.random.one_in(25) => stream.kind.clone(),
            _ => self.kind(),
        };
        let payload = if close_only { Payload::Empty } else { self.payload(&kind) };
        let producer = match self.base.random.below(2) {
            0 => None,
            _ => Some(self.producer(stream)),
        };
        let stream_seq = match (self.base.random.below(6), stream) {
            (0, Some(stream)) => Some(self.stream_seq(stream)),
            _ => None,
        };
        let request = Append {
            body: payload.body(Some(&kind)),
            content_type: Some(kind),
            producer,
            stream_seq,
            close: close_only || self.base.random.one_in(60),
        };
        let action = Action::Append { path, request };
        StreamRequest::with_payload(&self.tenant, action, payload)
    }

    /// Mostly the next of a producer; sometimes a repetition, a gap, a successor or a zombie.
    fn producer(&mut self, stream: Option<&Stream>) -> ProducerTag {
        if let Some(Some(by)) = stream.and_then(|stream| stream.closed.clone())
            && self.base.random.one_in(2)
        {
            return by;
        }
        let id: Arc<str> = (*self.base.random.pick(&PRODUCERS)).into();
        let known = stream.and_then(|stream| stream.producers.get(&id).copied());
        let (epoch, seq) = match known {
            None => (self.base.random.below(2), u64::from(self.base.random.one_in(8))),
            Some((epoch, seq)) => match self.base.random.below(20) {
                0..2 => (epoch, seq),
                2 => (epoch, self.base.random.below(seq + 1)),
                3 => (epoch, seq + 2),
                4 => (epoch + 1, 0),
                5 => (epoch + 1, 1),
                6 => (epoch.saturating_sub(1), seq + 1),
                _ => (epoch, seq + 1),
            },
        };
        ProducerTag { id, epoch, seq }
    }

    fn stream_seq(&mut self, stream: &Stream) -> Arc<str> {
        let last = stream.seq.as_ref().and_then(|seq| seq.parse().ok());
        let next: u64 = last.unwrap_or(10);
        format!("{:06}", next + self.base.random.below(4)).into()
    }
}
