//! The load generator as a process of its own, the same one for every subject.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use harness::{Server, command, workspace};
use serde_json::Value;

pub(crate) struct Generator {
    program: PathBuf,
    first: Vec<&'static str>,
}

impl Generator {
    /// `reveille bench`, or the same library alone when reveille is not among the subjects.
    pub(crate) fn build(target: &Path, with_server: bool) -> anyhow::Result<Generator> {
        let release = target.join("release");
        if with_server {
            return Ok(Generator { program: release.join("reveille"), first: vec!["bench"] });
        }
        let example = ["build", "--release", "--package", "reveille-load", "--example", "load"];
        command::call_quietly(&mut workspace::cargo(&example))?;
        Ok(Generator { program: release.join("examples/load"), first: Vec::new() })
    }

    /// Runs the generator against a server and returns its report. After `limit` it is killed.
    pub(crate) fn run(
        &self,
        arguments: &[String],
        server: &Server,
        limit: Duration,
    ) -> anyhow::Result<Value> {
        let mut command = Command::new(&self.program);
        command.args(&self.first).args(arguments);
        command.args(["--output", "json", "--url", &server.url()]);
        command.args(["--pid", &server.pid().to_string()]);
        // A refusal is one sentence; where in the generator it was raised helps nobody.
        command.env("RUST_BACKTRACE", "0").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = GeneratorProcess(command.spawn().context("cannot start the generator")?);
        let mut output = process.0.stdout.take().context("the output is piped")?;
        let (done, finished) = mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = done.send(output.read_to_string(&mut text).map(|_| text));
        });
        let text = finished
            .recv_timeout(limit)
            .with_context(|| format!("the generator was not done in {} s", limit.as_secs()))??;
        let status = process.0.wait()?;
        ensure!(status.success(), "the generator ended with {status}");
        serde_json::from_str(&text).context("the generator's report is not JSON")
    }
}

struct GeneratorProcess(Child);

impl Drop for GeneratorProcess {
    fn drop(&mut self) {
        // After `wait` this does nothing; before it, the process must not outlive us.
        let ended = self.0.kill().and_then(|()| self.0.wait());
        if let Err(error) = ended {
            eprintln!("cannot end process {}: {error}", self.0.id());
        }
    }
}
