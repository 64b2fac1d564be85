//! Why a pattern does not match an event type: the place where it fails.

use super::EventType;
use super::pattern::{EventPattern, segment_matches};

/// The first place where a pattern fails, after the longest beginning of it that does match.
/// Segments are counted from one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// One segment of the pattern stands against one of the type that it does not mean.
    #[error("segment {pattern_segment} `{wanted}` does not match `{found}`")]
    Segment {
        /// Which segment of the pattern.
        pattern_segment: usize,
        wanted: String,
        /// Which segment of the type.
        type_segment: usize,
        found: String,
    },
    /// After a `**`, no segment of the type is what comes next in the pattern.
    #[error("segment {pattern_segment} `{wanted}` matches nothing from segment {from} of the type")]
    Nowhere {
        /// Which segment of the pattern.
        pattern_segment: usize,
        wanted: String,
        /// The first segment of the type that was tried.
        from: usize,
    },
    /// The type has no more segments, the pattern asks for one.
    #[error("segment {pattern_segment} `{wanted}` has nothing left to match: the type ends before")]
    TypeEnds {
        /// Which segment of the pattern.
        pattern_segment: usize,
        wanted: String,
    },
    /// The pattern has no more segments, the type has.
    #[error("the pattern ends before segment {type_segment} `{found}` of the type")]
    PatternEnds {
        /// Which segment of the type.
        type_segment: usize,
        found: String,
    },
}

impl EventPattern {
    /// Where the pattern fails to match; `None` if it matches.
    pub fn explain(&self, kind: &EventType) -> Option<Mismatch> {
        let types: Vec<&str> = kind.segments().collect();
        // How many segments of the type the beginning of the pattern so far can stand for.
        let mut reached = vec![0];
        for (wanted, pattern_segment) in self.segments().zip(1..) {
            let further = advance(&reached, wanted, &types);
            if further.is_empty() {
                return Some(stuck(&reached, wanted, pattern_segment, &types));
            }
            reached = further;
        }
        let last = reached.last().copied()?;
        let found = types.get(last)?;
        Some(Mismatch::PatternEnds { type_segment: last + 1, found: (*found).to_owned() })
    }
}

/// One segment of the pattern more, in ascending order.
fn advance(reached: &[usize], wanted: &str, types: &[&str]) -> Vec<usize> {
    if wanted == "**" {
        return reached.first().map_or_else(Vec::new, |first| (*first..=types.len()).collect());
    }
    let fits = |at: &&usize| types.get(**at).is_some_and(|found| segment_matches(wanted, found));
    reached.iter().filter(fits).map(|at| at + 1).collect()
}

fn stuck(reached: &[usize], wanted: &str, pattern_segment: usize, types: &[&str]) -> Mismatch {
    let wanted = wanted.to_owned();
    let mut places = reached.iter().filter_map(|at| types.get(*at).map(|found| (at + 1, *found)));
    match (places.next(), reached.len()) {
        (None, _) => Mismatch::TypeEnds { pattern_segment, wanted },
        (Some((type_segment, found)), 1) => {
            Mismatch::Segment { pattern_segment, wanted, type_segment, found: found.to_owned() }
        }
        (Some((from, _)), _) => Mismatch::Nowhere { pattern_segment, wanted, from },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, kind: &str, expected: Option<&str>) {
        let pattern = EventPattern::parse(pattern).unwrap();
        let kind = EventType::parse(kind).unwrap();
        let sentence = pattern.explain(&kind).map(|mismatch| mismatch.to_string());
        assert_eq!(sentence.as_deref(), expected, "{pattern} on {kind}");
        assert_eq!(pattern.matches(&kind), expected.is_none(), "{pattern} on {kind}");
    }

    #[test]
    fn the_place_where_a_pattern_fails_is_named() {
        check("webhook.*", "webhook.github", None);
        check("webhook.git*", "webhook.stripe", Some("segment 2 `git*` does not match `stripe`"));
        check("a.*.c.**", "a.b.d.e", Some("segment 3 `c` does not match `d`"));
        check(
            "webhook.*",
            "webhook.a.b",
            Some("the pattern ends before segment 3 `b` of the type"),
        );
        check(
            "webhook.*",
            "webhook",
            Some("segment 2 `*` has nothing left to match: the type ends before"),
        );
        check(
            "webhook.**.push",
            "webhook.github.pull",
            Some("segment 3 `push` matches nothing from segment 2 of the type"),
        );
        check("**.push", "push.a", Some("the pattern ends before segment 2 `a` of the type"));
        check("**.a.b", "a.x", Some("segment 3 `b` does not match `x`"));
    }
}
