//! Triggers are changed, rolled back and deleted.

use std::sync::Arc;

use http::header::IF_MATCH;
use http::{HeaderMap, Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::delivery::hook::OpenDeliveries;
use reveille_core::trigger::definition::Patched;
use reveille_engine::Error as EngineError;
use reveille_engine::triggers::TriggerRejection;
use reveille_engine::triggers::change::TriggerChange;
use serde_json::Value;

use super::body::{ReadRequest, reason};
use super::error::Error;
use super::show::trigger_reply;
use super::{Target, limits, signed};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::FieldError;
use crate::http::inbound::OBJECT_BYTES_MAX;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// How often a change is made again that met another one, where nobody says which version they saw.
pub(super) const TRIES: usize = 4;

/// `PATCH /admin/v1/triggers/{tenant}/{id}` (ADM-2): a merge patch of the definition.
pub(super) async fn patch(
    server: &Server,
    caller: &Caller,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let request = ReadRequest::read(server, caller, request, OBJECT_BYTES_MAX).await?;
    let seen = if_match(&request.headers)?;
    let patch = Value::Object(request.object.clone());
    let mut tries = 1;
    loop {
        let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
        let current = trigger.deployment.version;
        let Patched { version, definition } =
            trigger.definition.patched(&patch, &limits(server))?;
        if seen.is_some() && version.is_some() && seen != version {
            let why = "`version` is another one than that of `If-Match`: leave one of them out";
            return Err(FieldError::from(why).into());
        }
        let seen = seen.or(version);
        if seen.is_some_and(|seen| seen != current) {
            let id = target.id.as_str().into();
            return Err(TriggerRejection::VersionMismatch { id, current }.into());
        }
        let sensitive = trigger.definition.sensitive_changes(&definition);
        let engine = signed::engine(server, caller, &request, !sensitive.is_empty())?;
        server.engine.check_destination(&definition.url)?;
        // What is decided is what was looked at, be it the writer's look or this one.
        let change = TriggerChange::Update { definition: Arc::new(definition) };
        let changed =
            engine.change_trigger(&target.tenant, &target.id, Some(current), change, None).await;
        match changed {
            Err(EngineError::Rejected(TriggerRejection::VersionMismatch { .. }))
                if seen.is_none() && tries < TRIES =>
            {
                tries += 1;
            }
            changed => return Ok(trigger_reply(server, &changed?)),
        }
    }
}

/// The version of a header like `If-Match: 3`; nothing if there is none, or any will do.
pub(super) fn if_match(headers: &HeaderMap) -> Result<Option<u64>, RequestError> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let plain = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| plain).map(Some).ok_or_else(|| {
        RequestError::Header("If-Match is the version that was seen, like `If-Match: 3`".to_owned())
    })
}

/// `POST …/rollback {"version","reason"}` (ADM-4): a former version becomes the newest.
pub(super) async fn roll_back(
    server: &Server,
    caller: &Caller,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let known = ["version", "reason"];
    let request = ReadRequest::read_known(server, caller, request, &known).await?;
    let Some(version) = request.fields().number("version")? else {
        return Err(FieldError::from("`version` is missing: name one that `versions` lists").into());
    };
    let why = request.reason()?;
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let expected = if_match(&request.headers)?.unwrap_or(trigger.deployment.version);
    let former = server.engine.trigger_version(&trigger, version)?;
    let former = former.ok_or(TriggerRejection::NoVersion { version })?;
    let sensitive = trigger.definition.sensitive_changes(&former.definition);
    let engine = signed::engine(server, caller, &request, !sensitive.is_empty())?;
    let change = TriggerChange::RollBack { version };
    let (tenant, id) = (&target.tenant, &target.id);
    let changed = engine.change_trigger(tenant, id, Some(expected), change, why).await?;
    Ok(trigger_reply(server, &changed))
}

/// `DELETE /admin/v1/triggers/{tenant}/{id}?pending=dlq|drop&reason=` (ADM-3)
pub(super) async fn delete(
    server: &Server,
    caller: &Caller,
    target: &Target,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let open = match query.get("pending")? {
        None | Some("dlq") => OpenDeliveries::Bury,
        Some("drop") => OpenDeliveries::Drop,
        Some("keep") => {
            let why = "`pending=keep`: a trigger that is gone delivers nothing; disable it \
                       instead, and what is pending stays";
            return Err(RequestError::Query(why.to_owned()).into());
        }
        Some(_) => {
            return Err(RequestError::Query("`pending` is dlq or drop".to_owned()).into());
        }
    };
    let why = reason(query.get("reason")?)?;
    let request = ReadRequest::read_known(server, caller, request, &[]).await?;
    let engine = signed::engine(server, caller, &request, false)?;
    let expected = if_match(&request.headers)?;
    engine.delete_trigger(&target.tenant, &target.id, expected, open, why).await?;
    Ok(reply::status(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn adm_2_a_version_is_a_number_with_or_without_quotes() {
        let read = |text: &str| {
            let value = HeaderValue::from_str(text).unwrap();
            if_match(&[(IF_MATCH, value)].into_iter().collect())
        };
        assert_eq!(if_match(&HeaderMap::new()), Ok(None));
        assert_eq!(read("*"), Ok(None));
        assert_eq!(read("3"), Ok(Some(3)));
        assert_eq!(read("\"3\""), Ok(Some(3)));
        for bad in ["", "\"", "W/\"3\"", "+3", "a", "3, 4", "99999999999999999999"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
