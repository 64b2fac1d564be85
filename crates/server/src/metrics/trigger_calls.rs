//! What is counted of calls with tokens. The first thousand triggers of a tenant have labels of
//! their own, the rest share `other`: nobody who makes triggers makes metrics without end.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Triggers of a tenant with labels of their own.
const LABELLED_TRIGGERS_MAX: usize = 1_000;
/// The same of all tenants together: each is a few lines of every scrape.
const LABELLED_TRIGGERS_TOTAL_MAX: usize = 10_000;

const OTHER: &str = "other";

/// Calls with tokens, by trigger, scope and result.
#[derive(Default)]
pub(super) struct TriggerCalls {
    calls: Family<CallLabels, Counter>,
    labelled: Mutex<Labelled>,
}

#[derive(Default)]
struct Labelled {
    tenants: HashMap<Arc<str>, HashSet<Arc<str>>>,
    total: usize,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
#[allow(non_snake_case, reason = "the name of a label")]
struct CallLabels {
    tenant: Arc<str>,
    triggerId: Arc<str>,
    scope: &'static str,
    result: &'static str,
}

impl TriggerCalls {
    pub(super) fn register(&self, registry: &mut Registry) {
        let help = "Calls with tokens of triggers, by trigger, scope and result";
        registry.register("trigger_calls", help, self.calls.clone());
    }

    pub(super) fn count(
        &self,
        tenant: &str,
        trigger: &str,
        scope: &'static str,
        result: &'static str,
    ) {
        let (tenant, trigger) = self.labels(tenant, trigger);
        let labels = CallLabels { tenant, triggerId: trigger, scope, result };
        self.calls.get_or_create(&labels).inc();
    }

    fn labels(&self, tenant: &str, trigger: &str) -> (Arc<str>, Arc<str>) {
        let mut guard = self.labelled.lock().unwrap_or_else(PoisonError::into_inner);
        let Labelled { tenants, total } = &mut *guard;
        if let Some((tenant, triggers)) = tenants.get_key_value(tenant)
            && let Some(trigger) = triggers.get(trigger)
        {
            return (tenant.clone(), trigger.clone());
        }
        let count = tenants.get(tenant).map_or(0, HashSet::len);
        if *total >= LABELLED_TRIGGERS_TOTAL_MAX || count >= LABELLED_TRIGGERS_MAX {
            let known = tenants.get_key_value(tenant).map(|(tenant, _)| tenant.clone());
            return (known.unwrap_or_else(|| OTHER.into()), OTHER.into());
        }
        let (tenant, trigger): (Arc<str>, Arc<str>) = (tenant.into(), trigger.into());
        tenants.entry(tenant.clone()).or_default().insert(trigger.clone());
        *total += 1;
        (tenant, trigger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_triggers_have_labels_of_their_own() {
        let calls = TriggerCalls::default();
        let labels = |tenant: &str, number: usize| {
            let (tenant, trigger) = calls.labels(tenant, &format!("t{number}"));
            (tenant.to_string(), trigger.to_string())
        };
        for number in 0..LABELLED_TRIGGERS_MAX {
            assert_eq!(labels("acme", number).1, format!("t{number}"));
        }
        assert_eq!(labels("acme", 5_000), ("acme".into(), "other".into()));
        assert_eq!(labels("acme", 0), ("acme".into(), "t0".into()));
        for tenant in 0..LABELLED_TRIGGERS_TOTAL_MAX - LABELLED_TRIGGERS_MAX {
            labels(&format!("tenant{tenant}"), 1);
        }
        assert_eq!(labels("late", 1), ("other".into(), "other".into()));
    }
}
