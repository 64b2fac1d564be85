//! Readers: heads, whole streams, slow reads that live through everything, and live watchers.

use reveille_core::stream::{Expiry, Head, Rejected, StreamId};
use reveille_core::{Offset, StreamPath};
use reveille_engine::Failure;
use reveille_engine::command::Command;
use reveille_engine::limits::LIVE_DATA_BYTES;
use reveille_engine::live::{TailEvent, TailWatch, WatchEvent};
use reveille_engine::reading::{self, Reading};

use crate::errand::{Errand, Owner};
use crate::model::Stream;
use crate::request::Request;
use crate::world::{Checked, World, violated};

/// A read that takes its time.
pub(crate) struct SlowRead {
    reading: Reading,
    id: u64,
    expected: Vec<u8>,
    got: usize,
    /// Where its appends end, counted like `got`.
    ends: Vec<usize>,
}

/// Somebody who waits at a stream's tail.
pub(crate) struct Watcher {
    watch: TailWatch,
    id: u64,
    at: u64,
    over: bool,
}

impl World {
    /// What a server tells who asks for a stream, as the engine finds it.
    pub(crate) fn head(&self, path: &StreamPath) -> Result<Head, Failure> {
        let shared = &self.life().shared;
        let head = reading::head(&shared.state.reader(), &self.tenant, path)?;
        let head = head.ok_or(Rejected::NotFound)?;
        if head.soft_deleted {
            return Err(Rejected::Gone.into());
        }
        if self.now < shared.access_times.expires_at(&head) {
            return Ok(head);
        }
        let kept = head.forks > 0;
        Err(if kept { Rejected::Gone } else { Rejected::NotFound }.into())
    }

    /// Compares what a reader is told of a stream with what is durable.
    pub(crate) fn check_head(&self, path: &StreamPath) -> Checked<Option<Head>> {
        let seen = self.head(path);
        let expected = self.durable.visible(path.as_str(), self.now, &self.memory);
        let expected = expected.map(Stream::head).map_err(Failure::from);
        if seen != expected {
            return Err(violated(format!(
                "{path}: a reader sees {seen:?}, durable is {expected:?}"
            )));
        }
        Ok(seen.ok())
    }

    /// Somebody reads a stream: all of it at once, or slowly, or from a place that is none.
    pub(crate) fn read(&mut self) -> Checked {
        let path = self.random.pick(&self.paths).clone();
        let Some(head) = self.check_head(&path)? else {
            self.note(&format!("read {path}: nothing there"));
            return Ok(());
        };
        self.touch(&path, &head);
        let tail = head.tail.position();
        let from = match self.random.below(4) {
            0 | 1 => 0,
            2 => self.random.below(tail + 2),
            _ => tail,
        };
        let stream = self.durable.by_id(head.id.0).expect("the head was checked");
        let named = from == tail || stream.starts().any(|(start, _)| start == from);
        let expected = stream.content(from, tail);
        let ends = stream.starts().map(|(start, piece)| start + piece.len());
        let ends = ends.filter_map(|end| usize::try_from(end.checked_sub(from)?).ok()).collect();
        let state = &self.life().shared.state;
        let opened = Reading::open(state, &self.tenant, &head, Offset::new(from), head.tail);
        self.note(&format!("read {path} from {from} of {tail}"));
        match opened {
            Err(Failure::Rejected(Rejected::ReadOffset { .. })) if !named => Ok(()),
            Err(error) => Err(violated(format!("{path} from {from} cannot be read: {error}"))),
            Ok(_) if !named => {
                Err(violated(format!("{path} was read from {from}, inside an append")))
            }
            Ok(reading) => {
                let mut read = SlowRead { reading, id: head.id.0, expected, got: 0, ends };
                if self.random.one_in(3) && self.reads.len() < 4 {
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
            self.memory.touched.insert(head.id.0, self.now);
        }
        if self.life().shared.access_times.touch(head, self.now) {
            let command = Command::Touch {
                tenant: self.tenant.clone(),
                path: path.clone(),
                id: head.id,
                at: self.now,
            };
            self.errands.push(Errand::new(Owner::Nobody, Request::plain(command)));
        }
    }

    /// Takes one slow read a piece further.
    pub(crate) fn read_slowly(&mut self) -> Checked {
        if self.reads.is_empty() {
            return Ok(());
        }
        let index = self.random.index(self.reads.len());
        let mut read = self.reads.swap_remove(index);
        if !self.read_on(&mut read)? {
            self.reads.push(read);
        }
        Ok(())
    }

    /// The next piece; true if there is nothing more.
    fn read_on(&mut self, read: &mut SlowRead) -> Checked<bool> {
        match read.reading.next_blocking() {
            Ok(None) if read.got == read.expected.len() => {
                self.tally.reads += 1;
                Ok(true)
            }
            Ok(None) => Err(violated(format!(
                "stream {} ends at {} of {}",
                read.id,
                read.got,
                read.expected.len()
            ))),
            Ok(Some(piece)) => {
                let rest = read.expected.get(read.got..).unwrap_or_default();
                if piece.is_empty() || !rest.starts_with(&piece) {
                    let (id, got) = (read.id, read.got);
                    return Err(violated(format!("stream {id} reads {piece:?} at {got}")));
                }
                read.got += piece.len();
                if read.reading.at_boundary() != read.ends.contains(&read.got) {
                    let (id, got) = (read.id, read.got);
                    return Err(violated(format!("stream {id} misjudges the boundary at {got}")));
                }
                Ok(false)
            }
            // Its bytes may be gone, but only if the stream is.
            Err(_) if self.durable.by_id(read.id).is_none() => Ok(true),
            Err(error) => Err(violated(format!("stream {} cannot be read: {error}", read.id))),
        }
    }

    /// Somebody begins to wait at a tail.
    pub(crate) fn watch(&mut self) -> Checked {
        let path = self.random.pick(&self.paths).clone();
        if self.watchers.len() >= 4 {
            let index = self.random.index(self.watchers.len());
            self.watchers.swap_remove(index);
            self.life().shared.live.sweep();
        }
        if let Some(head) = self.check_head(&path)? {
            self.note(&format!("watch {path}"));
            let watch = self.life().shared.live.watch(StreamId(head.id.0));
            self.watchers.push(Watcher {
                watch,
                id: head.id.0,
                at: head.tail.position(),
                over: false,
            });
        }
        Ok(())
    }

    /// Some watchers hear what there is to hear; the others fall behind.
    pub(crate) fn hear_all(&mut self) -> Checked {
        for mut watcher in std::mem::take(&mut self.watchers) {
            if !self.random.one_in(4) {
                self.hear(&mut watcher)?;
            }
            if !watcher.over {
                self.watchers.push(watcher);
            }
        }
        Ok(())
    }

    fn hear(&mut self, watcher: &mut Watcher) -> Checked {
        let id = watcher.id;
        let stream = self.durable.by_id(id);
        while let Some(heard) = watcher.watch.try_next() {
            match heard {
                WatchEvent::Behind => watcher.at = stream.map_or(watcher.at, Stream::tail),
                WatchEvent::TailEvent(TailEvent::Ended) => {
                    if stream.is_some_and(|stream| !stream.soft) {
                        return Err(violated(format!("stream {id} was told to have ended")));
                    }
                    watcher.over = true;
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
                        return Err(violated(format!(
                            "stream {id} was told to have grown {from}..{to}"
                        )));
                    }
                    watcher.at = watcher.at.max(to);
                }
            }
        }
        match stream.filter(|stream| !stream.soft) {
            Some(stream) if stream.tail() != watcher.at => Err(violated(format!(
                "a watcher of stream {id} heard up to {} of {}",
                watcher.at,
                stream.tail()
            ))),
            None => Err(violated(format!("nobody told that stream {id} has ended"))),
            Some(_) => Ok(()),
        }
    }
}
