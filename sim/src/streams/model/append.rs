//! The model of appending.

use reveille_core::Millis;
use reveille_core::Offset;
use reveille_core::json::JsonError;
use reveille_core::producer::{ProducerRejected, ProducerState, ProducerTag};
use reveille_core::stream::Rejected;
use reveille_core::stream::append::{Append, AppendReceipt};

use super::{Model, ServerMemory, Stream};
use crate::streams::action::StreamAnswer;
use crate::streams::payload::Payload;

impl Model {
    pub(super) fn append(
        &mut self,
        path: &str,
        asked: &Append,
        payload: &Payload,
        now: Millis,
        memory: &ServerMemory,
    ) -> Result<StreamAnswer, Rejected> {
        self.look(path, now, memory);
        if !self.streams.contains_key(path) {
            return Err(Rejected::NotFound);
        }
        let stream = self.stream(path);
        if stream.soft {
            return Err(Rejected::Gone);
        }
        if let Some(by) = &stream.closed {
            return stream.answer_closed(by.as_ref(), asked, payload);
        }
        let has_body = *payload != Payload::Empty;
        let kind = asked.content_type.as_ref();
        if has_body && !kind.is_some_and(|kind| kind.same_media(&stream.kind)) {
            return Err(Rejected::ContentType { expected: stream.kind.clone() });
        }
        if let Some(tag) = &asked.producer {
            if let Some(newest) = stream.has_seen(tag)? {
                return Ok(stream.receipt(Some(newest), true));
            }
            stream.producers.insert(tag.id.clone(), (tag.epoch, tag.seq));
        }
        if has_body {
            if let Some(seq) = &asked.stream_seq {
                if let Some(last) = stream.seq.clone().filter(|last| seq <= last) {
                    return Err(Rejected::StreamSeq { last });
                }
                stream.seq = Some(seq.clone());
            }
            if *payload == Payload::NoMessages {
                return Err(JsonError::EmptyArray.into());
            }
            let piece = payload.stored(&stream.kind).ok_or(JsonError::Invalid)?;
            stream.pieces.push(piece);
        }
        if asked.close {
            stream.closed = Some(asked.producer.clone());
        }
        stream.touched_at = stream.touched_at.max(now);
        let newest = asked.producer.as_ref().map(|tag| (tag.epoch, tag.seq));
        Ok(stream.receipt(newest, false))
    }
}

impl Stream {
    fn receipt(&self, producer: Option<(u64, u64)>, duplicate: bool) -> StreamAnswer {
        StreamAnswer::Appended(AppendReceipt {
            tail: Offset::new(self.tail()),
            closed: self.closed.is_some(),
            producer: producer.map(|(epoch, seq)| ProducerState { epoch, seq }),
            duplicate,
        })
    }

    /// A closed stream takes nothing but the repetition of its close.
    fn answer_closed(
        &self,
        by: Option<&ProducerTag>,
        asked: &Append,
        payload: &Payload,
    ) -> Result<StreamAnswer, Rejected> {
        let again = match &asked.producer {
            Some(tag) => by == Some(tag),
            None => *payload == Payload::Empty && asked.close,
        };
        if again {
            let newest = asked.producer.as_ref().map(|tag| (tag.epoch, tag.seq));
            Ok(self.receipt(newest, true))
        } else {
            let tail = Offset::new(self.tail());
            Err(Rejected::Closed { tail })
        }
    }

    /// The producer's newest append if this one was there before; an error if it cannot be next.
    fn has_seen(&self, tag: &ProducerTag) -> Result<Option<(u64, u64)>, ProducerRejected> {
        let (received, known) = (tag.seq, self.producers.get(&tag.id).copied());
        let gap = |expected| ProducerRejected::Gap { expected, received };
        match known {
            None if received == 0 => Ok(None),
            None => Err(gap(0)),
            Some((current, _)) if tag.epoch < current => Err(ProducerRejected::Fenced { current }),
            Some((current, _)) if tag.epoch > current && received == 0 => Ok(None),
            Some((current, _)) if tag.epoch > current => Err(ProducerRejected::EpochStart),
            Some((_, last)) if received <= last => Ok(known),
            Some((_, last)) if received == last + 1 => Ok(None),
            Some((_, last)) => Err(gap(last + 1)),
        }
    }
}
