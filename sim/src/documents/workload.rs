//! What clients ask for.

use reveille_core::document::change::FACE;
use reveille_core::document::index::{CollectionPattern, IndexDefinition};
use reveille_core::document::order::{Direction, SortField};
use reveille_core::document::path::DocumentPath;
use reveille_core::{Millis, Tenant};
use reveille_engine::deliveries::trim::TrimPlan;
use reveille_engine::documents::rules::RuleVerdict;
use reveille_schema::keys;

use super::Documents;
use super::action::{Action, OpKind, PlainOp, Transaction};
use crate::base::CheckResult;
use crate::base::raw_state::unreadable;

pub(super) const PATHS: [&str; 10] = [
    "rooms/1",
    "rooms/2",
    "rooms/3",
    "rooms/1/messages/1",
    "rooms/1/messages/2",
    "rooms/2/messages/1",
    "rooms/2/messages/2",
    "rooms/3/files/1",
    "users/1",
    "users/2",
];

/// The triggers that led to a write: mostly none.
const ORIGINS: [&[&str]; 5] =
    [&[], &[], &["trg_a"], &["trg_a", "trg_b"], &["trg_a", "trg_b", "trg_a", "trg_b", "trg_c"]];

const INDEXES: [(&str, &[&str]); 5] = [
    ("rooms", &["x"]),
    ("rooms/*/messages", &["y", "-x"]),
    ("rooms/*/*", &["updatedAt"]),
    ("*", &["-version"]),
    ("users", &["t", "x"]),
];

#[derive(Debug, Clone, Copy)]
enum ClientAction {
    Write,
    Declare,
    Trim,
    Sweep,
}

impl Documents {
    /// A client asks for something.
    pub(super) fn ask_for_something(&mut self) -> CheckResult {
        let action = self.base.random.weighted(&[
            (100, ClientAction::Write),
            (6, ClientAction::Declare),
            (3, ClientAction::Trim),
            (4, ClientAction::Sweep),
        ]);
        let tenant = self.base.random.pick(&self.tenants).clone();
        match action {
            ClientAction::Write => self.write(tenant),
            ClientAction::Declare => {
                let random = &mut self.base.random;
                let wanted = INDEXES.iter().filter(|_| random.percent(50));
                let definitions = wanted.map(|(collection, by)| definition(collection, by));
                let definitions = definitions.collect();
                self.ask(Action::Declare { tenant, definitions });
            }
            ClientAction::Trim => {
                let ago = *self.base.random.pick(&[0, 1_000, 60_000]);
                let cutoff = Millis(self.base.now.0.saturating_sub(ago));
                self.trim(tenant, cutoff)?;
            }
            ClientAction::Sweep => {
                let now = self.base.now;
                self.sweep(now)?;
            }
        }
        Ok(())
    }

    /// Changes from before a time are to be forgotten. Says whether there are any.
    pub(super) fn trim(&mut self, tenant: Tenant, cutoff: Millis) -> CheckResult<bool> {
        let plan = TrimPlan::make(&self.base.reader(), FACE, &tenant, cutoff);
        let plan = plan.map_err(unreadable)?;
        if let Some(plan) = plan {
            let before = self.cutoffs.entry(tenant.clone()).or_insert(cutoff);
            *before = cutoff.max(*before);
            self.ask(Action::Trim { tenant, plan });
        }
        Ok(plan.is_some())
    }

    /// What is of no use after a time is to be forgotten. It may be of use again when it is.
    pub(super) fn sweep(&mut self, now: Millis) -> CheckResult<bool> {
        let (from, to) = keys::later_until(now);
        let found = self.base.reader().keys(&from, &to, 64).map_err(unreadable)?;
        let is_some = !found.is_empty();
        if is_some {
            self.ask(Action::Sweep(found));
        }
        Ok(is_some)
    }

    fn write(&mut self, tenant: Tenant) {
        let count = self.base.random.between(1, 4);
        let ops: Vec<_> = (0..count).map(|_| self.op()).collect();
        let random = &mut self.base.random;
        let small = |number: u64| u8::try_from(number).expect("a small number");
        let tag = random.percent(40).then(|| (small(random.below(6)), small(random.below(2))));
        let has_rules = self.base.random.percent(30);
        let verdict = has_rules.then(|| self.verdict(&tenant, &ops));
        let origin = *self.base.random.pick::<&[&str]>(&ORIGINS);
        self.ask(Action::Write(Transaction { tenant, ops, tag, origin, verdict }));
    }

    fn op(&mut self) -> PlainOp {
        let value = self.next_number() % 7;
        let deletes = self.base.mode.deletes;
        let random = &mut self.base.random;
        let kind = random.weighted(&[
            (8, OpKind::Create),
            (12, OpKind::Set),
            (10, OpKind::Patch),
            (2 + deletes, OpKind::Delete),
        ]);
        let version = random.percent(15).then(|| random.between(1, 6));
        let text = *random.pick(&[0, 3, 40, 400]);
        PlainOp { path: random.pick::<&'static str>(&PATHS), kind, value, text, version }
    }

    /// What rules say that have looked at what is durable, which may not be so for long.
    fn verdict(&mut self, tenant: &Tenant, ops: &[PlainOp]) -> RuleVerdict {
        let known = self.durable.tenants.get(tenant);
        let version = |path: &str| known.and_then(|it| it.documents.get(path)).map(|it| it.version);
        let beside = *self.base.random.pick(&PATHS);
        let paths = ops.iter().map(|op| op.path).chain([beside]);
        let versions =
            paths.map(|path| (DocumentPath::parse(path).expect("a path"), version(path)));
        let versions = versions.collect();
        let denied = self.base.random.percent(20).then_some(0);
        RuleVerdict { rules: None, versions, denied }
    }
}

fn definition(collection: &str, fields: &[&str]) -> IndexDefinition {
    let field = |name: &&str| {
        let (name, direction) = match name.strip_prefix('-') {
            Some(name) => (name, Direction::Desc),
            None => (*name, Direction::Asc),
        };
        SortField::new(name, direction).expect("a field")
    };
    let collection = CollectionPattern::parse(collection).expect("a pattern");
    IndexDefinition::new(collection, fields.iter().map(field).collect()).expect("an index")
}
