//! Workers: the code that events are delivered to, and the addresses where it is called.

use std::fmt;
use std::sync::Arc;

use crate::limits::{RPC_METHOD_BYTES_MAX, WORKER_ID_BYTES_MAX};

const WORKER_ID: &str = "{workerId}";
const RPC_METHOD: &str = "{rpcMethod}";

/// The name of a worker, which can be a part of a host's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(Arc<str>);

/// The text cannot name a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a worker's id is 1 to {WORKER_ID_BYTES_MAX} letters of ASCII, digits, `_`, `.` and `-`, begins \
     and ends with a letter or a digit, and has no `..`"
)]
pub struct WorkerIdError;

impl WorkerId {
    /// Reads the name of a worker.
    pub fn parse(text: &str) -> Result<WorkerId, WorkerIdError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let firm = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
        let ends = firm(text.bytes().next()) && firm(text.bytes().next_back());
        let short = text.len() <= WORKER_ID_BYTES_MAX;
        if short && ends && text.bytes().all(allowed) && !text.contains("..") {
            Ok(WorkerId(text.into()))
        } else {
            Err(WorkerIdError)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of what is called in a worker.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RpcMethod(Arc<str>);

/// The text cannot name a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a method's name is 1 to {RPC_METHOD_BYTES_MAX} letters of ASCII, digits and `_`, and begins \
     with a letter"
)]
pub struct RpcMethodError;

impl RpcMethod {
    /// Reads the name of a method.
    pub fn parse(text: &str) -> Result<RpcMethod, RpcMethodError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
        if begins && text.len() <= RPC_METHOD_BYTES_MAX && text.bytes().all(allowed) {
            Ok(RpcMethod(text.into()))
        } else {
            Err(RpcMethodError)
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RpcMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is not an address of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is not a URL that can be called.
    #[error("it begins with `http://` or `https://` and a host")]
    NotHttp,
    /// It has a character that no URL has.
    #[error(
        "it is printable ASCII without spaces, `#` and other braces than those of placeholders"
    )]
    BadCharacter,
    /// It does not say where the worker's name goes.
    #[error("it has no `{WORKER_ID}`")]
    NoWorkerId,
    /// It does not say where the method's name goes.
    #[error("it has no `{RPC_METHOD}`")]
    NoRpcMethod,
    /// A binding has no name in front of its address.
    #[error("it is written `NAME=URL`, the name of letters of ASCII, digits, `_`, `-` and `.`")]
    NoName,
    /// A method's name cannot be appended.
    #[error("it has no `?`: the method's name is appended to it")]
    HasQuery,
}

/// Where workers are called: an address with places for the worker's and the method's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerTemplate(Arc<str>);

impl WorkerTemplate {
    /// Reads an address such as `https://{workerId}.workers.dev/rpc/{rpcMethod}`.
    pub fn parse(text: &str) -> Result<WorkerTemplate, AddressError> {
        if !text.contains(WORKER_ID) {
            return Err(AddressError::NoWorkerId);
        }
        if !text.contains(RPC_METHOD) {
            return Err(AddressError::NoRpcMethod);
        }
        check_address(&text.replace(WORKER_ID, "w").replace(RPC_METHOD, "m"))?;
        Ok(WorkerTemplate(text.into()))
    }

    /// The address as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where this method of this worker is called.
    pub fn url(&self, worker: &WorkerId, method: &RpcMethod) -> String {
        // Names have no braces, so what is put in first is not replaced again.
        self.0.replace(WORKER_ID, worker.as_str()).replace(RPC_METHOD, method.as_str())
    }
}

/// A worker that is known by a name of the server's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    /// What subscriptions call it.
    pub name: Arc<str>,
    /// Its address, without a slash at the end.
    pub base: Arc<str>,
}

impl Binding {
    /// Reads `NAME=URL`.
    pub fn parse(text: &str) -> Result<Binding, AddressError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let (name, url) = text.split_once('=').ok_or(AddressError::NoName)?;
        if name.is_empty() || !name.bytes().all(allowed) {
            return Err(AddressError::NoName);
        }
        check_address(url)?;
        if url.contains('?') {
            return Err(AddressError::HasQuery);
        }
        Ok(Binding { name: name.into(), base: url.trim_end_matches('/').into() })
    }

    /// Where this method is called.
    pub fn url(&self, method: &RpcMethod) -> String {
        format!("{}/{method}", self.base)
    }
}

/// Whether this looks like an address; who may be called is decided when it is called.
fn check_address(url: &str) -> Result<(), AddressError> {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let rest = rest.ok_or(AddressError::NotHttp)?;
    if rest.is_empty() || rest.starts_with(['/', '?', ':']) {
        return Err(AddressError::NotHttp);
    }
    if !rest.bytes().all(|byte| byte.is_ascii_graphic() && !b"#{}".contains(&byte)) {
        return Err(AddressError::BadCharacter);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_named_like_hosts() {
        let longest = "a".repeat(253);
        for good in ["a", "Z9", "my-worker", "admin-sync", "a.b_c", &longest] {
            assert_eq!(WorkerId::parse(good).unwrap().as_str(), good);
        }
        let long = "a".repeat(254);
        for bad in ["", "-a", "a-", ".", "a..b", "a/b", "a b", "a@b", "a:1", "\u{e9}", &long] {
            assert_eq!(WorkerId::parse(bad), Err(WorkerIdError), "{bad}");
        }
    }

    #[test]
    fn methods_are_named_like_functions() {
        let longest = "a".repeat(128);
        for good in ["a", "handlePush", "on_event_2", &longest] {
            assert_eq!(RpcMethod::parse(good).unwrap().as_str(), good);
        }
        let long = "a".repeat(129);
        for bad in ["", "_a", "1a", "a-b", "a.b", "a/b", "a b", "\u{e9}", &long] {
            assert_eq!(RpcMethod::parse(bad), Err(RpcMethodError), "{bad}");
        }
    }

    #[test]
    fn e29_the_template_becomes_an_address() {
        let check = |template, expected: &str| {
            let template = WorkerTemplate::parse(template).unwrap();
            let worker = WorkerId::parse("my-worker").unwrap();
            assert_eq!(template.url(&worker, &RpcMethod::parse("onPush").unwrap()), expected);
        };
        check(
            "https://{workerId}.workers.dev/rpc/{rpcMethod}",
            "https://my-worker.workers.dev/rpc/onPush",
        );
        check(
            "http://127.0.0.1:9/{workerId}/{rpcMethod}?w={workerId}",
            "http://127.0.0.1:9/my-worker/onPush?w=my-worker",
        );
    }

    #[test]
    fn what_is_not_a_template() {
        let check = |text, error| assert_eq!(WorkerTemplate::parse(text), Err(error), "{text}");
        check("https://a.dev/{rpcMethod}", AddressError::NoWorkerId);
        check("https://{workerId}.dev/", AddressError::NoRpcMethod);
        check("ftp://{workerId}/{rpcMethod}", AddressError::NotHttp);
        check("{workerId}/{rpcMethod}", AddressError::NotHttp);
        check("https:///{workerId}/{rpcMethod}", AddressError::NotHttp);
        check("https://{workerId}.dev/{rpcMethod}/{x}", AddressError::BadCharacter);
        check("https://{workerId}.dev/ {rpcMethod}", AddressError::BadCharacter);
        check("https://{workerId}.dev/{rpcMethod}#a", AddressError::BadCharacter);
    }

    #[test]
    fn e28_a_binding_has_one_slash_before_the_method() {
        let method = RpcMethod::parse("onPush").unwrap();
        for text in ["BILLING=http://10.0.0.1:80/rpc", "BILLING=http://10.0.0.1:80/rpc/"] {
            let binding = Binding::parse(text).unwrap();
            assert_eq!(&*binding.name, "BILLING");
            assert_eq!(binding.url(&method), "http://10.0.0.1:80/rpc/onPush");
        }
        let check = |text, error| assert_eq!(Binding::parse(text), Err(error), "{text}");
        check("http://a", AddressError::NoName);
        check("=http://a", AddressError::NoName);
        check("A B=http://a", AddressError::NoName);
        check("A=", AddressError::NotHttp);
        check("A=/rpc", AddressError::NotHttp);
        check("A=http://a/{rpcMethod}", AddressError::BadCharacter);
        check("A=http://a/?x=1", AddressError::HasQuery);
    }
}
