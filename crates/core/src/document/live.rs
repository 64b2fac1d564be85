//! Live queries: how far the picture has come of somebody who follows a collection.
//!
//! A picture begins with the documents as they are, in the order of their ids, and goes on with
//! what becomes of them. At any moment it is right as of one change (`seq`) for all ids up to one
//! place, and from there on it is empty. So nobody has to hold a look at the documents open while
//! a client takes its time: whatever has changed of what it has is told first, then the rest is read
//! as it is by then.
//!
//! ```text
//! 17/r42   right as of change 17, as far as the document `r42`
//! 17       right as of change 17, the whole of it
//! ```

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::path::DocumentId;

/// How far a picture has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LivePlace {
    /// The last change that it has.
    pub seq: u64,
    pub extent: Extent,
}

/// Which ids a picture has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    Nothing,
    /// All up to this one.
    UpTo(DocumentId),
    Everything,
}

/// The text is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "`Last-Event-ID` is the id of an event that was sent, like `17`; leave it out to begin anew"
)]
pub struct LivePlaceError;

impl LivePlace {
    /// Where everybody begins.
    pub const START: LivePlace = LivePlace { seq: 0, extent: Extent::Nothing };

    /// Whether the document of an id is in the picture, if there is one.
    pub fn covers(&self, id: &DocumentId) -> bool {
        match &self.extent {
            Extent::Nothing => false,
            Extent::UpTo(last) => id <= last,
            Extent::Everything => true,
        }
    }

    pub fn is_whole(&self) -> bool {
        self.extent == Extent::Everything
    }
}

/// Nothing where there is nothing yet.
impl fmt::Display for LivePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.extent {
            Extent::Nothing => Ok(()),
            Extent::UpTo(id) => write!(f, "{}/{}", self.seq, id.as_str()),
            Extent::Everything => write!(f, "{}", self.seq),
        }
    }
}

impl FromStr for LivePlace {
    type Err = LivePlaceError;

    fn from_str(text: &str) -> Result<LivePlace, LivePlaceError> {
        let (seq, extent) = match text.split_once('/') {
            None => (text, Extent::Everything),
            Some((seq, id)) => {
                (seq, Extent::UpTo(DocumentId::parse(id).map_err(|_| LivePlaceError)?))
            }
        };
        let is_plain = seq == "0" || !seq.starts_with('0');
        let is_plain = is_plain && seq.bytes().all(|byte| byte.is_ascii_digit());
        let seq = seq.parse().ok().filter(|_| is_plain).ok_or(LivePlaceError)?;
        Ok(LivePlace { seq, extent })
    }
}

/// What a change made of a document, as it stands in the log of its tenant: JSON that nobody has
/// read yet.
#[derive(Debug, Clone, Copy, Deserialize)]
pub struct ChangeImages<'a> {
    #[serde(borrow)]
    before: Option<&'a RawValue>,
    #[serde(borrow)]
    after: Option<&'a RawValue>,
}

impl<'a> ChangeImages<'a> {
    pub fn parse(message: &'a [u8]) -> Result<ChangeImages<'a>, serde_json::Error> {
        serde_json::from_slice(message)
    }

    /// The document as everybody saw it, unless there was none.
    pub fn before(&self) -> Option<&'a str> {
        self.before.map(RawValue::get)
    }

    /// The document as everybody sees it from then on, unless it was deleted.
    pub fn after(&self) -> Option<&'a str> {
        self.after.map(RawValue::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> DocumentId {
        DocumentId::parse(text).unwrap()
    }

    #[test]
    fn a_place_is_a_change_and_how_many_ids_there_are() {
        let check = |text: &str, seq, extent| {
            let place = LivePlace { seq, extent };
            assert_eq!(text.parse(), Ok(place.clone()));
            assert_eq!(place.to_string(), text);
        };
        check("17", 17, Extent::Everything);
        check("0", 0, Extent::Everything);
        check("17/r.4-2_x", 17, Extent::UpTo(id("r.4-2_x")));
        assert_eq!(LivePlace::START.to_string(), "");
        for wrong in ["", "/", "x", "-1", "+1", "01", "1/", "/r", "1/r/x", "1/ä", "1 ", "1/.."] {
            assert_eq!(wrong.parse::<LivePlace>(), Err(LivePlaceError), "{wrong}");
        }
        assert_eq!("18446744073709551616".parse::<LivePlace>(), Err(LivePlaceError));
    }

    #[test]
    fn a_picture_has_the_ids_that_it_has_come_to() {
        let up_to = LivePlace { seq: 1, extent: Extent::UpTo(id("b")) };
        assert!(up_to.covers(&id("a")) && up_to.covers(&id("b")) && !up_to.covers(&id("b0")));
        assert!(!LivePlace::START.covers(&id("a")));
        assert!(LivePlace { seq: 1, extent: Extent::Everything }.covers(&id("z")));
    }

    #[test]
    fn images_are_the_texts_that_were_stored() {
        let message =
            br#"{"seq":1,"before":null,"after":{"id":"a","x":[1.0,{"y":"\u00e4"}]},"ts":1}"#;
        let images = ChangeImages::parse(message).unwrap();
        assert_eq!(images.before(), None);
        assert_eq!(images.after(), Some(r#"{"id":"a","x":[1.0,{"y":"\u00e4"}]}"#));
        assert!(ChangeImages::parse(b"[]").is_err());
    }
}
