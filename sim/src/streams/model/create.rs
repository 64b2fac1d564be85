//! The model of creating and forking.

use std::collections::BTreeMap;
use std::rc::Rc;

use reveille_core::json::JsonError;
use reveille_core::limits::FORK_DEPTH_MAX;
use reveille_core::media::Framing;
use reveille_core::stream::create::{Create, ForkRequest};
use reveille_core::stream::{Expiry, Fork, Rejected, StreamId};
use reveille_core::{ContentType, Millis, Offset};

use super::{AnchorContent, Model, ModelInput, ServerMemory, SourceAnchor, Stream};
use crate::base::engine::ID_STRIDE;
use crate::streams::action::StreamAnswer;
use crate::streams::payload::Payload;

impl Model {
    pub(super) fn create(
        &mut self,
        path: &str,
        asked: &Create,
        input: &ModelInput<'_>,
        now: Millis,
        memory: &ServerMemory,
    ) -> Result<StreamAnswer, Rejected> {
        self.look(path, now, memory);
        if let Some(stream) = self.streams.get(path) {
            stream.compare(asked)?;
            let head = Box::new(stream.head());
            return Ok(StreamAnswer::Created { head, new: false });
        }
        let mut stream = Stream {
            id: memory.next_id,
            kind: asked.content_type.clone().unwrap_or_else(ContentType::octet_stream),
            pieces: Vec::new(),
            expiry: asked.expiry.clone(),
            requested: asked.expiry.clone(),
            created_at: now,
            touched_at: now,
            seq: None,
            closed: asked.closed.then_some(None),
            fork: None,
            forks: 0,
            soft: false,
            producers: BTreeMap::new(),
        };
        if let Some(fork) = &asked.fork {
            let source = fork.source.as_str();
            self.look(source, now, memory);
            let from = self.streams.get(source).ok_or(Rejected::SourceNotFound)?;
            stream.fork_from(from, fork, asked, input.anchor)?;
            self.stream(source).forks += 1;
        }
        let kind = stream.kind.clone();
        let first = input.payload.stored(&kind).ok_or(JsonError::Invalid)?;
        if *input.payload != Payload::Empty && !first.is_empty() {
            stream.pieces.push(first);
        }
        self.next_id = stream.id + ID_STRIDE;
        let head = Box::new(stream.head());
        self.streams.insert(path.to_owned(), Rc::new(stream));
        Ok(StreamAnswer::Created { head, new: true })
    }
}

impl Stream {
    /// Whether a request describes what is there already.
    fn compare(&self, asked: &Create) -> Result<(), Rejected> {
        if self.soft {
            return Err(Rejected::PathHeld);
        }
        let octets = ContentType::octet_stream();
        let same_kind = match &asked.content_type {
            Some(kind) => kind.same_media(&self.kind),
            None => self.fork.is_some() || octets.same_media(&self.kind),
        };
        let same_expiry = match (&asked.expiry, &self.requested) {
            (Expiry::At(left, _), Expiry::At(right, _)) => left == right,
            (left, right) => left == right,
        };
        let same_fork = match (&asked.fork, &self.fork) {
            (None, None) => true,
            (Some(asked), Some(fork)) => {
                let same_place = match asked.at {
                    None => true,
                    Some(at) => fork.requested_at == Some(at) || fork.at == at,
                };
                same_place && asked.source == fork.source && asked.sub_offset == fork.sub_offset
            }
            _ => false,
        };
        let same_end = asked.closed == self.closed.is_some();
        let checks = [
            (same_kind, "Content-Type"),
            (same_expiry, "expiry"),
            (same_end, "closed state"),
            (same_fork, "source"),
        ];
        match checks.iter().find(|(same, _)| !same) {
            Some((_, what)) => Err(Rejected::Exists(what)),
            None => Ok(()),
        }
    }

    /// Takes over the first part of a source.
    fn fork_from(
        &mut self,
        from: &Stream,
        fork: &ForkRequest,
        asked: &Create,
        seen: Option<&SourceAnchor>,
    ) -> Result<(), Rejected> {
        if from.soft {
            return Err(Rejected::SourceGone);
        }
        if asked.content_type.as_ref().is_some_and(|kind| !kind.same_media(&from.kind)) {
            let expected = from.kind.clone();
            return Err(Rejected::ContentType { expected });
        }
        let tail = from.tail();
        let at = fork.at.map_or(tail, Offset::position);
        let seen = seen.filter(|seen| seen.source_id == from.id && seen.at == at);
        let stands = match seen {
            _ if at == tail => AnchorContent::Tail,
            Some(seen) => seen.content.clone(),
            None => AnchorContent::Nowhere,
        };
        if at > tail || stands == AnchorContent::Nowhere {
            let tail = Offset::new(tail);
            return Err(Rejected::ForkOffset { tail });
        }
        let depth = from.fork.as_ref().map_or(1, |fork| fork.depth + 1);
        if depth > FORK_DEPTH_MAX {
            return Err(Rejected::ForkDepth { depth: depth - 1 });
        }
        if asked.content_type.is_none() {
            self.kind = from.kind.clone();
        }
        if asked.expiry == Expiry::Never {
            self.expiry = from.expiry.clone();
        }
        let inherited = from.starts().take_while(|(start, _)| *start < at);
        self.pieces = inherited.map(|(_, piece)| piece.clone()).collect();
        self.fork = Some(Fork {
            source: fork.source.clone(),
            source_id: StreamId(from.id),
            at: Offset::new(at),
            requested_at: fork.at,
            sub_offset: fork.sub_offset,
            depth,
        });
        if fork.sub_offset > 0 {
            let json = from.kind.framing() == Framing::Json;
            let part = match stands {
                AnchorContent::Piece(piece) => piece.first(fork.sub_offset, json),
                AnchorContent::Tail | AnchorContent::Nowhere => None,
            };
            self.pieces.push(part.ok_or(Rejected::ForkSubOffset)?);
        }
        Ok(())
    }
}
