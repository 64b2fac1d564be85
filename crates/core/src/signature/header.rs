//! The signature header, taken apart.

use super::SignatureError;

/// A header whose parts are pairs and whose moment is known.
pub(super) struct Header<'a> {
    text: &'a str,
    pub(super) timestamp_s: u64,
}

impl<'a> Header<'a> {
    /// Reads a header. Parts that nobody knows are left alone: later versions may add some.
    pub(super) fn parse(text: &'a str) -> Result<Header<'a>, SignatureError> {
        if let Some(index) = text.split(',').position(|part| !part.contains('=')) {
            return Err(SignatureError::NotAPair { position: index + 1 });
        }
        let header = Header { text, timestamp_s: 0 };
        let mut moments = header.values("t");
        let moment = moments.next().ok_or(SignatureError::NoTimestamp)?;
        // With two of them, it would be open which one was signed and which one is judged.
        if moments.next().is_some() {
            return Err(SignatureError::TwoTimestamps);
        }
        let timestamp_s = seconds(moment).ok_or(SignatureError::BadTimestamp)?;
        Ok(Header { text, timestamp_s })
    }

    /// The values of all parts with this name.
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = &'a str> {
        let pairs = self.text.split(',').filter_map(|part| part.trim().split_once('='));
        pairs.filter(move |pair| pair.0 == name).map(|pair| pair.1)
    }

    /// Succeeds when one of the scheme's signatures does. There may be several, while a secret is
    /// being replaced. `is_right` gives `None` for what it cannot read.
    pub(super) fn any(
        &self,
        scheme: &'static str,
        expected: &'static str,
        mismatch: SignatureError,
        is_right: impl Fn(&str) -> Option<bool>,
    ) -> Result<(), SignatureError> {
        let mut result = Err(SignatureError::NoScheme { scheme });
        for text in self.values(scheme) {
            result = match is_right(text) {
                Some(true) => return Ok(()),
                Some(false) => Err(mismatch),
                None => Err(SignatureError::BadEncoding { scheme, expected }),
            };
        }
        result
    }

    /// Whether the header was made close enough to `now_s`.
    pub(super) fn check_time(&self, now_s: u64, tolerance_s: u64) -> Result<(), SignatureError> {
        let old = now_s.saturating_sub(self.timestamp_s);
        let new = self.timestamp_s.saturating_sub(now_s);
        if old > tolerance_s {
            return Err(SignatureError::TooOld { seconds: old, tolerance_s });
        }
        if new > tolerance_s {
            return Err(SignatureError::TooNew { seconds: new, tolerance_s });
        }
        Ok(())
    }
}

/// The one spelling of a number: what was signed is the text, and it is written anew to check it.
fn seconds(text: &str) -> Option<u64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let leading_zero = text.len() > 1 && text.starts_with('0');
    if plain && !leading_zero { text.parse().ok() } else { None }
}
