//! What a hook for reminders wishes, and the rules that follow from that.

use reveille_core::StreamPath;
use reveille_core::delivery::ErrorKind;
use reveille_core::delivery::hook::FaceId;
use reveille_core::delivery::policy::{
    Action, Backoff, DeliveryLimits, Jitter, Letters, Order, Poison, Policy, Refusal, Rule,
    StatusSet, Transport, Versions, When,
};
use reveille_core::rate::Rate;

/// Far from the numbers of real faces.
pub(crate) const FACE: FaceId = FaceId(0xe0);

/// What the owner of a hook wishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReminderSpec {
    /// One bit for each topic.
    pub(crate) topics: u8,
    /// Which of the endpoints is told.
    pub(crate) endpoint: u8,
    /// How often it is tried.
    pub(crate) attempts: u8,
    pub(crate) style: Style,
}

/// Which rules a hook has: bits. They stay as they are for the life of a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style(pub(crate) u16);

/// Texts that are longer than this are too large for hooks that want short ones.
const SHORT_TEXT: usize = 20;
/// The endpoint that has no room for the headers of texts of a few lengths.
const NARROW_ENDPOINT: u8 = 2;
/// The endpoint whose secret is not to be had for the first attempt.
const SECRET_ENDPOINT: u8 = 3;
pub(crate) const BACKOFF: Backoff =
    Backoff { base_ms: 2_000, cap_ms: 3_000, jitter: Jitter::Shortened };
pub(crate) const POISON: Poison = Poison { attempts: 2, within_ms: 250 };

impl Style {
    pub(crate) fn is_ordered(self) -> bool {
        self.0 & 1 == 0
    }

    /// 404 is dropped, 403 tried again, 451 ends the hook, and neither a redirect nor an address that
    /// must not be called nor what cannot be read is tried again. What a closed stream rejects is
    /// dropped, or ends the hook; what a stream of another type rejects is tried again.
    pub(crate) fn has_rules(self) -> bool {
        self.0 & 2 != 0
    }

    pub(crate) fn has_poison(self) -> bool {
        self.0 & 4 != 0
    }

    pub(crate) fn is_patient(self) -> bool {
        self.0 & 8 != 0
    }

    /// Deliveries follow the version that matched.
    pub(crate) fn is_matched(self) -> bool {
        self.0 & 16 != 0
    }

    pub(crate) fn is_short(self) -> bool {
        self.0 & 32 != 0
    }

    /// Deliveries are appended to a stream.
    pub(crate) fn is_append(self) -> bool {
        self.0 & 64 != 0
    }

    /// A stream that is closed ends the hook.
    pub(crate) fn ends_when_closed(self) -> bool {
        self.is_append() && self.has_rules() && self.is_patient()
    }

    /// Few attempts are under way at once.
    fn has_concurrency(self) -> bool {
        self.0 & 128 != 0
    }

    /// They begin in a measured pace.
    fn has_rate(self) -> bool {
        self.0 & 256 != 0
    }

    /// They are among those of which a tenant has only so many under way.
    fn is_per_tenant(self) -> bool {
        self.0 & 512 != 0
    }

    /// Dead letters stay when the hook has ended.
    pub(crate) fn is_outlived(self) -> bool {
        self.0 & 1024 != 0
    }
}

impl ReminderSpec {
    /// Whether it is for reminders of this topic.
    pub(crate) fn wants(self, topic: u8) -> bool {
        self.topics & (1 << topic) != 0
    }

    /// The stream that its deliveries are appended to.
    pub(crate) fn path(self) -> StreamPath {
        path_of(self.endpoint)
    }

    /// Why an attempt to say this is not put into words, if it is not.
    pub(crate) fn refusal(self, attempt: u32, text_len: usize) -> Option<Refusal> {
        if self.style.is_short() && text_len > SHORT_TEXT {
            return Some(Refusal::PayloadTooLarge);
        }
        if self.endpoint == NARROW_ENDPOINT && text_len % 8 == 3 {
            return Some(Refusal::HeadersTooLarge);
        }
        let is_locked = self.endpoint == SECRET_ENDPOINT && attempt == 1;
        is_locked.then_some(Refusal::SecretMissing)
    }

    /// How much there may be at once: other wishes are other limits.
    pub(crate) fn limits(self) -> DeliveryLimits {
        let number = u32::from(self.attempts);
        DeliveryLimits {
            concurrency: self.style.has_concurrency().then_some(number.div_ceil(2)),
            rate: self.style.has_rate().then(|| Rate { per_s: 3 * number, burst: number }),
            per_tenant: self.style.is_per_tenant(),
        }
    }

    /// Unlike that of events in everything: few attempts, pauses that chance shortens, refusals
    /// that are final, endpoints that end the hook, and more as the style has it.
    pub(crate) fn policy(self) -> Policy {
        let style = self.style;
        let rule = |when, action| Rule { when, action };
        let codes = |text| When::codes(text).expect("codes");
        let rules = vec![
            rule(codes("404"), Action::Drop),
            rule(codes("403"), Action::Retry),
            rule(codes("451"), Action::End),
            rule(When::Kind(ErrorKind::Redirect), Action::Dead),
            rule(When::Kind(ErrorKind::Blocked), Action::Dead),
            rule(When::Unreadable, Action::Dead),
            rule(
                When::Kind(ErrorKind::StreamClosed),
                if style.ends_when_closed() { Action::End } else { Action::Drop },
            ),
            rule(When::Kind(ErrorKind::StreamMismatch), Action::Retry),
        ];
        Policy {
            rules: if style.has_rules() { rules } else { Vec::new() },
            refused: StatusSet::Final4xx,
            ends: Some(410),
            retry_after: style.is_patient(),
            poison: style.has_poison().then_some(POISON),
            order: if style.is_ordered() { Order::Lanes } else { Order::None },
            transport: if style.is_append() { Transport::Append } else { Transport::Http },
            limits: self.limits(),
            letters: if style.is_outlived() { Letters::OutliveHook } else { Letters::GoWithHook },
            versions: if style.is_matched() { Versions::Matched } else { Versions::Current },
            ..Policy::new(4_000, self.attempts.into(), BACKOFF)
        }
    }
}

/// The stream of an endpoint.
pub(crate) fn path_of(endpoint: u8) -> StreamPath {
    StreamPath::parse(&format!("/agents/a{endpoint}")).expect("a path")
}
