//! Whether a sequence fits a pattern in which one sign stands for any number of items.
//!
//! Segments of a path or an event type, and the characters of one segment, are matched alike.

/// Whether `text` fits `pattern`: an item that `is_many` accepts stands for any number of items,
/// any other for one that it `fits`.
///
/// Every sign for many first stands for nothing. When the rest does not fit, the last one met
/// swallows one item more; an earlier one never has to, because the last can swallow whatever it
/// would. So no two items are compared more often than once per item of the pattern.
pub(crate) fn matches<P: Iterator + Clone, T: Iterator + Clone>(
    mut pattern: P,
    mut text: T,
    is_many: impl Fn(&P::Item) -> bool,
    mut fits: impl FnMut(&P::Item, &T::Item) -> bool,
) -> bool {
    let mut retry: Option<(P, T)> = None;
    loop {
        match pattern.next() {
            Some(wanted) if is_many(&wanted) => {
                retry = Some((pattern.clone(), text.clone()));
                continue;
            }
            Some(wanted) => match text.next() {
                Some(found) if fits(&wanted, &found) => continue,
                Some(_) => {}
                // Swallowing more leaves even less of the text.
                None => return false,
            },
            None if text.next().is_none() => return true,
            None => {}
        }
        let Some((after_many, unswallowed)) = &mut retry else {
            return false;
        };
        if unswallowed.next().is_none() {
            return false;
        }
        pattern = after_many.clone();
        text = unswallowed.clone();
    }
}

/// Whether one segment fits a glob, in which every `*` stands for any characters, or none. Says
/// how many characters were compared, too.
pub(crate) fn glob_matches(glob: &str, segment: &str) -> (bool, usize) {
    let mut compared = 0;
    let fits = matches(
        glob.bytes(),
        segment.bytes(),
        |wanted| *wanted == b'*',
        |wanted, found| {
            compared += 1;
            wanted == found
        },
    );
    (fits, compared)
}
