//! One flipped bit in a copy of the data directory: the server refuses to start and says what is
//! damaged, or it serves what was promised or an error. It never serves anything else.
//!
//! One loss cannot be told from a crash: a damaged record at the very end of the log looks like
//! one that was still being written. So the last thing written is one append to a stream of its
//! own in every partition, and only that of the damaged partition may be missing, if the server
//! says that it dropped something.

use std::io::{ErrorKind, Seek as _, SeekFrom, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use harness::http::Connection;
use harness::{Server, Startup, Tally};

use crate::exchange::{self, ExchangeError};
use crate::message::{Append, AppendId, MessageFormat};
use crate::model::{CloseState, Lifecycle, Stream, StreamRead};
use crate::random::Random;
use crate::scratch::Scratch;
use crate::tenants::{TenantPath, Tenants};

const LAST: &str = "/crash/last";
/// Words of which a refusal that does not name the file has at least one.
const DAMAGE: [&str; 6] = ["corrupt", "damage", "checksum", "crc", "mismatch", "invalid"];
/// How much of what the server said is shown with a failure.
const SAID_LINES: usize = 5;
const BLOCK: usize = 4096;
const HOLE: usize = 64 * 1024;
/// Most of a preallocated file is zeros that nobody reads: one flip in so many may hit them.
const ANYWHERE_ONE_IN: u64 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FlipOutcome {
    /// The server does not start, and says what is damaged.
    Refused,
    Harmless,
    /// Reads of what is damaged fail, or the server stopped and said why.
    Reported,
}

struct Flip {
    /// Relative to the data directory.
    file: PathBuf,
    position: usize,
    bit: u8,
}

/// Tries them all, whatever fails: the tally counts a flip that is handled as one passed test.
pub(crate) fn run(
    count: u64,
    scratch: &Scratch,
    tenants: &Tenants,
    mut streams: Vec<Stream>,
    mut random: Random,
) -> anyhow::Result<Tally> {
    let start = Instant::now();
    let data = scratch.data();
    streams.extend(write_last(scratch, tenants)?);
    let files = files(&data)?;
    if files.is_empty() {
        bail!("the data directory is empty");
    }
    println!("{count} flipped bits over {} files", files.len());
    let mut rotation = Vec::new();
    let mut outcomes = [0_u64; 3];
    let mut failed = 0;
    for number in 1..=count {
        if rotation.is_empty() {
            rotation.clone_from(&files);
        }
        let index = random.between(0, rotation.len() as u64) as usize;
        let flip = Flip::choose(&data, rotation.swap_remove(index), &mut random)?;
        let copy = scratch.path().join("flipped");
        copy_all(&data, &copy)?;
        flip.apply(&copy)?;
        let [refused, reported, harmless] = &mut outcomes;
        *match judge(&flip, &copy, scratch, &streams) {
            Ok(FlipOutcome::Refused) => refused,
            Ok(FlipOutcome::Reported) => reported,
            Ok(FlipOutcome::Harmless) => harmless,
            Err(error) => {
                println!("flip {number}, {flip}: {error:#}");
                &mut failed
            }
        } += 1;
    }
    let [refused, reported, harmless] = outcomes;
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{refused} refused at start, {reported} reported, {harmless} harmless, {seconds:.1} s"
    );
    Ok(Tally { passed: refused + reported + harmless, failed })
}

/// The stream of each partition that alone may lose its end, written after everything else.
fn write_last(scratch: &Scratch, tenants: &Tenants) -> anyhow::Result<Vec<Stream>> {
    let server = scratch.start_server_as_is(&[])?;
    let mut connection = server.connect()?;
    let mut streams = Vec::new();
    for partition in 0..scratch.partitions() {
        let tenant = tenants.iter().find(|tenant| tenant.partition == partition);
        let tenant = tenant.context("every partition has a tenant")?.clone();
        let path = TenantPath { tenant, path: LAST.to_owned() };
        streams.push(write_last_stream(&mut connection, path)?);
    }
    server.kill()?;
    Ok(streams)
}

fn write_last_stream(connection: &mut Connection, path: TenantPath) -> anyhow::Result<Stream> {
    let headers = [("content-type", MessageFormat::Text.content_type())];
    let mut stream = Stream::absent(path, MessageFormat::Text);
    stream.lifecycle = Lifecycle::Present;
    // No other partition's, and none of the load's, which counts from one.
    let last_id = AppendId::MAX - 2 * AppendId::from(stream.path.tenant.partition);
    let ids = [last_id - 1, last_id];
    let [first, second] = ids.map(|id| Append { id, pads: vec![100] }.body(MessageFormat::Text));
    for (method, body) in [("PUT", first), ("POST", second)] {
        let answer = exchange::send(connection, method, &stream.path, &headers, &body)?;
        if !matches!(answer.status, 201 | 204) {
            bail!("{method} {}: answered {}", stream.path, answer.status);
        }
        stream.log.settled_end = answer.header("stream-next-offset").map(str::to_owned);
    }
    stream.log.settled = ids.to_vec();
    Ok(stream)
}

fn judge(
    flip: &Flip,
    copy: &Path,
    scratch: &Scratch,
    streams: &[Stream],
) -> anyhow::Result<FlipOutcome> {
    let mut server = match scratch.try_start_on(copy)? {
        Startup::Listening(server) => server,
        Startup::Exited(_, said) => {
            explained(flip, &said)?;
            return Ok(FlipOutcome::Refused);
        }
    };
    let mut outcome = FlipOutcome::Harmless;
    let mut connection = None;
    for stream in streams {
        match read(&mut connection, server.address, &stream.path) {
            Ok(observed) => match difference(stream, observed.as_ref()) {
                None => {}
                Some(_) if is_shorter(flip, stream, observed.as_ref()) => {
                    explained(flip, &server.log_text()).context("the last append is missing")?;
                    outcome = FlipOutcome::Reported;
                }
                Some(difference) => bail!("{}: {difference}", stream.path),
            },
            Err(ExchangeError::ServerError(_)) => outcome = FlipOutcome::Reported,
            Err(ExchangeError::Disconnected(error)) => {
                outcome = FlipOutcome::Reported;
                connection = None;
                if has_ended(&mut server, &error)? {
                    explained(flip, &server.log_text()).context("the server stopped")?;
                    break;
                }
                // An answer that breaks off, or is cut with its connection, is a failed read: a
                // long one finds the damage after its headers have gone. Silence is not.
                let cut = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset];
                if !cut.contains(&error.kind()) {
                    bail!("{}: {error}", stream.path);
                }
            }
            Err(ExchangeError::Violation(violation)) => bail!(violation),
        }
    }
    server.kill()?;
    Ok(outcome)
}

/// Whether the server stopped. Who refuses connections is about to, if it has not already.
fn has_ended(server: &mut Server, error: &std::io::Error) -> anyhow::Result<bool> {
    let looks = if error.kind() == ErrorKind::ConnectionRefused { 100 } else { 1 };
    for look in 0..looks {
        if server.exit_status()?.is_some() {
            return Ok(true);
        }
        if look + 1 < looks {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
    Ok(false)
}

fn read(
    connection: &mut Option<Connection>,
    address: SocketAddr,
    path: &TenantPath,
) -> Result<Option<StreamRead>, ExchangeError> {
    let open = match connection.take() {
        Some(open) => open,
        None => Connection::open(address)?,
    };
    exchange::read_stream(connection.insert(open), path, "-1")
}

/// In what the stream differs from what was promised.
fn difference(stream: &Stream, observed: Option<&StreamRead>) -> Option<String> {
    let Some(observed) = observed else {
        return (stream.lifecycle == Lifecycle::Present).then(|| "is gone".to_owned());
    };
    let promised = &stream.log;
    if stream.lifecycle != Lifecycle::Present {
        Some("is there again".to_owned())
    } else if observed.kind != stream.kind {
        Some(format!("is {:?}", observed.kind))
    } else if observed.appends != promised.settled {
        let (found, expected) = (observed.appends.len(), promised.settled.len());
        Some(format!("has {found} appends, not the {expected} promised, or others"))
    } else if Some(&observed.end) != promised.settled_end.as_ref() {
        Some(format!("ends at {}, not {:?}", observed.end, promised.settled_end))
    } else if observed.is_closed != (stream.close_state != CloseState::Open) {
        Some(format!("closed is {}", observed.is_closed))
    } else {
        None
    }
}

/// Whether this is the last stream of the damaged partition, without its end.
fn is_shorter(flip: &Flip, stream: &Stream, observed: Option<&StreamRead>) -> bool {
    let kept = observed.map_or(&[][..], |observed| &observed.appends);
    let TenantPath { tenant, path } = &stream.path;
    let is_damaged = flip.file.starts_with(format!("partition-{:04}", tenant.partition));
    path == LAST && is_damaged && stream.log.settled.starts_with(kept)
}

/// Whoever refuses must say what is damaged, in words meant for the operator.
fn explained(flip: &Flip, said: &str) -> anyhow::Result<()> {
    let name = flip.file.file_name().unwrap_or_default().to_string_lossy();
    let lower = said.to_lowercase();
    let beginning = said.lines().take(SAID_LINES).collect::<Vec<_>>().join("\n");
    if lower.contains("panicked at") {
        bail!("it panicked:\n{beginning}");
    }
    if !said.contains(&*name) && !DAMAGE.iter().any(|word| lower.contains(word)) {
        bail!("it does not say what is damaged:\n{beginning}");
    }
    Ok(())
}

impl Flip {
    fn choose(data: &Path, file: PathBuf, random: &mut Random) -> anyhow::Result<Flip> {
        let bytes = std::fs::read(data.join(&file))?;
        let used: Vec<usize> = bytes
            .chunks(BLOCK)
            .enumerate()
            .filter(|(_, block)| !is_zero(block))
            .map(|(index, _)| index)
            .collect();
        let anywhere = random.between(0, bytes.len() as u64) as usize;
        let position = match random.pick(&used) {
            Some(block) if !random.one_in(ANYWHERE_ONE_IN) => {
                let start = block * BLOCK;
                let end = bytes.len().min(start + BLOCK);
                random.between(start as u64, end as u64) as usize
            }
            _ => anywhere,
        };
        Ok(Flip { file, position, bit: random.between(0, 8) as u8 })
    }

    fn apply(&self, copy: &Path) -> anyhow::Result<()> {
        let path = copy.join(&self.file);
        let mut bytes = std::fs::read(&path)?;
        *bytes.get_mut(self.position).context("the position lies in the file")? ^= 1 << self.bit;
        Ok(std::fs::write(&path, bytes)?)
    }
}

impl std::fmt::Display for Flip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, byte {}, bit {}", self.file.display(), self.position, self.bit)
    }
}

/// All files that have a bit to flip, relative to `directory`.
fn files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(current) = pending.pop() {
        for entry in std::fs::read_dir(&current)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else if entry.metadata()?.len() > 0 {
                files.push(entry.path().strip_prefix(directory)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn copy_all(from: &Path, to: &Path) -> anyhow::Result<()> {
    if to.exists() {
        std::fs::remove_dir_all(to)?;
    }
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else {
            copy_sparse(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Leaves holes where there are zeros: most of a preallocated log is.
fn copy_sparse(from: &Path, to: &Path) -> anyhow::Result<()> {
    let bytes = std::fs::read(from)?;
    let mut file = std::fs::File::create(to)?;
    file.set_len(bytes.len() as u64)?;
    for (index, block) in bytes.chunks(HOLE).enumerate() {
        if !is_zero(block) {
            file.seek(SeekFrom::Start((index * HOLE) as u64))?;
            file.write_all(block)?;
        }
    }
    Ok(())
}

fn is_zero(block: &[u8]) -> bool {
    // Sixteen at a time: this looks at gigabytes.
    let (wide, rest) = block.as_chunks::<16>();
    wide.iter().all(|bytes| u128::from_ne_bytes(*bytes) == 0) && rest.iter().all(|byte| *byte == 0)
}
