//! Operators: they change triggers while these deliver, and what was in force when is known.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use harness::http::Connection;
use harness::workspace;
use serde_json::{Map, Value, json};

use super::expect;
use super::writer::{KnownChange, WATCHED};
use crate::random::Random;
use crate::requests::{ask, object};
use crate::tenants::{Tenant, Tenants};

/// A trigger for every change of the collection, one with a condition that changes, and one that is
/// for every change while it is enabled.
const ALL: &str = "all";
const PICKY: &str = "picky";
pub(super) const STOPPED: &str = "stopped";

/// What the condition asks of a number: to be divided by one of these.
const MODULI: [u64; 4] = [1, 2, 3, 5];
const LETTERS: &str = "/admin/v1/dlq";

/// What is in force of a trigger from some time on.
#[derive(Debug, Clone, Copy)]
struct Phase {
    version: u64,
    is_active: bool,
    modulus: u64,
    /// Between these it began.
    asked: Instant,
    answered: Instant,
}

/// A trigger, and what was in force when.
#[derive(Debug)]
pub(super) struct Watched {
    pub(super) id: &'static str,
    phases: Vec<Phase>,
    /// When something was asked for that was not answered, and when the server was gone.
    unanswered: Option<(Instant, Option<Instant>)>,
}

/// What is known of a change that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Made,
    Refused,
    Unknown,
}

/// The triggers of a tenant, and what was done about them.
#[derive(Default)]
pub(super) struct Operator {
    pub(super) triggers: Vec<Watched>,
    /// By the name of their rows in the audit log.
    pub(super) answered: BTreeMap<&'static str, u64>,
    replays: Vec<String>,
}

impl Watched {
    /// The versions by which it may be for a change, and whether it is, whenever that was decided.
    pub(super) fn versions_for(&self, change: &KnownChange) -> (Vec<u64>, bool) {
        let ends = self.phases.iter().skip(1).map(|next| Some(next.answered)).chain([None]);
        let possible = self.phases.iter().zip(ends).filter(|(phase, end)| {
            phase.asked <= change.ended && end.is_none_or(|end| change.begun <= end)
        });
        let (mut versions, mut is_certain) = (Vec::new(), true);
        for (phase, _) in possible {
            match phase.is_active && self.is_for(phase, change) {
                true => versions.push(phase.version),
                false => is_certain = false,
            }
        }
        (versions, is_certain)
    }

    fn is_for(&self, phase: &Phase, change: &KnownChange) -> bool {
        let number = || change.after.as_ref()?.get("n")?.as_u64();
        let holds = || number().is_some_and(|n| n.is_multiple_of(phase.modulus));
        change.path.starts_with(WATCHED) && (self.id != PICKY || holds())
    }

    /// A change of the trigger.
    fn change(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
        (method, path): (&'static str, &str),
        body: &Value,
    ) -> anyhow::Result<Change> {
        let asked = Instant::now();
        let target = format!("/admin/v1/triggers/~/{}{path}", self.id);
        let answer = ask(connection, tenant, method, &target, Some(&body.to_string()));
        match answer {
            Ok(answer) if answer.status == 200 => {
                let value = object(&answer).map(Value::Object).unwrap_or_default();
                self.phases.push(phase_of(&value, asked, Instant::now())?);
                Ok(Change::Made)
            }
            // Killed again and again, a server may not have told older changes yet.
            Ok(answer) if answer.status == 409 && answer.text().contains("TRIGGER_BUSY") => {
                Ok(Change::Refused)
            }
            Ok(answer) if answer.status != 503 => {
                bail!("{method} {target}: {} {}", answer.status, answer.text())
            }
            _ => {
                self.unanswered = Some((asked, None));
                Ok(Change::Unknown)
            }
        }
    }
}

/// What is in force, as the server shows it.
fn phase_of(trigger: &Value, asked: Instant, answered: Instant) -> anyhow::Result<Phase> {
    let text = |name: &str| trigger.get(name).and_then(Value::as_str);
    let version = trigger.get("version").and_then(Value::as_u64);
    let condition = text("condition").unwrap_or_default();
    let modulus = condition.split_once("% ").and_then(|(_, rest)| rest.split(' ').next());
    Ok(Phase {
        version: version.with_context(|| format!("no version: {trigger}"))?,
        is_active: text("state").with_context(|| format!("no state: {trigger}"))? == "enabled",
        modulus: modulus.map_or(Ok(1), str::parse)?,
        asked,
        answered,
    })
}

fn condition(modulus: u64) -> String {
    format!("event.type != 'delete' && event.document.n % {modulus} == 0")
}

impl Operator {
    /// Makes the triggers by the command line: where there are keys, it signs what sends.
    pub(super) fn create(
        &mut self,
        server: SocketAddr,
        tenant: &Tenant,
        endpoint: SocketAddr,
    ) -> anyhow::Result<()> {
        let mut definitions = Map::new();
        for id in [ALL, PICKY, STOPPED] {
            let mut definition = json!({
                "collection": WATCHED,
                "events": ["create", "update", "delete"],
                "url": format!("http://{endpoint}/{id}"),
                "timeout": "1s",
                "concurrency": 16,
                "retryPolicy": { "maxAttempts": 6, "maxBackoff": "4s" },
            });
            if let (PICKY, Some(definition)) = (id, definition.as_object_mut()) {
                definition.insert("condition".to_owned(), condition(3).into());
            }
            definitions.insert(id.to_owned(), definition);
            self.triggers.push(Watched { id, phases: Vec::new(), unanswered: None });
        }
        let url = format!("http://{server}");
        let mut command = Command::new(workspace::reveille()?);
        command.args(["trigger", "apply", "--file", "-", "--url", &url]);
        command.args(tenant.key().into_iter().flat_map(|key| ["--key", key]));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        let file = json!({ "triggers": definitions }).to_string();
        // It is closed once all is written, and the command goes on.
        child.stdin.take().context("the input is piped")?.write_all(file.as_bytes())?;
        ensure!(child.wait()?.success(), "the triggers were not made");
        self.enable_all(&mut Connection::open(server)?, tenant)
    }

    pub(super) fn enable_all(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
    ) -> anyhow::Result<()> {
        for place in 0..self.triggers.len() {
            let is_active = self.triggers.get(place).and_then(|it| it.phases.last());
            if !is_active.is_some_and(|phase| phase.is_active) {
                let enabled = self.set_active(connection, tenant, place, true)?;
                ensure!(enabled, "a server that runs answers");
            }
        }
        Ok(())
    }

    /// What was asked for and not answered was done before this, or never.
    pub(super) fn killed(&mut self, killed: Instant) {
        for trigger in &mut self.triggers {
            if let Some((_, end)) = &mut trigger.unanswered {
                *end = Some(killed);
            }
        }
    }

    /// What became of what was not answered.
    pub(super) fn find_out(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
    ) -> anyhow::Result<()> {
        for trigger in &mut self.triggers {
            let target = format!("/admin/v1/triggers/~/{}", trigger.id);
            let shown = expect(connection, tenant, "GET", &target, None, 200)?;
            let asked = trigger.unanswered.take().and_then(|(asked, end)| Some((asked, end?)));
            let now = Instant::now();
            let (asked, answered) = asked.unwrap_or((now, now));
            let found = phase_of(&shown, asked, answered)?;
            let last = trigger.phases.last().context("it was enabled")?;
            let is_same = |one: &Phase, other: &Phase| {
                (one.version, one.is_active, one.modulus)
                    == (other.version, other.is_active, other.modulus)
            };
            if !is_same(last, &found) {
                ensure!(asked < now, "{} is {found:?}, and was {last:?}", trigger.id);
                trigger.phases.push(found);
            }
        }
        Ok(())
    }

    /// Does something; `false` if it is not known whether that was done.
    fn act(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
        random: &mut Random,
    ) -> anyhow::Result<bool> {
        match random.between(0, 5) {
            0 | 1 => self.toggle(connection, tenant),
            2 => self.pick_otherwise(connection, tenant, random),
            3 => self.roll_back(connection, tenant, random),
            _ => self.replay(connection, tenant),
        }
    }

    fn place_of(&self, id: &str) -> anyhow::Result<(usize, Phase)> {
        let place = self.triggers.iter().position(|it| it.id == id).context("no such trigger")?;
        let last = self.triggers.get(place).and_then(|it| it.phases.last()).copied();
        Ok((place, last.context("it was enabled")?))
    }

    fn toggle(&mut self, connection: &mut Connection, tenant: &Tenant) -> anyhow::Result<bool> {
        let (place, last) = self.place_of(STOPPED)?;
        self.set_active(connection, tenant, place, !last.is_active)
    }

    fn set_active(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
        place: usize,
        active: bool,
    ) -> anyhow::Result<bool> {
        let (path, action) = match active {
            true => ("/enable", "trigger.enabled"),
            false => ("/disable", "trigger.disabled"),
        };
        // The endpoint fails too often to be asked how it is.
        let mut body = json!({ "reason": "torture" });
        if let (true, Some(body)) = (active, body.as_object_mut()) {
            body.insert("force".to_owned(), true.into());
        }
        self.change(connection, tenant, place, ("POST", path), &body, action)
    }

    fn pick_otherwise(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
        random: &mut Random,
    ) -> anyhow::Result<bool> {
        let (place, last) = self.place_of(PICKY)?;
        let others: Vec<u64> = MODULI.into_iter().filter(|it| *it != last.modulus).collect();
        let modulus = *random.pick(&others).context("there are others")?;
        let body = json!({ "condition": condition(modulus) });
        self.change(connection, tenant, place, ("PATCH", ""), &body, "trigger.updated")
    }

    /// A version of a while ago takes over, if it is still kept.
    fn roll_back(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
        random: &mut Random,
    ) -> anyhow::Result<bool> {
        let (place, last) = self.place_of(PICKY)?;
        if last.version == 1 {
            return Ok(true);
        }
        let version = last.version - random.between(1, last.version.min(20));
        let body = json!({ "version": version, "reason": "torture" });
        let how = ("POST", "/rollback");
        self.change(connection, tenant, place, how, &body, "trigger.rolled_back")
    }

    fn change(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
        place: usize,
        how: (&'static str, &str),
        body: &Value,
        action: &'static str,
    ) -> anyhow::Result<bool> {
        let trigger = self.triggers.get_mut(place).context("no such trigger")?;
        let change = trigger.change(connection, tenant, how, body)?;
        *self.answered.entry(action).or_default() += u64::from(change == Change::Made);
        Ok(change != Change::Unknown)
    }

    /// Has dead letters made again, if there are any and nobody stands in the way.
    fn replay(&mut self, connection: &mut Connection, tenant: &Tenant) -> anyhow::Result<bool> {
        let target = format!("{LETTERS}/replay");
        let preview = ask(connection, tenant, "POST", &target, Some("{\"dryRun\":true}"));
        let Ok(preview) = preview.map(|answer| (answer.status, object(&answer))) else {
            return Ok(false);
        };
        let (200, Ok(preview)) = preview else { return Ok(true) };
        if preview.get("count").and_then(Value::as_u64) == Some(0) {
            return Ok(true);
        }
        let body = json!({ "previewId": preview.get("previewId"), "reason": "torture" });
        let Ok(answer) = ask(connection, tenant, "POST", &target, Some(&body.to_string())) else {
            return Ok(false);
        };
        match answer.status {
            202 => {
                let begun = object(&answer).unwrap_or_default();
                let id = begun.get("replayId").and_then(Value::as_str).context("no id")?;
                self.replays.push(id.to_owned());
                *self.answered.entry("replay.executed").or_default() += 1;
            }
            // One of the triggers is disabled, or another replay has had some of them.
            409 | 503 => {}
            status => bail!("a replay: {status} {}", answer.text()),
        }
        Ok(true)
    }

    /// What is not finished; dead letters are made again.
    pub(super) fn unfinished(
        &mut self,
        connection: &mut Connection,
        tenant: &Tenant,
    ) -> anyhow::Result<Option<String>> {
        for id in &self.replays {
            let target = format!("{LETTERS}/replays/{id}");
            let shown = expect(connection, tenant, "GET", &target, None, 200)?;
            if shown.get("state").and_then(Value::as_str) != Some("done") {
                return Ok(Some(format!("a replay goes on: {shown}")));
            }
        }
        for id in [ALL, PICKY, STOPPED] {
            let target = format!("/admin/v1/triggers/~/{id}/status");
            let shown = expect(connection, tenant, "GET", &target, None, 200)?;
            let count = |name: &str| shown.pointer(name).and_then(Value::as_u64).context("a count");
            let open = count("/pending")? + count("/retrying")? + count("/lag/seq")?;
            let dead = count("/dlq")?;
            if open == 0 && dead > 0 {
                self.replay(connection, tenant)?;
            }
            if open + dead > 0 {
                return Ok(Some(format!("{id} is not done: {shown}")));
            }
        }
        Ok(None)
    }
}

/// Operates until the server is killed, or does not say what became of something.
pub(super) fn run(
    address: SocketAddr,
    tenants: &Tenants,
    mut operators: Vec<&mut Operator>,
    random: &mut Random,
) -> anyhow::Result<()> {
    let Ok(mut connection) = Connection::open(address) else { return Ok(()) };
    loop {
        std::thread::sleep(Duration::from_millis(random.between(0, 40)));
        let number = usize::try_from(random.between(0, tenants.len() as u64))?;
        let (tenant, _) = tenants.turn(number);
        let operator = operators.get_mut(number).context("each tenant has one")?;
        if !operator.act(&mut connection, &tenant, random)? {
            return Ok(());
        }
    }
}
