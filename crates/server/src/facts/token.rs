//! Capability tokens: issued and revoked by admins, seen by those whose they are.

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Millis;
use reveille_core::fact::limits::{CAPABILITY_TTL_SECONDS_MAX, REVOKE_REASON_BYTES_MAX};
use reveille_core::fact::target::Object;
use reveille_core::fact::token::{TokenNo, TokenRecord, TokenStanding, Verb};
use serde_json::{Value, json};

use super::body::{Body, page_limit};
use super::error::Error;
use super::fact_caller;
use crate::Server;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::{self, Reply};

/// Tokens of a page, unless the caller says otherwise, and at most.
const PAGE: (usize, usize) = (500, 500);
const TTL_SECONDS_DEFAULT: u64 = 3_600;
const INVALID: &str = "invalid_token_request";

/// `POST /v1/federation/capability-tokens`
pub(super) async fn issue(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let known = ["subject", "verb", "object", "ttl_seconds"];
    let body = Body::read(server, caller, request, INVALID, &known).await?;
    let by = fact_caller(caller);
    if !by.principal.is_admin {
        return Err(Error::admin_required("issues capability tokens"));
    }
    let ttl_s = body.number("ttl_seconds")?.unwrap_or(TTL_SECONDS_DEFAULT);
    if !(1..=CAPABILITY_TTL_SECONDS_MAX).contains(&ttl_s) {
        let why = format!("`ttl_seconds` is from 1 to {CAPABILITY_TTL_SECONDS_MAX}");
        return Err(body.invalid(why));
    }
    let subject = body.entity("subject")?;
    let verb = Verb::parse(body.required("verb")?).map_err(|why| body.invalid(why))?;
    let object = Object::parse(body.required("object")?).map_err(|why| body.invalid(why))?;
    let (engine, ttl_ms) = (caller.engine(server), ttl_s * 1_000);
    let (grant, text) = engine.issue_capability(&by, subject, verb, object, ttl_ms).await?;
    // The dates in the token are those that everybody sees.
    let date = |at: Millis| at.0;
    let mut token = token_json(&TokenRecord { grant, revoked: None }, "active", date);
    if let Some(token) = token.as_object_mut() {
        token.insert("token".into(), text.into());
    }
    Ok(reply::json(StatusCode::CREATED, &token))
}

/// `GET /v1/federation/capability-tokens?limit=&after=`: all of the tenant's, oldest first, for its
/// admins.
pub(super) async fn list(server: &Server, caller: &Caller, query: &Query) -> Result<Reply, Error> {
    let limit = page_limit(query, PAGE)?;
    let after = query.get("after")?.map(|text| {
        let why = "`after` is the `next` of the page before";
        TokenNo::parse(text).ok_or_else(|| RequestError::Query(why.to_owned()))
    });
    let after = after.transpose()?;
    let mut page = Page::begin(&server.engine, &caller.tenant, "tokens").await?;
    let (records, has_more) = server.engine.capabilities(&fact_caller(caller), after, limit)?;
    let now = server.engine.clock().now();
    let date = |at| server.engine.date_of(at).0;
    let mut push = |record: &TokenRecord| page.push(&token_json(record, status(record, now), date));
    let taken = records.iter().take_while(|record| push(record)).count();
    let last = records.get(..taken).and_then(|taken| taken.last());
    let next = last.filter(|_| has_more || taken < records.len());
    Ok(page.finish_with_next(next.map(|record| record.grant.no.id())))
}

/// `POST /v1/federation/capability-tokens/{id}/revoke`
pub(super) async fn revoke(
    server: &Server,
    caller: &Caller,
    id: &str,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let body = Body::read(server, caller, request, INVALID, &["reason"]).await?;
    let by = fact_caller(caller);
    if !by.principal.is_admin {
        return Err(Error::admin_required("revokes capability tokens"));
    }
    let reason = body.text("reason")?;
    if reason.is_some_and(|reason| reason.len() > REVOKE_REASON_BYTES_MAX) {
        return Err(body.invalid(format!("`reason` is at most {REVOKE_REASON_BYTES_MAX} bytes")));
    }
    let no = TokenNo::parse(id).ok_or_else(Error::token_not_found)?;
    let reason = reason.map(Into::into);
    let revoked_at = caller.engine(server).revoke_capability(&by, no, reason).await?;
    let revoked_at = server.engine.date_of(revoked_at).0;
    let answer = json!({ "token_id": no.id(), "revoked_at": revoked_at, "status": "revoked" });
    Ok(reply::json(StatusCode::OK, &answer))
}

/// Whether a token still holds, in a word.
fn status(record: &TokenRecord, now: Millis) -> &'static str {
    match TokenRecord::standing(Some(record), &record.grant.subject, now) {
        TokenStanding::Valid => "active",
        TokenStanding::Revoked => "revoked",
        TokenStanding::Expired | TokenStanding::Unknown => "expired",
    }
}

/// What is said of a token, which itself is shown once.
fn token_json(record: &TokenRecord, status: &str, date: impl Fn(Millis) -> u64) -> Value {
    let TokenRecord { grant, revoked } = record;
    json!({
        "token_id": grant.no.id(),
        "subject": grant.subject.as_str(),
        "verb": grant.verb.as_str(),
        "object": grant.object.to_string(),
        "issued_at": date(grant.issued_at),
        "expires_at": date(grant.expires_at),
        "revoked_at": revoked.as_ref().map(|revoked| date(revoked.at)),
        "revoke_reason": revoked.as_ref().and_then(|revoked| revoked.reason.as_deref()),
        "status": status,
    })
}
