//! How keys are written: what they allow, and nothing from which one could be made.

use std::sync::Arc;

use bytes::Bytes;
use minicbor::Decoder;
use reveille_core::key::{Access, Key, Permission, Role};
use reveille_core::{Millis, Tenant};

use super::{Read, RecordError, Writer, Written, fields, finish};

mod field {
    pub(super) const ID: u32 = 0;
    pub(super) const CREATED_AT: u32 = 1;
    pub(super) const TENANT: u32 = 2;
    pub(super) const ROLES: u32 = 3;
    pub(super) const ENTITY_URI: u32 = 4;
    pub(super) const PERMISSIONS: u32 = 5;
    pub(super) const SCOPES: u32 = 6;
    pub(super) const DESCRIPTION: u32 = 7;
}

/// Writes a key.
pub fn encode_key(key: &Key) -> Bytes {
    finish(128, |out| write_key(out, key))
}

/// Reads a key.
pub fn decode_key(value: &[u8]) -> Result<Key, RecordError> {
    read_key(&mut Decoder::new(value))
        .map_err(|why| RecordError { what: "key", why: why.to_string() })
}

fn write_key(out: &mut Writer, key: &Key) -> Written {
    let Access { tenant, roles, entity_uri, permissions, scopes, description } = &key.access;
    let texts = [
        (field::TENANT, tenant.as_ref().map(Tenant::as_str)),
        (field::ENTITY_URI, entity_uri.as_deref()),
        (field::DESCRIPTION, description.as_deref()),
    ];
    let lists: [(u32, Vec<&str>); 3] = [
        (field::ROLES, roles.iter().map(|role| role.as_str()).collect()),
        (field::PERMISSIONS, permissions.iter().map(|it| it.as_str()).collect()),
        (field::SCOPES, scopes.iter().map(AsRef::as_ref).collect()),
    ];
    let count = texts.iter().filter(|(_, text)| text.is_some()).count()
        + lists.iter().filter(|(_, list)| !list.is_empty()).count();
    out.map(2 + u64::try_from(count).unwrap_or(0))?;
    out.u32(field::ID)?.str(&key.id)?;
    out.u32(field::CREATED_AT)?.u64(key.created_at.0)?;
    for (field, text) in texts {
        if let Some(text) = text {
            out.u32(field)?.str(text)?;
        }
    }
    for (field, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
        out.u32(*field)?.array(u64::try_from(list.len()).unwrap_or(0))?;
        for text in list {
            out.str(text)?;
        }
    }
    Ok(())
}

/// A role, a permission or a tenant that cannot be read is an error: less than a key was given
/// must not become more.
fn read_key(input: &mut Decoder<'_>) -> Read<Key> {
    let wrong = minicbor::decode::Error::message;
    let (mut id, mut created_at) = (None, Millis(0));
    let mut access = Access { roles: [].into(), ..Access::admin(None) };
    fields(input, |field, input| {
        match field {
            field::ID => id = Some(Arc::from(input.str()?)),
            field::CREATED_AT => created_at = Millis(input.u64()?),
            field::TENANT => {
                let tenant = Tenant::parse(input.str()?);
                access.tenant = Some(tenant.map_err(|_| wrong("no tenant"))?);
            }
            field::ROLES => {
                access.roles =
                    list(input, |text| Role::parse(text).ok_or_else(|| wrong("an unknown role")))?;
            }
            field::ENTITY_URI => access.entity_uri = Some(input.str()?.into()),
            field::PERMISSIONS => {
                access.permissions = list(input, |text| {
                    Permission::parse(text).ok_or_else(|| wrong("an unknown permission"))
                })?;
            }
            field::SCOPES => access.scopes = list(input, |text| Ok(text.into()))?,
            field::DESCRIPTION => access.description = Some(input.str()?.into()),
            _ => input.skip()?,
        }
        Ok(())
    })?;
    Ok(Key { id: id.ok_or_else(|| wrong("no id"))?, created_at, access })
}

fn list<T, C: FromIterator<T>>(input: &mut Decoder<'_>, read: impl Fn(&str) -> Read<T>) -> Read<C> {
    (0..input.array()?.unwrap_or(0)).map(|_| read(input.str()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_back_and_damage_is_an_error() {
        let full = Key {
            id: "key_1".into(),
            created_at: Millis(7),
            access: Access {
                tenant: Some(Tenant::parse("acme").unwrap()),
                roles: [Role::Operator, Role::User].into(),
                entity_uri: Some("stigmem://x/agent/1".into()),
                permissions: [Permission::Read].into(),
                scopes: ["team".into(), "company".into()].into(),
                description: Some("for people".into()),
            },
        };
        let whole = encode_key(&full);
        assert_eq!(decode_key(&whole), Ok(full.clone()));
        for cut in 0..whole.len() {
            assert!(decode_key(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let plain = Key { access: Access::admin(None), ..full };
        assert_eq!(decode_key(&encode_key(&plain)), Ok(plain.clone()));
        // A role of a later version is not taken for none, and a tenant not for every one.
        for (known, other) in [("operator", "operatoR"), ("acme", "Acme"), ("read", "reaD")] {
            let text = String::from_utf8_lossy(&whole).into_owned();
            assert!(text.contains(known), "{text}");
            let at = whole.windows(known.len()).position(|it| it == known.as_bytes()).unwrap();
            let mut changed = whole.to_vec();
            changed[at..at + known.len()].copy_from_slice(other.as_bytes());
            assert!(decode_key(&changed).is_err(), "{other}");
        }
    }
}
