//! What is durable, partition by partition, against what was acknowledged.

use reveille_core::stream::Head;
use reveille_core::{StreamPath, Tenant};
use reveille_schema::{keys, record};

use super::{PARTITIONS, Partitions, engine};
use crate::base::engine::ID_STRIDE;
use crate::base::{CheckResult, raw_state, violation};

/// Everything but the content of streams.
const TAGS: [(u8, u8); 2] = [(0x01, 0x04), (0x05, 0x19)];

/// What a number was given to; the same number is never given to anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NumberedThing {
    Stream(Tenant, StreamPath),
    Subscription(Tenant),
    Hook(Tenant, String),
    Event(String),
}

impl Partitions {
    /// A batch of a partition is durable: everything in it is of the partition's own tenants, and
    /// has numbers that nothing else has ever had, in any partition.
    pub(super) fn look_at(&mut self, at: usize) -> CheckResult {
        let reader = self.base.partitions[at].engine().reader();
        let found = raw_state::read(&reader, &TAGS)?;
        let mut numbered = Vec::new();
        for (key, value) in &found {
            if self.seen[at].get(key) == Some(value) {
                continue;
            }
            match key.first() {
                Some(0x02) => {
                    let (tenant, path) = keys::parse_stream(key).ok_or_else(|| wrong(key))?;
                    let head = record::decode_head(value).map_err(raw_state::unreadable)?;
                    numbered.push((head.id.0, NumberedThing::Stream(tenant, path)));
                }
                Some(0x06) => {
                    let it = record::decode_subscription(value).map_err(raw_state::unreadable)?;
                    numbered.push((it.id.0, NumberedThing::Subscription(it.tenant)));
                }
                Some(0x0d) => {
                    let it = record::decode_hook(value).map_err(raw_state::unreadable)?;
                    let thing = NumberedThing::Hook(it.tenant, it.name.to_string());
                    numbered.push((it.id.0, thing));
                }
                Some(0x0e) => {
                    let no = keys::parse_event(key).ok_or_else(|| wrong(key))?;
                    let it = record::decode_event(value).map_err(raw_state::unreadable)?;
                    numbered.push((no.0, NumberedThing::Event(it.id.to_string())));
                }
                _ => {}
            }
        }
        self.seen[at] = found.into_iter().collect();
        numbered.into_iter().try_for_each(|(number, thing)| self.check_number(at, number, thing))
    }

    fn check_number(&mut self, at: usize, number: u64, thing: NumberedThing) -> CheckResult {
        let tenant = match &thing {
            NumberedThing::Stream(tenant, _)
            | NumberedThing::Subscription(tenant)
            | NumberedThing::Hook(tenant, _) => Some(tenant),
            NumberedThing::Event(_) => None,
        };
        if tenant.is_some_and(|tenant| engine::partition_of(tenant) != at) {
            return Err(violation(format!("partition {at} has {thing:?}")));
        }
        if number % ID_STRIDE != at as u64 {
            return Err(violation(format!("partition {at} gave {thing:?} the number {number}")));
        }
        match self.numbers.insert(number, thing.clone()) {
            Some(before) if before != thing => {
                Err(violation(format!("{number} was {before:?}, and now it is {thing:?}")))
            }
            _ => Ok(()),
        }
    }

    /// A crash changes nothing, and takes nothing that was acknowledged.
    pub(super) fn check_unchanged(&mut self, at: usize) -> CheckResult {
        let found = raw_state::read(&self.base.partitions[at].engine().reader(), &TAGS)?;
        raw_state::compare(&self.seen[at], &found.into_iter().collect())?;
        // The others of the machine may not have been looked at yet.
        if at + 1 == PARTITIONS { self.audit_content() } else { Ok(()) }
    }

    /// Whatever was acknowledged is there, once, in its tenant's partition, and in no other.
    pub(super) fn audit_content(&mut self) -> CheckResult {
        for ((tenant, path), tokens) in &self.appended {
            let at = engine::partition_of(tenant);
            let Some(head) = self.head(at, tenant, path)? else {
                return Err(violation(format!("{path} of {tenant} is lost")));
            };
            for other in (0..PARTITIONS).filter(|other| *other != at) {
                if self.head(other, tenant, path)?.is_some() {
                    return Err(violation(format!("{path} of {tenant} is in {other} as well")));
                }
            }
            let content = self.base.partitions[at].engine().read_stream(tenant, &head);
            let content = content.map_err(raw_state::unreadable)?;
            let content = String::from_utf8_lossy(&content);
            let entries: Vec<&str> = content.split_inclusive(';').collect();
            for token in tokens {
                let times = entries.iter().filter(|entry| *entry == token).count();
                if times != 1 {
                    return Err(violation(format!("{token} is {times} times in {path}")));
                }
            }
            let prefix = format!("{tenant}#");
            if let Some(foreign) = entries.iter().find(|entry| !entry.starts_with(&prefix)) {
                return Err(violation(format!("{foreign} is in {path} of {tenant}")));
            }
        }
        Ok(())
    }

    pub(super) fn head(
        &self,
        at: usize,
        tenant: &Tenant,
        path: &StreamPath,
    ) -> CheckResult<Option<Head>> {
        let reader = self.base.partitions[at].engine().reader();
        let found = reader.get(&keys::stream(tenant, path)).map_err(raw_state::unreadable)?;
        found.map(|it| record::decode_head(&it).map_err(raw_state::unreadable)).transpose()
    }
}

fn wrong(key: &[u8]) -> crate::base::Violation {
    raw_state::unreadable(format!("{key:?}"))
}
