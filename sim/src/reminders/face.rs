//! A face that no server has: reminders. It is built as every face is, and shows what one costs.
//!
//! A reminder is set for a time; when that has come, whoever wants its topic is told, in order for
//! each subject, unless the subject was muted or the hook revoked meanwhile.
//!
//! ```text
//! rules     what `core` has of a face: specs, the matcher's rule, the policy, lanes
//! schema    what `schema` has: keys, records, timers
//! source    what `engine` has: commands, the index, timers, the gate
//! encoder   what `server` has: addresses and payloads
//! ```

mod encoder;
mod rules;
mod schema;
mod source;

use reveille_engine::encoder::DeliveryEncoders;

use crate::base::engine::App;

pub(super) use encoder::SigningKeys;
pub(super) use rules::{BACKOFF, FACE, POISON, ReminderSpec, Style, path_of};
pub(super) use schema::{
    FORMER_TOPICS, MUTE, OCCURRENCE, Occurrence, REMINDER, REVOKED, parse_number, parse_timer,
};
pub(super) use source::{
    ChangeReminderHook, CreateReminderHook, MuteSubject, RevokeHook, SetReminder,
};

/// The registration with the engine.
pub(super) fn register(app: App) -> App {
    app.with_face(source::ReminderFace)
}

/// The registration with whoever sends.
pub(super) fn encoders() -> DeliveryEncoders {
    DeliveryEncoders::default().with(encoder::ReminderEncoder)
}
