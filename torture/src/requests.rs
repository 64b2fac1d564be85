//! Requests in JSON of a tenant, and the changes of its documents.

use std::io;

use harness::http::{Connection, Request, Response};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::exchange::ExchangeError;
use crate::tenants::Tenant;

pub(crate) fn ask(
    connection: &mut Connection,
    tenant: &Tenant,
    method: &'static str,
    target: &str,
    body: Option<&str>,
) -> io::Result<Response> {
    let json = [("content-type", "application/json")];
    let headers = tenant.headers(if body.is_some() { &json } else { &[] });
    let body = body.unwrap_or_default().as_bytes();
    connection.send(Request { method, target, headers: &headers, body })
}

pub(crate) fn object(answer: &Response) -> Result<Map<String, Value>, ExchangeError> {
    let parsed: Result<Value, _> = serde_json::from_slice(&answer.body);
    match parsed {
        Ok(Value::Object(fields)) => Ok(fields),
        _ => Err(unexpected("an answer", answer)),
    }
}

pub(crate) fn unexpected(what: &str, answer: &Response) -> ExchangeError {
    let body: String = answer.text().chars().take(300).collect();
    ExchangeError::Violation(format!("{what}: answered {} {body:?}", answer.status))
}

/// The changes from an offset on, and where they end.
pub(crate) fn read_changes(
    connection: &mut Connection,
    tenant: &Tenant,
    name: &str,
    from: &str,
) -> Result<(Vec<String>, String), ExchangeError> {
    let mut offset = from.to_owned();
    let mut changes = Vec::new();
    loop {
        let target = format!("/_changes/{name}?offset={offset}");
        let answer = ask(connection, tenant, "GET", &target, None)?;
        match answer.status {
            200 => {}
            // Nothing was ever written.
            404 => return Ok((changes, offset)),
            status @ 500.. => return Err(ExchangeError::ServerError(status)),
            _ => return Err(unexpected(&target, &answer)),
        }
        let page: Vec<&RawValue> =
            serde_json::from_slice(&answer.body).map_err(|_| unexpected(&target, &answer))?;
        changes.extend(page.iter().map(|change| change.get().to_owned()));
        let next = answer.header("stream-next-offset").map(str::to_owned);
        let next = next.ok_or_else(|| unexpected(&target, &answer))?;
        if answer.header("stream-up-to-date").is_some() {
            return Ok((changes, next));
        }
        if next <= offset {
            return Err(format!("{target}: more to read, but the next offset is {next}").into());
        }
        offset = next;
    }
}
