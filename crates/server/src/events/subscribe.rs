//! Making a subscription.

use std::sync::Arc;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::delivery::policy::DeliveryLimits;
use reveille_core::event::hook::{EventHookSpec, FormerSpec, Retry};
use reveille_core::event::worker::{RpcMethod, WorkerId};
use reveille_core::event::{EventPattern, Shard};
use reveille_core::secret::SealedSecret;
use reveille_core::signature::standard::StandardSecret;
use reveille_engine::events::hook::StartFrom;
use serde_json::{Map, Value, json};

use super::body::Body;
use super::error::Error;
use super::{Scope, namespace_of};
use crate::Server;
use crate::http::fields::Fields;
use crate::http::known::check_fields_of;
use crate::http::reply::{self, Reply};

const MAX_RETRIES_DEFAULT: u32 = 5;
const TIMEOUT_MS_DEFAULT: u64 = 30_000;
const BINDING_BYTES_MAX: usize = 128;
/// The shortest and the longest first pause, the longest pause, and the longest time that a delivery
/// is tried.
const RETRY_INITIAL_MS_MIN: u64 = 10;
const RETRY_INITIAL_MS_MAX: u64 = 3_600_000;
const RETRY_MAX_MS_MAX: u64 = 86_400_000;
const GIVE_UP_MS_MAX: u64 = 365 * 86_400_000;

/// What can be said about a new subscription.
const FIELDS: &[&str] = &[
    "workerId",
    "workerBinding",
    "pattern",
    "rpcMethod",
    "maxRetries",
    "timeoutMs",
    "secret",
    "deliver",
    "retry",
    "concurrency",
    "rateLimit",
];

/// `POST /subscriptions/subscribe`
pub(super) async fn answer(
    server: &Server,
    scope: &Scope,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let body = Body::read(server, &scope.tenant, request).await?;
    body.check_known(FIELDS)?;
    let (secret, new_secret) = parse_secret(server, &scope.tenant, &body)?;
    let spec = parse_spec(&body, secret)?;
    let since = parse_since(&body)?;
    check_address(server, &spec)?;
    let shard = Shard::of_pattern(&spec.pattern);
    let warnings = warnings(server, &spec);
    let hook = scope.engine(server).hook(&scope.tenant, spec, since, scope.key_id.clone()).await?;
    let namespace = namespace_of(&hook.tenant);
    let mut answer = json!({
        "ok": true,
        "subscriptionId": &*hook.name,
        "shard": shard.label(namespace),
        "namespace": namespace,
    });
    if let (Some(secret), Some(object)) = (new_secret, answer.as_object_mut()) {
        object.insert("secret".into(), secret.into());
    }
    add_warnings(&mut answer, warnings);
    Ok(reply::json(StatusCode::OK, &answer))
}

/// Whether the worker of a subscription may be called at all.
pub(super) fn check_address(server: &Server, spec: &EventHookSpec) -> Result<(), Error> {
    let address = server.config.workers.address(spec);
    server.engine.check_destination(&address).map_err(|error| {
        let text = format!("the worker cannot be called at {address}: {error}");
        Error::bad_request("WORKER_ADDRESS_REFUSED", text)
    })
}

/// What is taken although it may not be what was meant.
pub(super) fn warnings(server: &Server, spec: &EventHookSpec) -> Vec<String> {
    let workers = &server.config.workers;
    let missing = spec.binding.as_ref().filter(|name| !workers.has_binding(name));
    let sentence = |name: &Arc<str>| {
        let address = workers.address(spec);
        format!(
            "this server has no binding `{name}`, so worker `{}` is called at {address}; start it \
             with --binding {name}=URL, or leave `workerBinding` out",
            spec.worker
        )
    };
    missing.map(sentence).into_iter().collect()
}

/// Puts warnings into an answer, if there are any.
pub(super) fn add_warnings(answer: &mut Value, warnings: Vec<String>) {
    if let (false, Some(object)) = (warnings.is_empty(), answer.as_object_mut()) {
        object.insert("warnings".into(), warnings.into());
    }
}

fn parse_spec(body: &Body, secret: Option<SealedSecret>) -> Result<EventHookSpec, Error> {
    let worker = body.required("workerId")?;
    let pattern = body.required("pattern")?;
    let method = body.required("rpcMethod")?;
    let invalid = |name| {
        move |why: &dyn std::fmt::Display| {
            Error::invalid_field(name, format!("is not valid: {why}"))
        }
    };
    Ok(EventHookSpec {
        worker: WorkerId::parse(worker).map_err(|error| invalid("workerId")(&error))?,
        pattern: EventPattern::parse(pattern).map_err(|error| {
            Error::bad_request("INVALID_PATTERN", format!("Invalid pattern: {error}"))
        })?,
        method: RpcMethod::parse(method).map_err(|error| invalid("rpcMethod")(&error))?,
        binding: parse_binding(body)?,
        max_retries: body.max_retries()?.unwrap_or(MAX_RETRIES_DEFAULT),
        timeout_ms: body.timeout_ms()?.unwrap_or(TIMEOUT_MS_DEFAULT),
        secret,
        ordered: false,
        retry: parse_retry(body)?.unwrap_or_default(),
        limits: DeliveryLimits {
            concurrency: body.concurrency()?.flatten(),
            rate: body.rate()?.flatten(),
            per_tenant: false,
        },
        former: FormerSpec::default(),
    })
}

pub(super) fn parse_binding(body: &Body) -> Result<Option<Arc<str>>, Error> {
    let Some(name) = body.text("workerBinding")? else { return Ok(None) };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if name.is_empty() || name.len() > BINDING_BYTES_MAX || !name.bytes().all(allowed) {
        let why =
            format!("must be 1 to {BINDING_BYTES_MAX} letters of ASCII, digits, `_`, `-` and `.`");
        return Err(Error::invalid_field("workerBinding", why));
    }
    Ok(Some(name.into()))
}

/// When deliveries are tried again, if that is said; what is left out is as for those who say
/// nothing.
pub(super) fn parse_retry(body: &Body) -> Result<Option<Retry>, Error> {
    let object = match body.raw("retry") {
        None => return Ok(None),
        Some(Value::Null) => return Ok(Some(Retry::default())),
        Some(Value::Object(object)) => object,
        Some(_) => return Err(Error::invalid_field("retry", "must be an object, or null")),
    };
    check_fields_of("retry", object, &["initial", "max", "giveUpAfter"])?;
    let fields = Fields(object);
    let within = |name: &str, min: u64, max: u64, text: &str| {
        let found = fields.period_ms(name)?;
        if found.is_some_and(|ms| !(min..=max).contains(&ms)) {
            return Err(Error::invalid_field(&format!("retry.{name}"), format!("must be {text}")));
        }
        Ok(found)
    };
    let default = Retry::default();
    let initial =
        within("initial", RETRY_INITIAL_MS_MIN, RETRY_INITIAL_MS_MAX, "from \"10ms\" to \"1h\"")?;
    let initial_ms = initial.unwrap_or(default.initial_ms);
    let max = within("max", initial_ms, RETRY_MAX_MS_MAX, "from the first pause to \"1d\"")?;
    let give_up_after_ms = within("giveUpAfter", 1, GIVE_UP_MS_MAX, "from \"1ms\" to \"365d\"")?;
    let max_ms = max.unwrap_or(default.max_ms.max(initial_ms));
    Ok(Some(Retry { initial_ms, max_ms, give_up_after_ms }))
}

/// A secret that nobody has had, and its text.
pub(super) fn new_secret(server: &Server, tenant: &Tenant) -> (SealedSecret, String) {
    let mut key = [0; 32];
    server.engine.entropy().fill(&mut key);
    let text = StandardSecret::text(&key);
    (server.engine.seal_webhook_secret(tenant, &text), text)
}

/// The secret that deliveries are signed with, and once more if it is new and must be shown.
pub(super) fn parse_secret(
    server: &Server,
    tenant: &Tenant,
    body: &Body,
) -> Result<(Option<SealedSecret>, Option<String>), Error> {
    let seal = |text: &str| Some(server.engine.seal_webhook_secret(tenant, text));
    match body.get("secret") {
        None | Some(Value::Bool(false)) => Ok((None, None)),
        Some(Value::Bool(true)) => {
            let (sealed, text) = new_secret(server, tenant);
            Ok((Some(sealed), Some(text)))
        }
        Some(Value::String(text)) => {
            let checked = StandardSecret::parse(text);
            checked.map_err(|error| {
                Error::invalid_field("secret", format!("is not valid: {error}"))
            })?;
            Ok((seal(text), None))
        }
        Some(_) => Err(Error::invalid_field("secret", "must be a string, or true for a new one")),
    }
}

/// From which event on there are deliveries.
fn parse_since(body: &Body) -> Result<StartFrom, Error> {
    let from = |object: &Map<String, Value>| {
        let id = object.get("from").filter(|_| object.len() == 1).and_then(Value::as_str);
        id.map(|id| StartFrom::Event(id.into()))
    };
    let since = match body.get("deliver") {
        None => Some(StartFrom::Now),
        Some(Value::String(text)) if text == "new" => Some(StartFrom::Now),
        Some(Value::String(text)) if text == "all" => Some(StartFrom::Beginning),
        Some(Value::Object(object)) => from(object),
        Some(_) => None,
    };
    let why = "must be \"new\", \"all\" or {\"from\": \"an event's id\"}";
    since.ok_or_else(|| Error::invalid_field("deliver", why))
}
