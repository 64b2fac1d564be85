//! Compares everything that is stored with everything that should be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use reveille_core::key_range::after_prefix;
use reveille_core::stream::create::ForkAnchor as Found;
use reveille_core::stream::{Expiry, Head, StreamId};
use reveille_kernel::keys::next_id;
use reveille_schema::streams::StreamTimer;
use reveille_schema::{keys, record};
use reveille_store::keys::BlobId;
use reveille_store::state::Reader;

use super::Streams;
use super::engine::FetchedAnchor;
use super::model::{AnchorContent, SourceAnchor, Stream};
use crate::base::engine::{AnyTimer, timer_keys};
use crate::base::{CheckResult, Violation, violation};

fn failed(error: impl std::fmt::Display) -> Violation {
    violation(format!("the audit cannot read: {error}"))
}

impl Streams {
    /// Readers see what is durable, all of it and nothing else.
    pub(super) fn audit_readers(&mut self) -> CheckResult {
        for path in self.paths.clone() {
            self.check_head(&path)?;
        }
        let reader = self.base.reader();
        self.audit_heads(&reader)?;
        for (path, stream) in &self.durable.streams {
            let head = stream.head();
            let content = self.base.engine().read_stream(&self.tenant, &head);
            let content = content.map_err(failed)?;
            if content != stream.content(0, u64::MAX) {
                return Err(violation(format!("{path} reads differently: {content:?}")));
            }
        }
        Ok(())
    }

    /// The whole state is what the model says.
    pub(super) fn audit_all(&mut self) -> CheckResult {
        self.audit_readers()?;
        let reader = self.base.reader();
        for (path, stream) in &self.durable.streams {
            audit_stream(&reader, path, stream)?;
        }
        self.audit_strays(&reader)?;
        self.audit_due(&reader)?;
        self.audit_acknowledged()?;
        let stored = reader.get(&next_id()).map_err(failed)?;
        let next_id = stored.map_or(Ok(0), |value| record::decode_u64(&value));
        match next_id.map_err(failed)? {
            id if id == self.durable.next_id => Ok(()),
            id => Err(violation(format!("the next stream would be {id}"))),
        }
    }

    fn audit_heads(&self, reader: &Reader) -> CheckResult {
        let first = keys::stream_prefix(&self.tenant, "");
        let pairs = reader.range(&first, &after_prefix(&first), usize::MAX);
        let mut heads: BTreeMap<String, Head> = BTreeMap::new();
        for (key, value) in pairs.map_err(failed)? {
            let (_, path) = keys::parse_stream(&key).ok_or_else(|| failed("a stream's key"))?;
            let head = record::decode_head(&value).map_err(failed)?;
            heads.insert(path.as_str().to_owned(), head);
        }
        let expected = self.durable.streams.iter();
        let expected: BTreeMap<String, Head> =
            expected.map(|(path, stream)| (path.clone(), stream.head())).collect();
        if heads == expected {
            return Ok(());
        }
        Err(violation(format!("stored are {heads:#?}, durable are {expected:#?}")))
    }

    /// Nothing is left of incarnations that have ended and were cleaned up.
    fn audit_strays(&self, reader: &Reader) -> CheckResult {
        let mut alive: BTreeSet<u64> = self.durable.purging.clone();
        alive.extend(self.durable.streams.values().map(|stream| stream.id));
        let (from, _) = keys::producers(StreamId(0));
        let (_, mut to) = keys::producers(StreamId(u64::MAX - 1));
        if self.base.engine().is_applied() {
            // A replay shows chunks that were removed, until they are applied and left out.
            (_, to) = reveille_store::keys::chunks(BlobId(u64::MAX - 1));
        }
        for key in reader.keys(&from, &to, usize::MAX).map_err(failed)? {
            let id = key.get(1..9).and_then(<[u8]>::first_chunk::<8>);
            let id = u64::from_be_bytes(*id.ok_or_else(|| failed("a key"))?);
            if !alive.contains(&id) {
                return Err(violation(format!("stream {id} is gone and left {key:?}")));
            }
        }
        Ok(())
    }

    /// Whatever must happen later is in the due index.
    fn audit_due(&self, reader: &Reader) -> CheckResult {
        let (from, to) = timer_keys();
        let mut purging = BTreeSet::new();
        let mut releases = BTreeSet::new();
        let mut expiring = BTreeMap::new();
        for key in reader.keys(&from, &to, usize::MAX).map_err(failed)? {
            let (at, timer) = AnyTimer::parse(&key).ok_or_else(|| failed("a timer"))?;
            let AnyTimer::Stream(timer) = timer else {
                return Err(violation(format!("nobody subscribed, and yet {timer:?}")));
            };
            match timer {
                StreamTimer::Purge(id) => {
                    purging.insert(id.0);
                }
                StreamTimer::Release(_, source, fork) => {
                    releases.insert((source.as_str().to_owned(), fork.0));
                }
                StreamTimer::Expire(_, path) => {
                    expiring.entry(path.as_str().to_owned()).or_insert(at);
                }
            }
        }
        if purging != self.durable.purging || releases != self.durable.releases {
            return Err(violation(format!(
                "to be purged are {purging:?}, not {:?}; to be released {releases:?}, not {:?}",
                self.durable.purging, self.durable.releases
            )));
        }
        for (path, stream) in &self.durable.streams {
            // The entry may have been made before the clock was set back.
            let by = match &stream.expiry {
                Expiry::Ttl(seconds) => self.base.latest.plus_seconds(*seconds),
                Expiry::At(at, _) => *at,
                Expiry::Never => continue,
            };
            let at = expiring.get(path);
            if !stream.soft && at.is_none_or(|at| *at > by) {
                return Err(violation(format!("nobody will end {path} in time: {at:?}")));
            }
        }
        Ok(())
    }

    /// Every append that a producer was told of is there, once.
    fn audit_acknowledged(&self) -> CheckResult {
        for (id, told) in &self.acknowledged {
            let Some(stream) = self.durable.by_id(*id) else {
                continue;
            };
            let mut counts: BTreeMap<&Bytes, usize> = BTreeMap::new();
            for piece in &stream.pieces {
                *counts.entry(&piece.data).or_default() += 1;
            }
            for data in told {
                let count = counts.get(data).copied().unwrap_or(0);
                if count != 1 {
                    let what = format!("stream {id} has an acknowledged append {count} times");
                    return Err(violation(format!("{what}: {data:?}")));
                }
            }
        }
        Ok(())
    }
}

/// A stream's own appends, with their boundaries, and its producers.
fn audit_stream(reader: &Reader, path: &str, stream: &Stream) -> CheckResult {
    let id = StreamId(stream.id);
    let own = stream.fork.as_ref().map_or(0, |fork| fork.at.position());
    for (start, piece) in stream.starts().filter(|(start, _)| *start >= own) {
        let chunk = reader.chunk_at(BlobId(id.0), start).map_err(failed)?;
        let append = chunk.and_then(|chunk| chunk.append_at(start));
        if append.as_ref() != Some(&piece.data) {
            return Err(violation(format!("{path} has {append:?} at {start}, not {piece:?}")));
        }
    }
    let (from, to) = keys::producers(id);
    let mut producers: BTreeMap<Arc<str>, (u64, u64)> = BTreeMap::new();
    for (key, value) in reader.range(&from, &to, usize::MAX).map_err(failed)? {
        let name = key.get(9..).map(String::from_utf8_lossy).unwrap_or_default();
        let state = record::decode_producer(&value).map_err(failed)?;
        producers.insert(name.as_ref().into(), (state.epoch, state.seq));
    }
    if producers == stream.producers {
        return Ok(());
    }
    let expected = &stream.producers;
    Err(violation(format!("{path} knows producers {producers:?}, not {expected:?}")))
}

/// The engine and the model have found the same at a fork's offset.
pub(super) fn compare_anchors(
    found: Option<&FetchedAnchor>,
    expected: Option<&SourceAnchor>,
) -> CheckResult {
    let seen = found.map(|found| {
        let what: Option<Bytes> = match &found.anchor {
            Found::Append(data) => Some(data.clone()),
            Found::Tail | Found::Nowhere => None,
        };
        let nowhere = found.anchor == Found::Nowhere;
        (found.source_id.0, found.at.position(), what, nowhere)
    });
    let known = expected.map(|expected| {
        let what = match &expected.content {
            AnchorContent::Piece(piece) => Some(piece.data.clone()),
            AnchorContent::Tail | AnchorContent::Nowhere => None,
        };
        let nowhere = expected.content == AnchorContent::Nowhere;
        (expected.source_id, expected.at, what, nowhere)
    });
    if seen == known {
        return Ok(());
    }
    Err(violation(format!("a fork's source was found as {seen:?}, not {known:?}")))
}
