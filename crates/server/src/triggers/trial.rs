//! Triggers are tried out: with one change that is sent or not (ADM-10), and with all that are kept.

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Millis;
use reveille_core::document::change::ChangeKind;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::rules::RuleAuth;
use reveille_core::document::shape::Fields as DocumentFields;
use reveille_core::document::snapshot::DocumentView;
use reveille_core::trigger::definition::{Definition, REDACTED};
use reveille_core::trigger::dry_run::rate;
use reveille_core::trigger::matching::ChangeFields;
use reveille_core::trigger::message::ChangeMessage;
use reveille_engine::documents::DocumentCaller;
use reveille_engine::triggers::backtest::{Backtest, BacktestReport, BacktestSample};
use reveille_engine::triggers::queries::Trigger;
use reveille_kernel::outbound::EncodedRequest;
use serde_json::{Map, Value, json};

use super::body::ReadRequest;
use super::dry_run::draft;
use super::enable::{endpoint, probe};
use super::encoder::RequestParts;
use super::error::Error;
use super::{Target, signed};
use crate::Server;
use crate::http::auth::Caller;
use crate::http::fields::{FieldError, Fields};
use crate::http::known::check_fields_of;
use crate::http::moment;
use crate::http::reply::{self, Reply};

/// A change that a trigger is tried with.
struct Trial {
    fields: ChangeFields,
    /// As it would stand in the log.
    message: Vec<u8>,
}

/// `POST …/test {"event"|"path"|"seq","send"?,"definition"?}`
pub(super) async fn test(
    server: &Server,
    caller: &Caller,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let known = ["event", "path", "seq", "send", "definition"];
    let request = ReadRequest::read_known(server, caller, request, &known).await?;
    let is_sent = request.fields().flag("send")?;
    let mut trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let mut is_signed = trigger.is_signed;
    if let Some(draft) = draft(server, &trigger, &request)? {
        // What it sends elsewhere would be a change of where it sends.
        is_signed &= trigger.definition.sensitive_changes(&draft).is_empty();
        server.engine.check_destination(&draft.url)?;
        trigger.definition = Arc::new(draft);
    }
    signed::engine(server, caller, &request, is_sent && !is_signed)?;
    let trial = trial(server, &trigger, &request.fields()).await?;
    let matched = trigger.matches(&trial.fields);
    let mut body = Map::new();
    body.insert("matched".into(), matched.is_ok().into());
    if let Err(why) = &matched {
        let name = if why.is_error() { "evalError" } else { "reason" };
        body.insert(name.into(), why.to_string().into());
    }
    let change = ChangeMessage::parse(&trial.message);
    let change = change.map_err(|error| FieldError(error.to_string()))?;
    let endpoint = endpoint(server, &trigger)?;
    let now = server.engine.clock().now();
    let parts = RequestParts {
        delivery_id: "test",
        attempt: 1,
        now,
        wall: server.engine.date_of(now),
        replay: None,
        is_test: true,
    };
    let encoded = endpoint.encode_change(&change, &parts)?;
    body.insert("request".into(), request_json(&trigger.definition, &encoded));
    body.insert("sent".into(), is_sent.into());
    if is_sent {
        let result = probe(server, &endpoint, encoded).await?;
        body.extend(result.to_fields());
    }
    Ok(reply::json(StatusCode::OK, &Value::Object(body)))
}

/// What would be sent, or was: without what lets anybody act as the trigger.
fn request_json(definition: &Definition, request: &EncodedRequest) -> Value {
    let is_own =
        |name: &str| definition.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
    let headers = request.headers.iter().map(|(name, value)| {
        let value = if is_own(name.as_str()) {
            REDACTED.to_owned()
        } else {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        (name.as_str().to_owned(), Value::String(value))
    });
    let headers: Map<String, Value> = headers.collect();
    let mut body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    for token in ["systemToken", "preIssuedToken"] {
        if let Some(token) = body.get_mut(token) {
            *token = REDACTED.into();
        }
    }
    if let Some(Value::Object(headers)) = body.get_mut("headers") {
        headers.values_mut().for_each(|value| *value = REDACTED.into());
    }
    json!({ "url": &*definition.url, "headers": headers, "body": body })
}

/// The change that is named: one that somebody makes up, one that a document would come to, or one
/// that is kept.
async fn trial(server: &Server, trigger: &Trigger, fields: &Fields<'_>) -> Result<Trial, Error> {
    let named = (fields.get("event"), fields.text("path")?, fields.number("seq")?);
    match named {
        (Some(Value::Object(event)), None, None) => made_up(server, trigger, event),
        (Some(_), None, None) => Err(FieldError::from("`event` must be an object").into()),
        (None, Some(path), None) => of_document(server, trigger, path).await,
        (None, None, Some(seq)) => {
            let found = server.engine.stored_change(&trigger.hook.tenant, seq)?;
            let (message, fields) = found.ok_or(Error::ChangeNotFound(seq))?;
            Ok(Trial { fields, message: message.to_vec() })
        }
        _ => {
            let said = "name one of `path` (a document as it is), `seq` (a change that is kept) and \
                        `event` ({\"path\",\"before\",\"document\"})";
            Err(FieldError::from(said).into())
        }
    }
}

/// `{"path","type"?,"before"?,"document"?}`
fn made_up(server: &Server, trigger: &Trigger, event: &Map<String, Value>) -> Result<Trial, Error> {
    check_fields_of("event", event, &["path", "type", "before", "document", "after"])?;
    let fields = Fields(event);
    let Some(path) = fields.text("path")? else {
        return Err(FieldError::from("`event.path` is missing: name a document").into());
    };
    let object = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(Value::Object(fields)) => Ok(Some(fields.clone())),
        Some(_) => Err(FieldError(format!("`event.{name}` must be an object"))),
    };
    let after = object("document")?.or(object("after")?);
    let before = object("before")?;
    if before.is_none() && after.is_none() {
        let said = "`event` has neither `before` nor `document`: it takes one, or both";
        return Err(FieldError::from(said).into());
    }
    let trial = assemble(server, trigger, path, before, after)?;
    let kind = fields.text("type")?;
    if kind.is_some_and(|kind| kind != trial.fields.kind.as_str()) {
        let is = trial.fields.kind.as_str();
        let said = format!(
            "`event.type` says otherwise than `before` and `document`, by which this is a {is}"
        );
        return Err(FieldError(said).into());
    }
    Ok(trial)
}

/// What would be sent if this document were made, changed or deleted as it is: the first of these
/// that the trigger is for.
async fn of_document(server: &Server, trigger: &Trigger, text: &str) -> Result<Trial, Error> {
    let path = parse_path(text)?;
    let tenant = trigger.hook.tenant.clone();
    let caller = DocumentCaller { tenant, auth: RuleAuth::local(), scope: Arc::from("") };
    let found = server.engine.document(&caller, &path).await;
    let document = found.map_err(|error| Error::of_document(error, text))?;
    let fields = DocumentView::new(&path, &document).to_fields();
    let events = trigger.definition.events;
    let kinds = [ChangeKind::Update, ChangeKind::Create, ChangeKind::Delete];
    let kind = kinds.into_iter().find(|kind| events.contains(*kind));
    let (before, after) = match kind {
        Some(ChangeKind::Create) => (None, Some(fields)),
        Some(ChangeKind::Delete) => (Some(fields), None),
        Some(ChangeKind::Update) | None => (Some(fields.clone()), Some(fields)),
    };
    assemble(server, trigger, text, before, after)
}

fn parse_path(text: &str) -> Result<DocumentPath, FieldError> {
    DocumentPath::parse_tolerant(text).map_err(|error| FieldError(format!("`path`: {error}")))
}

fn assemble(
    server: &Server,
    trigger: &Trigger,
    path: &str,
    before: Option<DocumentFields>,
    after: Option<DocumentFields>,
) -> Result<Trial, Error> {
    let path = parse_path(path)?;
    let second = server.engine.date_of(server.engine.clock().now()).0 / 1_000;
    let tenant = &trigger.hook.tenant;
    let own = |fields: DocumentFields| with_own_fields(fields, &path, second);
    let (before, after) = (before.map(own), after.map(own));
    let message = json!({
        "seq": 0,
        "lsn": format!("{second}:0"),
        "tenant": tenant.as_str(),
        "type": kind_of(before.as_ref(), after.as_ref()),
        "path": path.to_string(),
        "collection": path.collection().as_str(),
        "id": path.id().as_str(),
        "before": before,
        "after": after,
        "ts": second,
    });
    let message = message.to_string().into_bytes();
    let fields = ChangeFields::of_draft(path, tenant, second, before, after);
    Ok(Trial { fields, message })
}

fn kind_of(before: Option<&DocumentFields>, after: Option<&DocumentFields>) -> &'static str {
    match (before, after) {
        (None, _) => "create",
        (Some(_), Some(_)) => "update",
        (Some(_), None) => "delete",
    }
}

/// A document that somebody has made up has the fields that every document has.
fn with_own_fields(mut fields: DocumentFields, path: &DocumentPath, second: u64) -> DocumentFields {
    fields.insert("id".into(), path.id().as_str().into());
    fields.insert("collection".into(), path.collection().as_str().into());
    for (name, value) in
        [("version", 1), ("createdAt", second * 1_000), ("updatedAt", second * 1_000)]
    {
        fields.entry(name).or_insert_with(|| value.into());
    }
    fields
}

/// `POST …/backtest {"from"?,"to"?,"definition"?,"after"?}`: a definition is held against the changes
/// that are kept, beside the one in force.
pub(super) async fn backtest(
    server: &Server,
    caller: &Caller,
    target: &Target,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let known = ["from", "to", "definition", "after"];
    let request = ReadRequest::read_known(server, caller, request, &known).await?;
    let fields = request.fields();
    let trigger = server.engine.require_trigger(&target.tenant, &target.id)?;
    let draft = draft(server, &trigger, &request)?.map(Arc::new);
    let live = draft.as_ref().map(|_| trigger.definition.clone());
    let time = |name: &str| match fields.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => {
            let parsed = moment::parse(text).ok_or_else(|| FieldError(moment::message(name)));
            parsed.map(|date| Some(server.engine.time_of(date)))
        }
        Some(_) => Err(FieldError(moment::message(name))),
    };
    let (from, to) = (time("from")?.unwrap_or(Millis(0)), time("to")?.unwrap_or(Millis::NEVER));
    if to <= from {
        return Err(FieldError::from("`to` is not after `from`: nothing is between them").into());
    }
    let test = Backtest {
        tenant: target.tenant.clone(),
        from,
        to,
        after: fields.number("after")?,
        draft: draft.unwrap_or_else(|| trigger.definition.clone()),
        live,
    };
    let _permit = server.backtests.take(&target.tenant)?;
    let report = server.engine.backtest_trigger(test).await?;
    let body = report_json(server, &trigger, &report);
    Ok(reply::json(StatusCode::OK, &body))
}

fn report_json(server: &Server, trigger: &Trigger, report: &BacktestReport) -> Value {
    let sample = |sample: &BacktestSample| {
        json!({
            "seq": sample.seq,
            "at": server.engine.date_of(sample.at).to_rfc3339(),
            "event": sample.kind.as_str(),
            "path": &*sample.path,
            "matched": sample.draft,
            "live": sample.live,
        })
    };
    let draft = &report.draft;
    let version = trigger.deployment.version;
    let live = report.live.as_ref().map(|live| {
        json!({
            "version": version,
            "evaluated": live.evaluated,
            "matched": live.matched,
            "hitRate": rate(live.matched, live.evaluated),
            "evalErrors": live.eval_errors,
        })
    });
    let difference = report
        .live
        .as_ref()
        .map(|_| json!({ "onlyDraft": report.only_draft, "onlyLive": report.only_live }));
    json!({
        "changes": report.changes,
        "evaluated": draft.evaluated,
        "matched": draft.matched,
        "hitRate": rate(draft.matched, draft.evaluated),
        "evalErrors": draft.eval_errors,
        "lastError": report.last_error(),
        "samples": report.samples.iter().map(sample).collect::<Vec<_>>(),
        "live": live,
        "difference": difference,
        "nextAfter": report.next_after,
    })
}
