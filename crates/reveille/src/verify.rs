//! `reveille verify`: whether a webhook was signed by who it says, and if not, why.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use clap::{ArgGroup, Args};
use reveille_core::signature::{self, SignatureError};
use reveille_core::time::parse_period_ms;
use reveille_engine::doors::{Clock as _, SystemClock};
use serde_json::Value;

use crate::client;
use crate::failure::usage_error;

/// Where the secret is looked for if no flag says otherwise.
const SECRET_VARIABLE: &str = "REVEILLE_WEBHOOK_SECRET";
/// Longer than any webhook.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// What `reveille verify` takes.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("by").args(["secret", "jwks", "public_key"]))]
pub(crate) struct Arguments {
    /// The subscription's secret, as it was shown when the subscription was made; else from the
    /// variable REVEILLE_WEBHOOK_SECRET
    #[arg(long, value_name = "SECRET")]
    secret: Option<String>,
    /// A file or http:// URL with the server's public keys as a JWK set
    #[arg(long, value_name = "FILE|URL")]
    jwks: Option<String>,
    /// The server's public key, 32 bytes as unpadded base64url
    #[arg(long, value_name = "KEY")]
    public_key: Option<String>,
    /// The request's Webhook-Signature header
    #[arg(long, value_name = "HEADER")]
    header: String,
    /// How far the moment of signing and this machine's clock may be apart
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_period)]
    tolerance: u64,
}

fn parse_period(text: &str) -> Result<u64, String> {
    let ms = parse_period_ms(text);
    ms.ok_or_else(|| "write a whole number and a unit: 500ms, 45s, 10m, 1h or 3d".to_owned())
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let keys = VerificationKeys::from_arguments(arguments)?;
    let mut body = Vec::new();
    let limited = std::io::stdin().lock().take(BODY_BYTES_MAX + 1).read_to_end(&mut body);
    limited.context("cannot read the body from standard input")?;
    if u64::try_from(body.len())? > BODY_BYTES_MAX {
        return Err(usage_error(
            "the body on standard input is longer than 64MiB; it is no webhook",
        ));
    }
    let now_s = SystemClock::default().now().0 / 1_000;
    keys.check(&arguments.header, &body, now_s, arguments.tolerance / 1_000)?;
    // Whoever started us may have closed our output; the exit code says it too.
    let _ = writeln!(std::io::stdout(), "the signature is good");
    Ok(())
}

/// What a signature is checked with.
enum VerificationKeys {
    Secret(String),
    /// Public keys with the names under which they are published.
    Public(Vec<(Option<String>, [u8; 32])>),
}

impl VerificationKeys {
    fn from_arguments(arguments: &Arguments) -> anyhow::Result<VerificationKeys> {
        if let Some(source) = &arguments.jwks {
            return read_jwks(source).map(VerificationKeys::Public);
        }
        if let Some(text) = &arguments.public_key {
            let key = signature::public_key(text).ok_or_else(|| {
                usage_error("--public-key is not 32 bytes of unpadded base64url; copy it from `x` of the JWK")
            })?;
            return Ok(VerificationKeys::Public(vec![(None, key)]));
        }
        // Not clap's business: a variable that happens to be set must not clash with --jwks.
        let secret = arguments.secret.clone().or_else(|| std::env::var(SECRET_VARIABLE).ok());
        match secret.filter(|secret| !secret.is_empty()) {
            Some(secret) => Ok(VerificationKeys::Secret(secret)),
            None => Err(usage_error(
                "nothing to verify with; pass --secret (the whole text, with its whsec_), --jwks or \
                 --public-key",
            )),
        }
    }

    fn check(&self, header: &str, body: &[u8], now_s: u64, tolerance_s: u64) -> anyhow::Result<()> {
        match self {
            VerificationKeys::Secret(secret) => {
                Ok(signature::verify_hmac(secret, header, body, now_s, tolerance_s)?)
            }
            VerificationKeys::Public(keys) => {
                let named = signature::named_key(header);
                let is_named = |kid: &Option<String>| kid.is_none() || kid.as_deref() == named;
                let fitting = keys.iter().filter(|(kid, _)| named.is_none() || is_named(kid));
                let mut outcome = Err(SignatureError::OtherKey);
                for (_, key) in fitting {
                    outcome = signature::verify_ed25519(key, header, body, now_s, tolerance_s);
                    if outcome.is_ok() {
                        break;
                    }
                }
                Ok(outcome?)
            }
        }
    }
}

fn read_jwks(source: &str) -> anyhow::Result<Vec<(Option<String>, [u8; 32])>> {
    let bytes = if source.starts_with("http://") || source.starts_with("https://") {
        client::fetch(source, None)?.to_vec()
    } else {
        let path = PathBuf::from(source);
        std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?
    };
    let set: Option<Value> = serde_json::from_slice(&bytes).ok();
    let keys = set.as_ref().and_then(|set| set.get("keys")?.as_array());
    let keys = keys.ok_or_else(|| anyhow!("{source} is not a JWK set, an object with `keys`"))?;
    let read = |jwk: &Value| {
        let kid = jwk.get("kid").and_then(Value::as_str).map(str::to_owned);
        Some((kid, signature::jwk_public_key(jwk)?))
    };
    let keys: Vec<_> = keys.iter().filter_map(read).collect();
    if keys.is_empty() {
        return Err(anyhow!("{source} has no Ed25519 key"));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use reveille_core::signature::Ed25519Key;

    use super::*;

    #[test]
    fn the_key_that_is_named_is_taken() {
        let (old, new) = (Ed25519Key::from_seed([1; 32]), Ed25519Key::from_seed([2; 32]));
        let keys = |all: &[&Ed25519Key]| {
            VerificationKeys::Public(
                all.iter().map(|it| (Some(it.kid().to_owned()), it.public())).collect(),
            )
        };
        let header = new.header(1_000, b"body");
        let check = |keys: VerificationKeys, body: &[u8], now_s| {
            keys.check(&header, body, now_s, 300).map_err(|error| error.to_string())
        };
        assert_eq!(check(keys(&[&old, &new]), b"body", 1_000), Ok(()));
        assert_eq!(
            check(VerificationKeys::Public(vec![(None, new.public())]), b"body", 1_000),
            Ok(())
        );
        let other = check(keys(&[&old]), b"body", 1_000).unwrap_err();
        assert!(other.contains("another key"), "{other}");
        let changed = check(keys(&[&new]), b"bodY", 1_000).unwrap_err();
        assert!(changed.contains("raw bytes"), "{changed}");
        let late = check(keys(&[&new]), b"body", 2_000).unwrap_err();
        assert!(late.contains("700 s too long ago"), "{late}");
    }
}
