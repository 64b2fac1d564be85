//! What is written down of a call: in the log and the metrics of every one, in the audit log of
//! what changes something or passes over the rules.

use std::sync::Arc;

use reveille_core::Tenant;
use reveille_core::audit::{AuditEntry, action};
use reveille_core::trigger::token::{Scope, TokenAccess};
use reveille_engine::documents::DocumentError;
use serde_json::{Map, Value, json};

use super::check_rate;
use crate::Server;
use crate::documents::batch::Error;
use crate::http::auth::Origin;

/// Paths of one call that are written down, and their bytes: a row is a part of the batch that it
/// is about.
const RECORDED_PATHS_MAX: usize = 32;
const RECORDED_PATH_BYTES_MAX: usize = 2_048;

/// Writes a row, and waits until it is durable.
pub(super) async fn write_row(
    server: &Server,
    tenant: &Tenant,
    entry: AuditEntry,
) -> Result<(), Error> {
    let written = server.engine.write_audit_row(tenant, entry).await;
    let written = written.map_err(|error| error.map_rejection(|never| match never {}));
    written.map_err(|error: DocumentError| error.into())
}

/// What is known of a call so far.
pub(super) struct CallRecord {
    scope: Scope,
    /// Nothing of a stranger's.
    holder: Option<Holder>,
    paths: Vec<String>,
    path_count: usize,
    idempotency_key: Option<String>,
    is_repeated: bool,
}

struct Holder {
    tenant: Tenant,
    /// The id of the trigger, or the name of the worker.
    name: Arc<str>,
    is_system: bool,
    bypasses_rules: bool,
    delivery: Option<Arc<str>>,
}

impl CallRecord {
    pub(super) fn new(scope: Scope) -> CallRecord {
        CallRecord {
            scope,
            holder: None,
            paths: Vec::new(),
            path_count: 0,
            idempotency_key: None,
            is_repeated: false,
        }
    }

    pub(super) fn held_by(&mut self, access: &TokenAccess) {
        self.holder = Some(Holder {
            tenant: access.tenant().clone(),
            name: access.holder().into(),
            is_system: access.is_system(),
            bypasses_rules: access.bypasses_rules(),
            delivery: access.delivery().map(Into::into),
        });
    }

    pub(super) fn about(&mut self, paths: impl IntoIterator<Item = String>) {
        let mut bytes = 0;
        for path in paths {
            self.path_count += 1;
            bytes += path.len();
            if self.paths.len() < RECORDED_PATHS_MAX && bytes <= RECORDED_PATH_BYTES_MAX {
                self.paths.push(path);
            }
        }
    }

    pub(super) fn under(&mut self, key: &str) {
        self.idempotency_key = Some(key.to_owned());
    }

    pub(super) fn repeated(&mut self, is_repeated: bool) {
        self.is_repeated = is_repeated;
    }

    /// Writes down that somebody tried what is denied: no oftener than calls are let through.
    pub(super) async fn write_denial(
        &self,
        server: &Server,
        origin: &Origin,
        error: &Error,
    ) -> Result<(), Error> {
        let Some(holder) = &self.holder else { return Ok(()) };
        // Counted by themselves: who is denied uses up nobody's calls. No id has a space.
        if check_rate(server, &holder.tenant, &format!("{} denied", holder.name)).is_err() {
            return Ok(());
        }
        let entry = self.audit_entry(origin, Some(error.precise_code()));
        write_row(server, &holder.tenant, entry).await
    }

    /// The row of a call that is done, or was denied with this code.
    pub(super) fn audit_entry(&self, origin: &Origin, denied: Option<String>) -> AuditEntry {
        let action = match self.scope {
            _ if denied.is_some() => action::DOCUMENTS_DENIED,
            Scope::Read => action::DOCUMENTS_READ,
            Scope::Write => action::DOCUMENTS_WRITTEN,
        };
        let (name, tenant) = match &self.holder {
            Some(holder) => (holder.name.clone(), Some(holder.tenant.clone())),
            None => (Arc::from(""), None),
        };
        let is_system = self.holder.as_ref().is_some_and(|holder| holder.is_system);
        let who = if is_system { name.clone() } else { format!("trigger:{name}").into() };
        let mut entry = AuditEntry::new(origin.actor(Some(who)), action, tenant, name);
        entry.diff = Some(self.described(denied).to_string().into());
        entry
    }

    fn described(&self, denied: Option<String>) -> Value {
        let mut fields = Map::new();
        fields.insert("paths".into(), json!(self.paths));
        fields.insert("pathCount".into(), self.path_count.into());
        fields.insert("scopes".into(), json!([self.scope.as_str()]));
        let result = if denied.is_some() { "denied" } else { "ok" };
        fields.insert("result".into(), result.into());
        if let Some(code) = denied {
            fields.insert("errorCode".into(), code.into());
        }
        let holder = self.holder.as_ref();
        let more = [
            ("idempotencyKey", self.idempotency_key.as_deref()),
            ("delivery", holder.and_then(|holder| holder.delivery.as_deref())),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                fields.insert(name.into(), value.into());
            }
        }
        if holder.is_some_and(|holder| holder.bypasses_rules) {
            fields.insert("bypassRules".into(), true.into());
        }
        fields.into()
    }

    /// The call has been answered, well or with this code.
    pub(super) fn finish(&self, server: &Server, origin: &Origin, error: Option<&'static str>) {
        let (tenant, trigger) = match &self.holder {
            Some(holder) => (holder.tenant.as_str(), &*holder.name),
            None => ("", ""),
        };
        let result = error.unwrap_or("ok");
        let scope = self.scope.as_str();
        server.metrics.count_trigger_call(tenant, trigger, scope, result);
        // Strangers write no lines of their own choosing.
        if self.holder.is_none() {
            tracing::debug!(request_id = origin.request_id(), scope, result, "call of a stranger");
            return;
        }
        tracing::info!(
            request_id = origin.request_id(),
            tenant,
            trigger_id = trigger,
            scope,
            paths = self.paths.join(","),
            path_count = self.path_count,
            idempotency_key = self.idempotency_key,
            replayed = self.is_repeated,
            result,
            "call of a trigger"
        );
    }
}
