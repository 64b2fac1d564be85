//! What is decided about streams: given a state, when a command comes, then these are its writes,
//! its effects and its answer.

use bytes::Bytes;
use reveille_core::stream::append::{Append, AppendReceipt};
use reveille_core::stream::create::{Create, ForkRequest};
use reveille_core::stream::{Body, Expiry, Head, Rejected, StreamId};
use reveille_core::{Millis, Offset, StreamPath};
use reveille_kernel::error::Error;
use reveille_schema::{keys, record};

use super::append::AppendToStream;
use super::create::{CreateStream, CreatedStream};
use super::delete::DeleteStream;
use super::lifetime::TouchStream;
use crate::effect::Effect;
use crate::testing::{Bench, Decided, path, text};

struct World {
    bench: Bench,
    path: StreamPath,
}

impl World {
    fn new() -> World {
        World { bench: Bench::new(), path: path("/s") }
    }

    /// With a stream that lives for so many seconds, or for ever.
    fn with_stream(ttl: Option<u64>) -> World {
        let mut world = World::new();
        let expiry = ttl.map_or(Expiry::Never, Expiry::Ttl);
        let request = Create { content_type: text(), expiry, ..Create::default() };
        world.create(request).answer();
        world
    }

    fn create(&mut self, request: Create) -> Decided<CreatedStream, Rejected> {
        let (tenant, path) = (self.bench.tenant.clone(), self.path.clone());
        self.bench.when(&CreateStream { tenant, path, request, anchor: None })
    }

    fn fork(&mut self, source: &str) -> Decided<CreatedStream, Rejected> {
        let fork = ForkRequest { source: path(source), at: None, sub_offset: 0 };
        let request = Create { content_type: text(), fork: Some(fork), ..Create::default() };
        let (tenant, path) = (self.bench.tenant.clone(), path("/fork"));
        self.bench.when(&CreateStream { tenant, path, request, anchor: None })
    }

    fn append(&mut self, data: &'static str) -> Decided<AppendReceipt, Rejected> {
        let body = Body::new(Bytes::from_static(data.as_bytes()), text().as_ref());
        self.append_request(Append { content_type: text(), body, ..Append::default() })
    }

    fn append_request(&mut self, request: Append) -> Decided<AppendReceipt, Rejected> {
        let (tenant, path) = (self.bench.tenant.clone(), self.path.clone());
        self.bench.when(&AppendToStream { tenant, path, request })
    }

    fn delete(&mut self) -> Decided<(), Rejected> {
        let (tenant, path) = (self.bench.tenant.clone(), self.path.clone());
        self.bench.when(&DeleteStream { tenant, path })
    }

    fn touch(&mut self, id: StreamId, at: Millis) -> Decided<(), reveille_kernel::error::Never> {
        let (tenant, path) = (self.bench.tenant.clone(), self.path.clone());
        self.bench.when(&TouchStream { tenant, path, id, at })
    }

    /// A stream as a decision leaves it; `None` if it removes it.
    fn written<A, R: std::fmt::Debug>(&self, decided: &Decided<A, R>, path: &str) -> Option<Head> {
        let key = keys::stream(&self.bench.tenant, &self::path(path));
        let value = decided.written(&key).expect("it is written");
        value.as_ref().map(|value| record::decode_head(value).unwrap())
    }

    fn head(&self) -> Head {
        let found = self.bench.reader().get(&keys::stream(&self.bench.tenant, &self.path)).unwrap();
        record::decode_head(&found.expect("it is there")).unwrap()
    }
}

/// A rejection changes nothing.
fn rejected<A: std::fmt::Debug + PartialEq>(decided: Decided<A, Rejected>, why: Rejected) {
    assert_eq!(decided.outcome, Err(Error::Rejected(why)));
    assert_eq!((decided.writes.len(), decided.effects.len()), (0, 0));
    assert_eq!(decided.timer_at, None);
}

#[test]
fn a_stream_is_made_with_its_timer() {
    let mut world = World::new();
    let now = world.bench.now;
    let decided =
        world.create(Create { content_type: text(), expiry: Expiry::Ttl(5), ..Create::default() });
    let head = world.written(&decided, "/s").expect("it is kept");
    assert_eq!((head.tail, head.created_at, head.forks), (Offset::ZERO, now, 0));
    assert_eq!(decided.timer_at, Some(now + 5_000), "it ends by itself");
    assert!(decided.effects.is_empty(), "nobody reads it yet");
    assert_eq!(decided.answer(), CreatedStream { head: Box::new(head), is_new: true });
}

#[test]
fn one_that_is_there_is_not_made_again() {
    let mut world = World::with_stream(None);
    let head = world.head();
    let same = world.create(Create { content_type: text(), ..Create::default() });
    assert!(same.writes.is_empty() && same.effects.is_empty());
    assert_eq!(same.answer(), CreatedStream { head: Box::new(head), is_new: false });
    let other = Create { content_type: text(), expiry: Expiry::Ttl(9), ..Create::default() };
    let decided = world.create(other);
    assert!(matches!(decided.outcome, Err(Error::Rejected(Rejected::Exists(_)))), "{decided:?}");
    assert!(decided.writes.is_empty());
}

#[test]
fn a_fork_is_counted_by_its_source() {
    let mut world = World::with_stream(None);
    world.append("abc").answer();
    let source = world.head();
    let decided = world.fork("/s");
    assert_eq!(world.written(&decided, "/s").map(|it| it.forks), Some(1));
    let fork = world.written(&decided, "/fork").expect("it is kept");
    assert_eq!((fork.tail, fork.fork.is_some()), (source.tail, true));
    assert!(decided.effects.is_empty());
    assert!(decided.answer().is_new);
}

#[test]
fn nothing_is_forked_from_what_is_not_there() {
    rejected(World::new().fork("/nowhere"), Rejected::SourceNotFound);
}

#[test]
fn an_append_moves_the_tail_and_tells_readers() {
    let mut world = World::with_stream(None);
    let id = world.head().id;
    let decided = world.append("abc");
    assert_eq!(world.written(&decided, "/s").map(|it| it.tail), Some(Offset::new(3)));
    let grown = Effect::NotifyReaders {
        id,
        from: Offset::ZERO,
        data: Bytes::from_static(b"abc"),
        closed: false,
    };
    assert_eq!(decided.effects, [grown]);
    let receipt = decided.answer();
    assert_eq!((receipt.tail, receipt.closed, receipt.duplicate), (Offset::new(3), false, false));
}

#[test]
fn nothing_is_appended_where_nothing_may_be() {
    rejected(World::new().append("abc"), Rejected::NotFound);
    let mut world = World::with_stream(None);
    let json = reveille_core::ContentType::parse("application/json");
    let body = Body::new(Bytes::from_static(b"[1]"), json.as_ref());
    let request = Append { content_type: json, body, ..Append::default() };
    let expected = text().expect("a type");
    rejected(world.append_request(request), Rejected::ContentType { expected });
    world.append_request(Append { close: true, ..Append::default() }).answer();
    rejected(world.append("abc"), Rejected::Closed { tail: Offset::ZERO });
}

#[test]
fn a_stream_that_is_deleted_lets_its_readers_go_and_is_cleared_away() {
    let mut world = World::with_stream(None);
    world.append("abc").answer();
    let id = world.head().id;
    let decided = world.delete();
    assert_eq!(world.written(&decided, "/s"), None);
    assert_eq!(decided.effects, [Effect::ReleaseReaders(id)]);
    assert!(decided.timer_at.is_some(), "what it leaves behind is removed");
    assert_eq!(decided.outcome, Ok(()));
    rejected(world.delete(), Rejected::NotFound);
}

#[test]
fn one_that_forks_read_from_is_kept_for_them() {
    let mut world = World::with_stream(None);
    world.append("abc").answer();
    world.fork("/s").answer();
    let decided = world.delete();
    assert!(world.written(&decided, "/s").is_some_and(|it| it.soft_deleted));
    assert_eq!(decided.outcome, Ok(()));
    rejected(world.delete(), Rejected::Gone);
}

#[test]
fn a_read_is_written_down_once_and_for_its_incarnation() {
    let mut world = World::with_stream(Some(100));
    let (id, read_at) = (world.head().id, world.bench.now + 20);
    world.bench.now = read_at;
    let decided = world.touch(id, read_at);
    assert_eq!(world.written(&decided, "/s").map(|it| it.touched_at), Some(read_at));
    assert_eq!((decided.effects.len(), decided.outcome), (0, Ok(())));
    for (id, at) in [(id, read_at), (StreamId(id.0 + 256), read_at + 5)] {
        let decided = world.touch(id, at);
        assert!(decided.writes.is_empty() && decided.effects.is_empty());
        assert_eq!(decided.outcome, Ok(()), "whoever reads need not know");
    }
}
