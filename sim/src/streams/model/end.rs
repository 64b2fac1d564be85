//! The model of endings: deletion, expiry, and what follows from them later.

use reveille_core::Millis;
use reveille_core::stream::Rejected;
use reveille_schema::streams::StreamTimer;

use super::{Model, ServerMemory};
use crate::base::engine::{AnyTimer, Timer};
use crate::streams::action::StreamAnswer;

impl Model {
    /// Ends the stream at a path if its time has come.
    pub(super) fn look(&mut self, path: &str, now: Millis, memory: &ServerMemory) {
        let over = self
            .streams
            .get(path)
            .is_some_and(|stream| !stream.soft && memory.expired(stream, now));
        if over {
            self.end(path);
        }
    }

    /// Ends a stream, unless forks read from it: then it only becomes invisible.
    fn end(&mut self, path: &str) {
        if self.stream(path).forks > 0 {
            self.stream(path).soft = true;
        } else {
            self.remove(path);
        }
    }

    fn remove(&mut self, path: &str) {
        let stream = self.streams.remove(path).expect("the stream exists");
        self.purging.insert(stream.id);
        if let Some(fork) = &stream.fork {
            let source = fork.source.as_str().to_owned();
            self.releases.insert((source, stream.id));
        }
    }

    pub(super) fn delete(
        &mut self,
        path: &str,
        now: Millis,
        memory: &ServerMemory,
    ) -> Result<StreamAnswer, Rejected> {
        self.look(path, now, memory);
        let stream = self.streams.get(path).ok_or(Rejected::NotFound)?;
        if stream.soft {
            return Err(Rejected::Gone);
        }
        self.end(path);
        Ok(StreamAnswer::Done)
    }

    pub(super) fn touch(
        &mut self,
        path: &str,
        id: u64,
        at: Millis,
        now: Millis,
        memory: &ServerMemory,
    ) {
        self.look(path, now, memory);
        if self.streams.get(path).is_some_and(|stream| stream.id == id) {
            let stream = self.stream(path);
            stream.touched_at = stream.touched_at.max(at);
        }
    }

    pub(super) fn work_off(&mut self, timer: &Timer, now: Millis, memory: &ServerMemory) {
        let AnyTimer::Stream(stream_timer) = &timer.timer else {
            unreachable!("nobody subscribed, and yet {timer:?}")
        };
        match stream_timer {
            StreamTimer::Expire(_, path) => self.look(path.as_str(), now, memory),
            StreamTimer::Purge(id) if timer.remains == 0 => {
                self.purging.remove(&id.0);
            }
            StreamTimer::Purge(_) => {}
            StreamTimer::Release(_, source, fork) => {
                let source = source.as_str();
                let entry = (source.to_owned(), fork.0);
                if self.releases.remove(&entry) {
                    self.look(source, now, memory);
                    self.release(source);
                }
            }
        }
    }

    /// Counts a fork off; the last one takes a deleted source along.
    fn release(&mut self, path: &str) {
        let source = self.stream(path);
        source.forks -= 1;
        if source.soft && source.forks == 0 {
            self.remove(path);
        }
    }
}
