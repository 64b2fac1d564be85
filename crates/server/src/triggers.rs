//! Triggers, for operators: made, changed, tried out, enabled and looked at; and the secrets that
//! sign what they send.
//!
//! | route under `/admin/v1/triggers`                           | module       |
//! |------------------------------------------------------------|--------------|
//! | `POST`, `POST /apply`                                      | [`create`]   |
//! | `GET`, `GET /{tenant}/{id}`, `…/versions`, `…/versions/{v}` | [`show`]    |
//! | `GET …/status`, `…/metrics`                                | [`status`]   |
//! | `PATCH`, `DELETE /{tenant}/{id}`, `POST …/rollback`        | [`change`]   |
//! | `POST …/enable`, `…/disable`, `…/health-check`             | [`enable`]   |
//! | `POST`, `GET`, `DELETE …/dry-run`                          | [`dry_run`]  |
//! | `POST …/test`, `…/backtest`                                | [`trial`]    |
//! | `/admin/v1/tenants/{tenant}/secrets…`                      | [`secrets`]  |
//! | `GET /admin/v1/checkpoints/trigger_evaluator`              | [`checkpoint`] |
//!
//! A trigger is a hook in the engine, of the face of changes of documents.

mod body;
mod change;
mod checkpoint;
mod create;
mod dry_run;
mod enable;
mod encoder;
mod error;
mod permits;
mod secrets;
mod show;
mod signed;
mod status;
mod trial;

use http::{Method, Request};
use hyper::body::Incoming;
use reveille_core::Tenant;
use reveille_core::trigger::definition::DefinitionLimits;

pub(crate) use encoder::TriggerEncoder;
pub(crate) use permits::Permits;

use self::error::Error;
use crate::Server;
use crate::admin::tenant_named;
use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::query::{Query, decode_path};
use crate::http::reply::Reply;

const TRIGGERS: &str = "/admin/v1/triggers";

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Operation {
    /// All triggers of a tenant.
    List,
    Apply,
    One(Action),
}

/// What is done with one trigger.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Action {
    Itself,
    Versions,
    Version(String),
    Status,
    Metrics,
    Rollback,
    Enable,
    Disable,
    HealthCheck,
    DryRun,
    Test,
    Backtest,
}

/// Which trigger a request is about.
struct Target {
    tenant: Tenant,
    id: String,
}

/// Answers a request about triggers.
pub(crate) async fn answer(server: &Server, caller: &Caller, request: Request<Incoming>) -> Reply {
    route(server, caller, request).await.unwrap_or_else(|error| error.refusal().reply())
}

/// Answers a request about secrets.
pub(crate) async fn answer_secrets(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Reply {
    let answer = secrets::answer(server, caller, request).await;
    answer.unwrap_or_else(|error| error.refusal().reply())
}

/// Answers a request about how far triggers have come.
pub(crate) async fn answer_checkpoint(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Reply {
    let answer = checkpoint::answer(server, caller, &request).await;
    answer.unwrap_or_else(|error| error.refusal().reply())
}

async fn route(
    server: &Server,
    caller: &Caller,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let path = request.uri().path().to_owned();
    let parsed = parse(&path).ok_or(RequestError::ReservedPath)?;
    let query = Query::parse(request.uri().query());
    let (tenant, id, operation) = parsed;
    query.check_known(parameters(&operation, request.method()))?;
    let method = request.method().clone();
    let Operation::One(action) = operation else {
        return match (operation, &method) {
            (Operation::Apply, &Method::POST) => create::apply(server, caller, request).await,
            (Operation::List, &Method::POST) => create::create(server, caller, request).await,
            (Operation::List, &Method::GET | &Method::HEAD) => {
                show::list(server, caller, &query).await
            }
            (Operation::Apply, _) => Err(not_allowed(method, "POST, OPTIONS")),
            _ => Err(not_allowed(method, "GET, HEAD, POST, OPTIONS")),
        };
    };
    let target = Target { tenant: tenant_named(caller, &tenant)?, id: decode_path(&id) };
    one(server, caller, &target, &action, &query, request).await
}

async fn one(
    server: &Server,
    caller: &Caller,
    target: &Target,
    action: &Action,
    query: &Query,
    request: Request<Incoming>,
) -> Result<Reply, Error> {
    let method = request.method().clone();
    let reads = matches!(method, Method::GET | Method::HEAD);
    let posts = method == Method::POST;
    match action {
        Action::Itself if reads => show::one(server, target),
        Action::Itself if method == Method::PATCH => {
            change::patch(server, caller, target, request).await
        }
        Action::Itself if method == Method::DELETE => {
            change::delete(server, caller, target, query, request).await
        }
        Action::Versions if reads => show::versions(server, caller, target).await,
        Action::Version(version) if reads => show::version(server, target, version),
        Action::Status if reads => status::show(server, target),
        Action::Metrics if reads => status::metrics(server, target),
        Action::Rollback if posts => change::roll_back(server, caller, target, request).await,
        Action::Enable if posts => enable::enable(server, caller, target, request).await,
        Action::Disable if posts => enable::disable(server, caller, target, request).await,
        Action::HealthCheck if posts => enable::health_check(server, target).await,
        Action::DryRun if posts => dry_run::begin(server, caller, target, request).await,
        Action::DryRun if reads => dry_run::report(server, target, query),
        Action::DryRun if method == Method::DELETE => dry_run::end(server, caller, target).await,
        Action::Test if posts => trial::test(server, caller, target, request).await,
        Action::Backtest if posts => trial::backtest(server, caller, target, request).await,
        action => Err(not_allowed(method, allowed(action))),
    }
}

/// The tenant and the id of a path, as they are written, and what is asked for.
fn parse(path: &str) -> Option<(String, String, Operation)> {
    let rest = path.strip_prefix(TRIGGERS)?;
    let all = |operation| Some((String::new(), String::new(), operation));
    match rest {
        "" => return all(Operation::List),
        "/apply" => return all(Operation::Apply),
        _ => {}
    }
    let mut segments = rest.strip_prefix('/')?.split('/');
    let (tenant, id) = (segments.next()?, segments.next()?);
    let rest: Vec<&str> = segments.collect();
    let action = match rest.as_slice() {
        [] => Action::Itself,
        ["versions"] => Action::Versions,
        ["versions", version] if !version.is_empty() => Action::Version((*version).to_owned()),
        ["status"] => Action::Status,
        ["metrics"] => Action::Metrics,
        ["rollback"] => Action::Rollback,
        ["enable"] => Action::Enable,
        ["disable"] => Action::Disable,
        ["health-check"] => Action::HealthCheck,
        ["dry-run"] => Action::DryRun,
        ["test"] => Action::Test,
        ["backtest"] => Action::Backtest,
        _ => return None,
    };
    let is_named = !tenant.is_empty() && !id.is_empty();
    is_named.then(|| (tenant.to_owned(), id.to_owned(), Operation::One(action)))
}

/// What can be done there, as the header `Allow` says it.
fn allowed(action: &Action) -> &'static str {
    match action {
        Action::Itself => "GET, HEAD, PATCH, DELETE, OPTIONS",
        Action::Versions | Action::Version(_) | Action::Status | Action::Metrics => {
            "GET, HEAD, OPTIONS"
        }
        Action::DryRun => "GET, HEAD, POST, DELETE, OPTIONS",
        Action::Rollback
        | Action::Enable
        | Action::Disable
        | Action::HealthCheck
        | Action::Test
        | Action::Backtest => "POST, OPTIONS",
    }
}

/// What the query of a request may say.
fn parameters(operation: &Operation, method: &Method) -> &'static [&'static str] {
    match operation {
        Operation::List if *method != Method::POST => {
            &["tenant", "collection", "state", "limit", "after", "cursor"]
        }
        Operation::One(Action::Itself) if *method == Method::DELETE => &["pending", "reason"],
        Operation::One(Action::DryRun) if *method != Method::POST => &["from", "to"],
        _ => &[],
    }
}

fn not_allowed(method: Method, allowed: &'static str) -> Error {
    RequestError::Method { method, allowed }.into()
}

/// What the server allows in definitions.
fn limits(server: &Server) -> DefinitionLimits {
    DefinitionLimits { max_timeout_ms: server.config.max_trigger_timeout_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_told_by_the_path() {
        let check = |path: &str, expected: Option<(&str, &str, Operation)>| {
            let expected = expected.map(|(tenant, id, it)| (tenant.to_owned(), id.to_owned(), it));
            assert_eq!(parse(&format!("/admin/v1/triggers{path}")), expected, "{path}");
        };
        check("", Some(("", "", Operation::List)));
        check("/apply", Some(("", "", Operation::Apply)));
        check("/acme/t", Some(("acme", "t", Operation::One(Action::Itself))));
        check("/~/t/status", Some(("~", "t", Operation::One(Action::Status))));
        let version = Operation::One(Action::Version("3".to_owned()));
        check("/acme/t/versions/3", Some(("acme", "t", version)));
        for none in [
            "/",
            "/acme",
            "/acme/",
            "//t",
            "/acme/t/",
            "/acme/t/versions/",
            "/acme/t/x",
            "/acme/t/status/x",
            "/apply/",
        ] {
            check(none, None);
        }
    }
}
