//! The tag of a read: it changes with the incarnation, the range, and closing.

use http::HeaderMap;
use http::header;
use reveille_core::Offset;
use reveille_core::stream::StreamId;

/// A strong tag for a range of a stream.
pub(super) fn tag(id: StreamId, from: Offset, to: Offset, closed: bool) -> String {
    let end = if closed { "-c" } else { "" };
    format!("\"{:x}-{:x}-{:x}{end}\"", id.0, from.position(), to.position())
}

/// Whether the client has this already.
pub(super) fn matches(headers: &HeaderMap, tag: &str) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter();
    let mut tags = values.filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    tags.any(|given| {
        let given = given.trim();
        given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_weak_tags_and_the_star_match() {
        let tag = tag(StreamId(10), Offset::ZERO, Offset::new(255), true);
        assert_eq!(tag, "\"a-0-ff-c\"");
        let check = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, value.parse().unwrap());
            matches(&headers, &tag)
        };
        assert!(check("\"a-0-ff-c\""));
        assert!(check("\"x\", W/\"a-0-ff-c\""));
        assert!(check("*"));
        assert!(!check("\"a-0-ff\""));
        assert!(!matches(&HeaderMap::new(), &tag));
    }
}
