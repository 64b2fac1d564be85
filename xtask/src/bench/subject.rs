//! The servers that are measured: where each comes from and how it is started.
//!
//! Every one answers an append only after `fdatasync` (see docs/benchmarks.md for where that was
//! checked), keeps its defaults otherwise, and listens on 127.0.0.1.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::server;
use super::workers::Run;

/// The name of the subject that the others are compared with.
pub(super) const OURS: &str = "reveille";
/// Everyone, and those that wake consumers.
pub(super) const EVERYONE: &[&str] = &[OURS, "durable-streams", "npm"];
pub(super) const WAKING: &[&str] = &[OURS, "npm"];
pub(super) const ALONE: &[&str] = &[OURS];
/// Those that deliver, and the limit of what delivering can be.
pub(super) const DELIVERING: &[&str] = &[OURS, "plain-loop"];

pub(super) struct Subject {
    /// As on the command line.
    pub(super) name: &'static str,
    /// As in the report.
    pub(super) title: &'static str,
    /// Of its bars in the chart.
    pub(super) color: &'static str,
    /// Thousands of appends per second, or hundreds: a slow one gets less work in some cells.
    pub(super) fast: bool,
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
}

pub(super) const ALL: [Subject; 4] = [
    Subject {
        name: OURS,
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
];

/// Starts the npm server on a free port, with its file-backed store; wakes must be switched on.
const LAUNCHER: &str = r#"import { DurableStreamTestServer } from "./node_modules/@durable-streams/server/dist/index.js"

const options = { port: 0, host: "127.0.0.1", dataDir: process.argv[2], webhooks: true }
const server = new DurableStreamTestServer(options)
console.log(`listening on ${await server.start()}`)
"#;

impl Subject {
    /// Builds or installs it under `target`, unless that was done before.
    pub(super) fn obtain(&self, root: &Path) -> anyhow::Result<()> {
        match &self.origin {
            Origin::Workspace => {
                run(cargo().args(["build", "--release", "--package", "reveille"]), root)
            }
            Origin::Loop => {
                let example = ["--package", "reveille-deliver", "--example", "plain_loop"];
                run(cargo().args(["build", "--release"]).args(example), root)
            }
            Origin::Crate { name, version, .. } => {
                let peers = root.join("target/peers");
                let installed = std::fs::read_to_string(peers.join(".crates.toml"));
                if installed.is_ok_and(|list| list.contains(&format!("\"{name} {version} "))) {
                    return Ok(());
                }
                let mut install = cargo();
                install.args(["install", "--locked", name, "--version", version, "--root"]);
                run(install.arg(peers), root)
            }
            Origin::Npm { name, version } => {
                let directory = root.join("target/peers/npm");
                std::fs::create_dir_all(&directory)?;
                std::fs::write(directory.join("launch.mjs"), LAUNCHER)?;
                let manifest = directory.join("node_modules").join(name).join("package.json");
                if version_of(&manifest).is_some_and(|found| found == *version) {
                    return Ok(());
                }
                let package = format!("{name}@{version}");
                let mut install = Command::new("npm");
                install.args(["install", "--no-audit", "--no-fund", "--prefix", "."]);
                run(install.arg(package), &directory)
            }
        }
    }

    /// Whether it only calls, and keeps nothing.
    pub(super) fn is_loop(&self) -> bool {
        matches!(self.origin, Origin::Loop)
    }

    /// The command that serves `data`. It prints `listening on http://ADDRESS` when it is ready.
    pub(super) fn command(&self, root: &Path, data: &Path, told: &Run) -> anyhow::Result<Command> {
        let mut command = match &self.origin {
            Origin::Workspace => {
                let mut command = Command::new(root.join("target/release/reveille"));
                command.args(["serve", "--listen", "127.0.0.1:0"]).args(&told.flags);
                command.arg("--data-dir");
                command
            }
            Origin::Loop => {
                let called = told.called.as_ref().context("there is something to call")?;
                let mut command = Command::new(root.join("target/release/examples/plain_loop"));
                command.arg(&called.address);
                command.args([called.hooks, called.in_flight].map(|number| number.to_string()));
                return Ok(command);
            }
            Origin::Crate { binary, .. } => {
                let mut command = Command::new(root.join("target/peers/bin").join(binary));
                // It prints the port it was given, not the one it got, so 0 will not do.
                let port = server::free_port()?.to_string();
                command.args(["--durability", "wal", "--host", "127.0.0.1", "--port", &port]);
                command.arg("--data-dir");
                command
            }
            Origin::Npm { .. } => {
                let mut command = Command::new("node");
                command.arg(root.join("target/peers/npm/launch.mjs"));
                command
            }
        };
        command.arg(data);
        Ok(command)
    }
}

/// The cargo that runs us, so that a toolchain chosen on the command line stays chosen.
pub(super) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

pub(super) fn run(command: &mut Command, directory: &Path) -> anyhow::Result<()> {
    let status = command
        .current_dir(directory)
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

fn version_of(manifest: &Path) -> Option<String> {
    let manifest = std::fs::read(manifest).ok()?;
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).ok()?;
    Some(manifest.get("version")?.as_str()?.to_owned())
}
