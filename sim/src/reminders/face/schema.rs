//! What the state holds of reminders.
//!
//! | tag | key | value |
//! |---|---|---|
//! | `e0` reminder | tenant, `00`, name | topic, time, subject, text, as [`Occurrence`] has them |
//! | `e1` occurrence | tenant, `00`, event `u64` | [`Occurrence`] |
//! | `e2` mute | tenant, `00`, subject | empty: nobody is told of the subject |
//! | `e3` revoked | tenant, `00`, name of a hook | empty: it is told nothing any more |
//! | `e4` former topics | hook `u64`, event `u64` | what the hook wanted of events before that one, and its version `u64` |
//!
//! | timer of domain `e0` | subject |
//! |---|---|
//! | `01` remind | tenant, `00`, name |

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::EventNo;
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Damaged;

use super::rules::{FACE, ReminderSpec, Style};

pub(crate) const REMINDER: u8 = 0xe0;
pub(crate) const OCCURRENCE: u8 = 0xe1;
pub(crate) const MUTE: u8 = 0xe2;
pub(crate) const REVOKED: u8 = 0xe3;
pub(crate) const FORMER_TOPICS: u8 = 0xe4;
const REMIND: u8 = 0x01;

/// A reminder, and as an event the reminder whose time has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Occurrence {
    pub(crate) name: Arc<str>,
    pub(crate) topic: u8,
    pub(crate) subject: Arc<str>,
    pub(crate) text: Arc<str>,
    /// When it was to come, and as an event when it came.
    pub(crate) at: Millis,
}

impl Occurrence {
    pub(super) fn encode(&self) -> Bytes {
        let Occurrence { name, topic, subject, text, at } = self;
        format!("{topic}\n{}\n{name}\n{subject}\n{text}", at.0).into()
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Occurrence, Damaged> {
        let parse = || {
            let mut lines = std::str::from_utf8(value).ok()?.splitn(5, '\n');
            Some(Occurrence {
                topic: lines.next()?.parse().ok()?,
                at: Millis(lines.next()?.parse().ok()?),
                name: lines.next()?.into(),
                subject: lines.next()?.into(),
                text: lines.next()?.into(),
            })
        };
        parse().ok_or_else(|| Damaged(format!("no reminder: {value:?}")))
    }
}

pub(super) fn encode_spec(spec: ReminderSpec) -> Bytes {
    let [high, low] = spec.style.0.to_be_bytes();
    Bytes::copy_from_slice(&[spec.topics, spec.endpoint, spec.attempts, high, low])
}

pub(super) fn decode_spec(spec: &[u8]) -> Result<ReminderSpec, Damaged> {
    match spec {
        &[topics, endpoint, attempts, high, low] => {
            let style = Style(u16::from_be_bytes([high, low]));
            Ok(ReminderSpec { topics, endpoint, attempts, style })
        }
        _ => Err(Damaged(format!("no spec of a hook for reminders: {spec:?}"))),
    }
}

pub(super) fn reminder_key(tenant: &Tenant, name: &str) -> Bytes {
    of_tenant(&[REMINDER], tenant, name.as_bytes())
}

pub(super) fn occurrence_key(tenant: &Tenant, no: EventNo) -> Bytes {
    of_tenant(&[OCCURRENCE], tenant, &no.0.to_be_bytes())
}

pub(super) fn mute_key(tenant: &Tenant, subject: &str) -> Bytes {
    of_tenant(&[MUTE], tenant, subject.as_bytes())
}

pub(super) fn revoked_key(tenant: &Tenant, hook: &str) -> Bytes {
    of_tenant(&[REVOKED], tenant, hook.as_bytes())
}

pub(super) fn former_topics_key(hook: HookId, until: EventNo) -> Bytes {
    [&[FORMER_TOPICS][..], &hook.0.to_be_bytes(), &until.0.to_be_bytes()].concat().into()
}

pub(super) fn parse_former_topics(key: &[u8]) -> Option<(HookId, EventNo)> {
    let (hook, until) = key.strip_prefix(&[FORMER_TOPICS])?.split_first_chunk()?;
    Some((HookId(u64::from_be_bytes(*hook)), parse_number(until)?))
}

pub(super) fn timer(tenant: &Tenant, name: &str) -> Bytes {
    of_tenant(&[FACE.0, REMIND], tenant, name.as_bytes())
}

/// Whose timer it is, and the name of the reminder.
pub(crate) fn parse_timer(timer: &[u8]) -> Option<(Tenant, Arc<str>)> {
    let text = std::str::from_utf8(timer.strip_prefix(&[FACE.0, REMIND])?).ok()?;
    let (tenant, name) = text.split_once('\0')?;
    Some((Tenant::parse(tenant).ok()?, name.into()))
}

/// The event of an occurrence's key.
pub(crate) fn parse_number(key: &[u8]) -> Option<EventNo> {
    Some(EventNo(u64::from_be_bytes(*key.last_chunk()?)))
}

fn of_tenant(begin: &[u8], tenant: &Tenant, rest: &[u8]) -> Bytes {
    [begin, tenant.as_str().as_bytes(), b"\0", rest].concat().into()
}
