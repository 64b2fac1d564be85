//! How hooks are written.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::Decoder;
use reveille_core::delivery::hook::{ActiveSpan, Backfill, EventHookSpec, Hook, HookId, HookSpec};
use reveille_core::delivery::id::EventNo;
use reveille_core::event::EventPattern;
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::{Millis, Tenant};

use super::{Read, RecordError, Writer, Written, fields, finish};

mod field {
    pub(super) const ID: u32 = 0;
    pub(super) const TENANT: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const CREATED_AT: u32 = 3;
    pub(super) const UPDATED_AT: u32 = 4;
    pub(super) const SPANS: u32 = 5;
    pub(super) const BACKFILL: u32 = 6;
    pub(super) const EVENTS: u32 = 7;
}

/// Writes a hook.
pub fn encode_hook(hook: &Hook) -> Bytes {
    finish(192, |out| write_hook(out, hook))
}

/// Reads a hook.
pub fn decode_hook(value: &[u8]) -> Result<Hook, RecordError> {
    read_hook(&mut Decoder::new(value))
        .map_err(|why| RecordError { what: "hook", why: why.to_string() })
}

fn write_hook(out: &mut Writer, hook: &Hook) -> Written {
    out.map(7 + u64::from(hook.backfill.is_some()))?;
    out.u32(field::ID)?.u64(hook.id.0)?;
    out.u32(field::TENANT)?.str(hook.tenant.as_str())?;
    out.u32(field::NAME)?.str(&hook.name)?;
    out.u32(field::CREATED_AT)?.u64(hook.created_at.0)?;
    out.u32(field::UPDATED_AT)?.u64(hook.updated_at.0)?;
    out.u32(field::SPANS)?.array(u64::try_from(hook.spans.len()).unwrap_or(0))?;
    for span in &hook.spans {
        out.array(1 + u64::from(span.to.is_some()))?.u64(span.from.0)?;
        if let Some(to) = span.to {
            out.u64(to.0)?;
        }
    }
    if let Some(backfill) = hook.backfill {
        out.u32(field::BACKFILL)?.u64(backfill.next.0)?;
    }
    let HookSpec::Events(spec) = &hook.spec;
    out.u32(field::EVENTS)?;
    write_wish(out, spec)
}

fn write_wish(out: &mut Writer, spec: &EventHookSpec) -> Written {
    let EventHookSpec {
        pattern,
        worker,
        binding,
        method,
        max_retries,
        timeout_ms,
        secret,
        ordered,
    } = spec;
    let optional = [binding.is_some(), secret.is_some(), *ordered];
    let there = optional.iter().filter(|there| **there).count();
    out.map(5 + u64::try_from(there).unwrap_or(0))?;
    out.u32(0)?.str(pattern.as_str())?.u32(1)?.str(worker.as_str())?;
    out.u32(2)?.str(method.as_str())?;
    out.u32(3)?.u32(*max_retries)?.u32(4)?.u64(*timeout_ms)?;
    if let Some(binding) = binding {
        out.u32(5)?.str(binding)?;
    }
    if let Some(secret) = secret {
        out.u32(6)?.str(secret)?;
    }
    if *ordered {
        out.u32(7)?.bool(true)?;
    }
    Ok(())
}

fn read_hook(input: &mut Decoder<'_>) -> Read<Hook> {
    let wrong = minicbor::decode::Error::message;
    let (mut id, mut tenant, mut name, mut spec) = (0, None, None, None);
    let (mut created_at, mut updated_at) = (Millis(0), Millis(0));
    let (mut spans, mut backfill) = (Vec::new(), None);
    fields(input, |field, input| {
        match field {
            field::ID => id = input.u64()?,
            field::TENANT => tenant = Tenant::parse(input.str()?).ok(),
            field::NAME => name = Some(Arc::from(input.str()?)),
            field::CREATED_AT => created_at = Millis(input.u64()?),
            field::UPDATED_AT => updated_at = Millis(input.u64()?),
            field::SPANS => {
                for _ in 0..input.array()?.unwrap_or(0) {
                    let ends = input.array()? == Some(2);
                    let from = EventNo(input.u64()?);
                    let to = if ends { Some(EventNo(input.u64()?)) } else { None };
                    spans.push(ActiveSpan { from, to });
                }
            }
            field::BACKFILL => backfill = Some(Backfill { next: EventNo(input.u64()?) }),
            field::EVENTS => spec = Some(HookSpec::Events(read_wish(input)?)),
            _ => input.skip()?,
        }
        Ok(())
    })?;
    Ok(Hook {
        id: HookId(id),
        tenant: tenant.ok_or_else(|| wrong("no tenant"))?,
        name: name.ok_or_else(|| wrong("no name"))?,
        created_at,
        updated_at,
        spans,
        backfill,
        spec: spec.ok_or_else(|| wrong("no wish"))?,
    })
}

fn read_wish(input: &mut Decoder<'_>) -> Read<EventHookSpec> {
    let wrong = minicbor::decode::Error::message;
    let (mut pattern, mut worker, mut method) = (None, None, None);
    let (mut max_retries, mut timeout_ms, mut binding, mut secret) = (0, 0, None, None);
    let mut ordered = false;
    fields(input, |field, input| {
        match field {
            0 => pattern = EventPattern::parse(input.str()?).ok(),
            1 => worker = WorkerId::parse(input.str()?).ok(),
            2 => method = RpcMethod::parse(input.str()?).ok(),
            3 => max_retries = input.u32()?,
            4 => timeout_ms = input.u64()?,
            5 => binding = Some(Arc::from(input.str()?)),
            6 => secret = Some(Arc::from(input.str()?)),
            7 => ordered = input.bool()?,
            _ => input.skip()?,
        }
        Ok(())
    })?;
    let pattern = pattern.ok_or_else(|| wrong("no pattern"))?;
    let worker = worker.ok_or_else(|| wrong("no worker"))?;
    let method = method.ok_or_else(|| wrong("no method"))?;
    Ok(EventHookSpec { pattern, worker, binding, method, max_retries, timeout_ms, secret, ordered })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hooks_read_back_and_damage_is_an_error() {
        let spec = EventHookSpec {
            pattern: EventPattern::parse("webhook.**").unwrap(),
            worker: WorkerId::parse("my-worker").unwrap(),
            binding: Some("MY_HANDLER".into()),
            method: RpcMethod::parse("handle").unwrap(),
            max_retries: 5,
            timeout_ms: 30_000,
            secret: Some("whsec_AAAA".into()),
            ordered: true,
        };
        let full = Hook {
            id: HookId(9),
            tenant: Tenant::parse("acme").unwrap(),
            name: "01HQ".into(),
            created_at: Millis(1),
            updated_at: Millis(2),
            spans: vec![
                ActiveSpan { from: EventNo(9), to: Some(EventNo(12)) },
                ActiveSpan { from: EventNo(14), to: None },
            ],
            backfill: Some(Backfill { next: EventNo(3) }),
            spec: HookSpec::Events(spec.clone()),
        };
        let whole = encode_hook(&full);
        assert_eq!(decode_hook(&whole), Ok(full.clone()));
        for cut in 0..whole.len() {
            assert!(decode_hook(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let spec =
            HookSpec::Events(EventHookSpec { binding: None, secret: None, ordered: false, ..spec });
        let plain = Hook { backfill: None, spans: vec![], spec, ..full };
        assert_eq!(decode_hook(&encode_hook(&plain)), Ok(plain));
    }
}
