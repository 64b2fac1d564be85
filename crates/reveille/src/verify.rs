//! `reveille verify`: whether a webhook was signed by who it says, and if not, why.

mod header;

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::{ArgGroup, Args};
use reveille_core::signature::standard::{StandardHeaders, StandardSecret};
use reveille_core::signature::{self, SignatureError};
use reveille_core::time::parse_period_ms;
use reveille_core::trigger::signature as trigger_signature;
use reveille_core::trigger::signature::TriggerSignatureError;
use serde_json::Value;

use self::header::{Form, RequestHeaders, Signature};
use crate::failure::usage_error;
use crate::{client, clock};

/// Where the secret is looked for if no flag says otherwise.
const SECRET_VARIABLE: &str = "REVEILLE_WEBHOOK_SECRET";
/// Longer than any webhook.
const BODY_BYTES_MAX: u64 = 64 << 20;

/// What `reveille verify` takes.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("by").args(["secret", "jwks", "public_key"]))]
pub(crate) struct Arguments {
    /// The secret of the subscription or trigger, as it was shown when it was made; else from the
    /// variable REVEILLE_WEBHOOK_SECRET
    #[arg(long, value_name = "SECRET")]
    secret: Option<String>,
    /// A file or URL with the server's public keys as a JWK set
    #[arg(long, value_name = "FILE|URL")]
    jwks: Option<String>,
    /// PEM with the certificate of an authority to trust for --jwks, beside those that browsers
    /// trust
    #[arg(long, value_name = "FILE", env = "REVEILLE_CA_FILE", hide_env_values = true)]
    ca_file: Option<PathBuf>,
    /// The server's public key, 32 bytes as unpadded base64url
    #[arg(long, value_name = "KEY")]
    public_key: Option<String>,
    /// The request's Webhook-Signature or X-Syntrix-Signature, or any of its headers as `NAME: VALUE` (repeatable)
    #[arg(long = "header", value_name = "HEADER", required = true)]
    headers: Vec<String>,
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
    let headers = RequestHeaders::parse(&arguments.headers)?;
    let mut body = Vec::new();
    let limited = std::io::stdin().lock().take(BODY_BYTES_MAX + 1).read_to_end(&mut body);
    limited.context("cannot read the body from standard input")?;
    if u64::try_from(body.len())? > BODY_BYTES_MAX {
        return Err(usage_error(
            "the body on standard input is longer than 64MiB; it is no webhook",
        ));
    }
    let moment = Moment { now_s: clock::now().0 / 1_000, tolerance_s: arguments.tolerance / 1_000 };
    let good = keys.check(&headers, &body, moment)?;
    // Whoever started us may have closed our output; the exit code says it too.
    let _ = writeln!(std::io::stdout(), "the signature is good: {good}");
    Ok(())
}

/// What is wrong with the signature of a trigger's call, with the code that the world knows it by.
fn refusal_of(error: TriggerSignatureError) -> anyhow::Error {
    anyhow!("{}: {error}", error.code())
}

/// When it is checked.
#[derive(Clone, Copy)]
struct Moment {
    now_s: u64,
    tolerance_s: u64,
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
            return read_jwks(source, arguments.ca_file.as_deref()).map(VerificationKeys::Public);
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

    /// Which signature is good; why none is.
    fn check(
        &self,
        headers: &RequestHeaders<'_>,
        body: &[u8],
        moment: Moment,
    ) -> anyhow::Result<String> {
        if headers.is_unsigned_trigger() {
            return Err(refusal_of(TriggerSignatureError::Required));
        }
        let all = headers.signatures();
        let fitting: Vec<(usize, &Signature)> =
            (1..).zip(&all).filter(|(_, signature)| self.fits(signature.form)).collect();
        let mut failure = None;
        for (number, signature) in &fitting {
            match self.check_one(headers, signature, body, moment) {
                Ok(()) if all.len() == 1 => return Ok(signature.form.to_string()),
                Ok(()) => {
                    return Ok(format!("{} (number {number} of {})", signature.form, all.len()));
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) if fitting.len() == 1 => Err(error),
            Some(error) => {
                Err(anyhow!("none of the {} signatures is good; the last: {error}", fitting.len()))
            }
            None => Err(self.other_form(&all)),
        }
    }

    /// Whether a signature of this form is made with such keys.
    fn fits(&self, form: Form) -> bool {
        match (self, form) {
            (_, Form::Unknown) => true,
            (VerificationKeys::Secret(_), form) => form != Form::Ed25519,
            (VerificationKeys::Public(_), form) => form == Form::Ed25519,
        }
    }

    /// The header is signed, and not with what we have.
    fn other_form(&self, all: &[Signature]) -> anyhow::Error {
        let found = all.first().map_or(Form::Unknown, |signature| signature.form);
        match self {
            VerificationKeys::Secret(_) => anyhow!(
                "the signature header has no `sha256=`, no `v1,` and no `v1=`, it is {found}; pass \
                 --jwks or --public-key instead of --secret"
            ),
            VerificationKeys::Public(_) => anyhow!(
                "the signature header has no `ed25519=`, it is {found}; pass --secret instead of \
                 public keys"
            ),
        }
    }

    fn check_one(
        &self,
        headers: &RequestHeaders<'_>,
        signature: &Signature,
        body: &[u8],
        Moment { now_s, tolerance_s }: Moment,
    ) -> anyhow::Result<()> {
        let header = signature.text.as_str();
        match self {
            VerificationKeys::Secret(secret) if signature.form == Form::Standard => {
                let (id, timestamp) = headers.message()?;
                let headers = StandardHeaders { id, timestamp, signature: header };
                let secret = StandardSecret::parse(secret)?;
                Ok(secret.verify(headers, body, now_s, tolerance_s)?)
            }
            VerificationKeys::Secret(secret) if signature.form == Form::Trigger => {
                let secrets = [secret.as_str()];
                let verified = trigger_signature::verify_within(
                    secrets,
                    Some(header),
                    body,
                    now_s,
                    tolerance_s,
                );
                verified.map_err(refusal_of)
            }
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

fn read_jwks(
    source: &str,
    ca_file: Option<&Path>,
) -> anyhow::Result<Vec<(Option<String>, [u8; 32])>> {
    let bytes = if source.starts_with("http://") || source.starts_with("https://") {
        client::fetch(source, ca_file)?.to_vec()
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
    use reveille_core::signature::{Ed25519Key, hmac_header};

    use super::*;

    fn check(keys: &VerificationKeys, headers: &[&str], body: &[u8]) -> Result<String, String> {
        check_at(keys, headers, body, 1_000)
    }

    fn check_at(
        keys: &VerificationKeys,
        headers: &[&str],
        body: &[u8],
        now_s: u64,
    ) -> Result<String, String> {
        let headers: Vec<String> = headers.iter().map(|it| (*it).to_owned()).collect();
        let headers = RequestHeaders::parse(&headers).map_err(|error| error.to_string())?;
        let moment = Moment { now_s, tolerance_s: 300 };
        keys.check(&headers, body, moment).map_err(|error| error.to_string())
    }

    fn good(form: Form) -> Result<String, String> {
        Ok(form.to_string())
    }

    #[test]
    fn the_key_that_is_named_is_taken() {
        let (old, new) = (Ed25519Key::from_seed([1; 32]), Ed25519Key::from_seed([2; 32]));
        let keys = |all: &[&Ed25519Key]| {
            VerificationKeys::Public(
                all.iter().map(|it| (Some(it.kid().to_owned()), it.public())).collect(),
            )
        };
        let header = new.header(1_000, b"body");
        let headers = [header.as_str()];
        assert_eq!(check(&keys(&[&old, &new]), &headers, b"body"), good(Form::Ed25519));
        let single = VerificationKeys::Public(vec![(None, new.public())]);
        assert_eq!(check(&single, &headers, b"body"), good(Form::Ed25519));
        let other = check(&keys(&[&old]), &headers, b"body").unwrap_err();
        assert!(other.contains("another key"), "{other}");
        let changed = check(&keys(&[&new]), &headers, b"bodY").unwrap_err();
        assert!(changed.contains("raw bytes"), "{changed}");
        let late = check_at(&keys(&[&new]), &headers, b"body", 2_000).unwrap_err();
        assert!(late.contains("700 s too long ago"), "{late}");
        let secret = VerificationKeys::Secret("whsec_x".to_owned());
        let other = check(&secret, &headers, b"body").unwrap_err();
        assert!(other.contains("no `sha256=`") && other.contains("--jwks"), "{other}");

        // While one key takes over from another both may sign, in one header or in two.
        let both = format!("{},{header}", old.header(1_000, b"body"));
        let second = Ok(format!("{} (number 2 of 2)", Form::Ed25519));
        assert_eq!(check(&keys(&[&new]), &[&both], b"body"), second);
        let two = [old.header(1_000, b"body"), header.clone()];
        assert_eq!(check(&keys(&[&new]), &[&two[0], &two[1]], b"body"), second);
    }

    #[test]
    fn each_of_several_secrets_signatures_is_tried() {
        let secret = |text: &str| VerificationKeys::Secret(text.to_owned());
        let old = hmac_header("whsec_old", 1_000, b"body");
        let new = hmac_header("whsec_new", 1_000, b"body");
        let (_, tail) = new.split_once(',').unwrap();
        let both = format!("{old},{tail}");
        assert_eq!(check(&secret("whsec_old"), &[&old], b"body"), good(Form::Hmac));
        let number = |n| Ok(format!("{} (number {n} of 2)", Form::Hmac));
        assert_eq!(check(&secret("whsec_old"), &[&both], b"body"), number(1));
        assert_eq!(check(&secret("whsec_new"), &[&both], b"body"), number(2));
        let none = check(&secret("whsec_other"), &[&both], b"body").unwrap_err();
        assert!(none.contains("none of the 2") && none.contains("raw bytes"), "{none}");
        let public = VerificationKeys::Public(vec![(None, [0; 32])]);
        let other = check(&public, &[&both], b"body").unwrap_err();
        assert!(other.contains("no `ed25519=`") && other.contains("--secret"), "{other}");
        // What is no signature at all is told by what is missing.
        for (header, part) in [("t=1000", "no `sha256=`"), ("sha256", "not `name=value`")] {
            let error = check(&secret("whsec_old"), &[header], b"body").unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn sec_5_calls_of_triggers_are_told_what_is_wrong_by_its_code() {
        let header =
            |secrets: &[&str]| trigger_signature::header(secrets.iter().copied(), 1_000, b"body");
        let keys = |secret: &str| VerificationKeys::Secret(secret.to_owned());
        let good = good(Form::Trigger);
        let one = header(&["new"]);
        assert_eq!(check(&keys("new"), &[&one], b"body"), good);
        let named = format!("X-Syntrix-Signature: {one}");
        assert_eq!(check(&keys("new"), &["content-type: x", &named], b"body"), good);
        // SEC-3: while both sign, either will do.
        let both = header(&["new", "old"]);
        for secret in ["new", "old"] {
            assert_eq!(check(&keys(secret), &[&both], b"body"), good);
        }
        let old = trigger_signature::header(["new"], 699, b"body");
        let unsigned = "x-syntrix-delivery-id: 01K";
        let malformed = one.replace("v1=", "v1=0");
        for (header, code) in [
            (header(&["other"]).as_str(), "SIGNATURE_MISMATCH: "),
            (&old, "SIGNATURE_TIMESTAMP_OUT_OF_RANGE: "),
            (&malformed, "SIGNATURE_MALFORMED: "),
            ("v1=ab", "SIGNATURE_MALFORMED: "),
            (unsigned, "SIGNATURE_REQUIRED: "),
            ("X-Syntrix-Signature: ", "SIGNATURE_REQUIRED: "),
        ] {
            let error = check(&keys("new"), &[header], b"body").unwrap_err();
            assert!(error.starts_with(code), "{header}: {error}");
        }
        let public = VerificationKeys::Public(vec![(None, [0; 32])]);
        let other = check(&public, &[&one], b"body").unwrap_err();
        assert!(other.contains("--secret"), "{other}");
    }

    #[test]
    fn deliveries_are_signed_after_standard_webhooks() {
        let (old, new) = (StandardSecret::text(&[1; 32]), StandardSecret::text(&[2; 32]));
        let sign =
            |text: &str| StandardSecret::parse(text).unwrap().signature("id", 1_000, b"body");
        let both = format!("Webhook-Signature: {} {}", sign(&old), sign(&new));
        let one = format!("webhook-signature: {}", sign(&new));
        let (id, timestamp) = ("webhook-id: id", "Webhook-Timestamp: 1000");
        let keys = VerificationKeys::Secret(new);
        assert_eq!(check(&keys, &[id, timestamp, &one], b"body"), good(Form::Standard));
        let second = Ok(format!("{} (number 2 of 2)", Form::Standard));
        assert_eq!(check(&keys, &[&both, timestamp, id, "host: x"], b"body"), second);
        let changed = check(&keys, &[id, timestamp, &one], b"bodY").unwrap_err();
        assert!(changed.contains("raw bytes"), "{changed}");
        let missing = check(&keys, &[id, &one], b"body").unwrap_err();
        assert!(missing.contains("webhook-timestamp"), "{missing}");
        let missing = check(&keys, &[id, timestamp], b"body").unwrap_err();
        assert!(missing.contains("Webhook-Signature"), "{missing}");
        let short = VerificationKeys::Secret("whsec_x".to_owned());
        let short = check(&short, &[id, timestamp, &one], b"body").unwrap_err();
        assert!(short.contains("base64"), "{short}");
    }
}
