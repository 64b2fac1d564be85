//! Server-sent events out of decoded bytes.

/// One event, as it stood between two empty lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

/// The bytes that arrived and are not yet a whole event.
#[derive(Debug, Default)]
pub(crate) struct EventParser {
    buffer: Vec<u8>,
}

impl EventParser {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    pub(crate) fn next(&mut self) -> Option<Event> {
        let end = self.buffer.windows(2).position(|pair| pair == b"\n\n")? + 2;
        let event = parse(self.buffer.get(..end)?);
        self.buffer.drain(..end);
        Some(event)
    }
}

fn parse(text: &[u8]) -> Event {
    let mut event = Event { kind: Vec::new(), data: Vec::new() };
    for line in text.split(|byte| *byte == b'\n') {
        if let Some(kind) = line.strip_prefix(b"event:") {
            event.kind = kind.trim_ascii().to_vec();
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if !event.data.is_empty() {
                event.data.push(b'\n');
            }
            event.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, data: &str) -> Option<Event> {
        Some(Event { kind: kind.into(), data: data.into() })
    }

    #[test]
    fn events_come_out_whole_however_they_arrive() {
        let text = b"event: data\ndata:[{\"n\":1}]\n\nevent: control\ndata:{\"upToDate\":true}\n\n";
        for piece in 1..=text.len() {
            let mut events = EventParser::default();
            let mut out = Vec::new();
            for bytes in text.chunks(piece) {
                events.push(bytes);
                out.extend(std::iter::from_fn(|| events.next()));
            }
            let expected = [event("data", "[{\"n\":1}]"), event("control", "{\"upToDate\":true}")];
            assert_eq!(
                out.into_iter().map(Some).collect::<Vec<_>>(),
                expected,
                "pieces of {piece}"
            );
        }
    }

    #[test]
    fn data_lines_are_joined_and_lose_one_space() {
        let mut events = EventParser::default();
        events.push(b"event: data\ndata: one\ndata:two\n\n: comment\n\nevent: x\n");
        assert_eq!(events.next(), event("data", "one\ntwo"));
        assert_eq!(events.next(), event("", ""));
        assert_eq!(events.next(), None);
    }
}
