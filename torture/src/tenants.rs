//! Whom the servers of a run let in.
//!
//! With one partition nobody is asked for a key. With more of them every tenant has a key of its
//! own, and together the tenants are in all partitions. They use the same paths and names, so
//! that whatever crosses from one to another is noticed.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use harness::http::{Connection, Request};
use serde_json::{Value, json};

use crate::scratch::Scratch;

/// Enough that t0, t1, … are in each of four partitions, and of two and three.
const TENANTS: usize = 16;
/// How a key's text begins: what follows is base64url of its tenant's partition and of the secret.
const KEY_PREFIX: &str = "rv_";
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

#[derive(Debug)]
pub(crate) struct Tenant {
    /// None where nobody is asked for a key.
    pub(crate) name: Option<String>,
    pub(crate) partition: u32,
    /// The value of the header, for a tenant with a name.
    authorization: Option<String>,
}

impl Tenant {
    /// Everybody is the same tenant if nobody is asked for a key.
    pub(crate) fn unnamed() -> Tenant {
        Tenant { name: None, partition: 0, authorization: None }
    }

    fn with_key(name: String, key: &str) -> anyhow::Result<Tenant> {
        let partition = partition_of_key(key).context("a key does not name its partition")?;
        let authorization = Some(format!("Bearer {key}"));
        Ok(Tenant { name: Some(name), partition: partition.into(), authorization })
    }

    /// Its key, where somebody asks for one.
    pub(crate) fn key(&self) -> Option<&str> {
        self.authorization.as_deref()?.strip_prefix("Bearer ")
    }

    /// The headers of a request in this tenant's name.
    pub(crate) fn headers<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = self.authorization.as_deref().map(|value| ("authorization", value));
        own.into_iter().chain(more.iter().copied()).collect()
    }
}

/// All tenants of a run: at least one.
#[derive(Debug, Clone)]
pub(crate) struct Tenants(Vec<Arc<Tenant>>);

impl Tenants {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        self.0.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Tenants take turns: who gets the thing with this number, and how many of them it has had.
    pub(crate) fn turn(&self, number: usize) -> (Arc<Tenant>, usize) {
        let count = self.0.len();
        let tenant = self.0.get(number % count).expect("a remainder is below the count");
        (tenant.clone(), number / count)
    }
}

/// A stream's path, and the tenant that it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct TenantPath {
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) path: String,
}

impl fmt::Display for TenantPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.tenant.name {
            write!(f, "{name}:")?;
        }
        f.write_str(&self.path)
    }
}

/// The tenants of this run. Their keys, if they need some, are made by a server that is killed
/// as soon as it has answered: it must know them from then on.
pub(crate) fn create(scratch: &Scratch) -> anyhow::Result<Tenants> {
    create_as(scratch, &["user"])
}

/// The same, with keys that may do more.
pub(crate) fn create_as(scratch: &Scratch, roles: &[&str]) -> anyhow::Result<Tenants> {
    let Some(admin_key) = scratch.admin_key() else {
        return Ok(Tenants(vec![Arc::new(Tenant::unnamed())]));
    };
    let server = scratch.start_server(&[])?;
    let mut connection = server.connect()?;
    let mut tenants = Vec::new();
    for number in 0..TENANTS {
        tenants.push(Arc::new(create_key(
            &mut connection,
            admin_key,
            format!("t{number}"),
            roles,
        )?));
    }
    server.kill()?;
    let hit: BTreeSet<u32> = tenants.iter().map(|tenant| tenant.partition).collect();
    ensure!(
        hit.iter().copied().eq(0..scratch.partitions()),
        "{TENANTS} tenants are in the partitions {hit:?}, not in all {}",
        scratch.partitions()
    );
    println!("{TENANTS} tenants in {} partitions", hit.len());
    Ok(Tenants(tenants))
}

fn create_key(
    connection: &mut Connection,
    admin_key: &str,
    name: String,
    roles: &[&str],
) -> anyhow::Result<Tenant> {
    let authorization = format!("Bearer {admin_key}");
    let headers = [("authorization", &*authorization), ("content-type", "application/json")];
    let body = json!({"tenant": name, "roles": roles}).to_string();
    let request = Request {
        method: "POST",
        target: "/admin/v1/keys",
        headers: &headers,
        body: body.as_bytes(),
    };
    let answer = connection.send(request)?;
    ensure!(answer.status == 201, "a key for {name}: {} {}", answer.status, answer.text());
    let created: Value = serde_json::from_slice(&answer.body)?;
    let key = created.get("key").and_then(Value::as_str).context("an answer without a key")?;
    Tenant::with_key(name, key)
}

/// The first byte of what the key's text encodes: six bits of one digit and two of the next.
fn partition_of_key(key: &str) -> Option<u8> {
    let mut digits = key.strip_prefix(KEY_PREFIX)?.bytes();
    let mut value = || {
        let digit = digits.next()?;
        u8::try_from(BASE64URL.iter().position(|known| *known == digit)?).ok()
    };
    Some(value()? << 2 | value()? >> 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_partition() {
        let check = |key, partition| assert_eq!(partition_of_key(key), partition, "{key}");
        check("rv_AKw", Some(0));
        check("rv_AQw", Some(1));
        check("rv_A_w", Some(3));
        check("rv_Agw", Some(2));
        check("rv_AP8", Some(0));
        check("rv__w", Some(255));
        for wrong in ["AQw", "rv_", "rv_A", "rv_*A"] {
            check(wrong, None);
        }
    }

    #[test]
    fn tenants_take_turns_with_the_same_names() {
        let tenants = ["rv_AAA", "rv_AQA"]
            .map(|key| Arc::new(Tenant::with_key("t".to_owned(), key).unwrap()));
        let tenants = Tenants(tenants.into());
        let turns: Vec<_> = (0..5)
            .map(|number| tenants.turn(number))
            .map(|(tenant, turn)| (tenant.partition, turn))
            .collect();
        assert_eq!(turns, [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)]);
    }

    #[test]
    fn requests_carry_the_key_of_their_tenant() {
        let more = [("content-type", "text/plain")];
        assert_eq!(Tenant::unnamed().headers(&more), more);
        let tenant = Tenant::with_key("t1".to_owned(), "rv_AgAA").unwrap();
        assert_eq!(tenant.partition, 2);
        assert_eq!(tenant.headers(&more), [("authorization", "Bearer rv_AgAA"), more[0]]);
        assert_eq!((tenant.key(), Tenant::unnamed().key()), (Some("rv_AgAA"), None));
    }
}
