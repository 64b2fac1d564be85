//! The headers of a request that was signed, and the signatures that are in them.

use std::fmt;

use crate::failure::usage_error;

/// More signatures than anybody rotates secrets.
const SIGNATURES_MAX: usize = 16;
const STANDARD_VERSION: &str = "v1,";
/// How headers begin that calls of triggers alone have.
const TRIGGER_HEADERS: &str = "x-syntrix-";

/// A form in which webhooks are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Hmac,
    Ed25519,
    Standard,
    Trigger,
    /// None that is sent.
    Unknown,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Hmac => "`sha256=`, an HMAC with the secret of a subscription on streams",
            Form::Ed25519 => "`ed25519=`, made with a signing key of the server",
            Form::Standard => {
                "`v1,` after Standard Webhooks, an HMAC with the secret of a subscription on events"
            }
            Form::Trigger => "`v1=`, an HMAC with the secret of a trigger",
            Form::Unknown => "of no form that is known",
        })
    }
}

/// One signature.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) form: Form,
    /// As a header that has this signature alone.
    pub(super) text: String,
}

/// What a request says about its signatures.
#[derive(Debug, Default)]
pub(super) struct RequestHeaders<'a> {
    /// Each `Webhook-Signature` and `X-Syntrix-Signature` there is.
    signed: Vec<&'a str>,
    /// Whether it is the call of a trigger, by its headers.
    is_of_trigger: bool,
    id: Option<&'a str>,
    timestamp: Option<&'a str>,
}

impl<'a> RequestHeaders<'a> {
    /// Reads headers as the command line has them: `NAME: VALUE`, or a bare signature.
    pub(super) fn parse(headers: &'a [String]) -> anyhow::Result<RequestHeaders<'a>> {
        let mut found = RequestHeaders::default();
        for header in headers {
            let Some((name, value)) = header.split_once(':') else {
                found.signed.push(header.trim());
                continue;
            };
            let name = name.trim().to_ascii_lowercase();
            found.is_of_trigger |= name.starts_with(TRIGGER_HEADERS);
            match name.as_str() {
                "webhook-signature" => found.signed.push(value.trim()),
                "x-syntrix-signature" if !value.trim().is_empty() => {
                    found.signed.push(value.trim());
                }
                "webhook-id" => found.id = Some(value.trim()),
                "webhook-timestamp" => found.timestamp = Some(value.trim()),
                // Whoever passes all headers on need not choose.
                _ => {}
            }
        }
        if found.signed.is_empty() && !found.is_of_trigger {
            return Err(usage_error(
                "pass the request's Webhook-Signature or X-Syntrix-Signature with --header",
            ));
        }
        Ok(found)
    }

    /// Every signature, in the order in which they are written.
    pub(super) fn signatures(&self) -> Vec<Signature> {
        let all = self.signed.iter().flat_map(|header| split(header));
        all.take(SIGNATURES_MAX).collect()
    }

    /// Whether it is the call of a trigger that nobody has signed.
    pub(super) fn is_unsigned_trigger(&self) -> bool {
        self.signed.is_empty() && self.is_of_trigger
    }

    /// The id and the time of a message after Standard Webhooks.
    pub(super) fn message(&self) -> anyhow::Result<(&'a str, &'a str)> {
        self.id.zip(self.timestamp).ok_or_else(|| {
            usage_error(
                "a `v1,` signature is made over webhook-id and webhook-timestamp as well; pass both \
                 with --header 'NAME: VALUE'",
            )
        })
    }
}

/// The signatures of one header.
fn split(header: &str) -> Vec<Signature> {
    let standard: Vec<&str> =
        header.split_ascii_whitespace().filter(|it| it.starts_with(STANDARD_VERSION)).collect();
    if !standard.is_empty() {
        let signature = |text: &str| Signature { form: Form::Standard, text: text.to_owned() };
        return standard.into_iter().map(signature).collect();
    }
    if header.split(',').any(|part| part.trim().starts_with("v1=")) {
        // Several of them are one signature: any that is right will do, and one that is spelled
        // wrongly spoils them all.
        return vec![Signature { form: Form::Trigger, text: header.to_owned() }];
    }
    let found = split_pairs(header).unwrap_or_default();
    if found.is_empty() {
        // What is wrong with it is found out by whoever verifies it.
        return vec![Signature { form: Form::Unknown, text: header.to_owned() }];
    }
    found
}

/// The signatures among `name=value` pairs, each with the time and the key's name that stand before
/// it; nothing if there is something else among them.
fn split_pairs(header: &str) -> Option<Vec<Signature>> {
    let (mut time, mut kid) = (None, None);
    let mut found = Vec::new();
    for part in header.split(',') {
        let (name, value) = part.trim().split_once('=')?;
        let form = match name {
            "t" => {
                time = Some(value);
                continue;
            }
            "kid" => {
                kid = Some(value);
                continue;
            }
            "sha256" => Form::Hmac,
            "ed25519" => Form::Ed25519,
            _ => continue,
        };
        let kid = kid.filter(|_| form == Form::Ed25519);
        let kid = kid.map(|kid| format!("kid={kid},")).unwrap_or_default();
        let text = format!("t={},{kid}{name}={value}", time?);
        found.push(Signature { form, text });
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_taken_apart() {
        let check = |header: &str, expected: &[(Form, &str)]| {
            let expected = expected.iter().map(|(form, text)| (*form, (*text).to_owned()));
            let found = split(header).into_iter().map(|it| (it.form, it.text));
            assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{header}");
        };
        check("t=1,sha256=ab", &[(Form::Hmac, "t=1,sha256=ab")]);
        check(
            "t=1, sha256=ab, sha256=cd",
            &[(Form::Hmac, "t=1,sha256=ab"), (Form::Hmac, "t=1,sha256=cd")],
        );
        check(
            "t=1,kid=a,ed25519=x,kid=b,ed25519=y,new=z",
            &[(Form::Ed25519, "t=1,kid=a,ed25519=x"), (Form::Ed25519, "t=1,kid=b,ed25519=y")],
        );
        check(
            "t=1,sha256=ab, t=2,sha256=cd",
            &[(Form::Hmac, "t=1,sha256=ab"), (Form::Hmac, "t=2,sha256=cd")],
        );
        check("v1,a= v1a,b v1,c", &[(Form::Standard, "v1,a="), (Form::Standard, "v1,c")]);
        for of_trigger in ["t=1,v1=ab", "t=1, v1=ab, v1=cd", "v1=ab", "t=x,oops,v1=ab"] {
            check(of_trigger, &[(Form::Trigger, of_trigger)]);
        }
        for unknown in ["", "t=1", "sha256=ab", "t=1,oops,sha256=ab"] {
            check(unknown, &[(Form::Unknown, unknown)]);
        }
    }
}
