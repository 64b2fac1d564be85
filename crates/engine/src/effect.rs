//! What is to happen once a batch is durable, and the calls that are to be made because of it.

use std::sync::Arc;

use bytes::Bytes;
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo};
use reveille_core::delivery::replay::ReplayResult;
use reveille_core::delivery::{DeadReason, Transport};
use reveille_core::stream::StreamId;
use reveille_core::subscription::SubscriptionId;
use reveille_core::trace::Trace;
use reveille_core::{Millis, Offset, Tenant};
use reveille_kernel::outbox;
use reveille_schema::keys::ConsumerKey;
use reveille_schema::record::EventRecord;

/// A consequence of a decision. It runs after the batch is durable; what must not be forgotten in
/// a crash is in the state as well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A stream has grown, or was closed.
    NotifyReaders {
        id: StreamId,
        /// Its tail before.
        from: Offset,
        /// What was appended, as it is stored.
        data: Bytes,
        /// Whether that was the last.
        closed: bool,
    },
    /// A stream has ended.
    ReleaseReaders(StreamId),
    /// A consumer is to be told that there is work.
    SendWake(WakeAttempt),
    /// A consumer is busy with something else now.
    CountActivity(ActivityChange),
    /// A consumer contributes something else to the gauges of its subscription.
    CountLoad(LoadChange),
    /// Something is wrong with a consumer that its operators should know of.
    Complain(ConsumerComplaint),
    /// An event is to be delivered.
    SendDelivery(DeliveryAttempt),
    /// A tenant has used the processors for something that it does not wait for.
    CountWork { tenant: Tenant, work: u64 },
    /// A delivery has become a dead letter.
    CountDeadLetter(DeadReason),
    /// Conditions of a trigger came to nothing.
    CountEvaluationErrors { hook: HookId, count: u64 },
    /// An attempt of a trigger has ended.
    CountTriggerAttempt(TriggerAttempt),
    /// A version of a trigger was rolled back because it missed its objective.
    CountRollback(HookId),
    /// Deliveries that a replay was to make have come to this.
    CountReplayed { result: ReplayResult, count: u64 },
}

/// An attempt of a trigger that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TriggerAttempt {
    pub hook: HookId,
    pub status: Option<u16>,
    pub took_ms: u64,
    /// From 1.
    pub number: u32,
    /// What it has brought a replay to, if it has ended a delivery that one has made.
    pub replayed: Option<ReplayResult>,
}

impl Effect {
    /// Whether somebody waits for it. What is only counted can wait.
    pub fn is_urgent(&self) -> bool {
        !matches!(
            self,
            Effect::CountActivity(_)
                | Effect::Complain(_)
                | Effect::CountWork { .. }
                | Effect::CountDeadLetter(_)
                | Effect::CountEvaluationErrors { .. }
                | Effect::CountTriggerAttempt(_)
                | Effect::CountRollback(_)
                | Effect::CountReplayed { .. }
                | Effect::CountLoad(_)
        )
    }
}

/// A call that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attempt {
    Wake(WakeAttempt),
    Delivery(DeliveryAttempt),
}

/// An attempt to wake a consumer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WakeAttempt {
    pub consumer: ConsumerKey,
    /// Of which wake.
    pub epoch: u64,
    /// Counted from 1.
    pub attempt: u32,
    pub tenant: Tenant,
}

/// An attempt to deliver an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAttempt {
    pub id: DeliveryId,
    /// Counted from 1.
    pub attempt: u32,
    pub tenant: Tenant,
    /// Its hook's.
    pub transport: Transport,
    /// The event, if it is at hand: then nothing has to be read.
    pub event: Option<EventPayload>,
}

/// An event as it is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPayload {
    pub id: Arc<str>,
    /// When it came.
    pub at: Millis,
    /// What it says.
    pub payload: Bytes,
    /// The trace that it came as a part of.
    pub trace: Option<Trace>,
}

impl EventPayload {
    /// What is delivered of an event that is kept.
    pub fn of(event: EventRecord, payload: Bytes) -> EventPayload {
        let trace = event.trace.map(Trace::from_bytes);
        EventPayload { id: event.id, at: event.at, payload, trace }
    }
}

/// What became of a consumer, for those who watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActivityChange {
    pub from: ConsumerActivity,
    pub to: ConsumerActivity,
    /// Whether a wake was begun.
    pub woken: bool,
}

/// What a consumer contributes to the gauges of its subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsumerLoad {
    /// Since when it has work that is not done.
    pub pending_since: Option<Millis>,
    /// Since when its endpoint fails.
    pub failing_since: Option<Millis>,
    pub is_given_up: bool,
}

/// A consumer contributes something else from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadChange {
    pub subscription: SubscriptionId,
    pub from: ConsumerLoad,
    pub to: ConsumerLoad,
}

/// A consumer that is in trouble.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsumerComplaint {
    pub consumer: ConsumerKey,
    pub trouble: ConsumerTrouble,
    /// When.
    pub at: Millis,
}

/// What can be wrong with a consumer beside attempts that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerTrouble {
    /// It says again and again that it is done, and has acknowledged nothing.
    Fruitless,
    /// It took a wake on, and was not heard of again in time.
    Silent,
    /// Its endpoint failed for too long.
    GivenUp,
}

/// What a consumer is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsumerActivity {
    /// Nothing that has an end of its own.
    None,
    /// Its events are collected, to be told together.
    Collecting,
    /// It is being told, or waits to be told again.
    Waking,
    /// It works.
    Live,
}

/// What an attempt is about: there are not two alike under way.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AttemptKey {
    Consumer(ConsumerKey),
    Delivery(DeliveryId),
}

/// Whose attempts are limited together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttemptSource {
    Subscription(SubscriptionId),
    Hook(HookId),
}

impl outbox::Attempt for Attempt {
    type Key = AttemptKey;
    type Source = AttemptSource;
    type Cursor = DeliveryNo;

    fn key(&self) -> AttemptKey {
        match self {
            Attempt::Wake(wake) => AttemptKey::Consumer(wake.consumer.clone()),
            Attempt::Delivery(delivery) => AttemptKey::Delivery(delivery.id),
        }
    }

    fn source(&self) -> AttemptSource {
        match self {
            Attempt::Wake(wake) => AttemptSource::Subscription(wake.consumer.subscription),
            Attempt::Delivery(delivery) => AttemptSource::Hook(delivery.id.hook),
        }
    }

    fn tenant(&self) -> &Tenant {
        match self {
            Attempt::Wake(wake) => &wake.tenant,
            Attempt::Delivery(delivery) => &delivery.tenant,
        }
    }

    fn number(&self) -> (u64, u32) {
        match self {
            Attempt::Wake(wake) => (wake.epoch, wake.attempt),
            Attempt::Delivery(delivery) => (0, delivery.attempt),
        }
    }

    fn cursor(&self) -> Option<DeliveryNo> {
        match self {
            Attempt::Wake(_) => None,
            Attempt::Delivery(delivery) => Some(delivery.id.no),
        }
    }

    fn is_command(&self) -> bool {
        match self {
            Attempt::Wake(_) => false,
            Attempt::Delivery(delivery) => delivery.transport == Transport::Append,
        }
    }

    fn payload_bytes(&self) -> usize {
        match self {
            Attempt::Wake(_) => 0,
            Attempt::Delivery(delivery) => {
                delivery.event.as_ref().map_or(0, |event| event.payload.len())
            }
        }
    }

    fn drop_payload(&mut self) {
        if let Attempt::Delivery(delivery) = self {
            delivery.event = None;
        }
    }
}
