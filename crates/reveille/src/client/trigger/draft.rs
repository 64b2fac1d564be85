//! Triggers as they are written down: in files, or field by field on the command line.
//!
//! What a file means is the server's business, which names the field that is wrong. Here it is only
//! read, and taken apart into whose triggers these are and which.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{anyhow, ensure};
use clap::Args;
use reveille_core::Tenant;
use serde_json::{Map, Value, json};

use super::super::yaml;
use crate::failure::usage_error;

/// More than all triggers of a tenant need.
const FILE_BYTES_MAX: u64 = 8 << 20;

/// The fields of a trigger that are written most, one by one.
#[derive(Debug, Args)]
pub(super) struct FieldArguments {
    /// The collection whose changes it is for, like orders or rooms/*/messages
    #[arg(long, value_name = "GLOB")]
    collection: Option<String>,
    /// A kind of change: create, update or delete (repeatable, or with commas between them)
    #[arg(long = "event", value_name = "EVENT", value_delimiter = ',')]
    events: Vec<String>,
    /// Only changes of which this is true, in CEL over `event`
    #[arg(long, value_name = "CONDITION")]
    when: Option<String>,
    /// Only documents at such a path (repeatable)
    #[arg(long = "filter", value_name = "PATTERN")]
    filters: Vec<String>,
    /// The URL that is called
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,
    /// A header of the calls, NAME: VALUE (repeatable)
    #[arg(long = "header", value_name = "HEADER", value_parser = parse_header)]
    headers: Vec<(String, String)>,
    /// The secret that signs the calls, by its name
    #[arg(long, value_name = "NAME")]
    secret: Option<String>,
    /// How long a call may take
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    /// What this version is called
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
}

/// A file, as it was read.
#[derive(Debug)]
pub(super) struct DraftFile {
    name: String,
    pub(super) tenant: Option<Tenant>,
    contents: Contents,
}

#[derive(Debug)]
enum Contents {
    One(Map<String, Value>),
    /// By id, and what is for all of them.
    Several {
        triggers: Map<String, Value>,
        retry_policy: Option<Value>,
    },
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once(':').ok_or_else(|| "a header is written NAME: VALUE".to_owned())?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl FieldArguments {
    /// Those that were given, over those of a file.
    pub(super) fn over(self, mut fields: Map<String, Value>) -> Map<String, Value> {
        let FieldArguments { collection, events, when, filters, webhook, headers, .. } = self;
        let text = |text: Option<String>| text.map(Value::from);
        let list = |list: Vec<String>| (!list.is_empty()).then(|| json!(list));
        let headers: Map<String, Value> =
            headers.into_iter().map(|(name, value)| (name, value.into())).collect();
        let given = [
            ("collection", text(collection)),
            ("events", list(events)),
            ("condition", text(when)),
            ("filters", list(filters)),
            ("url", text(webhook)),
            ("headers", (!headers.is_empty()).then_some(Value::Object(headers))),
            ("secretsRef", text(self.secret)),
            ("timeout", text(self.timeout)),
            ("label", text(self.label)),
        ];
        fields.extend(given.into_iter().filter_map(|(name, it)| Some((name.to_owned(), it?))));
        fields
    }
}

impl DraftFile {
    /// Reads a file; `-` is standard input.
    pub(super) fn read(path: &Path) -> anyhow::Result<DraftFile> {
        let is_stdin = path == Path::new("-");
        let name = if is_stdin { "standard input".into() } else { path.display().to_string() };
        let text = read_text(path, is_stdin)
            .map_err(|error| usage_error(format!("cannot read {name}: {error}")))?;
        let is_json = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("json"))
            || (is_stdin && text.trim_start().starts_with('{'));
        let value: Value = if is_json {
            serde_json::from_str(&text).map_err(|it| usage_error(format!("{name}: {it}")))?
        } else {
            yaml::parse(&text).map_err(|it| usage_error(format!("{name}, {it}")))?
        };
        DraftFile::of(name, value)
    }

    fn of(name: String, value: Value) -> anyhow::Result<DraftFile> {
        let wrong = |what: &str| usage_error(format!("{name}: {what}"));
        let Value::Object(mut fields) = value else {
            return Err(wrong(
                "a file has the fields of one trigger, or `triggers:` with several by their ids",
            ));
        };
        let tenant = match (fields.remove("tenant"), fields.remove("database")) {
            (Some(_), Some(_)) => {
                return Err(wrong("`tenant` and `database` are the same: leave one of them out"));
            }
            (tenant, database) => tenant.or(database).filter(|it| !it.is_null()),
        };
        let tenant = tenant.map(|it| parse_tenant(&it).map_err(|it| wrong(&it))).transpose()?;
        let Some(triggers) = fields.remove("triggers") else {
            return Ok(DraftFile { name, tenant, contents: Contents::One(fields) });
        };
        let Value::Object(triggers) = triggers else {
            return Err(wrong("`triggers` has triggers by their ids: `ID: {collection: …}`"));
        };
        let retry_policy = fields.remove("retryPolicy");
        if let Some(other) = fields.keys().next() {
            return Err(wrong(&format!(
                "`{other}` stands beside `triggers`, where only `tenant` and `retryPolicy` may be"
            )));
        }
        let contents = Contents::Several { triggers, retry_policy };
        Ok(DraftFile { name, tenant, contents })
    }

    /// The one trigger that is in it, with its `triggerId` if it has one.
    pub(super) fn into_one(self) -> anyhow::Result<Map<String, Value>> {
        let DraftFile { name, contents, .. } = self;
        let (triggers, retry_policy) = match contents {
            Contents::One(fields) => return Ok(fields),
            Contents::Several { triggers, retry_policy } => (triggers, retry_policy),
        };
        let count = triggers.len();
        let mut triggers = triggers.into_iter();
        match (triggers.next(), count) {
            (Some((id, Value::Object(mut fields))), 1) => {
                fields.entry("triggerId").or_insert_with(|| id.into());
                if let Some(retry) = retry_policy {
                    fields.entry("retryPolicy").or_insert(retry);
                }
                Ok(fields)
            }
            (_, 1) => Err(usage_error(format!("{name}: a trigger is a map of its fields"))),
            _ => Err(usage_error(format!(
                "{name} has {count} triggers, and this is for one; `reveille trigger apply` takes \
                 all of them"
            ))),
        }
    }

    /// All that are in it, as they are applied to a tenant.
    pub(super) fn applied_to(&self, tenant: Option<&Tenant>) -> anyhow::Result<Map<String, Value>> {
        let mut body = Map::new();
        if let Some(tenant) = tenant {
            body.insert("tenant".to_owned(), tenant.as_str().into());
        }
        let triggers = match &self.contents {
            Contents::Several { triggers, retry_policy } => {
                let retry = retry_policy.as_ref();
                body.extend(retry.map(|retry| ("retryPolicy".to_owned(), retry.clone())));
                triggers.clone()
            }
            Contents::One(fields) => {
                let mut fields = fields.clone();
                let id = fields.remove("triggerId");
                let id = id.as_ref().and_then(Value::as_str).ok_or_else(|| {
                    usage_error(format!(
                        "{}: a trigger that is applied is known by its `triggerId`: write one",
                        self.name
                    ))
                })?;
                Map::from_iter([(id.to_owned(), Value::Object(fields))])
            }
        };
        body.insert("triggers".to_owned(), Value::Object(triggers));
        Ok(body)
    }

    /// The tenants that it is for: those that are named, or its own; `None` is the caller's.
    pub(super) fn tenants(&self, named: &[Tenant]) -> anyhow::Result<Vec<Option<Tenant>>> {
        if named.is_empty() {
            return Ok(vec![self.tenant.clone()]);
        }
        if let Some(own) = self.tenant.as_ref().filter(|own| named != [(*own).clone()]) {
            return Err(usage_error(format!(
                "{} is for the tenant `{own}`, and --tenant names others: leave one of them out",
                self.name
            )));
        }
        Ok(named.iter().cloned().map(Some).collect())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// The fields of a trigger: those of a file, if there is one, and over them those that were given.
pub(super) fn fields(
    file: Option<&PathBuf>,
    given: FieldArguments,
) -> anyhow::Result<(Map<String, Value>, Option<Tenant>)> {
    let file = file.map(|path| DraftFile::read(path)).transpose()?;
    let tenant = file.as_ref().and_then(|file| file.tenant.clone());
    let fields = file.map(DraftFile::into_one).transpose()?;
    Ok((given.over(fields.unwrap_or_default()), tenant))
}

fn parse_tenant(value: &Value) -> Result<Tenant, String> {
    let name = value.as_str().unwrap_or_default();
    if name == "*" {
        return Err("a trigger belongs to one tenant; `reveille trigger apply -f FILE \
                    --tenant a,b,c` makes it in each of several"
            .to_owned());
    }
    Tenant::parse(name).map_err(|error| format!("`tenant`: {error}"))
}

fn read_text(path: &Path, is_stdin: bool) -> anyhow::Result<String> {
    let check = |bytes: u64| {
        ensure!(bytes <= FILE_BYTES_MAX, "it is larger than 8 MiB: put the triggers into several");
        Ok(())
    };
    let bytes = if is_stdin {
        let mut bytes = Vec::new();
        io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        check(u64::try_from(bytes.len())?)?;
        bytes
    } else {
        check(std::fs::metadata(path)?.len())?;
        std::fs::read(path)?
    };
    String::from_utf8(bytes).map_err(|_| anyhow!("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(value: Value) -> anyhow::Result<DraftFile> {
        DraftFile::of("t.yaml".to_owned(), value)
    }

    fn tenants(names: &[&str]) -> Vec<Tenant> {
        names.iter().map(|name| Tenant::parse(name).unwrap()).collect()
    }

    #[test]
    fn def_3_a_file_has_one_trigger_or_several_of_one_tenant() {
        let retry = json!({ "maxAttempts": 3 });
        let several = json!({
            "database": "acme", "retryPolicy": retry, "triggers": { "a": { "url": "u" } },
        });
        let several = file(several).unwrap();
        assert_eq!(several.tenants(&[]).unwrap(), [Some(Tenant::parse("acme").unwrap())]);
        let acme = Tenant::parse("acme").unwrap();
        let body = several.applied_to(Some(&acme)).unwrap();
        let expected =
            json!({ "tenant": "acme", "retryPolicy": retry, "triggers": { "a": { "url": "u" } } });
        assert_eq!(Value::Object(body), expected);
        let one = several.into_one().unwrap();
        let expected = json!({ "triggerId": "a", "url": "u", "retryPolicy": retry });
        assert_eq!(Value::Object(one), expected);

        let one = file(json!({ "triggerId": "a", "url": "u" })).unwrap();
        let body = one.applied_to(None).unwrap();
        assert_eq!(Value::Object(body), json!({ "triggers": { "a": { "url": "u" } } }));
        let named = tenants(&["a", "b"]);
        let expected: Vec<_> = named.iter().cloned().map(Some).collect();
        assert_eq!(one.tenants(&named).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told_by_its_name() {
        let check = |value: Value, part: &str| {
            let error = file(value).and_then(|it| it.applied_to(None)).unwrap_err().to_string();
            assert!(error.starts_with("t.yaml: ") && error.contains(part), "{error}");
        };
        check(json!([]), "`triggers:` with several");
        check(json!({ "tenant": "*" }), "--tenant a,b,c");
        check(json!({ "tenant": "A B" }), "`tenant`");
        check(json!({ "tenant": "a", "database": "a" }), "leave one of them out");
        check(json!({ "url": "u" }), "`triggerId`");
        check(json!({ "triggers": [] }), "by their ids");
        check(json!({ "triggers": {}, "rates": 1 }), "`rates` stands beside");
        let two = file(json!({ "triggers": { "a": {}, "b": {} } })).unwrap();
        let error = two.into_one().unwrap_err().to_string();
        assert!(error.contains("2 triggers"), "{error}");
        let own = file(json!({ "tenant": "a", "triggerId": "x" })).unwrap();
        assert!(own.tenants(&tenants(&["a"])).is_ok());
        let error = own.tenants(&tenants(&["a", "b"])).unwrap_err().to_string();
        assert!(error.contains("tenant `a`"), "{error}");
    }
}
