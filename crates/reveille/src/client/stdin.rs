//! Standard input: all of it, or line by line or value by value from a thread of its own.

use std::cell::Cell;
use std::io::{self, BufRead, BufReader, Read};
use std::rc::Rc;
use std::thread;

use anyhow::{Context as _, anyhow, ensure};
use serde_json::value::RawValue;
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

/// The JSON values of standard input, one after another; lines matter to nobody.
pub(crate) fn read_values() -> mpsc::Receiver<anyhow::Result<Box<RawValue>>> {
    let (sender, values) = mpsc::channel(LINES_AHEAD);
    thread::spawn(move || {
        for value in parse_values(BufReader::new(io::stdin().lock())) {
            let is_err = value.is_err();
            if sender.blocking_send(value).is_err() || is_err {
                return;
            }
        }
    });
    values
}

fn parse_values(input: impl Read) -> impl Iterator<Item = anyhow::Result<Box<RawValue>>> {
    let left = Rc::new(Cell::new(INPUT_BYTES_MAX));
    let input = Bounded { input, left: left.clone() };
    serde_json::Deserializer::from_reader(input).into_iter().map(move |value| {
        left.set(INPUT_BYTES_MAX);
        value.map_err(|error| anyhow!("standard input is not JSON ({error})"))
    })
}

/// Gives no more than a value may have.
struct Bounded<R> {
    input: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        let read_bytes = u64::try_from(read).map_err(io::Error::other)?;
        match self.left.get().checked_sub(read_bytes) {
            Some(left) => self.left.set(left),
            None => return Err(io::Error::other("a value is larger than 32 MiB")),
        }
        Ok(read)
    }
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

    #[test]
    fn values_follow_each_other_in_any_layout() {
        let read = |text: &str| -> Vec<Result<String, String>> {
            let values = parse_values(text.as_bytes());
            let value = |it: anyhow::Result<Box<RawValue>>| match it {
                Ok(value) => Ok(value.get().to_owned()),
                Err(error) => Err(error.to_string()),
            };
            values.map(value).collect()
        };
        let expected = ["{\"a\":1.0}", "{\n \"b\": [1]\n}", "[1,2]"];
        let expected: Vec<_> = expected.iter().map(|it| Ok((*it).to_owned())).collect();
        assert_eq!(read("{\"a\":1.0}\n\n{\n \"b\": [1]\n} [1,2]"), expected);
        assert_eq!(read(" \n"), []);
        let broken = read("{}\n{oops}\n");
        assert!(broken[1].as_ref().unwrap_err().contains("line 2"), "{broken:?}");
    }
}
