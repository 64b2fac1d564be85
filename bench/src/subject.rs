//! The servers that are measured: where each comes from and how it is started.
//!
//! Every one answers an append only after `fdatasync` (see docs/benchmarks.md for where that was
//! checked), keeps its defaults otherwise, and listens on 127.0.0.1.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use harness::command::call_quietly;
use harness::server::free_port;
use harness::workspace::cargo;

use crate::postgres;
use crate::setup::RunSettings;

/// The name of the subject that the others are compared with.
pub(crate) const REVEILLE: &str = "reveille";
/// Everyone, and those that wake consumers.
pub(crate) const STREAM_SERVERS: &[&str] = &[REVEILLE, "durable-streams", "npm"];
pub(crate) const WAKE_SERVERS: &[&str] = &[REVEILLE, "npm"];
pub(crate) const REVEILLE_ONLY: &[&str] = &[REVEILLE];
/// Those that deliver, and the limit of what delivering can be.
pub(crate) const DELIVERY_SERVERS: &[&str] = &[REVEILLE, "plain-loop"];
/// Those that have documents.
pub(crate) const DOCUMENT_SERVERS: &[&str] = &[REVEILLE, "postgres"];

pub(crate) struct Subject {
    /// As on the command line.
    pub(crate) name: &'static str,
    /// As in the report.
    pub(crate) title: &'static str,
    /// Of its bars in the chart.
    pub(crate) color: &'static str,
    /// Thousands of appends per second, or hundreds: a slow one gets less work in some cells.
    pub(crate) fast: bool,
    origin: Origin,
}

enum Origin {
    Workspace,
    Crate {
        name: &'static str,
        version: &'static str,
        binary: &'static str,
    },
    Npm {
        name: &'static str,
        version: &'static str,
    },
    /// No server: a loop that calls the endpoint with the server's own client.
    Loop,
    /// Debian's package of version 15.
    Postgres,
}

pub(crate) const ALL: [Subject; 5] = [
    Subject {
        name: REVEILLE,
        title: "reveille",
        color: "#d9480f",
        fast: true,
        origin: Origin::Workspace,
    },
    Subject {
        name: "durable-streams",
        title: "durable-streams 0.1.5 (Rust)",
        color: "#1c7ed6",
        fast: true,
        origin: Origin::Crate {
            name: "durable-streams",
            version: "0.1.5",
            binary: "durable-streams-server",
        },
    },
    Subject {
        name: "npm",
        title: "@durable-streams/server 0.3.7 (Node)",
        color: "#868e96",
        fast: false,
        origin: Origin::Npm { name: "@durable-streams/server", version: "0.3.7" },
    },
    Subject {
        name: "plain-loop",
        title: "plain loop, nothing kept",
        color: "#2f9e44",
        fast: true,
        origin: Origin::Loop,
    },
    Subject {
        name: "postgres",
        title: "PostgreSQL 15",
        color: "#7048e8",
        fast: true,
        origin: Origin::Postgres,
    },
];

/// Starts the npm server on a free port, with its file-backed store; wakes must be switched on.
const LAUNCHER: &str = r#"import { DurableStreamTestServer } from "./node_modules/@durable-streams/server/dist/index.js"

const options = { port: 0, host: "127.0.0.1", dataDir: process.argv[2], webhooks: true }
const server = new DurableStreamTestServer(options)
console.log(`listening on ${await server.start()}`)
"#;

pub(crate) fn names() -> Vec<&'static str> {
    ALL.iter().map(|subject| subject.name).collect()
}

impl Subject {
    /// Builds or installs it under `target`, unless that was done before.
    pub(crate) fn obtain(&self, target: &Path) -> anyhow::Result<()> {
        match &self.origin {
            Origin::Workspace => {
                call_quietly(&mut cargo(&["build", "--release", "--package", "reveille"]))
            }
            Origin::Loop => {
                let example = ["--package", "reveille-deliver", "--example", "plain_loop"];
                call_quietly(cargo(&["build", "--release"]).args(example))
            }
            Origin::Postgres => postgres::obtain(),
            Origin::Crate { name, version, .. } => {
                let peers = target.join("peers");
                let installed = std::fs::read_to_string(peers.join(".crates.toml"));
                if installed.is_ok_and(|list| list.contains(&format!("\"{name} {version} "))) {
                    return Ok(());
                }
                let install = ["install", "--locked", name, "--version", version, "--root"];
                call_quietly(cargo(&install).arg(peers))
            }
            Origin::Npm { name, version } => {
                let directory = target.join("peers/npm");
                std::fs::create_dir_all(&directory)?;
                std::fs::write(directory.join("launch.mjs"), LAUNCHER)?;
                let manifest = directory.join("node_modules").join(name).join("package.json");
                if version_of(&manifest).is_some_and(|found| found == *version) {
                    return Ok(());
                }
                let package = format!("{name}@{version}");
                let mut install = Command::new("npm");
                install.args(["install", "--no-audit", "--no-fund", "--prefix", "."]);
                call_quietly(install.arg(package).current_dir(&directory))
            }
        }
    }

    /// What the generator is told beside its work.
    pub(crate) fn generator_arguments(&self) -> Vec<String> {
        match self.origin {
            Origin::Postgres => vec!["--postgres".to_owned()],
            _ => Vec::new(),
        }
    }

    /// Whether it only calls, and keeps nothing.
    pub(crate) fn is_loop(&self) -> bool {
        matches!(self.origin, Origin::Loop)
    }

    /// The command that serves `data`. It prints `listening on http://ADDRESS` when it is ready.
    pub(crate) fn command(
        &self,
        target: &Path,
        data: &Path,
        settings: &RunSettings,
    ) -> anyhow::Result<Command> {
        let mut command = match &self.origin {
            Origin::Workspace => {
                let mut command = Command::new(target.join("release/reveille"));
                command.args(["serve", "--listen", "127.0.0.1:0"]).args(&settings.server_flags);
                command.arg("--data-dir");
                command
            }
            Origin::Loop => {
                let called = settings.loop_target.as_ref();
                let called = called.context("there is something to call")?;
                let mut command = Command::new(target.join("release/examples/plain_loop"));
                command.arg(&called.address);
                command.args([called.hooks, called.in_flight].map(|number| number.to_string()));
                return Ok(command);
            }
            Origin::Postgres => return postgres::command(data),
            Origin::Crate { binary, .. } => {
                let mut command = Command::new(target.join("peers/bin").join(binary));
                // It prints the port it was given, not the one it got, so 0 will not do.
                let port = free_port()?.to_string();
                command.args(["--durability", "wal", "--host", "127.0.0.1", "--port", &port]);
                command.arg("--data-dir");
                command
            }
            Origin::Npm { .. } => {
                let mut command = Command::new("node");
                command.arg(target.join("peers/npm/launch.mjs"));
                command
            }
        };
        command.arg(data);
        Ok(command)
    }
}

fn version_of(manifest: &Path) -> Option<String> {
    let manifest = std::fs::read(manifest).ok()?;
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).ok()?;
    Some(manifest.get("version")?.as_str()?.to_owned())
}
