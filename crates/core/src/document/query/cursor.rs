//! A cursor: where a page ended, for the query that it was a page of.
//!
//! The text is base64url of: a version (1), four bytes of a checksum over what follows, eight
//! bytes that stand for the query, how many fields it sorts by, the length of each field's part,
//! and the [`SortKey`] itself. It holds no position in memory: what is written or deleted in
//! between moves nobody from one page to another.

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::document::limits::CURSOR_BYTES_MAX;
use crate::document::order::SortKey;

const VERSION: u8 = 1;

/// Stands for collection, filters and order of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 8]);

/// A place in the answer to a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub query: Fingerprint,
    /// Of the last document of the page, or of a place between documents.
    pub key: SortKey,
}

/// The text is no cursor of this query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    #[error("`startAfter` is no cursor; send the `nextCursor` of a page, or leave it out")]
    Malformed,
    #[error(
        "`startAfter` is the cursor of another query; collection, filters and order must stay as \
         they are from page to page"
    )]
    OtherQuery,
}

impl Fingerprint {
    pub(super) fn from_hash(hash: &[u8]) -> Fingerprint {
        Fingerprint(hash.first_chunk().copied().unwrap_or_default())
    }
}

impl Cursor {
    pub(super) fn parse(
        text: &str,
        query: Fingerprint,
        fields: usize,
    ) -> Result<Cursor, CursorError> {
        let cursor = Cursor::decode(text).ok_or(CursorError::Malformed)?;
        if cursor.query != query || cursor.key.ends.len() != fields {
            return Err(CursorError::OtherQuery);
        }
        Ok(cursor)
    }

    fn decode(text: &str) -> Option<Cursor> {
        if text.len() > CURSOR_BYTES_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (version, rest) = bytes.split_first()?;
        let (sum, body) = rest.split_first_chunk()?;
        if *version != VERSION || *sum != checksum(body) {
            return None;
        }
        let (query, rest) = body.split_first_chunk()?;
        let (count, mut rest) = rest.split_first()?;
        let mut ends = Vec::with_capacity(usize::from(*count));
        let mut end = 0u16;
        for _ in 0..*count {
            let (len, behind) = rest.split_first_chunk()?;
            end = end.checked_add(u16::from_be_bytes(*len))?;
            ends.push(end);
            rest = behind;
        }
        let is_whole = usize::from(end) <= rest.len();
        let key = SortKey { bytes: rest.to_vec(), ends };
        is_whole.then_some(Cursor { query: Fingerprint(*query), key })
    }

    /// The text that goes to the client.
    pub fn encode(&self) -> String {
        let mut body = self.query.0.to_vec();
        body.push(u8::try_from(self.key.ends.len()).unwrap_or(u8::MAX));
        let mut begin = 0;
        for end in &self.key.ends {
            body.extend_from_slice(&(end - begin).to_be_bytes());
            begin = *end;
        }
        body.extend_from_slice(&self.key.bytes);
        let mut bytes = vec![VERSION];
        bytes.extend_from_slice(&checksum(&body));
        bytes.extend_from_slice(&body);
        URL_SAFE_NO_PAD.encode(bytes)
    }
}

/// Against what was cut off or mistyped; nobody gains by making one up.
fn checksum(body: &[u8]) -> [u8; 4] {
    let hash = digest::digest(&digest::SHA256, body);
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}
