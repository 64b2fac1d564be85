//! The load: one connection choosing at random what to do to which stream, and writing down what
//! it was promised, until the server is killed under it.
//!
//! Appends, closes and reads of one stream overlap freely. Creating and deleting it exclude
//! everything else, so that there is never a doubt which life of a path an append belongs to.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use crate::exchange::{
    self, ExchangeError, accept_produced, is_closed, next_offset, read_stream, send_produced,
    unexpected,
};
use crate::message::{Append, AppendId, MessageFormat};
use crate::model::{CloseState, Lifecycle, ProducerAppend, Stream, Violation};
use crate::random::Random;
use crate::tenants::TenantPath;
use harness::http::{Connection, Response};

/// One in so many appends is large.
const LARGE_ONE_IN: u64 = 500;

pub(crate) struct StreamSlot {
    /// Held shared by whoever uses the stream, alone by whoever creates or deletes it.
    gate: RwLock<()>,
    stream: Mutex<Stream>,
}

impl StreamSlot {
    pub(crate) fn new(stream: Stream) -> StreamSlot {
        StreamSlot { gate: RwLock::new(()), stream: Mutex::new(stream) }
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
pub(crate) struct AppendCounts {
    pub(crate) acknowledged: u64,
    /// 503: the server had too much to do. Allowed, but it should not be the rule.
    pub(crate) busy: u64,
}

pub(crate) struct Worker<'a> {
    index: usize,
    connection: Connection,
    random: Random,
    slots: &'a [StreamSlot],
    ids: &'a AtomicU64,
    counts: AppendCounts,
}

impl<'a> Worker<'a> {
    pub(crate) fn connect(
        index: usize,
        address: SocketAddr,
        random: Random,
        slots: &'a [StreamSlot],
        ids: &'a AtomicU64,
    ) -> io::Result<Worker<'a>> {
        let connection = Connection::open(address)?;
        Ok(Worker { index, connection, random, slots, ids, counts: AppendCounts::default() })
    }

    /// Works until the connection breaks, which it may only do once `killed` is set.
    pub(crate) fn run(mut self, killed: &AtomicBool) -> Result<AppendCounts, Violation> {
        loop {
            match self.act() {
                Ok(()) => {}
                Err(ExchangeError::Disconnected(_)) if killed.load(Ordering::SeqCst) => {
                    return Ok(self.counts);
                }
                Err(error) => return Err(error.into_violation()),
            }
        }
    }

    fn act(&mut self) -> Result<(), ExchangeError> {
        let Some(slot) = self.random.pick(self.slots) else { return Ok(()) };
        let choice = self.random.between(0, 1000);
        let (absent, closed) = {
            let stream = slot.stream();
            (stream.lifecycle == Lifecycle::Absent, stream.close_state != CloseState::Open)
        };
        match choice {
            _ if absent => self.create(slot),
            0..3 => self.delete(slot),
            3..80 => self.read(slot),
            // A closed stream is asked again now and then: it must refuse.
            80.. if closed && !choice.is_multiple_of(10) => Ok(()),
            80..83 => self.close(slot),
            83..87 => {
                self.produce(slot, ProduceOptions { close: true, ..ProduceOptions::default() })
            }
            87..100 => self.repeat(slot),
            100..110 => self.append_in_old_epoch(slot),
            110..125 => {
                self.produce(slot, ProduceOptions { new_epoch: true, ..ProduceOptions::default() })
            }
            125..350 => self.produce(slot, ProduceOptions::default()),
            _ => self.append(slot),
        }
    }

    fn create(&mut self, slot: &StreamSlot) -> Result<(), ExchangeError> {
        let _alone = slot.gate.write().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, append) = {
            let mut stream = slot.stream();
            if stream.lifecycle != Lifecycle::Absent {
                return Ok(());
            }
            stream.lifecycle = Lifecycle::Creating;
            stream.kind =
                if self.random.one_in(2) { MessageFormat::Json } else { MessageFormat::Text };
            let append = self.random.one_in(2).then(|| self.new_append(stream.kind));
            if let Some(append) = &append {
                stream.log.requested(append.id);
            }
            (stream.path.clone(), stream.kind, append)
        };
        let body = append.as_ref().map_or_else(Vec::new, |append| append.body(kind));
        let answer = self.send("PUT", &path, kind, &[], &body)?;
        let mut stream = slot.stream();
        match answer.status {
            201 => stream.lifecycle = Lifecycle::Present,
            503 => stream.reset(),
            _ => return Err(unexpected("create", &path, &answer)),
        }
        if let Some(append) = append.filter(|_| answer.status == 201) {
            self.acknowledge(&mut stream, append.id, &answer)?;
        }
        Ok(())
    }

    fn delete(&mut self, slot: &StreamSlot) -> Result<(), ExchangeError> {
        let _alone = slot.gate.write().unwrap_or_else(PoisonError::into_inner);
        let path = {
            let mut stream = slot.stream();
            if stream.lifecycle != Lifecycle::Present {
                return Ok(());
            }
            stream.lifecycle = Lifecycle::Deleting;
            stream.path.clone()
        };
        let answer = exchange::send(&mut self.connection, "DELETE", &path, &[], &[])?;
        let mut stream = slot.stream();
        match answer.status {
            204 => stream.reset(),
            503 => stream.lifecycle = Lifecycle::Present,
            _ => return Err(unexpected("delete", &path, &answer)),
        }
        Ok(())
    }

    fn append(&mut self, slot: &StreamSlot) -> Result<(), ExchangeError> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, append) = {
            let mut stream = slot.stream();
            if stream.lifecycle != Lifecycle::Present {
                return Ok(());
            }
            let append = self.new_append(stream.kind);
            stream.log.requested(append.id);
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
    fn close(&mut self, slot: &StreamSlot) -> Result<(), ExchangeError> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, append) = {
            let mut stream = slot.stream();
            if stream.lifecycle != Lifecycle::Present || stream.close_state != CloseState::Open {
                return Ok(());
            }
            let append = self.random.one_in(2).then(|| self.new_append(stream.kind));
            stream.close_state = CloseState::Requested(append.as_ref().map(|append| append.id));
            if let Some(append) = &append {
                stream.log.requested(append.id);
            }
            (stream.path.clone(), stream.kind, append)
        };
        let body = append.as_ref().map_or_else(Vec::new, |append| append.body(kind));
        let answer = self.send("POST", &path, kind, &[("stream-closed", "true")], &body)?;
        let mut stream = slot.stream();
        match answer.status {
            204 if is_closed(&answer) => {
                stream.close_state = CloseState::Closed(next_offset(&path, &answer)?);
                if let Some(append) = append {
                    self.acknowledge(&mut stream, append.id, &answer)?;
                }
            }
            503 => {
                stream.close_state = CloseState::Open;
                if let Some(append) = append {
                    self.refuse(&mut stream, append.id);
                }
            }
            _ => return Err(unexpected("close", &path, &answer)),
        }
        Ok(())
    }

    /// Appends as this connection's producer, and perhaps closes with it.
    fn produce(&mut self, slot: &StreamSlot, options: ProduceOptions) -> Result<(), ExchangeError> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, produced) = {
            let mut stream = slot.stream();
            if stream.lifecycle != Lifecycle::Present
                || options.close && stream.close_state != CloseState::Open
            {
                return Ok(());
            }
            let append = self.new_append(stream.kind);
            stream.log.requested(append.id);
            if options.close {
                stream.close_state = CloseState::Requested(Some(append.id));
            }
            let producer = stream.producers.entry(self.index).or_default();
            // A producer's first epoch is any, and every new epoch begins with sequence 0.
            let (epoch, seq) = match options.new_epoch {
                true => (producer.epoch + 1, 0),
                false => (producer.epoch, producer.next_seq),
            };
            let produced = ProducerAppend { epoch, seq, append, close: options.close };
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
        if options.close {
            stream.close_state = CloseState::Open;
        }
        Ok(())
    }

    /// Sends the producer's last append once more: it must not be appended again.
    fn repeat(&mut self, slot: &StreamSlot) -> Result<(), ExchangeError> {
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
    fn append_in_old_epoch(&mut self, slot: &StreamSlot) -> Result<(), ExchangeError> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, kind, produced) = {
            let stream = slot.stream();
            let producer = stream.producers.get(&self.index);
            let old = producer.and_then(|producer| producer.epoch.checked_sub(1));
            let Some(epoch) = old else { return Ok(()) };
            let append = self.new_append(stream.kind);
            let produced = ProducerAppend { epoch, seq: 0, append, close: false };
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
    fn read(&mut self, slot: &StreamSlot) -> Result<(), ExchangeError> {
        let _shared = slot.gate.read().unwrap_or_else(PoisonError::into_inner);
        let (path, from, expected) = {
            let stream = slot.stream();
            if stream.lifecycle != Lifecycle::Present {
                return Ok(());
            }
            let from = stream.log.settled_end.clone();
            (stream.path.clone(), from, stream.log.acknowledged_now())
        };
        let read = read_stream(&mut self.connection, &path, from.as_deref().unwrap_or("-1"))?;
        let read = read.ok_or_else(|| format!("{path} is gone while it is being used"))?;
        let recorded = slot.stream().log.record_read(read.appends, expected);
        Ok(recorded.map_err(|violation| format!("{path}: {violation}"))?)
    }

    fn acknowledge(
        &mut self,
        stream: &mut Stream,
        id: AppendId,
        answer: &Response,
    ) -> Result<(), Violation> {
        self.counts.acknowledged += 1;
        let offset = next_offset(&stream.path, answer)?;
        stream.log.acknowledged(id, offset);
        Ok(())
    }

    fn refuse(&mut self, stream: &mut Stream, id: AppendId) {
        self.counts.busy += 1;
        stream.log.refused(id);
    }

    fn new_append(&mut self, kind: MessageFormat) -> Append {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let random = &mut self.random;
        if random.one_in(LARGE_ONE_IN) {
            let pad = random.between(100_000, 1_000_000);
            return Append { id, pads: vec![pad as usize] };
        }
        let messages = match kind {
            MessageFormat::Json => random.between(1, 5),
            MessageFormat::Text => 1,
        };
        Append { id, pads: (0..messages).map(|_| random.between(0, 200) as usize).collect() }
    }

    fn send(
        &mut self,
        method: &str,
        path: &TenantPath,
        kind: MessageFormat,
        more: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Response> {
        let headers = [&[("content-type", kind.content_type())], more].concat();
        exchange::send(&mut self.connection, method, path, &headers, body)
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct ProduceOptions {
    new_epoch: bool,
    close: bool,
}

fn refused_as_closed(stream: &Stream, answer: &Response) -> bool {
    is_closed(answer) && stream.close_state != CloseState::Open
}
