//! From a definition to JSON: for people, without the values of headers, and for the state.

use serde_json::{Map, Value, json};

use super::super::duration::print_ms;
use super::super::grant::{PathTemplate, TokenGrant};
use super::super::rollout::{Rollout, Slo};
use super::super::transform::{Mask, MaskPath};
use super::parse::Reading;
use super::{
    CustomHeaders, Definition, DefinitionError, DefinitionLimits, REDACTED, RetryPolicy, StatusRule,
};
use crate::audit::Diff;
use crate::delivery::policy::Action;
use crate::document::change::ChangeKind;

type Json = Map<String, Value>;

/// What was stored is no definition: it is damaged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a stored trigger cannot be read: {0}")]
pub struct StoredDefinitionError(String);

impl Definition {
    /// As it is shown: every field, with the values of headers left out. It reads back as itself
    /// where those are known.
    pub fn to_json(&self) -> Json {
        self.print(|_| REDACTED.to_owned())
    }

    /// As it is kept.
    pub fn to_stored(&self) -> Vec<u8> {
        let fields = self.print(str::to_owned);
        serde_json::to_vec(&fields).expect("names are texts, and memory does not fail")
    }

    /// Reads what was kept. Limits that were changed since do not count.
    pub fn from_stored(bytes: &[u8]) -> Result<Definition, StoredDefinitionError> {
        let failed = |error: String| StoredDefinitionError(error);
        let value: Value =
            serde_json::from_slice(bytes).map_err(|error| failed(error.to_string()))?;
        let limits = DefinitionLimits { max_timeout_ms: u64::MAX };
        // A header may have the very value that stands for those that are not shown.
        let headers = value.get("headers").and_then(Value::as_object);
        let known = headers
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.as_str().into(), value.as_str()?.into())));
        let known = CustomHeaders(known.collect());
        let reading = Reading { former: &known, limits: &limits, is_stored: true };
        let (_, definition) =
            reading.read(&value).map_err(|error: DefinitionError| failed(error.to_string()))?;
        Ok(definition)
    }

    fn print(&self, header: impl Fn(&str) -> String) -> Json {
        let events: Vec<&str> = self.events.iter().map(ChangeKind::as_str).collect();
        let headers: Json = self
            .headers
            .iter()
            .map(|(name, value)| (name.to_owned(), header(value).into()))
            .collect();
        let filters: Vec<&str> = self.filters.iter().map(|it| it.as_str()).collect();
        let fields = json!({
            "collection": self.collection.as_str(),
            "events": events,
            "condition": self.condition.as_ref().map_or("", |it| it.as_str()),
            "url": &*self.url,
            "headers": headers,
            "secretsRef": self.secrets_ref.as_ref().map(|it| it.as_str()),
            "concurrency": self.concurrency,
            "rateLimit": self.rate_limit,
            "includeBefore": self.include_before,
            "retryPolicy": self.retry.to_json(),
            "filters": filters,
            "timeout": print_ms(self.timeout_ms),
            "token": self.token.to_json(),
            "rollout": self.rollout.to_json(),
            "payloadDetail": self.payload_detail.as_str(),
            "transform": self.transform.as_ref().map(Mask::to_json),
            "label": self.label.as_deref(),
            "target": { "type": "webhook" },
        });
        match fields {
            Value::Object(fields) => fields,
            _ => Json::new(),
        }
    }

    /// What a change has changed, for the audit log (AUD-1).
    pub fn diff(from: Option<&Definition>, to: Option<&Definition>) -> Diff {
        let (before, after) = (from.map(Definition::to_json), to.map(Definition::to_json));
        let mut names: Vec<&String> = before.iter().chain(&after).flat_map(Json::keys).collect();
        names.sort_unstable();
        names.dedup();
        let field = |fields: &Option<Json>, name: &str| {
            fields.as_ref().and_then(|fields| fields.get(name)).cloned().unwrap_or_default()
        };
        let mut diff = Diff::default();
        for name in names {
            diff = match name.as_str() {
                "url" => {
                    let url = |it: Option<&Definition>| it.map(|it| it.url.clone());
                    diff.address("url", url(from).as_deref(), url(to).as_deref())
                }
                "headers" => {
                    let headers = |it: Option<&Definition>| {
                        it.map(|it| it.headers.clone()).filter(|it| it.bytes() > 0)
                    };
                    diff.secret("headers", headers(from), headers(to))
                }
                "target" => diff,
                name => diff.field(name, field(&before, name), field(&after, name)),
            };
        }
        diff
    }
}

impl RetryPolicy {
    pub fn to_json(&self) -> Value {
        let rules: Vec<Value> = self.status_rules.iter().map(StatusRule::to_json).collect();
        json!({
            "maxAttempts": self.max_attempts,
            "initialBackoff": print_ms(self.initial_backoff_ms),
            "maxBackoff": print_ms(self.max_backoff_ms),
            "statusRules": rules,
        })
    }
}

impl StatusRule {
    fn to_json(&self) -> Value {
        let codes: Vec<&str> = self.codes.iter().map(|(text, _)| &**text).collect();
        let action = match self.action {
            Action::Retry => "retry",
            Action::Dead => "dlq",
            Action::Drop | Action::End => "drop",
        };
        json!({ "codes": codes, "action": action })
    }
}

impl TokenGrant {
    pub fn to_json(&self) -> Value {
        let scopes: Vec<&str> = self.scopes.names().collect();
        let paths: Vec<&str> = self.allow_paths.iter().map(PathTemplate::as_str).collect();
        json!({
            "scopes": scopes,
            "allowPaths": paths,
            "maxOps": self.max_ops,
            "maxPayloadKb": self.max_payload_kb,
            "bypassRules": self.bypass_rules,
        })
    }
}

impl Rollout {
    pub fn to_json(self) -> Value {
        json!({ "percent": self.percent, "slo": self.slo.map(Slo::to_json) })
    }
}

impl Slo {
    fn to_json(self) -> Value {
        json!({
            "maxErrorRate": self.max_error_ppm.map(|ppm| f64::from(ppm) / 1_000_000.0),
            "maxP95LatencyMs": self.max_p95_latency_ms,
            "window": print_ms(self.window_ms),
            "minSamples": self.min_samples,
        })
    }
}

impl Mask {
    pub fn to_json(&self) -> Value {
        let texts = |paths: &[MaskPath]| paths.iter().map(|it| it.as_str().into()).collect();
        let mut fields = Json::new();
        if let Some(include) = &self.include {
            fields.insert("include".to_owned(), Value::Array(texts(include)));
        }
        if !self.exclude.is_empty() {
            fields.insert("exclude".to_owned(), Value::Array(texts(&self.exclude)));
        }
        if !self.rename.is_empty() {
            let pairs = self.rename.iter();
            let pairs = pairs.map(|(from, to)| (from.to_string(), to.as_str().into()));
            fields.insert("rename".to_owned(), Value::Object(pairs.collect()));
        }
        Value::Object(fields)
    }
}
