//! PostgreSQL, as Debian packages it: a cluster of its own for each run, under a user of its own.

use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use harness::server::free_port;

/// Where the package puts its programs.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// Who may run it when we are root, whom it refuses: the first that there is.
const USERS: [&str; 2] = ["postgres", "nobody"];

/// Makes a cluster, says when it takes connections, and becomes the server, so that whoever kills
/// this process kills the server. Whatever decides whether an answer is on disk is said.
const SCRIPT: &str = r#"set -e
bin=$1 data=$2 port=$3
"$bin/initdb" -D "$data/cluster" -U bench -A trust -E UTF8 --locale=C --no-sync >&2
(
  tries=0
  until "$bin/pg_isready" -q -h 127.0.0.1 -p "$port"; do
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || exit 1
    sleep 0.1
  done
  echo "listening on http://127.0.0.1:$port"
) &
exec "$bin/postgres" -D "$data/cluster" -p "$port" -h 127.0.0.1 -k "" \
  -c fsync=on -c synchronous_commit=on >&2
"#;

/// The package is there.
pub(crate) fn obtain() -> anyhow::Result<()> {
    let missing = ["initdb", "postgres", "pg_isready"]
        .into_iter()
        .find(|program| !Path::new(PROGRAMS).join(program).exists());
    ensure!(
        missing.is_none(),
        "{PROGRAMS} has no {}; install PostgreSQL 15 with `apt-get install postgresql-15`, or leave \
         it out with --subjects",
        missing.unwrap_or_default()
    );
    Ok(())
}

/// The command that serves a new cluster in `data`.
pub(crate) fn command(data: &Path) -> anyhow::Result<Command> {
    let data = data.canonicalize()?;
    let mut command = Command::new("sh");
    command.arg("-c").arg(SCRIPT).arg("sh").arg(PROGRAMS).arg(&data);
    command.arg(free_port()?.to_string()).current_dir("/");
    if std::fs::metadata("/proc/self")?.uid() == 0 {
        let users = std::fs::read_to_string("/etc/passwd")?;
        let user = USERS.iter().find_map(|name| ids_of(&users, name));
        let (user, group) = user.context("there is no user that could run PostgreSQL")?;
        chown(&data, Some(user), Some(group))?;
        command.uid(user).gid(group);
    }
    Ok(command)
}

/// The ids of a user and of its group, out of `/etc/passwd`.
fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        let ids = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
        is_it.then_some(ids)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\npostgresql:x:7:8::/:/x\npostgres:x:105:109:,,:/v:/b";
        assert_eq!(ids_of(users, "postgres"), Some((105, 109)));
        assert_eq!(ids_of(users, "nobody"), None);
    }
}
