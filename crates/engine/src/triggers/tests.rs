//! Decisions about triggers: given a state, when a write or a change of a trigger comes, then these
//! are the deliveries, and what is remembered.

mod backtest;
mod govern;
mod matching;
mod rollout;

use std::collections::BTreeMap;
use std::sync::Arc;

use reveille_core::audit::{Actor, AuditEntry, AuditRow};
use reveille_core::delivery::hook::{Hook, OpenDeliveries};
use reveille_core::delivery::id::{DeliveryId, EventNo};
use reveille_core::delivery::{AttemptRecord, DeadReason, Phase, Verdict};
use reveille_core::document::body::ReservedFields;
use reveille_core::document::change::FACE;
use reveille_core::document::origin::Origin;
use reveille_core::document::patch::Patch;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::Data;
use reveille_core::document::transaction::{Op, TransactionLimits, Write};
use reveille_core::trigger::definition::{DefinitionLimits, Draft};
use reveille_core::trigger::deployment::State;
use reveille_core::trigger::secret::{SecretVersion, shown_prefix};
use reveille_core::trigger::{Definition, SecretRef, TriggerId};
use reveille_core::{Millis, Tenant};
use reveille_kernel::error::Error;
use reveille_schema::audit::split_row_value;
use reveille_schema::record::{self, DeliveryRecord};
use reveille_schema::{Record, keys};
use serde_json::{Value, json};

use super::apply::{AppliedTrigger, ApplyTriggers, TriggerDraft};
use super::change::{ChangeTrigger, DeleteTrigger, TriggerChange};
use super::error::TriggerRejection;
use super::hooks::TriggerHooks;
use super::index::{TriggerEntry, TriggerIndex};
use super::queries::Trigger;
use super::secrets::{ChangeSecret, SecretChange};
use crate::app::Settings;
use crate::deliveries::delivery::{DeliveryOutcome, RecordDeliveryOutcomes};
use crate::deliveries::face::PreparedMatch;
use crate::documents::DocumentRejection;
use crate::documents::hooks::{ChangeHooks, WriteLook};
use crate::documents::write::WriteDocuments;
use crate::testing::Bench;

/// A tenant with a secret, and whatever triggers a test makes.
struct World {
    bench: Bench,
    tenant: Tenant,
    /// Whether whoever changes triggers signs that.
    has_signed: bool,
}

/// How a write comes to its decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// With a look that still holds.
    Look,
    /// Without one.
    Itself,
}

impl World {
    fn new() -> World {
        World::with(Settings::default())
    }

    fn with(settings: Settings) -> World {
        let bench = Bench::with(settings);
        let mut world = World { tenant: bench.tenant.clone(), bench, has_signed: false };
        world.secret(SecretChange::Create { version: version("whsec_first") }).unwrap();
        world
    }

    fn entry(&self) -> AuditEntry {
        let has_signed = self.has_signed;
        let actor = Actor { name: "ops".into(), has_signed, ..Actor::server() };
        AuditEntry::new(actor, "", Some(self.tenant.clone()), "default")
    }

    fn secret(
        &mut self,
        change: SecretChange,
    ) -> Result<Option<reveille_core::trigger::secret::SigningSecret>, TriggerRejection> {
        let (tenant, name) = (self.tenant.clone(), SecretRef::parse("default").unwrap());
        let command = ChangeSecret { tenant, name, change, entry: self.entry() };
        rejected(self.bench.when(&command).outcome)
    }

    fn change(&mut self, id: &str, change: TriggerChange) -> Result<Arc<Hook>, TriggerRejection> {
        self.change_at(id, None, change)
    }

    fn change_at(
        &mut self,
        id: &str,
        expected: Option<u64>,
        change: TriggerChange,
    ) -> Result<Arc<Hook>, TriggerRejection> {
        let (tenant, id, entry) = (self.tenant.clone(), id.into(), self.entry());
        let command = ChangeTrigger { tenant, id, expected, change, reason: None, entry };
        rejected(self.bench.when(&command).outcome)
    }

    /// A trigger that is made and not enabled.
    fn make(&mut self, id: &str, definition: Value) -> Result<Arc<Hook>, TriggerRejection> {
        let definition = define(definition);
        let trigger = TriggerId::parse(id).unwrap();
        self.change(id, TriggerChange::Create { id: trigger, definition, created_by: None })
    }

    /// A trigger that sends.
    fn enabled(&mut self, id: &str, definition: Value) -> Arc<Hook> {
        self.make(id, definition).unwrap();
        self.change(id, TriggerChange::Enable).unwrap()
    }

    fn update(&mut self, id: &str, definition: Value) -> Result<Arc<Hook>, TriggerRejection> {
        self.change(id, TriggerChange::Update { definition: define(definition) })
    }

    fn trigger(&self, id: &str) -> Trigger {
        let key = keys::hook(FACE, &self.tenant, id);
        let hook = self.bench.reader().get(&key).unwrap().expect("there is such a trigger");
        Trigger::of(Arc::new(record::decode_hook(&hook).unwrap())).unwrap()
    }

    fn state(&self, id: &str) -> State {
        self.trigger(id).deployment.state
    }

    fn command(&self, ops: Vec<Op>, origin: Origin) -> WriteDocuments {
        WriteDocuments {
            tenant: self.tenant.clone(),
            ops: ops.into(),
            origin,
            tag: None,
            verdict: None,
            prepared: None,
            audit: None,
            may_retry: false,
            decide_by: Millis::NEVER,
        }
    }

    /// What a look at a write finds now, if there is anything to look at.
    fn look(&self, command: &WriteDocuments) -> Option<PreparedMatch> {
        let WriteDocuments { tenant, ops, origin, .. } = command;
        let (limits, now) = (TransactionLimits::default(), self.bench.now);
        let reader = &self.bench.reader();
        let shared = &self.bench.shared;
        if !TriggerHooks.is_interested(shared, tenant, ops) {
            return None;
        }
        let look = |in_turn| {
            let write = WriteLook { tenant, ops, origin, limits, now, reader, in_turn };
            TriggerHooks.look(shared, &write).unwrap()
        };
        look(true).or_else(|| look(false))
    }

    fn write_as(&mut self, ops: Vec<Op>, origin: Origin, by: By) -> Result<(), DocumentRejection> {
        let mut command = self.command(ops, origin);
        if by == By::Look {
            command.prepared = self.look(&command);
        }
        match self.bench.when(&command).outcome {
            Ok(answer) => answer.map(drop),
            Err(Error::Rejected(rejection)) => Err(rejection),
            Err(error) => panic!("it was not decided: {error}"),
        }
    }

    fn write(&mut self, ops: Vec<Op>) {
        self.write_as(ops, Origin::CLIENT, By::Look).unwrap();
    }

    /// The deliveries that there are, by trigger and event, each with its version.
    fn deliveries(&self) -> Vec<(String, EventNo, u64, DeliveryRecord)> {
        let mut all = Vec::new();
        for (id, record) in self.records() {
            let partition = self.bench.shared.lock();
            let index = partition.index.of::<TriggerIndex>();
            let name = index.get(&self.tenant, id.hook).unwrap().hook.name.to_string();
            all.push((name, id.no.event, record.hook_version, record));
        }
        all.sort_by_key(|(name, no, ..)| (*no, name.clone()));
        all
    }

    fn records(&self) -> Vec<(DeliveryId, DeliveryRecord)> {
        let index = &self.bench.shared.lock().index;
        let Some(triggers) = index.of::<TriggerIndex>().of_tenant(&self.tenant) else {
            return Vec::new();
        };
        let hooks: Vec<_> = triggers.all().map(|it| it.hook.id).collect();
        let reader = self.bench.shared.state.reader();
        let of_hook = |hook| {
            let (from, to) = keys::deliveries(hook);
            reader.range(&from, &to, usize::MAX).unwrap()
        };
        let found = hooks.into_iter().flat_map(of_hook);
        let read = found.map(|(key, value)| {
            (keys::parse_delivery(&key).unwrap(), record::decode_delivery(&value).unwrap())
        });
        read.collect()
    }

    /// Who got what: triggers with their versions, change by change.
    fn told(&self) -> Vec<(String, u64)> {
        self.deliveries().into_iter().map(|(name, _, version, _)| (name, version)).collect()
    }

    /// Whatever is due happens, until nothing is.
    fn fire_all(&mut self) {
        for _ in 0..10_000 {
            let due = self.bench.timers().into_iter().find(|it| it.at() <= self.bench.now);
            let Some(timer) = due else { return };
            self.bench.fire(timer).answer();
        }
        panic!("there is always something to be done");
    }

    /// Every attempt that is being made comes to this.
    fn answer_all(&mut self, verdict: Verdict, took_ms: u64) -> usize {
        let leased = |(id, record): (DeliveryId, DeliveryRecord)| match record.delivery.phase {
            Phase::Leased { attempt, .. } => Some((id, attempt)),
            _ => None,
        };
        let leased: Vec<_> = self.records().into_iter().filter_map(leased).collect();
        let outcomes = leased.iter().map(|(id, number)| {
            let error = (verdict != Verdict::Delivered).then(|| "answered 500".into());
            let attempt = AttemptRecord::new(*number, self.bench.now, took_ms);
            DeliveryOutcome { id: *id, attempt: AttemptRecord { error, ..attempt }, verdict }
        });
        let outcomes: Vec<_> = outcomes.collect();
        let count = outcomes.len();
        self.bench.when(&RecordDeliveryOutcomes(outcomes)).answer();
        count
    }

    /// The rows of the audit log, oldest first.
    fn rows(&self) -> Vec<AuditEntry> {
        let (from, to) = keys::audit_rows(&Some(self.tenant.clone()), 0, u64::MAX);
        let found = self.bench.reader().range(&from, &to, usize::MAX).unwrap();
        let row = |(_, value): &(bytes::Bytes, bytes::Bytes)| {
            AuditRow::decode(split_row_value(value).unwrap().1).unwrap().entry
        };
        found.iter().map(row).collect()
    }
}

fn rejected<T>(outcome: Result<T, Error<TriggerRejection>>) -> Result<T, TriggerRejection> {
    outcome.map_err(|error| match error {
        Error::Rejected(rejection) => rejection,
        error => panic!("it was not decided: {error}"),
    })
}

fn version(value: &str) -> SecretVersion {
    SecretVersion { sealed: value.into(), prefix: shown_prefix(value), created_at: Millis(0) }
}

/// A definition with whatever a test does not care about.
fn define(fields: Value) -> Arc<Definition> {
    let mut all = json!({
        "collection": "orders",
        "events": ["create", "update", "delete"],
        "url": "https://hooks.example.com/h",
    });
    let Value::Object(fields) = fields else { panic!("is an object") };
    for (name, value) in fields {
        all[name] = value;
    }
    let draft = Draft::parse(&all, &DefinitionLimits { max_timeout_ms: 30_000 });
    Arc::new(draft.unwrap_or_else(|error| panic!("{error}")).definition)
}

fn path(at: &str) -> DocumentPath {
    DocumentPath::parse(at).unwrap()
}

fn set(at: &str, data: Value) -> Op {
    let Value::Object(fields) = data else { panic!("is an object") };
    let data = Arc::new(Data::new(fields).unwrap());
    Op { path: path(at), write: Write::Set(data), preconditions: Vec::new() }
}

fn patch(at: &str, data: Value) -> Op {
    let Value::Object(fields) = data else { panic!("is an object") };
    let path = path(at);
    let write = Patch::parse(fields, path.id(), ReservedFields::Refuse).unwrap();
    Op { path, write: Write::Patch(write), preconditions: Vec::new() }
}

fn delete(at: &str) -> Op {
    Op { path: path(at), write: Write::Delete, preconditions: Vec::new() }
}
