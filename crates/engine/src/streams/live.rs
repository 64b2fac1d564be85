//! Live readers: whoever waits at a stream's tail is told once the new bytes are durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::{Bytes, BytesMut};
use reveille_core::Offset;
use reveille_core::stream::StreamId;
use reveille_kernel::reply_budget::ReplyRoom;
use tokio::sync::broadcast;

use crate::app::Part;
use crate::effect::Effect;
use crate::limits::{LIVE_BACKLOG, LIVE_DATA_BYTES, LIVE_UNCOUNTED_BYTES};

/// What a live reader hears.
#[derive(Debug, Clone)]
pub enum TailEvent {
    /// The stream has grown, or was closed.
    Grown(Arc<StreamGrowth>),
    /// The stream is no more.
    Ended,
}

/// What one batch added to a stream. All its readers share it.
#[derive(Debug)]
pub struct StreamGrowth {
    /// The tail before.
    pub from: Offset,
    /// The tail after.
    pub to: Offset,
    /// The stored bytes in between; none if they are many, or memory is short: then they are read
    /// by offset, so that slow readers do not keep them in memory.
    pub data: Bytes,
    /// Whether the stream is closed at `to`.
    pub closed: bool,
    /// A face's encoding of the bytes as an event, made by the first reader that needs it.
    pub encoded: OnceLock<Bytes>,
    /// The same as the body of an answer.
    pub body: OnceLock<Bytes>,
}

impl StreamGrowth {
    /// Whether the data is here.
    pub fn is_whole(&self) -> bool {
        self.from.plus(u64::try_from(self.data.len()).unwrap_or(u64::MAX)) == self.to
    }
}

/// The streams that somebody watches.
#[derive(Debug, Default)]
pub struct LiveReaders {
    watched: Mutex<HashMap<StreamId, Watched>>,
}

/// A stream that somebody watches.
#[derive(Debug)]
struct Watched {
    news: broadcast::Sender<TailEvent>,
    /// Where what waits for its readers is counted.
    room: Option<ReplyRoom>,
}

impl Part for LiveReaders {
    /// Lets go of streams that nobody watches any more.
    fn sweep(&self) {
        self.lock().retain(|_, watched| watched.news.receiver_count() > 0);
    }
}

/// A watch on one stream.
#[derive(Debug)]
pub struct TailWatch {
    news: broadcast::Receiver<TailEvent>,
}

/// What a watch brings next.
#[derive(Debug, Clone)]
pub enum WatchEvent {
    /// The next news.
    TailEvent(TailEvent),
    /// Some was missed: read on by offset.
    Behind,
}

impl LiveReaders {
    /// Begins to watch: everything that is published from now on is heard.
    pub fn watch(&self, id: StreamId) -> TailWatch {
        self.watch_within(id, None)
    }

    /// The same; what waits for the stream's readers is counted there.
    pub fn watch_within(&self, id: StreamId, room: Option<ReplyRoom>) -> TailWatch {
        let mut watched = self.lock();
        let entry = watched
            .entry(id)
            .or_insert_with(|| Watched { news: broadcast::Sender::new(LIVE_BACKLOG), room });
        TailWatch { news: entry.news.subscribe() }
    }

    /// The number of streams that somebody watches.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nobody watches anything.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Tells the readers of every stream that a batch touched.
    pub fn publish(&self, effects: Vec<Effect>) {
        let mut watched = self.lock();
        if watched.is_empty() {
            return;
        }
        for (id, news) in gather(effects, &watched) {
            let nobody = watched.get(&id).is_none_or(|watched| watched.news.send(news).is_err());
            if nobody {
                watched.remove(&id);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<StreamId, Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a batch added to one stream, piece by piece.
struct Gathered {
    from: Offset,
    to: Offset,
    pieces: Vec<Bytes>,
    closed: bool,
}

/// The effects of a batch as news, one for each stream that grew.
fn gather(
    effects: Vec<Effect>,
    watched: &HashMap<StreamId, Watched>,
) -> Vec<(StreamId, TailEvent)> {
    let mut grown: HashMap<StreamId, Gathered> = HashMap::new();
    let mut order = Vec::new();
    let mut ended = Vec::new();
    for effect in effects {
        match effect {
            Effect::NotifyReaders { id, from, data, closed } if watched.contains_key(&id) => {
                let entry = grown.entry(id).or_insert_with(|| {
                    order.push(id);
                    Gathered { from, to: from, pieces: Vec::new(), closed: false }
                });
                entry.to = entry.to.plus(u64::try_from(data.len()).unwrap_or(u64::MAX));
                entry.pieces.push(data);
                entry.closed |= closed;
            }
            Effect::ReleaseReaders(id) => ended.push((id, TailEvent::Ended)),
            Effect::NotifyReaders { .. }
            | Effect::SendWake(_)
            | Effect::CountActivity(_)
            | Effect::CountLoad(_)
            | Effect::CountWork { .. }
            | Effect::CountDeadLetter(_)
            | Effect::CountEvaluationErrors { .. }
            | Effect::CountTriggerAttempt(_)
            | Effect::CountRollback(_)
            | Effect::CountReplayed { .. }
            | Effect::Complain(_)
            | Effect::SendDelivery(_) => {}
        }
    }
    let mut news = Vec::with_capacity(order.len() + ended.len());
    for id in order {
        if let Some(Gathered { from, to, pieces, closed }) = grown.remove(&id) {
            let room = watched.get(&id).and_then(|watched| watched.room.as_ref());
            let is_small = to.position() - from.position() <= LIVE_DATA_BYTES;
            let data = if is_small { join(&pieces, room) } else { Bytes::new() };
            let (encoded, body) = (OnceLock::new(), OnceLock::new());
            let growth = StreamGrowth { from, to, data, closed, encoded, body };
            news.push((id, TailEvent::Grown(Arc::new(growth))));
        }
    }
    news.extend(ended);
    news
}

/// All pieces as one, counted for as long as a reader holds it; nothing if there is no room.
fn join(pieces: &[Bytes], room: Option<&ReplyRoom>) -> Bytes {
    let len = pieces.iter().map(Bytes::len).sum();
    let permit = match room.filter(|_| len >= LIVE_UNCOUNTED_BYTES) {
        Some(room) => match room.try_acquire(len) {
            None => return Bytes::new(),
            permit => permit,
        },
        None => None,
    };
    // Always a copy: the pieces may be small parts of the buffers that their requests came in.
    let mut joined = BytesMut::with_capacity(len);
    for piece in pieces {
        joined.extend_from_slice(piece);
    }
    let joined = joined.freeze();
    match permit {
        Some(permit) => permit.attach(joined),
        None => joined,
    }
}

impl TailWatch {
    /// Waits for the next news.
    pub async fn next(&mut self) -> WatchEvent {
        match self.news.recv().await {
            Ok(news) => WatchEvent::TailEvent(news),
            Err(broadcast::error::RecvError::Lagged(_)) => WatchEvent::Behind,
            Err(broadcast::error::RecvError::Closed) => WatchEvent::TailEvent(TailEvent::Ended),
        }
    }

    /// The next news if there is some already.
    pub fn try_next(&mut self) -> Option<WatchEvent> {
        match self.news.try_recv() {
            Ok(news) => Some(WatchEvent::TailEvent(news)),
            Err(broadcast::error::TryRecvError::Lagged(_)) => Some(WatchEvent::Behind),
            Err(broadcast::error::TryRecvError::Closed) => {
                Some(WatchEvent::TailEvent(TailEvent::Ended))
            }
            Err(broadcast::error::TryRecvError::Empty) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use reveille_core::Tenant;
    use reveille_kernel::reply_budget::ReplyBudget;

    use super::*;

    fn grown(id: u64, from: u64, data: &'static str, closed: bool) -> Effect {
        let data = Bytes::from_static(data.as_bytes());
        Effect::NotifyReaders { id: StreamId(id), from: Offset::new(from), data, closed }
    }

    #[test]
    fn one_batch_is_one_piece_of_news_for_a_stream() {
        let live = LiveReaders::default();
        let mut watch = live.watch(StreamId(1));
        live.publish(vec![
            grown(1, 0, "ab", false),
            grown(2, 0, "x", false),
            grown(1, 2, "c", true),
        ]);
        let Some(WatchEvent::TailEvent(TailEvent::Grown(growth))) = watch.try_next() else {
            panic!("no news")
        };
        assert_eq!((growth.from, growth.to), (Offset::new(0), Offset::new(3)));
        assert_eq!(growth.data, "abc");
        assert!(growth.closed);
        assert!(watch.try_next().is_none());
    }

    #[test]
    fn a_slow_reader_is_told_that_it_is_behind() {
        let live = LiveReaders::default();
        let mut watch = live.watch(StreamId(1));
        for at in 0..40 {
            live.publish(vec![grown(1, at, "x", false)]);
        }
        assert!(matches!(watch.try_next(), Some(WatchEvent::Behind)));
    }

    #[test]
    fn without_room_for_it_readers_are_told_to_read_by_offset() {
        let budget = Arc::new(ReplyBudget::new(20 << 10));
        let room = ReplyRoom::new(&budget, &Tenant::parse("acme").unwrap());
        let live = LiveReaders::default();
        let mut watch = live.watch_within(StreamId(1), Some(room));
        let large = |from| Effect::NotifyReaders {
            id: StreamId(1),
            from: Offset::new(from),
            data: Bytes::from(vec![b'x'; 8 << 10]),
            closed: false,
        };
        live.publish(vec![large(0)]);
        live.publish(vec![large(8 << 10)]);
        let mut is_whole = || match watch.try_next() {
            Some(WatchEvent::TailEvent(TailEvent::Grown(growth))) => growth.is_whole(),
            _ => panic!("no news"),
        };
        assert_eq!((is_whole(), is_whole()), (true, false));
        assert_eq!(budget.held(), 0, "what all have heard is let go");
    }

    #[test]
    fn unwatched_streams_cost_nothing() {
        let live = LiveReaders::default();
        drop(live.watch(StreamId(1)));
        live.publish(vec![grown(1, 0, "x", false)]);
        assert!(live.is_empty());
        drop(live.watch(StreamId(2)));
        live.sweep();
        assert!(live.is_empty());
    }
}
