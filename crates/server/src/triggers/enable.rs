//! Triggers are enabled, once their endpoint has shown that it is well, and disabled (ADM-11, ADM-12).

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::trigger::TriggerId;
use reveille_core::trigger::deployment::State;
use reveille_engine::triggers::change::TriggerChange;
use reveille_engine::triggers::queries::Trigger;
use reveille_kernel::outbound::EncodedRequest;
use serde_json::{Map, Value, json};

use super::body::ReadRequest;
use super::encoder::{RequestParts, TriggerTarget};
use super::error::Error;
use super::show::trigger_reply;
use super::{Target, signed};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::FieldError;
use crate::http::reply::{self, Reply};

/// As much of an answer as is shown.
const ANSWER_BYTES_SHOWN: usize = 2_048;

/// What came of a request that was no delivery.
pub(super) struct ProbeResult {
    pub(super) status: Option<u16>,
    pub(super) took_ms: Option<u64>,
    pub(super) error: Option<String>,
    response: Option<String>,
}

impl ProbeResult {
    pub(super) fn is_ok(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }

    fn describe(&self) -> String {
        match (&self.error, self.status) {
            (Some(error), _) => error.clone(),
            (None, Some(status)) => format!("it has answered {status}"),
            (None, None) => "no answer".to_owned(),
        }
    }

    pub(super) fn to_fields(&self) -> Map<String, Value> {
        let fields = [
            ("ok", self.is_ok().into()),
            ("status", self.status.into()),
            ("latencyMs", self.took_ms.into()),
            ("error", self.error.as_deref().into()),
            ("response", self.response.as_deref().into()),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }
}

/// Sends a request to the endpoint of a trigger, as its deliveries would be.
pub(super) async fn probe(
    server: &Server,
    target: &TriggerTarget,
    request: EncodedRequest,
) -> Result<ProbeResult, Error> {
    let _permit = server.probes.take(&target.tenant)?;
    let (url, timeout_ms) = (&target.definition.url, target.definition.timeout_ms);
    let answer = server.engine.call_endpoint(&target.tenant, url, request, timeout_ms).await;
    Ok(match answer {
        Ok(answer) => {
            let end = answer.body.len().min(ANSWER_BYTES_SHOWN);
            let shown = answer.body.get(..end).unwrap_or_default();
            ProbeResult {
                status: Some(answer.status),
                took_ms: Some(answer.took_ms),
                error: None,
                response: Some(String::from_utf8_lossy(shown).into_owned()),
            }
        }
        Err(failure) => {
            let error = Some(failure.text);
            ProbeResult { status: None, took_ms: None, error, response: None }
        }
    })
}

/// A trigger with what signs for it.
pub(super) fn endpoint(server: &Server, trigger: &Trigger) -> Result<TriggerTarget, Error> {
    let damaged = |_| reveille_engine::Damaged("a trigger has no id".to_owned());
    Ok(TriggerTarget {
        trigger: TriggerId::parse(trigger.id()).map_err(damaged)?,
        tenant: trigger.hook.tenant.clone(),
        version: trigger.deployment.version,
        definition: trigger.definition.clone(),
        secrets: server.engine.secret_source(&trigger.hook.tenant),
        signer: server.engine.signer(),
    })
}

/// Whether the endpoint of a trigger is well: a signed request that is no change, and success.
async fn check_health(server: &Server, trigger: &Trigger) -> Result<ProbeResult, Error> {
    let target = endpoint(server, trigger)?;
    let now = server.engine.clock().now();
    let wall = server.engine.date_of(now);
    let body = json!({
        "event": "ping",
        "triggerId": target.trigger.as_str(),
        "tenant": target.tenant.as_str(),
        "triggerVersion": target.version,
        "ts": wall.0 / 1_000,
        "test": true,
    });
    let parts =
        RequestParts { delivery_id: "ping", attempt: 1, now, wall, replay: None, is_test: true };
    let key = format!("{}:{}:ping", target.tenant, target.trigger);
    let request = target.sign(body.to_string().into_bytes(), &key, &parts)?;
    probe(server, &target, request).await
}

/// `POST …/health-check`
pub(super) async fn health_check(server: &Server, target: &Target) -> Result<Reply, Error> {
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let result = check_health(server, &trigger).await?;
    Ok(reply::json(StatusCode::OK, &Value::Object(result.to_fields())))
}

/// `POST …/enable {"force"?,"reason"?}`
pub(super) async fn enable(
    server: &Server,
    caller: &Caller,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let request = ReadRequest::read_known(server, caller, request, &["force", "reason"]).await?;
    let (is_forced, why) = (request.fields().flag("force")?, request.reason()?);
    if is_forced && why.is_none() {
        let said =
            "`reason` must say why the health check is left out; it is kept in the audit log";
        return Err(FieldError::from(said).into());
    }
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let is_enabled = trigger.deployment.state == State::Enabled;
    // Whoever may make triggers could change where one sends by deleting it and making it anew.
    let engine = signed::engine(server, caller, &request, !is_enabled && !trigger.is_signed)?;
    if is_enabled {
        return Ok(trigger_reply(server, &trigger));
    }
    if !is_forced {
        let result = check_health(server, &trigger).await?;
        if !result.is_ok() {
            let details = result.to_fields();
            return Err(Error::HealthCheck { why: result.describe(), details });
        }
    }
    let why = if is_forced { why.map(|why| format!("forced: {why}").into()) } else { why };
    // The version that was found well is the one that is enabled.
    let version = Some(trigger.deployment.version);
    let (tenant, id) = (&target.tenant, &target.id);
    let enabled = engine.change_trigger(tenant, id, version, TriggerChange::Enable, why).await?;
    Ok(trigger_reply(server, &enabled))
}

/// `POST …/disable {"reason"?}`
pub(super) async fn disable(
    server: &Server,
    caller: &Caller,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let request = ReadRequest::read_known(server, caller, request, &["reason"]).await?;
    let engine = signed::engine(server, caller, &request, false)?;
    let why = request.reason()?;
    let (tenant, id) = (&target.tenant, &target.id);
    let disabled = engine.change_trigger(tenant, id, None, TriggerChange::Disable, why).await?;
    Ok(trigger_reply(server, &disabled))
}
