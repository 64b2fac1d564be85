//! The hosts file: names that the machine's owner has given addresses.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

pub(super) const SYSTEM_PATH: &str = "/etc/hosts";

/// A file of names, which is read again when it has changed.
pub(super) struct HostsFile {
    path: PathBuf,
    read: Mutex<ReadHosts>,
}

#[derive(Default)]
struct ReadHosts {
    /// When the file that was read had been written; `None` if there was none.
    written: Option<SystemTime>,
    names: Arc<HashMap<String, Vec<IpAddr>>>,
}

impl HostsFile {
    pub(super) fn new(path: &Path) -> HostsFile {
        HostsFile { path: path.to_owned(), read: Mutex::default() }
    }

    /// The addresses of a name; none if the file has it not. A file that cannot be read has no names.
    pub(super) fn find(&self, host: &str) -> Vec<IpAddr> {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        self.names().get(&host).cloned().unwrap_or_default()
    }

    fn names(&self) -> Arc<HashMap<String, Vec<IpAddr>>> {
        let written = std::fs::metadata(&self.path).and_then(|it| it.modified()).ok();
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.written != written {
            let text = std::fs::read_to_string(&self.path).unwrap_or_default();
            *read = ReadHosts { written, names: Arc::new(parse(&text)) };
        }
        read.names.clone()
    }
}

/// Lines of an address and its names; what follows a `#` is a remark.
fn parse(text: &str) -> HashMap<String, Vec<IpAddr>> {
    let mut names: HashMap<String, Vec<IpAddr>> = HashMap::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(address) = words.next().and_then(|word| word.parse().ok()) else { continue };
        for name in words {
            let addresses = names.entry(name.to_ascii_lowercase()).or_default();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_addresses_that_the_file_gives_them() {
        let names = parse(
            "127.0.0.1 localhost\n::1\tlocalhost ip6-localhost # here\n\
             # 10.0.0.9 nobody\nfe80::1%eth0 scoped\n\n10.0.0.1   Db.Internal db\n10.0.0.2 db\n",
        );
        let of = |name: &str| -> Vec<String> {
            names.get(name).into_iter().flatten().map(IpAddr::to_string).collect()
        };
        assert_eq!(of("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(of("db.internal"), ["10.0.0.1"]);
        assert_eq!(of("db"), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!((of("nobody"), of("scoped")), (Vec::new(), Vec::new()));
    }

    #[test]
    fn the_file_is_read_again_when_it_has_changed_and_need_not_be_there() {
        let directory = std::env::temp_dir().join(format!("reveille-hosts-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("hosts");
        let hosts = HostsFile::new(&path);
        assert!(hosts.find("a").is_empty());
        std::fs::write(&path, "192.0.2.1 a\n").unwrap();
        assert_eq!(hosts.find("A."), [IpAddr::from([192, 0, 2, 1])]);
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(hosts.find("a").is_empty());
    }
}
