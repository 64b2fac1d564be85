//! `reveille trigger create`, `apply`, `update` and `delete`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use http::{Method, StatusCode};
use reveille_core::Tenant;
use serde_json::{Map, Value, json};

use super::super::table::{Table, cell};
use super::super::{
    ConnectionArguments, Output, ServerArguments, message, parse_object, parse_tenant,
};
use super::draft::{DraftFile, FieldArguments, fields};
use super::{Question, TRIGGERS, Triggers, print_trigger, query, state, take_id};
use crate::failure::usage_error;

/// What `reveille trigger create` takes.
#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its id: letters, digits, `-` and `_` [default: that of the file, or one that is made]
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// A file with it, YAML or JSON; `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    fields: FieldArguments,
    /// Enables it as well
    #[arg(long)]
    enable: bool,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille trigger apply` takes.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// A file with triggers of a tenant, YAML or JSON; `-` for standard input (repeatable, each
    /// for another tenant)
    #[arg(short = 'f', long = "file", value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// The tenants to do it for, with commas between them, for a key of all tenants [default: that
    /// of the file, or of the key]
    #[arg(long = "tenant", value_name = "TENANTS", value_delimiter = ',', value_parser = parse_tenant)]
    tenants: Vec<Tenant>,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Enables those that are made
    #[arg(long, conflicts_with = "dry_run")]
    enable: bool,
    /// Only says what would be done
    #[arg(long)]
    dry_run: bool,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ConnectionArguments,
}

/// What `reveille trigger update` takes.
#[derive(Debug, Args)]
pub(crate) struct Update {
    /// Its id, as `reveille trigger list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// A file with fields to change, YAML or JSON; `-` for standard input
    #[arg(short = 'f', long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    fields: FieldArguments,
    /// Only if it has this version [default: the one that it has now]
    #[arg(long, value_name = "N")]
    if_version: Option<u64>,
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Output::Human)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// What `reveille trigger delete` takes.
#[derive(Debug, Args)]
pub(crate) struct Delete {
    /// Its id, as `reveille trigger list` shows it
    #[arg(value_name = "ID")]
    id: String,
    /// What becomes of deliveries that wait: dlq or drop [default: dlq]
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true)]
    pending: Option<Pending>,
    /// Why; it is kept in the audit log
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    server: ServerArguments,
}

/// What becomes of deliveries that wait.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Pending {
    /// They become dead letters
    Dlq,
    /// They are forgotten
    Drop,
}

impl Pending {
    fn as_str(self) -> &'static str {
        match self {
            Pending::Dlq => "dlq",
            Pending::Drop => "drop",
        }
    }
}

pub(super) fn create(arguments: Create, out: &mut impl Write) -> anyhow::Result<()> {
    let Create { id, file, fields: given, enable, output, mut server } = arguments;
    let (mut body, tenant) = fields(file.as_ref(), given)?;
    if body.is_empty() {
        return Err(usage_error(
            "nothing says what the trigger is; pass -f FILE, or --collection, --event and \
             --webhook",
        ));
    }
    if let Some(id) = id {
        body.insert("triggerId".to_owned(), id.into());
    }
    server.tenant = tenant_of(tenant, server.tenant)?;
    let named = server.tenant.clone();
    let triggers = Triggers::new(server)?;
    if let Some(tenant) = named {
        body.insert("tenant".to_owned(), tenant.as_str().into());
    }
    let name = body.get("triggerId").and_then(Value::as_str).unwrap_or("(a new one)").to_owned();
    let mut created = triggers.object(
        &name,
        Question {
            method: Method::POST,
            target: TRIGGERS.to_owned(),
            body: Some(Value::Object(body)),
            version: None,
        },
    )?;
    if enable {
        let id = cell(&Value::Object(created.clone()), "triggerId");
        created = state::enabled(&triggers, &id, Map::new())
            .with_context(|| format!("trigger {id:?} was made and is disabled"))?;
    }
    print_trigger(&created, output, out)
}

/// Whose a trigger is, by its file and by the command line.
fn tenant_of(file: Option<Tenant>, named: Option<Tenant>) -> anyhow::Result<Option<Tenant>> {
    match (file, named) {
        (Some(file), Some(named)) if file != named => Err(usage_error(format!(
            "the file is for the tenant `{file}`, and --tenant names `{named}`: leave one of them \
             out"
        ))),
        (file, named) => Ok(named.or(file)),
    }
}

/// A trigger that was applied, as it is printed.
fn applied_row(trigger: &Value) -> [String; 4] {
    ["triggerId", "tenant", "version", "result"].map(|name| cell(trigger, name))
}

/// All that a file says, for one tenant.
struct ApplyCall<'f> {
    tenant: Option<Tenant>,
    file: &'f DraftFile,
    body: Map<String, Value>,
}

impl ApplyCall<'_> {
    /// Where it went wrong.
    fn place(&self) -> String {
        match &self.tenant {
            Some(tenant) => format!("{}, for tenant {tenant}", self.file.name()),
            None => self.file.name().to_owned(),
        }
    }

    /// It is for the triggers as they were when this was planned. A version that the file says stays.
    fn expect_seen(&mut self, planned: &[Value]) {
        let Some(Value::Object(triggers)) = self.body.get_mut("triggers") else { return };
        for row in planned {
            let Some(Value::Object(fields)) = triggers.get_mut(&cell(row, "triggerId")) else {
                continue;
            };
            let Some(seen) = row.get("seen").cloned() else { continue };
            match fields.get("version").cloned().unwrap_or_default() {
                Value::Number(_) => continue,
                // One that is a text is what its writer calls it.
                text @ Value::String(_) if fields.get("label").is_none_or(Value::is_null) => {
                    fields.insert("label".to_owned(), text);
                }
                _ => {}
            }
            fields.insert("version".to_owned(), seen);
        }
    }
}

/// What is to be done, and for whom. All files are read before anything is done.
fn apply_calls<'f>(
    files: &'f [DraftFile],
    tenants: &[Tenant],
    reason: Option<&str>,
) -> anyhow::Result<Vec<ApplyCall<'f>>> {
    let mut calls: Vec<ApplyCall<'f>> = Vec::new();
    for file in files {
        for tenant in file.tenants(tenants)? {
            if let Some(other) = calls.iter().find(|call| call.tenant == tenant) {
                let whose = tenant.map_or("the key's tenant".to_owned(), |it| it.to_string());
                return Err(usage_error(format!(
                    "{} and {} are both for {whose}: put what is done together into one file, or \
                     apply one after the other",
                    other.file.name(),
                    file.name()
                )));
            }
            let mut body = file.applied_to(tenant.as_ref())?;
            body.extend(reason.map(|reason| ("reason".to_owned(), reason.into())));
            calls.push(ApplyCall { tenant, file, body });
        }
    }
    Ok(calls)
}

pub(super) fn apply(arguments: Apply, out: &mut impl Write) -> anyhow::Result<()> {
    let Apply { files, tenants, reason, enable, dry_run, output, server } = arguments;
    let files: Vec<DraftFile> =
        files.iter().map(|path| DraftFile::read(path)).collect::<anyhow::Result<_>>()?;
    let mut calls = apply_calls(&files, &tenants, reason.as_deref())?;
    let mut triggers = Triggers::new(server.into())?;
    let mut planned = Vec::new();
    for call in &mut calls {
        let mut body = call.body.clone();
        body.insert("dryRun".to_owned(), true.into());
        let plan = triggers.apply(call.tenant.as_ref(), body).with_context(|| call.place())?;
        call.expect_seen(&plan);
        planned.push(plan);
    }
    let (mut done, mut table) = (Vec::new(), Table::new(["ID", "TENANT", "VERSION", "RESULT"]));
    let mut failure = None;
    for (call, planned) in calls.into_iter().zip(planned) {
        let (place, tenant) = (call.place(), call.tenant);
        let applied = if dry_run {
            Ok(planned)
        } else {
            triggers.apply(tenant.as_ref(), call.body).and_then(|applied| {
                if enable { triggers.enable_created(tenant.as_ref(), applied) } else { Ok(applied) }
            })
        };
        match applied.context(place) {
            Ok(applied) if output == Output::Human => {
                let rows = applied.iter().map(applied_row).collect();
                table.print(rows, out)?;
            }
            Ok(applied) => done.extend(applied),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    if output == Output::Json {
        writeln!(out, "{:#}", json!({ "triggers": done }))?;
    }
    out.flush()?;
    failure.map_or(Ok(()), Err)
}

impl Triggers {
    /// Does all that a file says, for one tenant, or says what would be done.
    fn apply(
        &mut self,
        tenant: Option<&Tenant>,
        body: Map<String, Value>,
    ) -> anyhow::Result<Vec<Value>> {
        self.client.act_in(tenant)?;
        let question = Question {
            method: Method::POST,
            target: format!("{TRIGGERS}/apply"),
            body: Some(Value::Object(body)),
            version: None,
        };
        let answer = self.ask(question)?;
        if answer.status == StatusCode::PRECONDITION_FAILED {
            bail!(
                "nothing of it was done: {}; `reveille trigger apply --dry-run` says what it would \
                 do now",
                message(&answer)
            );
        }
        if answer.status != StatusCode::OK {
            return Err(self.refusal("", &answer));
        }
        let mut answer = parse_object(&answer, "triggers")?;
        let applied = answer.remove("triggers").and_then(|it| Some(it.as_array()?.clone()));
        let mut applied = applied.unwrap_or_default();
        let named = || tenant.map(|tenant| tenant.as_str().into());
        let tenant = answer.remove("tenant").or_else(named).unwrap_or_default();
        for trigger in applied.iter_mut().filter_map(Value::as_object_mut) {
            trigger.entry("tenant").or_insert_with(|| tenant.clone());
        }
        Ok(applied)
    }

    /// Enables those that have just been made.
    fn enable_created(
        &mut self,
        tenant: Option<&Tenant>,
        applied: Vec<Value>,
    ) -> anyhow::Result<Vec<Value>> {
        self.tenant = tenant.map_or(super::OWN_TENANT, |it| it.as_str()).to_owned();
        for trigger in applied.iter().filter(|it| cell(it, "result") == "created") {
            let id = cell(trigger, "triggerId");
            state::enabled(self, &id, Map::new())
                .with_context(|| format!("trigger {id:?} was made and is disabled"))?;
        }
        Ok(applied)
    }
}

pub(super) fn update(arguments: Update, out: &mut impl Write) -> anyhow::Result<()> {
    let Update { id, file, fields: given, if_version, output, mut server } = arguments;
    let (mut patch, tenant) = fields(file.as_ref(), given)?;
    take_id(&mut patch, &id)?;
    if patch.is_empty() {
        return Err(usage_error(
            "nothing is to be changed; `reveille trigger update --help` shows what can be",
        ));
    }
    server.tenant = tenant_of(tenant, server.tenant)?;
    let triggers = Triggers::new(server)?;
    let updated = patched(&triggers, &id, patch, if_version)?;
    print_trigger(&updated, output, out)
}

/// Changes a trigger that has this version, or as it is now.
pub(super) fn patched(
    triggers: &Triggers,
    id: &str,
    patch: Map<String, Value>,
    if_version: Option<u64>,
) -> anyhow::Result<Map<String, Value>> {
    let version = match if_version {
        Some(version) => Some(version),
        None => {
            let now = triggers.object(id, triggers.get(id, ""))?;
            now.get("version").and_then(Value::as_u64)
        }
    };
    let question = Question {
        method: Method::PATCH,
        target: triggers.target(id, ""),
        body: Some(Value::Object(patch)),
        version,
    };
    triggers.object(id, question)
}

pub(super) fn delete(arguments: Delete, out: &mut impl Write) -> anyhow::Result<()> {
    let Delete { id, pending, reason, server } = arguments;
    let triggers = Triggers::new(server)?;
    let given = [("pending", pending.map(|it| it.as_str().to_owned())), ("reason", reason)];
    let question = Question {
        method: Method::DELETE,
        target: triggers.target(&id, &query(given)),
        body: None,
        version: None,
    };
    let answer = triggers.ask(question)?;
    if !answer.status.is_success() {
        bail!(triggers.refusal(&id, &answer));
    }
    writeln!(out, "trigger {id} is deleted")?;
    Ok(())
}
