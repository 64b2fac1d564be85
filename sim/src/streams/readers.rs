//! Readers: heads, whole streams, slow reads that live through everything, and live watchers.

use reveille_core::StreamPath;
use reveille_core::stream::{Expiry, Head, StreamId};

use super::Streams;
use super::action::Action;
use super::engine::{self, LIVE_DATA_BYTES, Reading, TailEvent, TailWatch, WatchEvent};
use super::model::Stream;
use super::request::StreamRequest;
use crate::base::{CheckResult, Origin, violation};

/// A read that takes its time.
pub(super) struct SlowRead {
    reading: Reading,
    id: u64,
    expected: Vec<u8>,
    got: usize,
    /// Where its appends end, counted like `got`.
    ends: Vec<usize>,
}

/// Somebody who waits at a stream's tail.
pub(super) struct Watcher {
    watch: TailWatch,
    id: u64,
    at: u64,
    is_over: bool,
}

impl Streams {
    /// Compares what a reader is told of a stream with what is durable.
    pub(super) fn check_head(&self, path: &StreamPath) -> CheckResult<Option<Head>> {
        let now = self.base.now;
        let seen = engine::head(self.base.engine(), &self.tenant, path, now)?;
        let expected = self.durable.visible(path.as_str(), now, &self.memory);
        let expected = expected.map(Stream::head);
        if seen != expected {
            return Err(violation(format!(
                "{path}: a reader sees {seen:?}, durable is {expected:?}"
            )));
        }
        Ok(seen.ok())
    }

    /// Somebody reads a stream: all of it at once, or slowly, or from a place that is none.
    pub(super) fn read(&mut self) -> CheckResult {
        let path = self.base.random.pick(&self.paths).clone();
        let Some(head) = self.check_head(&path)? else {
            self.base.note(&format!("read {path}: nothing there"));
            return Ok(());
        };
        self.touch(&path, &head);
        let tail = head.tail.position();
        let from = match self.base.random.below(4) {
            0 | 1 => 0,
            2 => self.base.random.below(tail + 2),
            _ => tail,
        };
        let stream = self.durable.by_id(head.id.0).expect("the head was checked");
        let named = from == tail || stream.starts().any(|(start, _)| start == from);
        let expected = stream.content(from, tail);
        let ends = stream.starts().map(|(start, piece)| start + piece.len());
        let ends = ends.filter_map(|end| usize::try_from(end.checked_sub(from)?).ok()).collect();
        let opened = engine::open_reading(self.base.engine(), &self.tenant, &head, from)?;
        self.base.note(&format!("read {path} from {from} of {tail}"));
        match opened {
            None if !named => Ok(()),
            None => Err(violation(format!("{path} cannot be read from {from}"))),
            Some(_) if !named => {
                Err(violation(format!("{path} was read from {from}, inside an append")))
            }
            Some(reading) => {
                let mut read = SlowRead { reading, id: head.id.0, expected, got: 0, ends };
                if self.base.random.one_in(3) && self.reads.len() < 4 {
                    self.reads.push(read);
                    return Ok(());
                }
                while !self.read_on(&mut read)? {}
                Ok(())
            }
        }
    }

    /// A read counts for the lifetime of a stream, and is written down now and then.
    fn touch(&mut self, path: &StreamPath, head: &Head) {
        if let Expiry::Ttl(_) = head.expiry {
            self.memory.touched.insert(head.id.0, self.base.now);
        }
        if engine::touch(self.base.engine(), head, self.base.now) {
            let action = Action::Touch { path: path.clone(), id: head.id, at: self.base.now };
            self.base.run(Origin::Background, StreamRequest::new(&self.tenant, action));
        }
    }

    /// Takes one slow read a piece further.
    pub(super) fn read_slowly(&mut self) -> CheckResult {
        if self.reads.is_empty() {
            return Ok(());
        }
        let index = self.base.random.index(self.reads.len());
        let mut read = self.reads.swap_remove(index);
        if !self.read_on(&mut read)? {
            self.reads.push(read);
        }
        Ok(())
    }

    /// The next piece; true if there is nothing more.
    fn read_on(&mut self, read: &mut SlowRead) -> CheckResult<bool> {
        match read.reading.next_blocking() {
            Ok(None) if read.got == read.expected.len() => {
                self.base.coverage.reads += 1;
                Ok(true)
            }
            Ok(None) => Err(violation(format!(
                "stream {} ends at {} of {}",
                read.id,
                read.got,
                read.expected.len()
            ))),
            Ok(Some(piece)) => {
                let rest = read.expected.get(read.got..).unwrap_or_default();
                if piece.is_empty() || !rest.starts_with(&piece) {
                    let (id, got) = (read.id, read.got);
                    return Err(violation(format!("stream {id} reads {piece:?} at {got}")));
                }
                read.got += piece.len();
                if read.reading.at_boundary() != read.ends.contains(&read.got) {
                    let (id, got) = (read.id, read.got);
                    return Err(violation(format!("stream {id} misjudges the boundary at {got}")));
                }
                Ok(false)
            }
            // Its bytes may be gone, but only if the stream is.
            Err(_) if self.durable.by_id(read.id).is_none() => Ok(true),
            Err(error) => Err(violation(format!("stream {} cannot be read: {error}", read.id))),
        }
    }

    /// Somebody begins to wait at a tail.
    pub(super) fn watch(&mut self) -> CheckResult {
        let path = self.base.random.pick(&self.paths).clone();
        if self.watchers.len() >= 4 {
            let index = self.base.random.index(self.watchers.len());
            self.watchers.swap_remove(index);
            engine::sweep_watches(self.base.engine());
        }
        if let Some(head) = self.check_head(&path)? {
            self.base.note(&format!("watch {path}"));
            let watch = engine::watch(self.base.engine(), StreamId(head.id.0));
            self.watchers.push(Watcher {
                watch,
                id: head.id.0,
                at: head.tail.position(),
                is_over: false,
            });
        }
        Ok(())
    }

    /// Some watchers hear what there is to hear; the others fall behind.
    pub(super) fn notify_watchers(&mut self) -> CheckResult {
        for mut watcher in std::mem::take(&mut self.watchers) {
            if !self.base.random.one_in(4) {
                self.check_watcher(&mut watcher)?;
            }
            if !watcher.is_over {
                self.watchers.push(watcher);
            }
        }
        Ok(())
    }

    fn check_watcher(&mut self, watcher: &mut Watcher) -> CheckResult {
        let id = watcher.id;
        let stream = self.durable.by_id(id);
        while let Some(event) = watcher.watch.try_next() {
            match event {
                WatchEvent::Behind => watcher.at = stream.map_or(watcher.at, Stream::tail),
                WatchEvent::TailEvent(TailEvent::Ended) => {
                    if stream.is_some_and(|stream| !stream.soft) {
                        return Err(violation(format!("stream {id} was told to have ended")));
                    }
                    watcher.is_over = true;
                    return Ok(());
                }
                WatchEvent::TailEvent(TailEvent::Grown(growth)) => {
                    let (from, to) = (growth.from.position(), growth.to.position());
                    if to <= watcher.at && !growth.closed {
                        continue;
                    }
                    // What is large is not sent along: everybody reads it by offset.
                    let large = to - from > LIVE_DATA_BYTES && growth.data.is_empty();
                    let content = stream.filter(|_| !large).map(|stream| stream.content(from, to));
                    if from > watcher.at || content.is_some_and(|content| content != growth.data) {
                        return Err(violation(format!(
                            "stream {id} was told to have grown {from}..{to}"
                        )));
                    }
                    watcher.at = watcher.at.max(to);
                }
            }
        }
        match stream.filter(|stream| !stream.soft) {
            Some(stream) if stream.tail() != watcher.at => Err(violation(format!(
                "a watcher of stream {id} heard up to {} of {}",
                watcher.at,
                stream.tail()
            ))),
            None => Err(violation(format!("nobody told that stream {id} has ended"))),
            Some(_) => Ok(()),
        }
    }
}
