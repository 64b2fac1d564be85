//! Why an event was delivered to a subscription, or was not.

use http::StatusCode;
use reveille_engine::deliveries::DeliveryRejection;
use reveille_engine::deliveries::explain::Reason;
use reveille_engine::deliveries::face::EventMatch;

use super::Scope;
use super::error::Error;
use super::show::{find_hook, parse_event_type};
use crate::Server;
use crate::http::explanation::{Words, outcome};
use crate::http::page::Page;
use crate::http::query::Query;
use crate::http::reply::Reply;

const WORDS: Words =
    Words { hook: "subscription", step: "pattern", matches: "the pattern matches the type" };

/// `GET /subscriptions/{id}/explain?eventId=ID`, or `?eventType=TYPE` for events that may come.
pub(super) async fn answer(
    server: &Server,
    scope: &Scope,
    id: &str,
    query: Option<&str>,
) -> Result<Reply, Error> {
    let query = Query::parse(query);
    let mut page = Page::begin(&server.engine, &scope.tenant, "steps").await?;
    let hook = find_hook(server, scope, id)?;
    let (reasons, outcome) = match (query.get("eventId")?, query.get("eventType")?) {
        (Some(id), None) => {
            let event = server.engine.find_event(&hook.hook.tenant, id)?;
            let (no, event) = event.ok_or(DeliveryRejection::NoEvent)?;
            let reasons = server.engine.explain_event(&hook.hook, no, &event)?;
            let outcome = outcome(&reasons);
            (reasons, outcome)
        }
        (None, Some(kind)) => {
            let reasons = server.engine.explain_type(&hook, &parse_event_type(kind)?);
            let outcome = prospect(&reasons);
            (reasons, outcome)
        }
        _ => {
            let text = "Missing required query param: eventId, or eventType instead of it";
            return Err(Error::bad_request("MISSING_PARAM", text));
        }
    };
    WORDS.write_steps(server, &mut page, &reasons);
    let fields = [("subscriptionId", id), ("outcome", outcome)];
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    Ok(page.finish(StatusCode::OK, &fields))
}

/// What would become of an event that comes now.
fn prospect(reasons: &[Reason]) -> &'static str {
    if reasons.iter().any(|reason| matches!(reason, Reason::Match(EventMatch::Differs(_)))) {
        "not_matched"
    } else if reasons.contains(&Reason::Active(false)) {
        "inactive"
    } else if reasons.contains(&Reason::Paused) {
        "would_be_held"
    } else {
        "would_be_delivered"
    }
}
