//! From JSON to a definition: all of it is good, or the first field that is not is named.

use std::sync::Arc;

use serde_json::Value;

use super::super::glob::{CollectionGlob, PathFilter};
use super::super::grant::{PathTemplate, Scopes, TokenGrant};
use super::super::limits::{
    ALLOW_PATHS_MAX, APPLY_TRIGGERS_MAX, DEFINITION_BYTES_MAX, LABEL_BYTES_MAX, MASK_PATHS_MAX,
    PATH_FILTERS_MAX, SLO_SAMPLES_MAX, SLO_WINDOW_MS_MAX, SLO_WINDOW_MS_MIN, STATUS_RULES_MAX,
    TARGET_URL_BYTES_MAX, TOKEN_OPS_MAX, TOKEN_PAYLOAD_KB_MAX, TRIGGER_ATTEMPTS_MAX,
    TRIGGER_BACKOFF_MS_MAX, TRIGGER_CONCURRENCY_MAX, TRIGGER_HEADERS_BYTES_MAX,
    TRIGGER_HEADERS_MAX, TRIGGER_RATE_MAX, TRIGGER_WAIT_MS_MIN,
};
use super::super::name::{SecretRef, TriggerId};
use super::super::rollout::{Rollout, Slo};
use super::super::transform::{Mask, MaskPath};
use super::read::{Object, error};
use super::{
    Condition, CustomHeaders, DEFAULT_CONCURRENCY, DEFAULT_TIMEOUT_MS, Definition, DefinitionError,
    DefinitionLimits, EventKinds, PayloadDetail, Problem, REDACTED, RetryPolicy, StatusRule,
};
use crate::condition::excerpt;
use crate::delivery::policy::{Action, When};
use crate::document::change::ChangeKind;
use crate::tenant::Tenant;

type Result<T, E = DefinitionError> = std::result::Result<T, E>;

/// A trigger that somebody wants made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// `None`: the server makes one.
    pub id: Option<TriggerId>,
    /// `None`: the tenant of the caller.
    pub tenant: Option<Tenant>,
    /// The version that the writer has seen, if they say so.
    pub version: Option<u64>,
    pub definition: Definition,
}

/// The triggers of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileDraft {
    pub tenant: Option<Tenant>,
    /// In the order of their ids, each with the version that the writer has seen.
    pub triggers: Vec<(TriggerId, Option<u64>, Definition)>,
}

const FIELDS: [&str; 25] = [
    "triggerId",
    "version",
    "tenant",
    "label",
    "collection",
    "events",
    "condition",
    "url",
    "headers",
    "secretsRef",
    "concurrency",
    "rateLimit",
    "includeBefore",
    "retryPolicy",
    "filters",
    "timeout",
    "token",
    "rollout",
    "payloadDetail",
    "transform",
    "target",
    "ordering",
    // What is shown of a trigger and is not its definition.
    "state",
    "createdAt",
    "updatedAt",
];
const SHOWN_ONLY: [&str; 3] = ["state", "createdAt", "updatedAt"];

const FOR_ONE_TENANT: Problem = Problem::Refused(
    "is one tenant: a trigger belongs to one. To roll it out to several, make it in each: \
     `reveille trigger apply -f FILE --tenant a,b,c`",
);
const URL_FORM: &str = "an address like `https://example.com/hook`";

impl Draft {
    /// Reads what somebody wants made.
    pub fn parse(value: &Value, limits: &DefinitionLimits) -> Result<Draft> {
        let object = Object::of(value, "", &FIELDS)?;
        let id = object.text("triggerId")?.map(TriggerId::parse).transpose();
        let id = id.map_err(|problem| object.error("triggerId", problem))?;
        let tenant = tenant(&object)?;
        let reading = Reading { former: &CustomHeaders::default(), limits, is_stored: false };
        let (version, definition) = reading.definition(&object)?;
        Ok(Draft { id, tenant, version, definition })
    }

    /// Reads the triggers of a file (DEF-3): `{"tenant", "retryPolicy", "triggers": {id: {…}}}`. Its
    /// `retryPolicy` is for those that have none.
    pub fn parse_file(value: &Value, limits: &DefinitionLimits) -> Result<FileDraft> {
        let known = ["tenant", "database", "retryPolicy", "triggers"];
        let file = Object::of(value, "", &known)?;
        if file.get("tenant").is_some() && file.get("database").is_some() {
            let why = "is the tenant, and so is `tenant`: leave one of them out";
            return Err(file.error("database", Problem::Refused(why)));
        }
        let tenant = match tenant(&file)? {
            Some(tenant) => Some(tenant),
            None => tenant_of(&file, "database")?,
        };
        let Some(triggers) = file.map("triggers")? else {
            return file.missing("triggers", "write `{\"ID\": {\"collection\": …, …}}`");
        };
        if triggers.len() > APPLY_TRIGGERS_MAX {
            return Err(file.error("triggers", Problem::TooMany(APPLY_TRIGGERS_MAX)));
        }
        let retry = file.get("retryPolicy");
        if retry.is_some() {
            retry_policy(&file)?;
        }
        let mut parsed = Vec::with_capacity(triggers.len());
        for (name, body) in triggers {
            let place = format!("triggers.{}", excerpt(name));
            let id = TriggerId::parse(name);
            let id = id.map_err(|problem| error(&place, Problem::TriggerId(problem)))?;
            let body = with_retry_policy(body, retry);
            let draft = Draft::parse(&body, limits).map_err(|error| error.inside(&place))?;
            if draft.id.is_some_and(|other| other != id) {
                let why = "is another id than the one that it stands under: leave it out";
                return Err(error(&format!("{place}.triggerId"), Problem::Refused(why)));
            }
            if draft.tenant.is_some() && draft.tenant != tenant {
                let why = "is another tenant than that of the file: use a file for each";
                return Err(error(&format!("{place}.tenant"), Problem::Refused(why)));
            }
            parsed.push((id, draft.version, draft.definition));
        }
        Ok(FileDraft { tenant, triggers: parsed })
    }
}

fn with_retry_policy(body: &Value, retry: Option<&Value>) -> Value {
    let mut body = body.clone();
    if let (Value::Object(fields), Some(retry)) = (&mut body, retry)
        && fields.get("retryPolicy").is_none_or(Value::is_null)
    {
        fields.insert("retryPolicy".to_owned(), retry.clone());
    }
    body
}

impl DefinitionError {
    fn inside(self, place: &str) -> DefinitionError {
        let DefinitionError { field, problem } = self;
        let field = if field.is_empty() { place.to_owned() } else { format!("{place}.{field}") };
        DefinitionError { field, problem }
    }
}

/// How a definition is read.
pub(super) struct Reading<'a> {
    /// Have the values of headers that are not written out.
    pub(super) former: &'a CustomHeaders,
    pub(super) limits: &'a DefinitionLimits,
    /// It was checked before it was stored.
    pub(super) is_stored: bool,
}

impl Reading<'_> {
    /// Reads a whole definition.
    pub(super) fn read(&self, value: &Value) -> Result<(Option<u64>, Definition)> {
        self.definition(&Object::of(value, "", &FIELDS)?)
    }

    fn definition(&self, object: &Object<'_>) -> Result<(Option<u64>, Definition)> {
        let (version, definition) = self.fields(object)?;
        if !self.is_stored && definition.to_stored().len() > DEFINITION_BYTES_MAX {
            return Err(error("", Problem::DefinitionTooLarge));
        }
        Ok((version, definition))
    }

    fn fields(&self, object: &Object<'_>) -> Result<(Option<u64>, Definition)> {
        for field in SHOWN_ONLY {
            if object.get(field).is_some() {
                let why = "is shown, and not written: leave it out. To change the state there are \
                           `enable`, `disable` and `dry-run`";
                return Err(object.error(field, Problem::Refused(why)));
            }
        }
        check_reserved(object)?;
        let (version, label) = version_and_label(object)?;
        let collection = collection(object)?;
        let token = token(object, &collection)?;
        let max_timeout_ms = self.limits.max_timeout_ms;
        let timeout = object.duration("timeout", TRIGGER_WAIT_MS_MIN, max_timeout_ms)?;
        let concurrency = object.number("concurrency", 1, TRIGGER_CONCURRENCY_MAX)?;
        let definition = Definition {
            events: events(object)?,
            condition: condition(object, self.is_stored)?,
            url: url(object)?,
            headers: headers(object, self.former)?,
            secrets_ref: secrets_ref(object)?,
            concurrency: concurrency.unwrap_or(DEFAULT_CONCURRENCY),
            rate_limit: object.number("rateLimit", 0, TRIGGER_RATE_MAX)?.unwrap_or(0),
            include_before: object.flag("includeBefore")?.unwrap_or(true),
            retry: retry_policy(object)?,
            filters: filters(object)?,
            timeout_ms: timeout.unwrap_or(DEFAULT_TIMEOUT_MS.min(max_timeout_ms)),
            rollout: rollout(object)?,
            payload_detail: payload_detail(object)?,
            transform: transform(object)?,
            label,
            collection,
            token,
        };
        Ok((version, definition))
    }
}

/// What is kept free for later, and has one value for now (DEF-5, FUT-1).
fn check_reserved(object: &Object<'_>) -> Result<()> {
    if let Some(found) = object.text("ordering")?.filter(|it| *it != "standard") {
        let known = "`standard`: in order for each document";
        return Err(object.error("ordering", Problem::Choice { known, found: excerpt(found) }));
    }
    if let Some(target) = object.object("target", &["type"])?
        && let Some(found) = target.text("type")?.filter(|it| *it != "webhook")
    {
        let known = "`webhook`";
        return Err(target.error("type", Problem::Choice { known, found: excerpt(found) }));
    }
    Ok(())
}

fn tenant(object: &Object<'_>) -> Result<Option<Tenant>> {
    if matches!(object.get("tenant"), Some(Value::Array(_))) {
        return Err(object.error("tenant", FOR_ONE_TENANT));
    }
    tenant_of(object, "tenant")
}

fn tenant_of(object: &Object<'_>, field: &str) -> Result<Option<Tenant>> {
    let Some(name) = object.text(field)? else { return Ok(None) };
    if name.contains('*') {
        return Err(object.error(field, FOR_ONE_TENANT));
    }
    let tenant = Tenant::parse(name);
    tenant.map(Some).map_err(|problem| object.error(field, problem))
}

/// A version that is a text is what its writer calls it (C-14).
fn version_and_label(object: &Object<'_>) -> Result<(Option<u64>, Option<Arc<str>>)> {
    let label = object.text("label")?;
    let (version, label) = match object.get("version") {
        None => (None, label),
        Some(Value::String(text)) if label.is_none_or(|label| label == text) => {
            (None, Some(text.as_str()))
        }
        Some(Value::String(_)) => {
            let why = "is counted by the server, and a text is taken as `label`, which is there \
                       already: leave `version` out";
            return Err(object.error("version", Problem::Refused(why)));
        }
        Some(value) => {
            let kind = Problem::Kind(
                "the whole number that the server has counted, or 0 where there was none",
            );
            (Some(value.as_u64().ok_or_else(|| object.error("version", kind))?), label)
        }
    };
    if label.is_some_and(|label| label.len() > LABEL_BYTES_MAX) {
        return Err(object.error("label", Problem::TooLong(LABEL_BYTES_MAX)));
    }
    Ok((version, label.map(Arc::from)))
}

fn collection(object: &Object<'_>) -> Result<CollectionGlob> {
    let Some(text) = object.text("collection")? else {
        return object.missing("collection", "name a collection, like `orders`, or a pattern");
    };
    CollectionGlob::parse(text).map_err(|problem| object.error("collection", problem))
}

fn events(object: &Object<'_>) -> Result<EventKinds> {
    const KNOWN: &str = "`create`, `update` and `delete`";
    let Some(names) = object.texts("events", 8)? else {
        return object.missing("events", "name some of `create`, `update` and `delete`");
    };
    let mut kinds = EventKinds::default();
    for name in names {
        let Some(kind) = ChangeKind::parse(name) else {
            let problem = Problem::Choice { known: KNOWN, found: excerpt(name) };
            return Err(object.error("events", problem));
        };
        if !kinds.insert(kind) {
            return Err(object.error("events", Problem::Repeated(name.to_owned())));
        }
    }
    if kinds == EventKinds::default() {
        return object.missing("events", "name some of `create`, `update` and `delete`");
    }
    Ok(kinds)
}

fn condition(object: &Object<'_>, is_stored: bool) -> Result<Option<Condition>> {
    match object.text("condition")?.filter(|text| !text.trim().is_empty()) {
        None => Ok(None),
        Some(text) if is_stored => Ok(Some(Condition::stored(text))),
        Some(text) => {
            Condition::parse(text).map(Some).map_err(|problem| object.error("condition", problem))
        }
    }
}

fn url(object: &Object<'_>) -> Result<Arc<str>> {
    let Some(text) = object.text("url")? else {
        return object.missing("url", "where changes are sent, like `https://example.com/hook`");
    };
    if text.len() > TARGET_URL_BYTES_MAX {
        return Err(object.error("url", Problem::TooLong(TARGET_URL_BYTES_MAX)));
    }
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let has_host = rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?', '#']));
    if !has_host || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(object.error("url", Problem::Kind(URL_FORM)));
    }
    Ok(text.into())
}

/// Headers that are ours, or that the connection needs for itself.
const RESERVED_HEADERS: [&str; 13] = [
    "host",
    "content-length",
    "content-type",
    "content-encoding",
    "transfer-encoding",
    "user-agent",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
];
const RESERVED_PREFIX: &str = "x-syntrix-";

fn headers(object: &Object<'_>, former: &CustomHeaders) -> Result<CustomHeaders> {
    let mut headers: Vec<(Arc<str>, Arc<str>)> = Vec::new();
    for (name, value) in object.map("headers")?.into_iter().flatten() {
        let shown = excerpt(name);
        let refused = |problem| Err(object.error("headers", problem));
        let is_token =
            |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(is_token) {
            return refused(Problem::HeaderName(shown));
        }
        let lower = name.to_ascii_lowercase();
        if RESERVED_HEADERS.contains(&lower.as_str()) || lower.starts_with(RESERVED_PREFIX) {
            return refused(Problem::HeaderReserved(shown));
        }
        if headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return refused(Problem::Repeated(shown));
        }
        let Value::String(value) = value else {
            return refused(Problem::Kind("an object of names and strings"));
        };
        let value: Arc<str> = match former.get(name) {
            Some(kept) if value == REDACTED => kept.clone(),
            None if value == REDACTED => return refused(Problem::HeaderRedacted(shown)),
            _ => value.as_str().into(),
        };
        // A line break would begin another header.
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
            return refused(Problem::HeaderValue(shown));
        }
        headers.push((name.as_str().into(), value));
    }
    if headers.len() > TRIGGER_HEADERS_MAX {
        return Err(object.error("headers", Problem::TooMany(TRIGGER_HEADERS_MAX)));
    }
    let headers = CustomHeaders(headers);
    if headers.bytes() > TRIGGER_HEADERS_BYTES_MAX {
        let problem = Problem::HeadersTooLarge(TRIGGER_HEADERS_BYTES_MAX);
        return Err(object.error("headers", problem));
    }
    Ok(headers)
}

fn secrets_ref(object: &Object<'_>) -> Result<Option<SecretRef>> {
    let name = object.text("secretsRef")?.map(SecretRef::parse).transpose();
    name.map_err(|problem| object.error("secretsRef", problem))
}

fn retry_policy(object: &Object<'_>) -> Result<RetryPolicy> {
    let default = RetryPolicy::default();
    let known = ["maxAttempts", "initialBackoff", "maxBackoff", "statusRules"];
    let Some(retry) = object.object("retryPolicy", &known)? else { return Ok(default) };
    let duration = |field| retry.duration(field, TRIGGER_WAIT_MS_MIN, TRIGGER_BACKOFF_MS_MAX);
    let initial = duration("initialBackoff")?;
    let longest = duration("maxBackoff")?;
    let initial_backoff_ms =
        initial.unwrap_or(default.initial_backoff_ms.min(longest.unwrap_or(u64::MAX)));
    let max_backoff_ms = longest.unwrap_or(default.max_backoff_ms.max(initial_backoff_ms));
    if max_backoff_ms < initial_backoff_ms {
        let why = "is shorter than `initialBackoff`, which it bounds: make it longer";
        return Err(retry.error("maxBackoff", Problem::Refused(why)));
    }
    let mut status_rules = Vec::new();
    for (entry, number) in
        retry.list("statusRules", STATUS_RULES_MAX)?.unwrap_or_default().iter().zip(0..)
    {
        status_rules.push(status_rule(entry, &retry.name(&format!("statusRules[{number}]")))?);
    }
    let attempts = retry.number("maxAttempts", 1, TRIGGER_ATTEMPTS_MAX)?;
    Ok(RetryPolicy {
        max_attempts: attempts.unwrap_or(default.max_attempts),
        initial_backoff_ms,
        max_backoff_ms,
        status_rules,
    })
}

fn status_rule(entry: &Value, place: &str) -> Result<StatusRule> {
    let rule = Object::of(entry, place, &["codes", "action"])?;
    let mut codes = Vec::new();
    for text in rule.texts("codes", STATUS_RULES_MAX)?.unwrap_or_default() {
        let when = When::codes(text)
            .map_err(|error| rule.error("codes", Problem::Codes { code: excerpt(text), error }))?;
        codes.push((text.into(), when));
    }
    if codes.is_empty() {
        return rule.missing("codes", "write statuses, like `[\"404\", \"410\"]`");
    }
    let action = match rule.text("action")? {
        Some("drop") => Action::Drop,
        Some("dlq") => Action::Dead,
        Some("retry") => Action::Retry,
        Some(other) => {
            let known = "`retry`, `dlq` and `drop`";
            return Err(rule.error("action", Problem::Choice { known, found: excerpt(other) }));
        }
        None => return rule.missing("action", "write `retry`, `dlq` or `drop`"),
    };
    Ok(StatusRule { codes, action })
}

fn filters(object: &Object<'_>) -> Result<Vec<PathFilter>> {
    let texts = object.texts("filters", PATH_FILTERS_MAX)?.unwrap_or_default();
    let filters = texts.into_iter().map(PathFilter::parse);
    filters.collect::<Result<_, _>>().map_err(|problem| object.error("filters", problem))
}

fn token(object: &Object<'_>, collection: &CollectionGlob) -> Result<TokenGrant> {
    let known = ["scopes", "allowPaths", "maxOps", "maxPayloadKb", "bypassRules"];
    let Some(token) = object.object("token", &known)? else { return Ok(TokenGrant::default()) };
    let scopes = match token.texts("scopes", 8)? {
        None => Scopes::ALL,
        Some(names) => Scopes::parse_names(names).map_err(|other| {
            let known = "`trigger.read` and `trigger.write`";
            token.error("scopes", Problem::Choice { known, found: excerpt(other) })
        })?,
    };
    let mut allow_paths = Vec::new();
    for text in token.texts("allowPaths", ALLOW_PATHS_MAX)?.unwrap_or_default() {
        let path = PathTemplate::parse(text)
            .and_then(|path| path.check(collection.capture_count()).map(|()| path));
        allow_paths.push(path.map_err(|error| {
            token.error("allowPaths", Problem::Template { text: excerpt(text), error })
        })?);
    }
    let bypass_rules = token.flag("bypassRules")?.unwrap_or(false);
    if bypass_rules
        && (allow_paths.is_empty() || allow_paths.iter().any(PathTemplate::is_everything))
    {
        let why = "is only for a token whose `allowPaths` are narrowed: name the paths that it \
                   may use, and not `/`";
        return Err(token.error("bypassRules", Problem::Refused(why)));
    }
    Ok(TokenGrant {
        scopes,
        allow_paths,
        max_ops: token.number("maxOps", 1, TOKEN_OPS_MAX)?,
        max_payload_kb: token.number("maxPayloadKb", 1, TOKEN_PAYLOAD_KB_MAX)?,
        bypass_rules,
    })
}

fn rollout(object: &Object<'_>) -> Result<Rollout> {
    let known = ["percent", "slo", "tenants"];
    let Some(rollout) = object.object("rollout", &known)? else { return Ok(Rollout::default()) };
    if rollout.get("tenants").is_some() {
        return Err(rollout.error("tenants", FOR_ONE_TENANT));
    }
    let percent = rollout.number("percent", 0, 100)?.unwrap_or(100);
    let percent = u8::try_from(percent).unwrap_or(100);
    Ok(Rollout { percent, slo: slo(&rollout)? })
}

const MILLION: f64 = 1_000_000.0;

fn slo(rollout: &Object<'_>) -> Result<Option<Slo>> {
    let known = ["maxErrorRate", "maxP95LatencyMs", "window", "minSamples"];
    let Some(slo) = rollout.object("slo", &known)? else { return Ok(None) };
    let max_error_ppm = match slo.get("maxErrorRate") {
        None => None,
        Some(value) => {
            let rate = value.as_f64().filter(|rate| (0.0..=1.0).contains(rate));
            let ppm = rate.map(|rate| (rate * MILLION).round());
            let kind = Problem::Kind("a number from 0 to 1, like 0.05");
            let ppm = ppm.ok_or_else(|| slo.error("maxErrorRate", kind))?;
            Some(ppm as u32)
        }
    };
    let max_p95_latency_ms = slo.number("maxP95LatencyMs", 1, u32::MAX)?.map(u64::from);
    if max_error_ppm.is_none() && max_p95_latency_ms.is_none() {
        return slo.missing("maxErrorRate", "an objective has it, or `maxP95LatencyMs`, or both");
    }
    let window = slo.duration("window", SLO_WINDOW_MS_MIN, SLO_WINDOW_MS_MAX)?;
    let min_samples = slo.number("minSamples", 1, SLO_SAMPLES_MAX)?;
    Ok(Some(Slo {
        max_error_ppm,
        max_p95_latency_ms,
        window_ms: window.unwrap_or(300_000),
        min_samples: min_samples.unwrap_or(20),
    }))
}

fn payload_detail(object: &Object<'_>) -> Result<PayloadDetail> {
    match object.text("payloadDetail")? {
        None | Some("standard") => Ok(PayloadDetail::Standard),
        Some("task") => Ok(PayloadDetail::Task),
        Some(other) => {
            let known = "`standard` and `task`";
            let problem = Problem::Choice { known, found: excerpt(other) };
            Err(object.error("payloadDetail", problem))
        }
    }
}

fn transform(object: &Object<'_>) -> Result<Option<Mask>> {
    let known = ["include", "exclude", "rename"];
    let Some(transform) = object.object("transform", &known)? else { return Ok(None) };
    let paths = |field: &str| -> Result<Option<Vec<MaskPath>>> {
        let Some(texts) = transform.texts(field, MASK_PATHS_MAX)? else { return Ok(None) };
        let paths = texts.into_iter().map(MaskPath::parse).collect::<Result<_, _>>();
        paths.map(Some).map_err(|problem| transform.error(field, problem))
    };
    let (include, exclude) = (paths("include")?, paths("exclude")?.unwrap_or_default());
    let mut rename = Vec::new();
    for (from, to) in transform.map("rename")?.into_iter().flatten() {
        let kind = || transform.error("rename", Problem::Kind("an object of paths and paths"));
        let to = to.as_str().ok_or_else(kind)?;
        let pair = MaskPath::parse(from).and_then(|from| Ok((from, MaskPath::parse(to)?)));
        rename.push(pair.map_err(|problem| transform.error("rename", problem))?);
    }
    let mask = Mask { include, exclude, rename };
    mask.check().map_err(|problem| object.error("transform", problem))?;
    Ok((!mask.is_empty()).then_some(mask))
}
