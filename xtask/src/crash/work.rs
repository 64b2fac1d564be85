//! The load: one connection choosing at random what to do to which stream, and writing down what
//! it was promised, until the server is killed under it.
//!
//! Appends, closes and reads of one stream overlap freely. Creating and deleting it exclude
//! everything else, so that there is never a doubt which life of a path an append belongs to.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use super::exchange::{
    Ended, accept_produced, next_offset, read_stream, send_produced, unexpected,
};
use super::http::{Connection, Request, Response};
use super::message::{Append, AppendId, Kind};
use super::model::{Broken, Closed, Life, Produced, Stream};
use super::random::Random;

/// One in so many appends is large.
const LARGE_ONE_IN: u64 = 500;

pub(crate) struct Slot {
    /// Held shared by whoever uses the stream, alone by whoever creates or deletes it.
    gate: RwLock<()>,
    stream: Mutex<Stream>,
}

impl Slot {
    pub(crate) fn new(stream: Stream) -> Slot {
        Slot { gate: RwLock::new(()), stream: Mutex::new(stream) }
    }

    pub(crate) fn stream(&self) -> MutexGuard<'_, Stream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn stream_mut(&mut self) -> &mut Stream {
        self.stream.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_stream(self) -> Stream {
        self.stream.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub(crate) acknowledged: u64,
    /// 503: the server had too much to do. Allowed, but it should not be the rule.
    pub(crate) busy: u64,
}

pub(crate) struct Worker<'a> {
    index: usize,
    connection: Connection,
    random: Random,
    slots: &'a [Slot],
    ids: &'a AtomicU64,
    counts: Counts,
}

impl<'a> Worker<'a> {
    pub(crate) fn connect(
        index: usize,
        address: SocketAddr,
        random: Random,
        slots: &'a [Slot],
        ids: &'a AtomicU64,
    ) -> io::Result<Worker<'a>> {
        let connection = Connection::open(address)?;
        Ok(Worker { index, connection, random, slots, ids, counts: Counts::default() })
    }

    /// Works until the connection breaks, which it may only do once `killed` is set.
    pub(crate) fn run(mut self, killed: &AtomicBool) -> Result<Counts, Broken> {
        loop {
            match self.turn() {
                Ok(()) => {}
                Err(Ended::Lost(_)) if killed.load(Ordering::SeqCst) => return Ok(self.counts),
                Err(ended) => return Err(ended.sentence()),
            }
        }
    }

    fn turn(&mut self) -> Result<(), Ended> {
        let Some(slot) = self.random.pick(self.slots) else { return Ok(()) };
        let choice = self.random.between(0, 1000);
        let (absent, closed) = {
            let stream = slot.stream();
            (stream.life == Life::Absent, stream.closed != Closed::No)
        };
        match choice {
            _ if absent => self.create(slot),
            0..3 => self.delete(slot),
            3..80 => self.read(slot),
            // A closed stream is asked again now and then: it must refuse.
            80.. if closed && !choice.is_multiple_of(10) => Ok(()),
            80..83 => self.close(slot),
            83..87 => self.produce(slot, Turn { close: true, ..Turn::default() }),
            87..100 => self.repeat(slot),
            100..110 => self.fenced(slot),
            110..125 => self.produce(slot, Turn { new_epoch: true, ..Turn::default() }),
            125..350 => self.produce(slot, Turn::default()),
            _ => self.append(slot),
        }
    }

    fn create(&mut self, slot: &Slot) -> Result<(), Ended> {
        let _alone = slot.gate.write().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, append) = {
            let mut stream = slot.stream();
            if stream.life != Life::Absent {
                return Ok(());
            }
            stream.life = Life::Creating;
            stream.kind = if self.random.one_in(2) { Kind::Json } else { Kind::Text };
            let append = self.random.one_in(2).then(|| self.new_append(stream.kind));
            if let Some(append) = &append {
                stream.log.asked(append.id);
            }
            (stream.path.clone(), stream.kind, append)
        };
        let body = append.as_ref().map_or_else(Vec::new, |append| append.body(kind));
        let answer = self.send("PUT", &path, kind, &[], &body)?;
        let mut stream = slot.stream();
        match answer.status {
            201 => stream.life = Life::Present,
            503 => stream.forget(),
            _ => return Err(unexpected("create", &path, &answer)),
        }
        if let Some(append) = append.filter(|_| answer.status == 201) {
            self.acknowledge(&mut stream, append.id, &answer)?;
        }
        Ok(())
    }

    fn delete(&mut self, slot: &Slot) -> Result<(), Ended> {
        let _alone = slot.gate.write().unwrap_or_else(PoisonError::into_inner);
        let path = {
            let mut stream = slot.stream();
            if stream.life != Life::Present {
                return Ok(());
            }
            stream.life = Life::Deleting;
            stream.path.clone()
        };
        let request = Request { method: "DELETE", target: &path, headers: &[], body: &[] };
        let answer = self.connection.send(request)?;
        let mut stream = slot.stream();
        match answer.status {
            204 => stream.forget(),
            503 => stream.life = Life::Present,
            _ => return Err(unexpected("delete", &path, &answer)),
        }
        Ok(())
    }

    fn append(&mut self, slot: &Slot) -> Result<(), Ended> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, append) = {
            let mut stream = slot.stream();
            if stream.life != Life::Present {
                return Ok(());
            }
            let append = self.new_append(stream.kind);
            stream.log.asked(append.id);
            (stream.path.clone(), stream.kind, append)
        };
        let answer = self.send("POST", &path, kind, &[], &append.body(kind))?;
        let mut stream = slot.stream();
        match answer.status {
            204 => self.acknowledge(&mut stream, append.id, &answer)?,
            503 => self.refuse(&mut stream, append.id),
            409 if refused_as_closed(&stream, &answer) => stream.log.refused(append.id),
            _ => return Err(unexpected("append", &path, &answer)),
        }
        Ok(())
    }

    /// Closes without producer headers: alone, or with a last append.
    fn close(&mut self, slot: &Slot) -> Result<(), Ended> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, append) = {
            let mut stream = slot.stream();
            if stream.life != Life::Present || stream.closed != Closed::No {
                return Ok(());
            }
            let append = self.random.one_in(2).then(|| self.new_append(stream.kind));
            stream.closed = Closed::Asked(append.as_ref().map(|append| append.id));
            if let Some(append) = &append {
                stream.log.asked(append.id);
            }
            (stream.path.clone(), stream.kind, append)
        };
        let body = append.as_ref().map_or_else(Vec::new, |append| append.body(kind));
        let answer = self.send("POST", &path, kind, &[("stream-closed", "true")], &body)?;
        let mut stream = slot.stream();
        match answer.status {
            204 if answer.is_closed() => {
                stream.closed = Closed::Yes(next_offset(&path, &answer)?);
                if let Some(append) = append {
                    self.acknowledge(&mut stream, append.id, &answer)?;
                }
            }
            503 => {
                stream.closed = Closed::No;
                if let Some(append) = append {
                    self.refuse(&mut stream, append.id);
                }
            }
            _ => return Err(unexpected("close", &path, &answer)),
        }
        Ok(())
    }

    /// Appends as this connection's producer, and perhaps closes with it.
    fn produce(&mut self, slot: &Slot, turn: Turn) -> Result<(), Ended> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, produced) = {
            let mut stream = slot.stream();
            if stream.life != Life::Present || turn.close && stream.closed != Closed::No {
                return Ok(());
            }
            let append = self.new_append(stream.kind);
            stream.log.asked(append.id);
            if turn.close {
                stream.closed = Closed::Asked(Some(append.id));
            }
            let producer = stream.producers.entry(self.index).or_default();
            // A producer's first epoch is any, and every new epoch begins with sequence 0.
            let (epoch, seq) = match turn.new_epoch {
                true => (producer.epoch + 1, 0),
                false => (producer.epoch, producer.next_seq),
            };
            let produced = Produced { epoch, seq, append, close: turn.close };
            producer.unanswered = Some(produced.clone());
            (stream.path.clone(), stream.kind, produced)
        };
        let answer = send_produced(&mut self.connection, &path, kind, self.index, &produced)?;
        let mut stream = slot.stream();
        let id = produced.append.id;
        match answer.status {
            200 => {
                self.acknowledge(&mut stream, id, &answer)?;
                accept_produced(&mut stream, self.index, produced, &answer)?;
                return Ok(());
            }
            503 => self.refuse(&mut stream, id),
            409 if refused_as_closed(&stream, &answer) => stream.log.refused(id),
            _ => return Err(unexpected("append as producer", &path, &answer)),
        }
        stream.producers.entry(self.index).or_default().unanswered = None;
        if turn.close {
            stream.closed = Closed::No;
        }
        Ok(())
    }

    /// Sends the producer's last append once more: it must not be appended again.
    fn repeat(&mut self, slot: &Slot) -> Result<(), Ended> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, produced) = {
            let stream = slot.stream();
            let producer = stream.producers.get(&self.index);
            let Some(produced) = producer.and_then(|producer| producer.last.clone()) else {
                return Ok(());
            };
            (stream.path.clone(), stream.kind, produced)
        };
        let answer = send_produced(&mut self.connection, &path, kind, self.index, &produced)?;
        match answer.status {
            204 | 503 => Ok(()),
            409 if refused_as_closed(&slot.stream(), &answer) => Ok(()),
            _ => Err(unexpected("repeat", &path, &answer)),
        }
    }

    /// Appends in an epoch that is over: it must be refused.
    fn fenced(&mut self, slot: &Slot) -> Result<(), Ended> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, produced) = {
            let stream = slot.stream();
            let producer = stream.producers.get(&self.index);
            let old = producer.and_then(|producer| producer.epoch.checked_sub(1));
            let Some(epoch) = old else { return Ok(()) };
            let append = self.new_append(stream.kind);
            let produced = Produced { epoch, seq: 0, append, close: false };
            (stream.path.clone(), stream.kind, produced)
        };
        let answer = send_produced(&mut self.connection, &path, kind, self.index, &produced)?;
        match answer.status {
            403 | 503 => Ok(()),
            409 if refused_as_closed(&slot.stream(), &answer) => Ok(()),
            _ => Err(unexpected("append in an old epoch", &path, &answer)),
        }
    }

    /// Reads what came since the restart. Whatever is shown here must survive the kill.
    fn read(&mut self, slot: &Slot) -> Result<(), Ended> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, from, expected) = {
            let stream = slot.stream();
            if stream.life != Life::Present {
                return Ok(());
            }
            let from = stream.log.settled_end.clone();
            (stream.path.clone(), from, stream.log.acknowledged_now())
        };
        let read = read_stream(&mut self.connection, &path, from.as_deref().unwrap_or("-1"))?;
        let read = read.ok_or_else(|| format!("{path} is gone while it is being used"))?;
        let shown = slot.stream().log.shown(read.appends, expected);
        Ok(shown.map_err(|broken| format!("{path}: {broken}"))?)
    }

    fn acknowledge(
        &mut self,
        stream: &mut Stream,
        id: AppendId,
        answer: &Response,
    ) -> Result<(), Broken> {
        self.counts.acknowledged += 1;
        let offset = next_offset(&stream.path, answer)?;
        stream.log.acknowledged(id, offset);
        Ok(())
    }

    fn refuse(&mut self, stream: &mut Stream, id: AppendId) {
        self.counts.busy += 1;
        stream.log.refused(id);
    }

    fn new_append(&mut self, kind: Kind) -> Append {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let random = &mut self.random;
        if random.one_in(LARGE_ONE_IN) {
            let pad = random.between(100_000, 1_000_000);
            return Append { id, pads: vec![pad as usize] };
        }
        let messages = match kind {
            Kind::Json => random.between(1, 5),
            Kind::Text => 1,
        };
        Append { id, pads: (0..messages).map(|_| random.between(0, 200) as usize).collect() }
    }

    fn send(
        &mut self,
        method: &str,
        path: &str,
        kind: Kind,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let headers = [&[("content-type", kind.content_type())], more].concat();
        self.connection.send(Request { method, target: path, headers: &headers, body })
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Turn {
    new_epoch: bool,
    close: bool,
}

fn refused_as_closed(stream: &Stream, answer: &Response) -> bool {
    answer.is_closed() && stream.closed != Closed::No
}
