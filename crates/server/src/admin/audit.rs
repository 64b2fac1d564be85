//! The audit log: who changed what, newest first, and whether it is as it was written.

use http::StatusCode;
use reveille_core::Tenant;
use reveille_engine::audit::{
    AuditCursor, AuditFilter, CheckedChain, ListedRow, Subject, is_about_trigger,
};
use serde_json::{Map, Value, json};

use super::error::Error;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::moment;
use crate::http::page::{Page, page_limit};
use crate::http::query::Query;
use crate::http::reply::Reply;

const VERIFY: &str = "/admin/v1/audit/verify";

/// Answers a request about the log.
pub(super) async fn answer(
    server: &Server,
    caller: &Caller,
    path: &str,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    if path == VERIFY {
        verify(server, caller, &query).await
    } else {
        list(server, caller, &query).await
    }
}

/// Whose rows a caller asks for: nobody's but its own, unless it sees everybody's.
pub(super) fn tenant_asked_for(
    caller: &Caller,
    query: &Query,
) -> Result<Option<Tenant>, RequestError> {
    let named = query.get("tenant")?.map(Tenant::parse).transpose();
    let named = named.map_err(|error| RequestError::Query(format!("`tenant`: {error}")))?;
    if caller.sees_all() {
        return Ok(named);
    }
    if named.is_some_and(|named| named != caller.tenant) {
        return Err(RequestError::Forbidden(
            "the key sees its own tenant alone; for another one it takes a key without a tenant",
        ));
    }
    Ok(Some(caller.tenant.clone()))
}

const PARAMETERS: [&str; 10] =
    ["tenant", "action", "actor", "subject", "triggerId", "from", "to", "limit", "after", "cursor"];

/// `GET /admin/v1/audit?tenant=&action=&actor=&subject=&triggerId=&from=&to=&after=&limit=`
async fn list(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    query.check_known(&PARAMETERS)?;
    let filter = AuditFilter {
        tenant: tenant_asked_for(caller, query)?,
        action: query.get("action")?.map(Into::into),
        actor: query.get("actor")?.map(Into::into),
        subject: subject(query)?,
        from: moment::of_query(query, "from")?,
        to: moment::of_query(query, "to")?,
    };
    let limit = page_limit(query)?;
    let after = query.after_or_cursor()?.map(parse_cursor).transpose()?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "audit").await?;
    let mut take = |listed: &ListedRow| page.push(&row_json(listed));
    let next = server.engine.audit_rows(filter, after, limit, &mut take).await?;
    Ok(page.finish_with_next(next.map(cursor_text)))
}

/// What the rows are to be about.
fn subject(query: &Query) -> Result<Option<Subject>, RequestError> {
    let of = |name: &str, is_trigger| Some(Subject { name: name.into(), is_trigger });
    match (query.get("subject")?, query.get("triggerId")?) {
        (Some(_), Some(_)) => Err(RequestError::Query(
            "`subject` and `triggerId` are two ways to say the same: leave one out".into(),
        )),
        (Some(name), None) => Ok(of(name, false)),
        (None, Some(name)) => Ok(of(name, true)),
        (None, None) => Ok(None),
    }
}

/// `GET /admin/v1/audit/verify?tenant=`
async fn verify(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    query.check_known(&["tenant"])?;
    let tenant = tenant_asked_for(caller, query)?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "chains").await?;
    let chains = server.engine.check_audit(tenant.as_ref()).await?;
    let broken = chains.iter().find(|it| it.broken.is_some());
    let rows: u64 = chains.iter().map(|it| it.head.rows()).sum();
    let mut fields = Map::new();
    fields.insert("ok".into(), broken.is_none().into());
    fields.insert("rows".into(), rows.into());
    if let Some(broken) = broken {
        fields.insert("broken".into(), chain_json(broken));
    }
    let written = chains.iter().take_while(|it| page.push(&chain_json(it))).count();
    if written < chains.len() {
        fields.insert("more".into(), (chains.len() - written).into());
    }
    Ok(page.finish(StatusCode::OK, &fields))
}

fn chain_json(checked: &CheckedChain) -> Value {
    let CheckedChain { chain, head, broken } = checked;
    let mut value = json!({
        "tenant": chain.as_ref().map(Tenant::as_str),
        "rows": head.rows(),
        "first": head.first,
        "hash": head.hash.to_hex(),
        "ok": broken.is_none(),
    });
    if let (Some((broken, id)), Some(object)) = (broken, value.as_object_mut()) {
        object.insert("why".into(), broken.to_string().into());
        object.insert("auditId".into(), id.map(audit_id).into());
    }
    value
}

fn row_json(listed: &ListedRow) -> Value {
    let ListedRow { row, hash } = listed;
    let entry = &row.entry;
    let mut value = json!({
        "auditId": audit_id(row.id),
        "at": row.at.0,
        "actor": &*entry.actor.name,
        "action": &*entry.action,
        "tenant": entry.tenant.as_ref().map(Tenant::as_str),
        "subject": &*entry.subject,
        "seq": row.seq,
        "hash": hash.to_hex(),
    });
    let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(Value::from);
    // It was written as JSON; what is not is shown as the text that it is.
    let diff = entry.diff.as_deref();
    let diff = diff.map(|it| serde_json::from_str(it).unwrap_or_else(|_| Value::from(it)));
    let optional = [
        ("triggerId", is_about_trigger(entry).then(|| Value::from(&*entry.subject))),
        ("fromVersion", entry.from_version.map(Value::from)),
        ("toVersion", entry.to_version.map(Value::from)),
        ("diff", diff),
        ("reason", text(&entry.reason)),
        ("requestId", text(&entry.actor.request_id)),
        ("ip", text(&entry.actor.ip)),
        ("signatureKeyId", entry.actor.has_signed.then(|| Value::from(&*entry.actor.name))),
    ];
    if let Some(object) = value.as_object_mut() {
        let optional = optional.into_iter().filter_map(|(name, value)| Some((name, value?)));
        object.extend(optional.map(|(name, value)| (name.to_owned(), value)));
    }
    value
}

/// The name that the world knows a row by.
fn audit_id(id: u64) -> String {
    format!("aud_{id:016x}")
}

fn cursor_text(cursor: AuditCursor) -> String {
    format!("{:x}.{:x}", cursor.at.0, cursor.id)
}

fn parse_cursor(text: &str) -> Result<AuditCursor, RequestError> {
    let number = |text| u64::from_str_radix(text, 16).ok();
    let parts = text.split_once('.').and_then(|(at, id)| Some((number(at)?, number(id)?)));
    let (at, id) =
        parts.ok_or_else(|| RequestError::Query("`after` is `next` of a page".into()))?;
    Ok(AuditCursor { at: reveille_core::Millis(at), id })
}
