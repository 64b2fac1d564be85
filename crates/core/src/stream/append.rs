//! Appending to and closing a stream, in the order of checks that the protocol asks for.

use std::sync::Arc;

use bytes::Bytes;

use super::{Body, Closed, Head, Rejected};
use crate::limits::POSITION_MAX;
use crate::media::ContentType;
use crate::offset::Offset;
use crate::producer::{ProducerState, ProducerTag, ProducerVerdict};
use crate::time::Millis;

/// An append, a close, or both.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// What the body is; a close alone needs none.
    pub content_type: Option<ContentType>,
    /// What to append; empty closes only.
    pub body: Body,
    /// The idempotent producer, if it is one.
    pub producer: Option<ProducerTag>,
    /// The writer's own sequence, compared byte by byte.
    pub stream_seq: Option<Arc<str>>,
    /// Whether the stream ends with this.
    pub close: bool,
}

/// What an accepted append does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendResult {
    /// The head and the producer become these; the bytes, if any, follow the old tail.
    Appended {
        /// The new head.
        head: Box<Head>,
        /// The stored form of the body.
        data: Bytes,
        /// The producer's new state.
        producer: Option<ProducerState>,
    },
    /// It was done before; nothing changes.
    Duplicate {
        /// The newest append of the producer.
        producer: Option<ProducerState>,
    },
}

/// What the caller is told of an accepted append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendReceipt {
    /// The tail after it.
    pub tail: Offset,
    /// Whether the stream is closed after it.
    pub closed: bool,
    /// The producer's newest append.
    pub producer: Option<ProducerState>,
    /// Whether it had been done before.
    pub duplicate: bool,
}

/// Decides an append to a stream that exists.
pub fn append(
    head: &Head,
    known: Option<ProducerState>,
    request: &Append,
    now: Millis,
) -> Result<AppendResult, Rejected> {
    if head.soft_deleted {
        return Err(Rejected::Gone);
    }
    if let Some(closed) = &head.closed {
        return append_to_closed(head, closed, request);
    }
    if !request.body.is_empty() {
        let same = request.content_type.as_ref().is_some_and(|t| t.same_media(&head.content_type));
        if !same {
            return Err(Rejected::ContentType { expected: head.content_type.clone() });
        }
    }
    let mut producer = None;
    if let Some(tag) = &request.producer {
        match tag.judge(known)? {
            ProducerVerdict::Duplicate(state) => {
                return Ok(AppendResult::Duplicate { producer: Some(state) });
            }
            ProducerVerdict::Next(state) => producer = Some(state),
        }
    }
    let mut next = head.clone();
    let mut data = Bytes::new();
    if !request.body.is_empty() {
        if let Some(seq) = &request.stream_seq {
            check_stream_seq(head, seq)?;
            next.stream_seq = Some(seq.clone());
        }
        data = request.body.framed(head.content_type.framing())?;
        let added = u64::try_from(data.len()).unwrap_or(u64::MAX);
        next.tail = head.tail.plus(added);
        if next.tail.position() >= POSITION_MAX {
            return Err(Rejected::Full);
        }
    }
    if request.close {
        next.closed = Some(Closed { by: request.producer.clone() });
    }
    next.touched_at = head.touched_at.max(now);
    Ok(AppendResult::Appended { head: Box::new(next), data, producer })
}

/// A closed stream accepts only the repetition of what closed it.
fn append_to_closed(
    head: &Head,
    closed: &Closed,
    request: &Append,
) -> Result<AppendResult, Rejected> {
    let repeated = match &request.producer {
        Some(tag) => closed.by.as_ref() == Some(tag),
        None => request.body.is_empty() && request.close,
    };
    if !repeated {
        return Err(Rejected::Closed { tail: head.tail });
    }
    let producer =
        request.producer.as_ref().map(|tag| ProducerState { epoch: tag.epoch, seq: tag.seq });
    Ok(AppendResult::Duplicate { producer })
}

fn check_stream_seq(head: &Head, seq: &Arc<str>) -> Result<(), Rejected> {
    match &head.stream_seq {
        Some(last) if seq.as_bytes() <= last.as_bytes() => {
            Err(Rejected::StreamSeq { last: last.clone() })
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::JsonError;
    use crate::producer::ProducerRejected;
    use crate::stream::create::tests::new_head;

    fn text(body: &str) -> Append {
        let kind = ContentType::parse("text/plain");
        let body = Body::new(Bytes::copy_from_slice(body.as_bytes()), kind.as_ref());
        Append { content_type: kind, body, ..Append::default() }
    }

    fn by(mut request: Append, epoch: u64, seq: u64) -> Append {
        request.producer = Some(ProducerTag { id: "p".into(), epoch, seq });
        request
    }

    fn close(mut request: Append) -> Append {
        request.close = true;
        request
    }

    fn apply(head: &Head, request: &Append) -> Head {
        match append(head, None, request, Millis(5)).unwrap() {
            AppendResult::Appended { head, .. } => *head,
            AppendResult::Duplicate { .. } => panic!("a duplicate"),
        }
    }

    #[test]
    fn an_append_moves_the_tail_by_its_bytes() {
        let head = apply(&new_head("text/plain"), &text("hello"));
        assert_eq!(head.tail, Offset::new(5));
        assert_eq!(head.touched_at, Millis(5));
    }

    #[test]
    fn closed_comes_before_type_before_seq() {
        let open = new_head("text/plain");
        let mut with_seq = text("a");
        with_seq.stream_seq = Some("2".into());
        let head = apply(&open, &with_seq);
        let mut wrong = with_seq.clone();
        wrong.content_type = ContentType::parse("application/json");
        let expected = Rejected::ContentType { expected: head.content_type.clone() };
        assert_eq!(append(&head, None, &wrong, Millis(0)), Err(expected));
        let mut lower = with_seq.clone();
        lower.stream_seq = Some("10".into());
        let expected = Rejected::StreamSeq { last: "2".into() };
        assert_eq!(append(&head, None, &lower, Millis(0)), Err(expected));
        let closed = apply(&head, &close(Append::default()));
        let expected = Rejected::Closed { tail: Offset::new(1) };
        assert_eq!(append(&closed, None, &wrong, Millis(0)), Err(expected));
    }

    #[test]
    fn a_duplicate_wins_over_stream_seq() {
        let head = new_head("text/plain");
        let mut request = by(text("a"), 0, 0);
        request.stream_seq = Some("1".into());
        let head = apply(&head, &request);
        let state = ProducerState { epoch: 0, seq: 0 };
        let again = append(&head, Some(state), &request, Millis(0));
        assert_eq!(again, Ok(AppendResult::Duplicate { producer: Some(state) }));
    }

    #[test]
    fn only_the_closing_request_may_be_repeated() {
        let closing = close(by(text("bye"), 0, 0));
        let head = apply(&new_head("text/plain"), &closing);
        let refused = Err(Rejected::Closed { tail: Offset::new(3) });
        let known = Some(ProducerState { epoch: 0, seq: 0 });
        let repeated = append(&head, known, &closing, Millis(0));
        assert_eq!(repeated, Ok(AppendResult::Duplicate { producer: known }));
        assert_eq!(append(&head, known, &close(by(text("x"), 0, 1)), Millis(0)), refused);
        assert_eq!(append(&head, known, &text("x"), Millis(0)), refused);
        let close_only = append(&head, None, &close(Append::default()), Millis(0));
        assert_eq!(close_only, Ok(AppendResult::Duplicate { producer: None }));
    }

    #[test]
    fn bad_json_changes_neither_producer_nor_seq() {
        let head = new_head("application/json");
        let kind = ContentType::parse("application/json");
        let body = Body::new(Bytes::from_static(b"{"), kind.as_ref());
        let request = by(Append { content_type: kind, body, ..Append::default() }, 0, 0);
        let expected = Err(Rejected::Json(JsonError::Invalid));
        assert_eq!(append(&head, None, &request, Millis(0)), expected);
        let expected = Rejected::Producer(ProducerRejected::Gap { expected: 0, received: 3 });
        assert_eq!(append(&head, None, &by(request, 0, 3), Millis(0)), Err(expected));
    }

    #[test]
    fn a_full_stream_refuses() {
        let mut head = new_head("text/plain");
        head.tail = Offset::new(POSITION_MAX - 2);
        assert_eq!(append(&head, None, &text("abc"), Millis(0)), Err(Rejected::Full));
    }
}
