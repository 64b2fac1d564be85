//! Indexes that come and go while their documents are written.

use std::time::{Duration, Instant};

use harness::http::Connection;
use serde_json::{Value, json};

use crate::exchange::ExchangeError;
use crate::random::Random;
use crate::requests::{ask, object, unexpected};
use crate::tenants::Tenant;

/// How long a few documents may take to be in an index.
const BUILD_MAX: Duration = Duration::from_secs(60);

/// The indexes that a tenant may have declared: what was answered last, or what was not answered.
#[derive(Debug, Clone, Default)]
pub(super) struct Declared {
    acknowledged: Vec<Value>,
    unanswered: Option<Vec<Value>>,
}

fn all() -> Vec<Value> {
    let by = |path: &str, direction: &str| json!({ "path": path, "direction": direction });
    let index = |collection: &str, fields: Vec<Value>| json!({ "collection": collection, "fields": fields });
    vec![
        index("rooms", vec![by("data.group", "asc"), by("data.n", "desc")]),
        index("rooms", vec![by("data.n", "asc")]),
        index("houses/*/rooms", vec![by("data.group", "asc")]),
        index("houses/*/rooms", vec![by("data.n", "desc"), by("updatedAt", "asc")]),
    ]
}

impl Declared {
    /// Declares some of the indexes, and lets the others go.
    pub(super) fn change(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
        name: &str,
        random: &mut Random,
    ) -> Result<(), ExchangeError> {
        let mut some = all();
        some.retain(|_| !random.one_in(3));
        let body = json!({ "indexes": some }).to_string();
        self.unanswered = Some(some);
        let target = format!("/admin/v1/tenants/{name}/indexes");
        let answer = ask(connection, tenant, "PUT", &target, Some(&body))?;
        match answer.status {
            200 => self.acknowledged = self.unanswered.take().unwrap_or_default(),
            503 => self.unanswered = None,
            _ => return Err(unexpected(&target, &answer)),
        }
        Ok(())
    }

    /// Those that there are were declared last.
    pub(super) fn check(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
        name: &str,
    ) -> Result<(), ExchangeError> {
        let shown = show(connection, tenant, name)?;
        let mut definitions = shown.clone();
        for index in definitions.iter_mut().filter_map(Value::as_object_mut) {
            index.retain(|field, _| matches!(field.as_str(), "collection" | "fields"));
        }
        let is_same = |declared: &Vec<Value>| {
            declared.len() == definitions.len()
                && declared.iter().all(|it| definitions.contains(it))
        };
        let found =
            std::iter::once(&self.acknowledged).chain(&self.unanswered).find(|it| is_same(it));
        let found = found
            .cloned()
            .ok_or_else(|| format!("{name} has the indexes {shown:?}, not {self:?}"))?;
        *self = Declared { acknowledged: found, unanswered: None };
        Ok(())
    }
}

fn show(
    connection: &mut Connection,
    tenant: &Tenant,
    name: &str,
) -> Result<Vec<Value>, ExchangeError> {
    let target = format!("/admin/v1/tenants/{name}/indexes");
    let answer = ask(connection, tenant, "GET", &target, None)?;
    let shown = object(&answer)?.get("indexes").and_then(Value::as_array).cloned();
    shown.ok_or_else(|| unexpected(&target, &answer))
}

/// Waits until all documents are in every index.
pub(super) fn wait_until_ready(
    connection: &mut Connection,
    tenant: &Tenant,
    name: &str,
) -> Result<(), ExchangeError> {
    let until = Instant::now() + BUILD_MAX;
    loop {
        let shown = show(connection, tenant, name)?;
        if shown.iter().all(|index| index.get("state") == Some(&json!("ready"))) {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(format!("{name}: after {BUILD_MAX:?} indexes are {shown:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
