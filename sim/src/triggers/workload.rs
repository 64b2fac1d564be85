//! What clients and operators ask for.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::document::origin::Origin;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::transaction::TransactionLimits;
use reveille_core::trigger::{Definition, TriggerId};
use reveille_engine::deliveries::face::PreparedMatch;
use reveille_engine::documents::hooks::{ChangeHooks, WriteLook};
use reveille_engine::triggers::change::TriggerChange;
use reveille_engine::triggers::hooks::TriggerHooks;

use super::Triggers;
use super::action::{Action, op};
use super::model::CONDITIONS;
use crate::base::CheckResult;
use crate::base::raw_state::unreadable;

const PATHS: [&str; 8] =
    ["rooms/1", "rooms/1", "rooms/2", "rooms/3", "rooms/4", "users/1", "users/2", "users/3"];
pub(super) const IDS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[derive(Debug, Clone, Copy)]
enum ClientAction {
    Write,
    Make,
    Update,
    Enable,
    Disable,
    RunDry,
    EndDryRun,
    RollBack,
    Delete,
    /// It may not have come to be when it was asked for first.
    MakeSecret,
}

impl Triggers {
    /// Some triggers are there from the beginning.
    pub(super) fn begin(&mut self) {
        for tenant in self.tenants.clone() {
            self.ask(Action::MakeSecret(tenant.clone()));
            for id in &IDS[..3] {
                let definition = self.definition();
                self.change(&tenant, id, make(id, definition));
                self.change(&tenant, id, TriggerChange::Enable);
            }
        }
    }

    /// Somebody asks for something.
    pub(super) fn ask_for_something(&mut self) -> CheckResult {
        let action = self.base.random.weighted(&[
            (200, ClientAction::Write),
            (5, ClientAction::Make),
            (8, ClientAction::Update),
            (30, ClientAction::Enable),
            (6, ClientAction::Disable),
            (3, ClientAction::RunDry),
            (3, ClientAction::EndDryRun),
            (4, ClientAction::RollBack),
            (3, ClientAction::Delete),
            (4, ClientAction::MakeSecret),
        ]);
        let tenant = self.base.random.pick(&self.tenants).clone();
        let id: &'static str = self.base.random.pick::<&'static str>(&IDS);
        let change = match action {
            ClientAction::Write => return self.write(tenant),
            ClientAction::Make => make(id, self.definition()),
            ClientAction::Update => TriggerChange::Update { definition: self.definition() },
            ClientAction::Enable => TriggerChange::Enable,
            ClientAction::Disable => TriggerChange::Disable,
            ClientAction::RunDry => {
                let beside = self.base.random.percent(50);
                let candidate = beside.then(|| self.definition());
                TriggerChange::DryRun { candidate }
            }
            ClientAction::EndDryRun => TriggerChange::EndDryRun,
            ClientAction::RollBack => {
                TriggerChange::RollBack { version: self.base.random.between(1, 4) }
            }
            ClientAction::MakeSecret => {
                self.ask(Action::MakeSecret(tenant));
                return Ok(());
            }
            ClientAction::Delete => {
                self.ask(Action::Delete { tenant, id });
                return Ok(());
            }
        };
        self.change(&tenant, id, change);
        Ok(())
    }

    pub(super) fn change(&mut self, tenant: &Tenant, id: &'static str, change: TriggerChange) {
        self.ask(Action::Change { tenant: tenant.clone(), id, change });
    }

    fn write(&mut self, tenant: Tenant) -> CheckResult {
        let value = self.next_number() % 7;
        let path = DocumentPath::parse(self.base.random.pick::<&str>(&PATHS)).expect("a path");
        let looks = self.base.random.percent(70);
        let prepared = if looks { self.look(&tenant, &path, value)? } else { None };
        self.ask(Action::Write { tenant, path, value, prepared });
        Ok(())
    }

    /// A look at what is durable now; the write may be decided long after.
    fn look(
        &self,
        tenant: &Tenant,
        path: &DocumentPath,
        value: u64,
    ) -> CheckResult<Option<PreparedMatch>> {
        let (shared, ops) = (self.base.engine().shared(), [op(path, value)]);
        if !TriggerHooks.is_interested(shared, tenant, &ops) {
            return Ok(None);
        }
        let (limits, now) = (TransactionLimits::default(), self.base.now);
        let (origin, reader) = (&Origin::CLIENT, &self.base.reader());
        let in_turn = self.number.is_multiple_of(2);
        let write = WriteLook { tenant, ops: &ops, origin, limits, now, reader, in_turn };
        TriggerHooks.look(shared, &write).map_err(unreadable)
    }

    fn definition(&mut self) -> Arc<Definition> {
        let random = &mut self.base.random;
        let which = random.index(CONDITIONS.len());
        let collection = *random.pick(&["rooms", "us*", "rooms/1"]);
        let percent = *random.pick(&[100, 100, 50]);
        let slo = match random.percent(30) {
            true => r#","slo":{"maxErrorRate":0.3,"window":"1h","minSamples":3}"#,
            false => "",
        };
        let condition = CONDITIONS[which].0;
        let json = format!(
            r#"{{"collection":"{collection}","events":["create","update"],"condition":"{condition}",
                "url":"https://hooks.example.com/h","label":"{which}","retryPolicy":{{"initialBackoff":"20ms","maxBackoff":"2s"}},
                "rollout":{{"percent":{percent}{slo}}}}}"#
        );
        let definition = Definition::from_stored(json.as_bytes());
        Arc::new(definition.unwrap_or_else(|error| panic!("{json}: {error}")))
    }
}

fn make(id: &str, definition: Arc<Definition>) -> TriggerChange {
    let id = TriggerId::parse(id).expect("an id");
    TriggerChange::Create { id, definition, created_by: None }
}
