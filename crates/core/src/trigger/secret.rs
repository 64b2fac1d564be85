//! Which of a tenant's secrets signs: the newest, and for a while the one before it (SEC-3, C-6).

use std::sync::Arc;

use super::limits::SECRET_OVERLAP_DAYS_MAX;
use crate::secret::SealedSecret;
use crate::time::Millis;

/// A secret by its name, with the one that it takes over from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigningSecret {
    pub current: SecretVersion,
    pub previous: Option<PreviousSecret>,
}

/// One value of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretVersion {
    pub sealed: SealedSecret,
    /// The beginning of it, which is shown: enough to tell it from others.
    pub prefix: Arc<str>,
    pub created_at: Millis,
}

/// The value before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviousSecret {
    pub version: SecretVersion,
    /// From then on it signs nothing.
    pub valid_until: Millis,
}

/// How long both sign, if nobody says otherwise.
pub const OVERLAP_MS: u64 = 86_400_000;
/// The longest time for which both sign.
pub const OVERLAP_MS_MAX: u64 = SECRET_OVERLAP_DAYS_MAX * 86_400_000;
/// Characters of a secret that are shown, its `whsec_` among them.
const PREFIX_CHARS: usize = 10;

/// As much of a secret as is shown of it.
pub fn shown_prefix(secret: &str) -> Arc<str> {
    secret.chars().take(PREFIX_CHARS).collect::<String>().into()
}

impl SigningSecret {
    pub fn new(current: SecretVersion) -> SigningSecret {
        SigningSecret { current, previous: None }
    }

    /// Another value takes over. The one before it is valid for a while; the one before that no
    /// longer. Without overlap it is not valid either.
    #[must_use]
    pub fn rotated(self, next: SecretVersion, overlap_ms: u64, now: Millis) -> SigningSecret {
        let previous = PreviousSecret {
            version: self.current,
            valid_until: now + overlap_ms.min(OVERLAP_MS_MAX),
        };
        SigningSecret { current: next, previous: (overlap_ms > 0).then_some(previous) }
    }

    /// The value before is valid no longer, from now on.
    #[must_use]
    pub fn without_previous(self) -> SigningSecret {
        SigningSecret { previous: None, ..self }
    }

    /// Those that sign now, the newest first.
    pub fn signing(&self, now: Millis) -> impl Iterator<Item = &SealedSecret> {
        let previous = self.previous_at(now).map(|previous| &previous.version.sealed);
        std::iter::once(&self.current.sealed).chain(previous)
    }

    /// The value before, while it is valid.
    pub fn previous_at(&self, now: Millis) -> Option<&PreviousSecret> {
        self.previous.as_ref().filter(|previous| now < previous.valid_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(name: &str) -> SecretVersion {
        SecretVersion { sealed: name.into(), prefix: shown_prefix(name), created_at: Millis(0) }
    }

    fn signing(secret: &SigningSecret, now: u64) -> Vec<&str> {
        secret.signing(Millis(now)).map(|it| &**it).collect()
    }

    #[test]
    fn sec_3_both_sign_in_the_window_and_the_new_one_alone_after_it() {
        let first = SigningSecret::new(version("a"));
        assert_eq!(signing(&first, 5), ["a"]);
        let second = first.rotated(version("b"), 100, Millis(1_000));
        assert_eq!(signing(&second, 1_000), ["b", "a"]);
        assert_eq!(signing(&second, 1_099), ["b", "a"]);
        assert_eq!(signing(&second, 1_100), ["b"]);
        let third = second.clone().rotated(version("c"), 100, Millis(1_050));
        assert_eq!(signing(&third, 1_050), ["c", "b"], "the one before the last signs no more");
        assert_eq!(signing(&second.clone().without_previous(), 1_050), ["b"]);
        assert_eq!(signing(&second.rotated(version("d"), 0, Millis(1_050)), 1_050), ["d"]);
    }

    #[test]
    fn an_overlap_ends_and_little_is_shown() {
        let long = SigningSecret::new(version("a")).rotated(version("b"), u64::MAX, Millis(0));
        assert_eq!(signing(&long, OVERLAP_MS_MAX), ["b"]);
        assert_eq!(&*shown_prefix("whsec_abcdefghij"), "whsec_abcd");
        assert_eq!(&*shown_prefix("\u{e9}"), "\u{e9}");
    }
}
