//! Names that somebody wrote, and those that they could have meant.

/// Names longer than this are not compared: the longest that anybody knows is far shorter.
const NAME_BYTES_MAX: usize = 64;
/// What is shown of a name that nobody knows.
const NAME_SHOWN_MAX: usize = 64;

/// The sentence about a name that is not known: `what` is "field" or "parameter".
pub fn describe_unknown(what: &str, name: &str, known: &[&str]) -> String {
    let shown = name.get(..name.floor_char_boundary(NAME_SHOWN_MAX)).unwrap_or_default();
    let shown = shown.escape_debug();
    match nearest(name, known) {
        Some(near) => format!("unknown {what} `{shown}`; did you mean `{near}`?"),
        None if known.is_empty() => format!("unknown {what} `{shown}`; none is taken here"),
        None => format!("unknown {what} `{shown}`; known are `{}`", known.join("`, `")),
    }
}

/// The known name that is most like this one, if any is like it at all.
fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let folded = fold(name);
    let distances = known.iter().map(|it| (distance(&folded, &fold(it)), *it));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    // A third of it may be wrong; of something short, a letter.
    (distance <= (folded.len() / 3).max(1)).then_some(near)
}

/// A name without what spellings differ in: `sync_done`, `sync-done` and `syncDone` are one.
fn fold(name: &str) -> Vec<u8> {
    let letters = name.bytes().filter(|byte| !matches!(byte, b'_' | b'-'));
    letters.map(|byte| byte.to_ascii_lowercase()).collect()
}

/// How many letters must be added, left out, changed or swapped with their neighbour.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let cell = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX - 1);
            let mut least = (cell(&row, j) + usize::from(a != b))
                .min(cell(&row, j + 1) + 1)
                .min(cell(&next, j) + 1);
            let is_swapped =
                i > 0 && j > 0 && one.get(i - 1) == Some(b) && other.get(j - 1) == Some(a);
            if is_swapped {
                least = least.min(cell(&before, j - 1) + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 5] = ["webhook", "sync_done", "wake_if", "description", "min_interval"];

    #[test]
    fn the_nearest_known_name_is_said() {
        let check =
            |name: &str, near: Option<&str>| assert_eq!(nearest(name, &KNOWN), near, "{name}");
        check("webook", Some("webhook"));
        check("webhooks", Some("webhook"));
        check("wehbook", Some("webhook"));
        check("syncDone", Some("sync_done"));
        check("SYNC-DONE", Some("sync_done"));
        check("wakeif", Some("wake_if"));
        check("minInterval", Some("min_interval"));
        check("colour", None);
        check("", None);
        check(&"w".repeat(10_000), None);
    }
}
