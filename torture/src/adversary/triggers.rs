//! Attacks with triggers: conditions that take long, changes of the past held against them, and
//! endpoints that hang behind hot documents.

use std::process::Command;

use anyhow::ensure;
use harness::workspace;
use serde_json::{Value, json};

use super::Target;
use super::endpoint::HANG;

/// Triggers on one collection.
const TRIGGERS: usize = 100;
/// As many writes as one transaction may have.
const OPS: usize = 500;
/// As long a list as a condition may look at.
const LIST: usize = 1_000;

impl Target {
    /// What an operator of the loud tenant does, signed as it has to be.
    fn command(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let key = self.authorization.trim_start_matches("Bearer ");
        let mut command = Command::new(workspace::reveille()?);
        command.env("REVEILLE_URL", format!("http://{}", self.server)).env("REVEILLE_KEY", key);
        let output = command.args(arguments).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {said}", arguments.join(" "));
        Ok(())
    }

    /// Triggers of one collection that send.
    fn enable_triggers(&self, count: usize, definition: &Value) -> anyhow::Result<()> {
        self.command(&["secret", "create"])?;
        let triggers: serde_json::Map<String, Value> =
            (0..count).map(|number| (format!("t{number}"), definition.clone())).collect();
        let file = workspace::scratch("adversary-triggers-file")?.join("triggers.json");
        std::fs::write(&file, json!({ "triggers": triggers }).to_string())?;
        self.command(&["trigger", "apply", "-f", &file.to_string_lossy()])?;
        for number in 0..count {
            let id = format!("t{number}");
            self.command(&["trigger", "enable", &id, "--force", "--reason", "it hangs"])?;
        }
        Ok(())
    }
}

fn patches(key: &str, path: impl Fn(usize) -> String) -> (&'static str, String, String) {
    let op = |n| json!({ "type": "set", "path": path(n), "data": { "n": n } });
    let ops: Vec<Value> = (0..OPS).map(op).collect();
    let body = json!({ "idempotencyKey": key, "ops": ops }).to_string();
    ("POST", "/api/v1/batch".to_owned(), body)
}

/// Conditions as costly as they may be, all of them asked about every write, and held against
/// changes of the past.
pub(super) fn costly_conditions(target: &Target) -> anyhow::Result<String> {
    let condition = "event.document.list.all(x, x < 1000000) && event.document.n < 0";
    let definition = json!({
        "collection": "costly", "events": ["create", "update", "delete"], "condition": condition,
        "url": format!("http://{}{HANG}", target.endpoint),
    });
    target.enable_triggers(TRIGGERS, &definition)?;
    let list: Vec<usize> = (0..LIST).collect();
    let (done, refused) = target.prepared().together(|client, turn| match (client, turn % 4) {
        (0 | 1, _) => {
            let target = format!("/admin/v1/triggers/loud/t{}/backtest", turn % TRIGGERS);
            ("POST", target, json!({ "definition": definition }).to_string())
        }
        (_, 0) => patches(&format!("c-{client}-{turn}"), |n| format!("costly/{n}")),
        _ => {
            let doc = json!({ "doc": { "n": turn, "list": list } });
            ("PUT", format!("/api/v1/costly/{client}"), doc.to_string())
        }
    })?;
    ensure!(done > 0, "{done} done, {refused} refused");
    Ok(format!("{done} writes and backtests of {TRIGGERS} costly conditions, {refused} refused"))
}

/// Hot documents whose changes are for many triggers, all of which hang.
pub(super) fn hanging_triggers(target: &Target) -> anyhow::Result<String> {
    let definition = json!({
        "collection": "hot", "events": ["create", "update", "delete"], "concurrency": 64,
        "url": format!("http://{}{HANG}", target.endpoint), "timeout": "30s",
    });
    target.enable_triggers(20, &definition)?;
    let (done, refused) = target.prepared().together(|client, turn| match turn % 3 {
        0 => patches(&format!("h-{client}-{turn}"), |n| format!("hot/{}", n % 3)),
        1 => patches(&format!("h-{client}-{turn}"), |n| format!("hot/{client}-{turn}-{n}")),
        _ => ("GET", format!("/admin/v1/triggers/loud/t{}/status", turn % 20), String::new()),
    })?;
    ensure!(done > 0, "{done} done, {refused} refused");
    Ok(format!("{done} transactions for 20 triggers that hang, {refused} refused"))
}
