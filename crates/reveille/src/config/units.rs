//! Settings that are written with a unit or in a form of their own: times, sizes, addresses.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use reveille_core::delivery::policy::Poison;
use reveille_core::event::worker::{Binding, WorkerTemplate};
use reveille_core::fact::wake::WakeTemplate;
use reveille_core::key::{CHOSEN_KEY_CHARS_MIN, KeyHash};
use reveille_core::limits::KEY_BYTES_MAX;
use reveille_core::time::{measure, parse_period_ms};
use reveille_deliver::destination::Network;
use reveille_deliver::resolve::NameServers;
use serde::de::{Deserialize, Deserializer, Error as _};

/// A length of time, written `500ms`, `45s`, `10m`, `1h` or `3d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    pub(crate) ms: u64,
}

/// A number of bytes, written `4096`, `64KiB`, `256MiB` or `2GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
}

/// An address to listen on, written `127.0.0.1:4437`, `localhost:4437` or `[::1]:4437`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) SocketAddr);

/// The base of a URL, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PublicUrl(pub(crate) String);

/// A factor, written `0.01`, `1` or `2.5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Factor {
    pub(crate) thousandths: u64,
}

/// Networks, written as CIDRs with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Networks(pub(crate) Vec<Network>);

/// Name servers, written as addresses with or without a port, with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerAddresses(pub(crate) Vec<SocketAddr>);

/// When a delivery is given up because nothing will change, written `3/250ms`; `0`: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoisonRule(pub(crate) Option<Poison>);

/// Failures that are looked back upon, and the longest that each may take.
const POISON_ATTEMPTS_MAX: u32 = 100;
const POISON_MS_MAX: u64 = 3_600_000;

/// Where name servers listen that have no port.
const NAME_SERVER_PORT: u16 = 53;

/// What is kept of a key that an operator chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AdminKey(pub(crate) KeyHash);

/// Where workers are called, written as a URL with `{workerId}` and `{rpcMethod}` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerUrlTemplate(pub(crate) WorkerTemplate);

/// A worker by name, written `NAME=URL`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkerBinding(pub(crate) Binding);

/// Where agents are woken, written as a path with `{wake_agent_id}` in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WakeStreamTemplate(pub(crate) WakeTemplate);

const SIZES: [(&str, u64); 6] =
    [("", 1), ("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Period, String> {
        let ms = parse_period_ms(text).ok_or_else(|| {
            format!(
                "{text:?} is not a time; write a whole number and a unit: 500ms, 45s, 10m, 1h or 3d"
            )
        })?;
        Ok(Period { ms })
    }
}

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Factor, String> {
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let is_short =
            whole.len() <= 6 && part.len() <= 3 && !(whole.is_empty() && part.is_empty());
        if !is_short || !is_digits(whole) || !is_digits(part) {
            return Err(format!(
                "{text:?} is not a factor; write a number with at most three decimals, like 0.01"
            ));
        }
        let number = |text: &str| text.parse::<u64>().unwrap_or(0);
        Ok(Factor { thousandths: number(whole) * 1_000 + number(&format!("{part:0<3}")) })
    }
}

impl FromStr for PoisonRule {
    type Err = String;

    fn from_str(text: &str) -> Result<PoisonRule, String> {
        if text == "0" {
            return Ok(PoisonRule(None));
        }
        let rule = text.split_once('/').and_then(|(attempts, within)| {
            let attempts = attempts.parse().ok()?;
            Some(Poison { attempts, within_ms: parse_period_ms(within)? })
        });
        let is_sane = |rule: &Poison| {
            (1..=POISON_ATTEMPTS_MAX).contains(&rule.attempts) && rule.within_ms <= POISON_MS_MAX
        };
        let rule = rule.filter(is_sane).ok_or_else(|| {
            format!(
                "{text:?} is no such rule; write failures and a time, like 3/250ms (at most \
                 {POISON_ATTEMPTS_MAX}/1h), or 0 to turn it off"
            )
        })?;
        Ok(PoisonRule(Some(rule)))
    }
}

impl FromStr for AdminKey {
    type Err = String;

    fn from_str(text: &str) -> Result<AdminKey, String> {
        // What is wrong is said without the key: the sentence ends in logs.
        let message = format!(
            "an admin key has {CHOSEN_KEY_CHARS_MIN} to {KEY_BYTES_MAX} characters, all of them printable ASCII and no spaces"
        );
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.len() < CHOSEN_KEY_CHARS_MIN || !is_plain {
            return Err(message);
        }
        KeyHash::of(text).map(AdminKey).ok_or(message)
    }
}

impl FromStr for Networks {
    type Err = String;

    fn from_str(text: &str) -> Result<Networks, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let networks = parts.map(|part| part.parse::<Network>().map_err(|error| error.to_string()));
        networks.collect::<Result<_, _>>().map(Networks)
    }
}

impl FromStr for ServerAddresses {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerAddresses, String> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let servers = parts.map(|part| {
            let with_port = part.parse().ok();
            let alone = || part.parse().ok().map(|ip| SocketAddr::new(ip, NAME_SERVER_PORT));
            with_port.or_else(alone).ok_or_else(|| {
                format!("{part:?} is no name server; write its address: 10.0.0.2 or 10.0.0.2:5353")
            })
        });
        let servers: Vec<SocketAddr> = servers.collect::<Result<_, _>>()?;
        if servers.is_empty() {
            return Err(
                "there is no name server in it; leave it out to use the system's".to_owned()
            );
        }
        Ok(ServerAddresses(servers))
    }
}

impl From<ServerAddresses> for NameServers {
    fn from(servers: ServerAddresses) -> NameServers {
        NameServers::These(servers.0)
    }
}

impl FromStr for WorkerUrlTemplate {
    type Err = String;

    fn from_str(text: &str) -> Result<WorkerUrlTemplate, String> {
        WorkerTemplate::parse(text).map(WorkerUrlTemplate).map_err(|error| {
            format!("{text:?} is not where workers are: {error}; write a URL with {{workerId}} and {{rpcMethod}} in it")
        })
    }
}

impl FromStr for WakeStreamTemplate {
    type Err = String;

    fn from_str(text: &str) -> Result<WakeStreamTemplate, String> {
        WakeTemplate::parse(text)
            .map(WakeStreamTemplate)
            .map_err(|error| format!("{text:?} is not where agents are woken: {error}"))
    }
}

impl FromStr for WorkerBinding {
    type Err = String;

    fn from_str(text: &str) -> Result<WorkerBinding, String> {
        let binding = Binding::parse(text).map(WorkerBinding);
        binding.map_err(|error| format!("{text:?} is not a binding: {error}"))
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let bytes = measure(text, &SIZES).ok_or_else(|| {
            format!("{text:?} is not a size; write bytes, or a whole number and a unit: 64KiB, 256MiB or 2GiB")
        })?;
        Ok(Size { bytes })
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let local = text
            .strip_prefix("localhost:")
            .and_then(|port| port.parse().ok())
            .map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        local.or_else(|| text.parse().ok()).map(Address).ok_or_else(|| {
            format!("{text:?} is not an address; write IP and port: 127.0.0.1:4437 or [::1]:4437")
        })
    }
}

impl FromStr for PublicUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<PublicUrl, String> {
        let url = text.parse::<http::Uri>().ok().filter(|url| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.host().is_some_and(|host| !host.is_empty())
                && url.query().is_none()
        });
        match url {
            Some(_) => Ok(PublicUrl(text.trim_end_matches('/').to_owned())),
            None => Err(format!(
                "{text:?} is not the URL of a server; write it like https://streams.example.com"
            )),
        }
    }
}

/// In the configuration file all of them are strings, read as on the command line.
macro_rules! deserialize_as_text {
    ($($name:ty),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}
deserialize_as_text!(
    Period,
    Address,
    PublicUrl,
    Networks,
    ServerAddresses,
    AdminKey,
    PoisonRule,
    WorkerUrlTemplate,
    WorkerBinding,
    WakeStreamTemplate
);

/// A factor is a number in the configuration file, or a text.
impl<'de> Deserialize<'de> for Factor {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Factor, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let text = match value {
            toml::Value::String(text) => text,
            other => other.to_string(),
        };
        text.parse().map_err(D::Error::custom)
    }
}

/// A plain number of bytes needs no quotes in the configuration file.
impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Size, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged, expecting = "a size is a number of bytes, or text such as \"256MiB\"")]
        enum Written {
            Bytes(u64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Bytes(bytes) => Ok(Size { bytes }),
            Written::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        let check = |text: &str, ms: u64| assert_eq!(text.parse(), Ok(Period { ms }), "{text}");
        check("500ms", 500);
        check("45s", 45_000);
        check("10m", 600_000);
        check("1h", 3_600_000);
        check("3d", 259_200_000);
        check("3600s", 3_600_000);
        check("0s", 0);
        for bad in [
            "",
            "s",
            "45",
            "-1s",
            "+1s",
            "1.5s",
            "1 s",
            "45S",
            "45sec",
            "1m30s",
            "99999999999999999999s",
            "18446744073709551615d",
        ] {
            assert!(bad.parse::<Period>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn name_servers_are_addresses_with_or_without_a_port() {
        let check = |text: &str, expected: &[&str]| {
            let expected = expected.iter().map(|it| it.parse().unwrap()).collect();
            assert_eq!(text.parse(), Ok(ServerAddresses(expected)), "{text}");
        };
        check("10.0.0.2", &["10.0.0.2:53"]);
        check("10.0.0.2:5353, ::1,[::1]:54", &["10.0.0.2:5353", "[::1]:53", "[::1]:54"]);
        for bad in ["", ",", "dns.example", "10.0.0.2:", "10.0.0.2:99999", "10.0.0"] {
            assert!(bad.parse::<ServerAddresses>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_a_binary_unit() {
        let check = |text: &str, bytes: u64| assert_eq!(text.parse(), Ok(Size { bytes }), "{text}");
        check("0", 0);
        check("4096", 4096);
        check("512B", 512);
        check("64KiB", 65_536);
        check("10MiB", 10_485_760);
        check("256MiB", 268_435_456);
        check("2GiB", 2_147_483_648);
        check("1TiB", 1_099_511_627_776);
        for bad in ["", "MiB", "10MB", "10M", "10mib", "-1", "1.5GiB", "10 MiB", "99999999TiB"] {
            assert!(bad.parse::<Size>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn addresses_are_numbers_or_localhost() {
        let check = |text: &str, written: &str| {
            assert_eq!(text.parse::<Address>().unwrap().0.to_string(), written);
        };
        check("127.0.0.1:4437", "127.0.0.1:4437");
        check("localhost:0", "127.0.0.1:0");
        check("[::1]:80", "[::1]:80");
        for bad in ["", "4437", ":4437", "127.0.0.1", "example.com:80", "127.0.0.1:99999"] {
            assert!(bad.parse::<Address>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_public_url_is_a_base() {
        let check = |text: &str, base: &str| {
            assert_eq!(text.parse(), Ok(PublicUrl(base.to_owned())), "{text}");
        };
        check("https://streams.example.com", "https://streams.example.com");
        check("http://10.0.0.1:80/base/", "http://10.0.0.1:80/base");
        for bad in ["", "streams.example.com", "ftp://a", "/a", "https://", "http://a/?b=c"] {
            assert!(bad.parse::<PublicUrl>().is_err(), "{bad:?}");
        }
    }
}
