//! Dead letters by selection: what is meant is previewed first, then made again or discarded, for a
//! reason (DLQ-5 to DLQ-7, ADM-9).

use std::collections::BTreeMap;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::delivery::replay::LetterAction;
use reveille_core::trigger::FACE as TRIGGERS;
use reveille_core::{Millis, Tenant};
use reveille_engine::deliveries::replay::{PreviewedHook, ReplayPreview, ReplayRequest};
use reveille_engine::events::delivery_named;
use reveille_engine::limits::REPLAY_IDS_MAX;
use serde_json::{Value, json};

use super::{hook_of, parse_reason, read_body, required_reason, tenant_of, unknown_hook};
use crate::Server;
use crate::admin::error::Error;
use crate::admin::replays::replay_json;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::fields::{FieldError, Fields};
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};
use crate::http::{known, moment};

/// What says which are meant, and that they are.
const FIELDS: [&str; 10] = [
    "triggerId",
    "dryRun",
    "previewId",
    "reason",
    "tenant",
    "hook",
    "deadReason",
    "from",
    "to",
    "ids",
];
/// Versions are for those that are made again.
const VERSION_FIELD: &str = "useOriginalVersion";

/// `POST /admin/v1/dlq/replay` and `/discard`: a preview, or what one has shown.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    action: LetterAction,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    query.check_known(&["tenant"])?;
    let body = read_body(server, caller, request).await?;
    let of_action = (action == LetterAction::Replay).then_some(VERSION_FIELD);
    let known: Vec<&str> = FIELDS.into_iter().chain(of_action).collect();
    known::check_fields(&body, &known)?;
    let fields = Fields(&body);
    let tenant = match fields.text("tenant")? {
        None => tenant_of(caller, query)?,
        Some(name) => {
            let named = Tenant::parse(name).map_err(|error| format!("`tenant`: {error}"));
            let named = named.map_err(FieldError)?;
            if !caller.sees_all() && named != caller.tenant {
                return Err(RequestError::Forbidden(
                    "the key acts in its own tenant alone; for another one it takes a key without \
                     a tenant",
                )
                .into());
            }
            named
        }
    };
    if fields.flag("dryRun")? {
        // Counting takes a while, and a tenant's own pages wait for it.
        let _room = Page::begin(&server.engine, &caller.tenant, "preview").await?;
        let wanted = parse_request(&fields, tenant, action)?;
        let preview = server.engine.preview_replay(&wanted).await;
        let trigger = fields.text("triggerId")?;
        let preview = preview.map_err(|error| unknown_hook(error, trigger))?;
        return Ok(reply::json(StatusCode::OK, &preview_json(server, &preview)));
    }
    let Some(preview) = fields.text("previewId")? else {
        return Err(FieldError::from(
            "`previewId` is missing: look first at what is meant (\"dryRun\": true), and quote the \
             previewId of the answer",
        )
        .into());
    };
    if body.keys().any(|name| !["dryRun", "previewId", "reason", "tenant"].contains(&&**name)) {
        let said = "beside `previewId` there is `reason` alone: the selection is the preview's";
        return Err(FieldError::from(said).into());
    }
    let reason = required_reason(&fields)?;
    let _room = Page::begin(&server.engine, &caller.tenant, "replay").await?;
    let begun = caller.engine(server).replay_previewed(&tenant, action, preview, &reason).await?;
    Ok(reply::json(StatusCode::ACCEPTED, &replay_json(server, &begun)))
}

fn parse_request(
    fields: &Fields<'_>,
    tenant: Tenant,
    action: LetterAction,
) -> Result<ReplayRequest, Error> {
    let why = fields.text("deadReason")?.map(parse_reason).transpose().map_err(FieldError)?;
    let ids = fields.list("ids")?;
    if ids.len() > REPLAY_IDS_MAX {
        let said = format!("`ids` has {} entries; {REPLAY_IDS_MAX} are the most", ids.len());
        return Err(FieldError(said).into());
    }
    let id = |id: &Value| {
        let id = id.as_str().and_then(|name| delivery_named(name).ok());
        id.ok_or_else(|| FieldError::from("`ids` must hold the dlqId of dead letters"))
    };
    let hook = hook_of(fields.text("hook")?, fields.text("triggerId")?)?;
    Ok(ReplayRequest {
        tenant,
        action,
        hook,
        why,
        from: moment_field(fields, "from")?,
        to: moment_field(fields, "to")?,
        ids: ids.iter().map(id).collect::<Result<_, _>>()?,
        original: fields.flag(VERSION_FIELD)?,
    })
}

fn moment_field(fields: &Fields<'_>, name: &str) -> Result<Option<Millis>, FieldError> {
    let parsed = match fields.get(name) {
        None => return Ok(None),
        Some(Value::String(text)) => moment::parse(text),
        Some(value) => value.as_u64().map(Millis),
    };
    parsed.map(Some).ok_or_else(|| FieldError(moment::message(name)))
}

fn preview_json(server: &Server, preview: &ReplayPreview) -> Value {
    let ReplayPreview { id, count, hooks, expires_at, .. } = preview;
    let date = |at: Option<Millis>| at.map(|at| server.engine.date_of(at).0);
    // One that has ended may have had the name of another.
    let by_name = |is_meant: fn(&PreviewedHook) -> bool| {
        let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
        for hook in hooks.iter().filter(|hook| is_meant(hook)) {
            *counts.entry(&hook.name).or_default() += hook.count;
        }
        counts
    };
    // They are sent when it is resumed.
    let paused = hooks.iter().filter(|hook| hook.is_paused);
    let paused: Vec<&str> = paused.map(|hook| &*hook.name).collect();
    json!({
        "previewId": &**id,
        "count": count.count,
        "bytes": count.bytes,
        "byHook": by_name(|_| true),
        // The same for those who know triggers alone (DLQ-7).
        "byTrigger": by_name(|hook| hook.face == TRIGGERS),
        "paused": paused,
        "oldest": date(count.oldest),
        "newest": date(count.newest),
        "truncated": count.truncated,
        "useOriginalVersion": preview.selection.original,
        "skipped": { "hookEnded": count.hook_gone, "versionGone": count.version_gone },
        "expiresAt": server.engine.date_of(*expires_at).0,
    })
}
