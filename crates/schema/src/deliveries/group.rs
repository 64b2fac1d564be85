//! Which deliveries began together.
//!
//! A map of 0 the first event, 1 for each hook `[hook, event, …]`, where events are counted from
//! the first. None of the deliveries is a repetition.
//!
//! Written by hand: what is derived would need a list for each hook when it is read.

use std::collections::BTreeMap;

use bytes::Bytes;
use minicbor::{Decoder, decode};
use reveille_core::delivery::hook::HookId;
use reveille_core::delivery::id::{DeliveryId, DeliveryNo, EventNo};

use crate::codec::{List, MapWriter, Record, RecordError};

impl Record for Vec<DeliveryId> {
    fn encode(&self) -> Bytes {
        encode_group(self)
    }

    fn decode(value: &[u8]) -> Result<Vec<DeliveryId>, RecordError> {
        read_group(&mut Decoder::new(value)).map_err(|why| RecordError::new("delivery group", why))
    }
}

/// What [`Record::encode`] of a list with these deliveries would be.
pub fn encode_group(ids: &[DeliveryId]) -> Bytes {
    let first = ids.iter().map(|id| id.no.event.0).min().unwrap_or(0);
    let mut by_hook: BTreeMap<HookId, Vec<u64>> = BTreeMap::new();
    for id in ids {
        let hook = by_hook.entry(id.hook).or_insert_with(|| vec![id.hook.0]);
        hook.push(id.no.event.0 - first);
    }
    let mut map = MapWriter::new(16 + 8 * by_hook.len() + 2 * ids.len());
    map.put(0, first);
    map.put(1, List(by_hook.values()));
    map.finish()
}

fn read_group(input: &mut Decoder<'_>) -> Result<Vec<DeliveryId>, decode::Error> {
    let wrong = decode::Error::message;
    let fields = input.map()?.ok_or_else(|| wrong("open-ended map"))?;
    let (mut first, mut ids) = (None, Vec::new());
    for _ in 0..fields {
        match input.u32()? {
            0 => first = Some(input.u64()?),
            1 => {
                let first = first.ok_or_else(|| wrong("no first event"))?;
                for _ in 0..input.array()?.unwrap_or(0) {
                    read_hook(input, first, &mut ids)?;
                }
            }
            _ => input.skip()?,
        }
    }
    Ok(ids)
}

fn read_hook(
    input: &mut Decoder<'_>,
    first: u64,
    ids: &mut Vec<DeliveryId>,
) -> Result<(), decode::Error> {
    let events = input.array()?.unwrap_or(0).saturating_sub(1);
    let hook = HookId(input.u64()?);
    for _ in 0..events {
        let event = EventNo(first.saturating_add(input.u64()?));
        ids.push(DeliveryId { hook, no: DeliveryNo { event, round: 0 } });
    }
    Ok(())
}
