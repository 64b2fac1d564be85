//! Creating a stream, alone or as a fork of another.

use bytes::Bytes;

use super::{Body, Closed, Expiry, Fork, Head, Rejected, StreamId};
use crate::json::{self, JsonError};
use crate::limits::FORK_DEPTH_MAX;
use crate::media::{ContentType, Framing};
use crate::offset::Offset;
use crate::path::StreamPath;
use crate::time::Millis;

/// A request for a new stream.
#[derive(Debug, Clone, Default)]
pub struct Create {
    /// What it holds; a fork without one inherits its source's.
    pub content_type: Option<ContentType>,
    /// When it ends by itself.
    pub expiry: Expiry,
    /// Whether its first content is all there will ever be.
    pub closed: bool,
    /// The stream to fork, if any.
    pub fork: Option<ForkRequest>,
    /// Its first content.
    pub body: Body,
}

/// Which part of which stream to begin with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForkRequest {
    /// The source.
    pub source: StreamPath,
    /// Where to leave the source; its tail if absent.
    pub at: Option<Offset>,
    /// How much of the append that starts there comes along: messages of a JSON stream, bytes of
    /// any other.
    pub sub_offset: u64,
}

/// The source of a fork, as it is now.
#[derive(Debug, Clone)]
pub struct ForkSource<'a> {
    pub head: &'a Head,
    /// The append that starts where the fork leaves the source.
    pub anchor: ForkAnchor,
}

/// What stands at the offset where a fork leaves its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForkAnchor {
    /// The tail: nothing yet.
    Tail,
    /// The append with these stored bytes starts there.
    Append(Bytes),
    /// No append starts there.
    Nowhere,
}

/// What a request for a stream comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Creation {
    /// It exists already, as asked for.
    Exists,
    /// It is new.
    New {
        head: Box<Head>,
        /// The stored form of its first appends, in order.
        data: Vec<Bytes>,
    },
}

/// Decides a request for a stream that exists: is it the same?
pub fn matches(existing: &Head, request: &Create) -> Result<Creation, Rejected> {
    if existing.soft_deleted {
        return Err(Rejected::PathHeld);
    }
    let same_type = match (&request.content_type, &existing.fork) {
        (Some(kind), _) => kind.same_media(&existing.content_type),
        (None, Some(_)) => true,
        (None, None) => ContentType::octet_stream().same_media(&existing.content_type),
    };
    let same_fork = match (&request.fork, &existing.fork) {
        (None, None) => true,
        (Some(spec), Some(fork)) => {
            spec.source == fork.source
                && (spec.at.is_none() || spec.at == fork.requested_at || spec.at == Some(fork.at))
                && spec.sub_offset == fork.sub_offset
        }
        (Some(_), None) | (None, Some(_)) => false,
    };
    if !same_type {
        Err(Rejected::Exists("Content-Type"))
    } else if !same_expiry(&request.expiry, &existing.requested_expiry) {
        Err(Rejected::Exists("expiry"))
    } else if request.closed != existing.closed.is_some() {
        Err(Rejected::Exists("closed state"))
    } else if !same_fork {
        Err(Rejected::Exists("source"))
    } else {
        Ok(Creation::Exists)
    }
}

/// The same moment in other words is the same expiry.
fn same_expiry(left: &Expiry, right: &Expiry) -> bool {
    match (left, right) {
        (Expiry::At(left, _), Expiry::At(right, _)) => left == right,
        (left, right) => left == right,
    }
}

/// Decides a request for a path that is free.
pub fn create(
    request: &Create,
    source: Option<&ForkSource<'_>>,
    id: StreamId,
    now: Millis,
) -> Result<Creation, Rejected> {
    let mut data = Vec::new();
    let mut head = Head {
        id,
        content_type: request.content_type.clone().unwrap_or_else(ContentType::octet_stream),
        tail: Offset::ZERO,
        first: Offset::ZERO,
        expiry: request.expiry.clone(),
        requested_expiry: request.expiry.clone(),
        created_at: now,
        touched_at: now,
        stream_seq: None,
        closed: request.closed.then(Closed::default),
        fork: None,
        forks: 0,
        soft_deleted: false,
        followed: false,
        has_fan_out: false,
    };
    if let (Some(spec), Some(source)) = (&request.fork, source) {
        let prefix = fork_from(&mut head, request, spec, source)?;
        data.extend(prefix);
    }
    if !request.body.is_empty() {
        match request.body.framed(head.content_type.framing()) {
            Ok(first) => data.push(first),
            // PROTOCOL.md §9.1.3: an empty array creates an empty stream.
            Err(JsonError::EmptyArray) => {}
            Err(error @ (JsonError::Invalid | JsonError::TooDeep)) => return Err(error.into()),
        }
    }
    let added: usize = data.iter().map(Bytes::len).sum();
    head.tail = head.own_start().plus(u64::try_from(added).unwrap_or(u64::MAX));
    Ok(Creation::New { head: Box::new(head), data })
}

/// Makes `head` a fork of the source; returns the part of the anchor's append that comes along.
fn fork_from(
    head: &mut Head,
    request: &Create,
    spec: &ForkRequest,
    source: &ForkSource<'_>,
) -> Result<Option<Bytes>, Rejected> {
    let from = source.head;
    if from.soft_deleted {
        return Err(Rejected::SourceGone);
    }
    if let Some(kind) = &request.content_type
        && !kind.same_media(&from.content_type)
    {
        return Err(Rejected::ContentType { expected: from.content_type.clone() });
    }
    let at = spec.at.unwrap_or(from.tail);
    if at < from.first || at > from.tail || source.anchor == ForkAnchor::Nowhere {
        return Err(Rejected::ForkOffset { tail: from.tail });
    }
    let depth = from.fork.as_ref().map_or(0, |fork| fork.depth) + 1;
    if depth > FORK_DEPTH_MAX {
        return Err(Rejected::ForkDepth { depth: depth - 1 });
    }
    if request.content_type.is_none() {
        head.content_type = from.content_type.clone();
    }
    if request.expiry == Expiry::Never {
        head.expiry = from.expiry.clone();
    }
    head.first = from.first;
    head.fork = Some(Fork {
        source: spec.source.clone(),
        source_id: from.id,
        at,
        requested_at: spec.at,
        sub_offset: spec.sub_offset,
        depth,
    });
    if spec.sub_offset == 0 {
        return Ok(None);
    }
    let ForkAnchor::Append(append) = &source.anchor else {
        return Err(Rejected::ForkSubOffset);
    };
    let wanted = match from.content_type.framing() {
        Framing::Json => json::prefix_len(append, spec.sub_offset),
        Framing::Text | Framing::Binary => Some(spec.sub_offset),
    };
    let len = wanted.and_then(|len| usize::try_from(len).ok()).ok_or(Rejected::ForkSubOffset)?;
    if len > append.len() {
        return Err(Rejected::ForkSubOffset);
    }
    Ok(Some(append.slice(..len)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn new_head(kind: &str) -> Head {
        let request = Create { content_type: ContentType::parse(kind), ..Create::default() };
        match create(&request, None, StreamId(1), Millis(0)).unwrap() {
            Creation::New { head, .. } => *head,
            Creation::Exists => panic!("nothing exists"),
        }
    }

    fn source_with(kind: &str, tail: u64) -> Head {
        let mut head = new_head(kind);
        head.tail = Offset::new(tail);
        head
    }

    fn fork_request(at: Option<u64>, sub_offset: u64) -> Create {
        let source = StreamPath::parse("/src").unwrap();
        let fork = ForkRequest { source, at: at.map(Offset::new), sub_offset };
        Create { fork: Some(fork), ..Create::default() }
    }

    fn fork(
        head: &Head,
        request: &Create,
        anchor: ForkAnchor,
    ) -> Result<(Head, Vec<Bytes>), Rejected> {
        match create(request, Some(&ForkSource { head, anchor }), StreamId(2), Millis(0))? {
            Creation::New { head, data } => Ok((*head, data)),
            Creation::Exists => panic!("nothing exists"),
        }
    }

    #[test]
    fn the_same_settings_are_the_same_stream() {
        let mut head = new_head("Text/plain; charset=x");
        let mut same =
            Create { content_type: ContentType::parse("text/plain"), ..Create::default() };
        assert_eq!(matches(&head, &same), Ok(Creation::Exists));
        assert_eq!(matches(&head, &Create::default()), Err(Rejected::Exists("Content-Type")));
        same.expiry = Expiry::Ttl(5);
        assert_eq!(matches(&head, &same), Err(Rejected::Exists("expiry")));
        same.expiry = Expiry::Never;
        same.closed = true;
        assert_eq!(matches(&head, &same), Err(Rejected::Exists("closed state")));
        head.soft_deleted = true;
        assert_eq!(matches(&head, &same), Err(Rejected::PathHeld));
    }

    #[test]
    fn a_fork_inherits_and_its_repetition_is_the_same() {
        let mut head = source_with("text/plain", 9);
        head.expiry = Expiry::Ttl(60);
        let request = fork_request(None, 0);
        let (made, data) = fork(&head, &request, ForkAnchor::Tail).unwrap();
        assert!(data.is_empty());
        assert_eq!(made.tail, Offset::new(9));
        assert_eq!(made.content_type.as_str(), "text/plain");
        assert_eq!(made.expiry, Expiry::Ttl(60));
        assert_eq!(matches(&made, &request), Ok(Creation::Exists));
        assert_eq!(matches(&made, &fork_request(Some(3), 0)), Err(Rejected::Exists("source")));
    }

    #[test]
    fn sub_offsets_take_a_part_of_one_append() {
        let text = source_with("text/plain", 9);
        let anchor = || ForkAnchor::Append(Bytes::from_static(b"hello"));
        let (made, data) = fork(&text, &fork_request(Some(4), 2), anchor()).unwrap();
        assert_eq!(data, vec![Bytes::from_static(b"he")]);
        assert_eq!(made.tail, Offset::new(6));
        assert!(fork(&text, &fork_request(Some(4), 5), anchor()).is_ok());
        let past = fork(&text, &fork_request(Some(4), 6), anchor());
        assert_eq!(past.unwrap_err(), Rejected::ForkSubOffset);
        let at_tail = fork(&text, &fork_request(None, 1), ForkAnchor::Tail);
        assert_eq!(at_tail.unwrap_err(), Rejected::ForkSubOffset);
        let json = source_with("application/json", 40);
        let anchor = ForkAnchor::Append(Bytes::from_static(b"{\"a\":1},2,"));
        let (_, data) = fork(&json, &fork_request(Some(0), 1), anchor.clone()).unwrap();
        assert_eq!(data, vec![Bytes::from_static(b"{\"a\":1},")]);
        let past = fork(&json, &fork_request(Some(0), 3), anchor);
        assert_eq!(past.unwrap_err(), Rejected::ForkSubOffset);
    }

    #[test]
    fn impossible_forks_are_refused() {
        let mut head = source_with("text/plain", 9);
        let beyond = Rejected::ForkOffset { tail: Offset::new(9) };
        let spec = fork(&head, &fork_request(Some(10), 0), ForkAnchor::Tail);
        assert_eq!(spec.unwrap_err(), beyond);
        let spec = fork(&head, &fork_request(Some(3), 0), ForkAnchor::Nowhere);
        assert_eq!(spec.unwrap_err(), beyond);
        let mut other = fork_request(None, 0);
        other.content_type = ContentType::parse("application/json");
        let spec = fork(&head, &other, ForkAnchor::Tail);
        let expected = Rejected::ContentType { expected: head.content_type.clone() };
        assert_eq!(spec.unwrap_err(), expected);
        head.soft_deleted = true;
        let spec = fork(&head, &fork_request(None, 0), ForkAnchor::Tail);
        assert_eq!(spec.unwrap_err(), Rejected::SourceGone);
    }

    #[test]
    fn an_empty_array_creates_an_empty_json_stream() {
        let kind = ContentType::parse("application/json");
        let body = Body::new(Bytes::from_static(b"[]"), kind.as_ref());
        let request = Create { content_type: kind, body, ..Create::default() };
        let made = create(&request, None, StreamId(1), Millis(0)).unwrap();
        let Creation::New { head, data } = made else { panic!("nothing exists") };
        assert!(data.is_empty());
        assert_eq!(head.tail, Offset::ZERO);
    }
}
