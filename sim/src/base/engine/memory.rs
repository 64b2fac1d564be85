//! What memory knows, held against a fresh load of the same state.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::consumer::Dialect;
use reveille_core::event::EventType;
use reveille_core::fan_out::IdRange;
use reveille_core::steps::Steps;
use reveille_core::subscription::SubscriptionId;
use reveille_core::{Millis, StreamPath};
use reveille_engine::app::Indexes;
use reveille_engine::deliveries::index::HookIndex;
use reveille_engine::events;
use reveille_engine::wakes::index::SubscriptionIndex;
use reveille_kernel::partition;
use reveille_schema::{keys, record};
use reveille_store::state::Reader;

use super::{App, Shared};
use crate::base::check::{CheckResult, violation};
use crate::base::raw_state::unreadable;

/// The tag of the keys of streams.
const STREAM: u8 = 0x02;

const EVERYBODY: IdRange = IdRange { after: SubscriptionId(0), through: SubscriptionId(u64::MAX) };

/// The indexes of a partition are what a fresh load of its state gives. Nothing may be decided that
/// is not durable.
pub(crate) fn check_memory(shared: &Shared, who: &str) -> CheckResult {
    let app = App::with_domains(shared.domains.settings.clone(), Millis(0));
    let fresh = Shared::new(shared.state.clone(), Arc::new(app), partition::Settings::default());
    let fresh = fresh.map_err(unreadable)?;
    let probes = Probes::read(&shared.state.reader())?;
    let (known, loaded) =
        (probes.answers(&shared.lock().index), probes.answers(&fresh.lock().index));
    if known == loaded {
        return Ok(());
    }
    let differing = known.iter().zip(&loaded).find(|(known, loaded)| known != loaded);
    Err(violation(format!("{who} knows what a fresh load does not give: {differing:?}")))
}

/// Everything that the indexes can be asked, as far as the state has it.
struct Probes {
    streams: Vec<(Tenant, StreamPath)>,
    subscriptions: Vec<(Tenant, Dialect, Arc<str>)>,
    kinds: Vec<(Tenant, EventType)>,
}

impl Probes {
    fn read(reader: &Reader) -> CheckResult<Probes> {
        let (from, to) = keys::subscriptions();
        let mut subscriptions = Vec::new();
        for (_, value) in reader.range(&from, &to, usize::MAX).map_err(unreadable)? {
            let it = record::decode_subscription(&value).map_err(unreadable)?;
            subscriptions.push((it.tenant, it.spec.dialect, it.spec.name));
        }
        let found = reader.keys(&[STREAM], &[STREAM + 1], usize::MAX).map_err(unreadable)?;
        let streams = found.iter().filter_map(|key| keys::parse_stream(key)).collect();
        let (from, to) = keys::hooks();
        let mut tenants = Vec::new();
        for (_, value) in reader.range(&from, &to, usize::MAX).map_err(unreadable)? {
            tenants.push(record::decode_hook(&value).map_err(unreadable)?.tenant);
        }
        tenants.dedup();
        let (from, to) = keys::all_events();
        let mut kinds = Vec::new();
        for (_, value) in reader.range(&from, &to, usize::MAX).map_err(unreadable)? {
            let event = record::decode_event(&value).map_err(unreadable)?;
            // Those of other faces have no type.
            let Ok(kind) = EventType::parse(&event.kind) else { continue };
            kinds.extend(tenants.iter().map(|tenant| (tenant.clone(), kind.clone())));
        }
        Ok(Probes { streams, subscriptions, kinds })
    }

    fn answers(&self, index: &Indexes) -> Vec<String> {
        let (wakes, hooks) = (index.of::<SubscriptionIndex>(), index.of::<HookIndex>());
        let mut answers = vec![format!("{} subscriptions", wakes.len())];
        for (tenant, dialect, name) in &self.subscriptions {
            answers.push(format!("{:?}", wakes.named(tenant, *dialect, name)));
        }
        for (tenant, path) in &self.streams {
            let found =
                wakes.matching(tenant, path, EVERYBODY, usize::MAX, &mut Steps::unlimited()).found;
            let found: Vec<_> = found.iter().map(|it| it.id).collect();
            answers.push(format!("{tenant} {path} wakes {found:?}"));
        }
        for hook in hooks.of(None) {
            let named = hooks.named(hook.face, &hook.name).map(|it| it.id);
            answers.push(format!("{hook:?} {named:?}"));
        }
        for (tenant, kind) in &self.kinds {
            let found = events::index::matching_all(index, tenant, kind);
            let found: Vec<_> = found.iter().map(|it| it.id).collect();
            answers.push(format!("{tenant} {kind:?} for {found:?}"));
        }
        answers
    }
}
