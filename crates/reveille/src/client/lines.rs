//! Standard input: all of it, or line by line from a thread of its own.

use std::io::{self, BufRead, Read as _};
use std::thread;

use anyhow::{Context as _, ensure};
use tokio::sync::mpsc;

/// The largest body that any server takes; nothing larger is held in memory.
const INPUT_BYTES_MAX: u64 = 32 << 20;
/// Lines that are read ahead of the appends.
const LINES_AHEAD: usize = 1_000;

/// Everything up to the end.
pub(crate) fn read_all() -> anyhow::Result<Vec<u8>> {
    let mut input = Vec::new();
    let read = io::stdin().lock().take(INPUT_BYTES_MAX + 1).read_to_end(&mut input);
    let read = read.context("cannot read standard input")?;
    ensure!(
        u64::try_from(read)? <= INPUT_BYTES_MAX,
        "standard input is larger than 32 MiB, the most that fits into one append; use --lines"
    );
    Ok(input)
}

/// The lines of standard input, each with its line end. They are read while appends are under way.
pub(crate) fn read_lines() -> mpsc::Receiver<anyhow::Result<Vec<u8>>> {
    let (sender, lines) = mpsc::channel(LINES_AHEAD);
    // The thread may outlive its receiver in a read from a terminal; it ends with the program.
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        while let Some(line) = read_line(&mut input).transpose() {
            let is_err = line.is_err();
            if sender.blocking_send(line).is_err() || is_err {
                return;
            }
        }
    });
    lines
}

fn read_line(input: &mut impl BufRead) -> anyhow::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = input.take(INPUT_BYTES_MAX + 1).read_until(b'\n', &mut line);
    let read = read.context("cannot read standard input")?;
    ensure!(
        u64::try_from(read)? <= INPUT_BYTES_MAX,
        "a line is longer than 32 MiB, the most that fits into one append"
    );
    Ok((read > 0).then_some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_ends() {
        let mut input = &b"a\n\nb\r\nc"[..];
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut input).unwrap() {
            lines.push(String::from_utf8(line).unwrap());
        }
        assert_eq!(lines, ["a\n", "\n", "b\r\n", "c"]);
    }
}
