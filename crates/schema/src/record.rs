//! Every codec under the name that it had before [`Record`], for those who still use it.

use bytes::Bytes;
use reveille_core::delivery::hook::{DeliveryCounts, Hook};
use reveille_core::delivery::id::DeliveryId;
use reveille_core::delivery::lane::Lane;
use reveille_core::fan_out::FanOutCursor;
use reveille_core::key::Key;
use reveille_core::producer::ProducerState;
use reveille_core::stream::Head;
use reveille_core::subscription::Subscription;

pub use crate::auth::{SigningKey, encode_signing_keys};
pub use crate::codec::{Record, RecordError};
pub use crate::deliveries::{
    DeliveryRecord, EventPlace, EventRecord, encode_group as encode_delivery_group,
};
pub use crate::wakes::{ConsumerRecord, LinkRecord};

pub fn encode_head(record: &Head) -> Bytes {
    record.encode()
}

pub fn decode_head(value: &[u8]) -> Result<Head, RecordError> {
    Head::decode(value)
}

pub fn encode_producer(record: ProducerState) -> Bytes {
    record.encode()
}

pub fn decode_producer(value: &[u8]) -> Result<ProducerState, RecordError> {
    ProducerState::decode(value)
}

pub fn encode_u64(value: u64) -> Bytes {
    value.encode()
}

pub fn decode_u64(value: &[u8]) -> Result<u64, RecordError> {
    u64::decode(value)
}

pub fn encode_consumer(record: &ConsumerRecord) -> Bytes {
    record.encode()
}

pub fn decode_consumer(value: &[u8]) -> Result<ConsumerRecord, RecordError> {
    ConsumerRecord::decode(value)
}

pub fn encode_link(record: LinkRecord) -> Bytes {
    record.encode()
}

pub fn decode_link(value: &[u8]) -> Result<LinkRecord, RecordError> {
    LinkRecord::decode(value)
}

pub fn encode_subscription(record: &Subscription) -> Bytes {
    record.encode()
}

pub fn decode_subscription(value: &[u8]) -> Result<Subscription, RecordError> {
    Subscription::decode(value)
}

pub fn encode_fan_out_cursor(record: &FanOutCursor) -> Bytes {
    record.encode()
}

pub fn decode_fan_out_cursor(value: &[u8]) -> Result<FanOutCursor, RecordError> {
    FanOutCursor::decode(value)
}

pub fn encode_hook(record: &Hook) -> Bytes {
    record.encode()
}

pub fn decode_hook(value: &[u8]) -> Result<Hook, RecordError> {
    Hook::decode(value)
}

pub fn encode_delivery(record: &DeliveryRecord) -> Bytes {
    record.encode()
}

pub fn decode_delivery(value: &[u8]) -> Result<DeliveryRecord, RecordError> {
    DeliveryRecord::decode(value)
}

pub fn encode_delivery_counts(record: &DeliveryCounts) -> Bytes {
    record.encode()
}

pub fn decode_delivery_counts(value: &[u8]) -> Result<DeliveryCounts, RecordError> {
    DeliveryCounts::decode(value)
}

pub fn encode_lane(record: &Lane) -> Bytes {
    record.encode()
}

pub fn decode_lane(value: &[u8]) -> Result<Lane, RecordError> {
    Lane::decode(value)
}

pub fn encode_event(record: &EventRecord) -> Bytes {
    record.encode()
}

pub fn decode_event(value: &[u8]) -> Result<EventRecord, RecordError> {
    EventRecord::decode(value)
}

pub fn encode_key(record: &Key) -> Bytes {
    record.encode()
}

pub fn decode_key(value: &[u8]) -> Result<Key, RecordError> {
    Key::decode(value)
}

pub fn decode_delivery_group(value: &[u8]) -> Result<Vec<DeliveryId>, RecordError> {
    Vec::decode(value)
}

pub fn decode_signing_keys(value: &[u8]) -> Result<Vec<SigningKey>, RecordError> {
    Vec::decode(value)
}
