//! What a key of the API allows, and nothing from which the key could be made.
//!
//! | field | type | what |
//! |---|---|---|
//! | 0 | text | id |
//! | 1 | integer | created at, ms |
//! | 2 | text | tenant; absent: every tenant |
//! | 3 | array of texts | roles |
//! | 4 | text | entity URI |
//! | 5 | array of texts | permissions; absent: both |
//! | 6 | array of texts | scopes |
//! | 7 | text | description |
//!
//! Written by hand: fields 4 and 7 come before 3.

use bytes::Bytes;
use minicbor::Decode;
use reveille_core::key::{Access, Key, Permission, Role};
use reveille_core::{Millis, Tenant};

use crate::codec::{self, List, MapWriter, Record, RecordError};

impl Record for Key {
    fn encode(&self) -> Bytes {
        let Access { tenant, roles, entity_uri, permissions, scopes, description } = &self.access;
        let mut map = MapWriter::new(128);
        map.put(0, &*self.id);
        map.put(1, self.created_at.0);
        map.put_some(2, tenant.as_ref().map(Tenant::as_str));
        map.put_some(4, entity_uri.as_deref());
        map.put_some(7, description.as_deref());
        if !roles.is_empty() {
            map.put(3, List(roles.iter().map(|role| role.as_str())));
        }
        if !permissions.is_empty() {
            map.put(5, List(permissions.iter().map(|permission| permission.as_str())));
        }
        if !scopes.is_empty() {
            map.put(6, List(scopes.iter().map(|scope| &**scope)));
        }
        map.finish()
    }

    fn decode(value: &[u8]) -> Result<Key, RecordError> {
        codec::read::<KeyFields<'_>, _>("key", value)
    }
}

#[derive(Decode)]
#[cbor(map)]
struct KeyFields<'a> {
    #[n(0)]
    id: &'a str,
    #[cbor(n(1), default)]
    created_at: u64,
    #[n(2)]
    tenant: Option<&'a str>,
    #[cbor(b(3), default)]
    roles: Vec<&'a str>,
    #[n(4)]
    entity_uri: Option<&'a str>,
    #[cbor(b(5), default)]
    permissions: Vec<&'a str>,
    #[cbor(b(6), default)]
    scopes: Vec<&'a str>,
    #[n(7)]
    description: Option<&'a str>,
}

/// A role, a permission or a tenant that cannot be read is an error: less than a key was given
/// must not become more.
impl TryFrom<KeyFields<'_>> for Key {
    type Error = &'static str;

    fn try_from(fields: KeyFields<'_>) -> Result<Key, &'static str> {
        let role = |name| Role::parse(name).ok_or("an unknown role");
        let permission = |name| Permission::parse(name).ok_or("an unknown permission");
        let access = Access {
            tenant: fields.tenant.map(Tenant::parse).transpose().map_err(|_| "no tenant")?,
            roles: fields.roles.into_iter().map(role).collect::<Result<_, _>>()?,
            entity_uri: fields.entity_uri.map(Into::into),
            permissions: fields
                .permissions
                .into_iter()
                .map(permission)
                .collect::<Result<_, _>>()?,
            scopes: fields.scopes.into_iter().map(Into::into).collect(),
            description: fields.description.map(Into::into),
        };
        Ok(Key { id: fields.id.into(), created_at: Millis(fields.created_at), access })
    }
}
