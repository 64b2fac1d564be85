//! Who asks, and whether they may: from the headers of a request to a [`Caller`].

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{AUTHORIZATION, HeaderValue};
use http::{HeaderMap, HeaderName, Method, Request};
use hyper::body::Incoming;
use reveille_core::audit::{self, Actor};
use reveille_core::key::{Access, BOOTSTRAP_KEY_ID, Key, KeyHash, Permission, Right};
use reveille_core::{Millis, Tenant};
use reveille_engine::Engine;
use reveille_engine::auth::ActiveKey;

use super::connections::BusyConnection;
use super::error::RequestError;
use crate::Server;

/// Names a request, for whoever looks for what it did.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Names the tenant that an admin of all tenants acts in.
const NAMESPACE: HeaderName = HeaderName::from_static("x-tenant-namespace");

/// Who may use the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// Everybody who can reach it, as the admin of the tenant `default`.
    #[default]
    Off,
    /// Whoever has a key.
    Keys {
        /// A key that is good for everything although it is stored nowhere.
        admin_key: Option<KeyHash>,
        /// Whether metrics are for everybody nevertheless.
        metrics_open: bool,
    },
}

/// What a route asks of those who use it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Nothing: it is for everybody.
    Nothing,
    /// A token of its own, which the face looks at itself.
    Token,
    /// Any key.
    Key,
    /// To read data, or to write it, as the method says.
    Data,
    /// To read data, whatever the method is.
    Read,
    /// To look at subscriptions, to make and change them, or to end them, as the method says.
    Subscriptions,
    /// To run subscriptions that there are.
    RunSubscriptions,
    /// To look at what a tenant has.
    Operate,
    /// The same, unless metrics are for everybody.
    Metrics,
    /// To manage a tenant.
    Manage,
    /// To change what all tenants share.
    ManageAll,
}

impl Requirement {
    /// What a request must be allowed; nothing where no key is asked for.
    fn right<'a>(self, method: &Method, path: &'a str) -> Option<Right<'a>> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        let permission = if reads { Permission::Read } else { Permission::Write };
        match self {
            Requirement::Nothing | Requirement::Token => None,
            Requirement::Key => Some(Right::Any),
            Requirement::Data if reads => Some(Right::to_read(path)),
            Requirement::Read => Some(Right::Data(Permission::Read)),
            Requirement::Data => Some(Right::Data(Permission::Write)),
            Requirement::Subscriptions if reads => Some(Right::Subscriptions(Permission::Read)),
            Requirement::Subscriptions if *method == Method::DELETE => {
                Some(Right::Data(Permission::Write))
            }
            // Whoever may run subscriptions may pause them; the face asks for more where more changes.
            Requirement::Subscriptions if *method == Method::PATCH => {
                Some(Right::Subscriptions(Permission::Write))
            }
            Requirement::Subscriptions => Some(Right::Subscribe),
            Requirement::RunSubscriptions => Some(Right::Subscriptions(permission)),
            Requirement::Operate => Some(Right::Operate(permission)),
            Requirement::Metrics => Some(Right::Operate(Permission::Read)),
            Requirement::Manage => Some(Right::Manage(permission)),
            Requirement::ManageAll => Some(Right::ManageAll),
        }
    }
}

/// Who makes a request, and where.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Where everything happens that is asked for.
    pub(crate) tenant: Tenant,
    /// What is allowed.
    access: Access,
    /// Whether the request names its tenant.
    is_named: bool,
    /// The stored key that let it in.
    key: Option<Arc<ActiveKey>>,
    /// Whether the server asks for keys at all.
    needs_keys: bool,
    origin: Origin,
}

/// Where a request comes from. Nearly none is ever asked, so it costs nothing to know.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    /// The name that it was given.
    request_id: Option<HeaderValue>,
    peer: Option<IpAddr>,
}

impl Origin {
    /// Of a request whose token says who asks.
    pub(crate) fn of(headers: &HeaderMap, connection: &BusyConnection) -> Origin {
        Origin { request_id: headers.get(REQUEST_ID).cloned(), peer: connection.peer() }
    }

    /// The name of the request.
    pub(crate) fn request_id(&self) -> &str {
        self.request_id.as_ref().and_then(|id| id.to_str().ok()).unwrap_or_default()
    }

    /// Who asks by the key of this id, for the audit log.
    pub(crate) fn actor(&self, key_id: Option<Arc<str>>) -> Actor {
        let request_id = self.request_id.as_ref().and_then(|id| id.to_str().ok());
        Actor {
            name: key_id.unwrap_or_else(|| audit::LOCAL.into()),
            request_id: request_id.map(Into::into),
            ip: self.peer.map(|peer| peer.to_string().into()),
            has_signed: false,
        }
    }
}

impl Caller {
    /// Whether it is an admin of all tenants who does not act inside one of them.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.access.is_everywhere() && !self.is_named
    }

    /// The namespace that faces speak of: none for an admin of all tenants who names none, and on
    /// a server without keys, where nobody has to know that there are any.
    #[cfg_attr(not(test), expect(dead_code, reason = "for faces that speak of namespaces"))]
    pub(crate) fn namespace(&self) -> Option<&Tenant> {
        let is_unnamed = self.is_everywhere() || (!self.needs_keys && !self.is_named);
        (!is_unnamed).then_some(&self.tenant)
    }

    /// Whether the server asks for keys at all.
    pub(crate) fn needs_keys(&self) -> bool {
        self.needs_keys
    }

    /// What it may, where it acts: an admin of all tenants inside one is an admin of that one.
    pub(crate) fn access(&self) -> Access {
        let tenant = if self.is_everywhere() { None } else { Some(self.tenant.clone()) };
        Access { tenant, ..self.access.clone() }
    }

    /// Whether it is allowed this; why not, if it is not.
    pub(crate) fn check(&self, right: Right<'_>) -> Result<(), RequestError> {
        // Without keys there is nobody whom the admin of the one tenant could harm.
        if !self.needs_keys || self.access().may(right) {
            return Ok(());
        }
        Err(RequestError::Forbidden(missing_right(right)))
    }

    /// Whether it may read the stream at a path, or those that a pattern names.
    pub(crate) fn check_reading(&self, path: &str) -> Result<(), RequestError> {
        self.check(Right::to_read(path))
    }

    /// Its request is answered on this connection, unless its tenant is busy on too many.
    pub(crate) fn take_connection(&self, connection: &BusyConnection) -> Result<(), RequestError> {
        connection.has_key();
        // Without keys there is one tenant, and nobody to leave connections to.
        if self.needs_keys { connection.belongs_to(&self.tenant) } else { Ok(()) }
    }

    /// Whether its key still lets it in; asked again by those who stay for long.
    pub(crate) fn is_key_valid(&self) -> bool {
        self.key.as_ref().is_none_or(|key| !key.is_revoked())
    }

    /// Waits until its key lets nobody in any more; for ever, if that cannot be.
    pub(crate) async fn key_revoked(&self) {
        match &self.key {
            Some(key) => key.revoked().await,
            None => std::future::pending().await,
        }
    }

    /// It is on this connection.
    pub(crate) fn on(mut self, connection: &BusyConnection) -> Caller {
        self.origin.peer = connection.peer();
        self
    }

    /// The engine, on its behalf: what it changes is written down under the id of its key.
    pub(crate) fn engine(&self, server: &Server) -> Engine {
        server.engine.acting_as(self.actor())
    }

    /// The key by which it is let in, as far as it reaches where it acts; none on a server without
    /// keys.
    pub(crate) fn as_key(&self) -> Option<Key> {
        let created_at = self.key.as_ref().map_or(Millis::default(), |key| key.key.created_at);
        Some(Key { id: self.key_id()?, created_at, access: self.access() })
    }

    /// Who it is, for the audit log.
    pub(crate) fn actor(&self) -> Actor {
        self.origin.actor(self.key_id())
    }

    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Whether it may see what belongs to every tenant, and to none.
    pub(crate) fn sees_all(&self) -> bool {
        self.is_everywhere() || (!self.needs_keys && !self.is_named)
    }

    /// The id of the key by which it makes what it makes; nobody's on a server without keys.
    pub(crate) fn key_id(&self) -> Option<Arc<str>> {
        match &self.key {
            Some(key) => Some(key.key.id.clone()),
            None => self.needs_keys.then(|| BOOTSTRAP_KEY_ID.into()),
        }
    }
}

/// The tenant that a request names, if it names one.
pub(crate) fn named_tenant(headers: &HeaderMap) -> Result<Option<Tenant>, RequestError> {
    let Some(value) = headers.get(NAMESPACE) else { return Ok(None) };
    let tenant = value.to_str().ok().and_then(|name| Tenant::parse(name).ok());
    let wrong = || {
        let error = reveille_core::tenant::TenantError;
        RequestError::Header(format!("X-Tenant-Namespace: {error}"))
    };
    tenant.map(Some).ok_or_else(wrong)
}

/// Whether a text is a key of this server.
pub(crate) fn is_key(server: &Server, text: &str) -> bool {
    let is_admin = match &server.config.auth {
        Auth::Keys { admin_key: Some(admin), .. } => {
            KeyHash::of(text).is_some_and(|hash| admin.is_same(&hash))
        }
        Auth::Keys { admin_key: None, .. } | Auth::Off => false,
    };
    is_admin || server.engine.access_of(text).is_some()
}

/// The token of an `Authorization` header.
pub(crate) fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim()).filter(|token| !token.is_empty())
}

/// Lets a request in, or says why not. Where a route has a token of its own there is a caller only
/// on a server without keys.
pub(crate) fn admit(
    server: &Server,
    requirement: Requirement,
    request: &Request<Incoming>,
) -> Result<Option<Caller>, RequestError> {
    let headers = request.headers();
    let (admin_key, metrics_open) = match &server.config.auth {
        Auth::Off => {
            let tenant = Some(Tenant::default_tenant());
            return resolve_tenant(Access::admin(tenant), None, false, headers).map(Some);
        }
        Auth::Keys { admin_key, metrics_open } => (admin_key.as_ref(), *metrics_open),
    };
    let right = requirement.right(request.method(), request.uri().path());
    let Some(right) = right.filter(|_| requirement != Requirement::Metrics || !metrics_open) else {
        return Ok(None);
    };
    let value = headers.get(AUTHORIZATION).ok_or(RequestError::KeyRequired)?;
    let text = value.to_str().ok().and_then(bearer_token).ok_or(RequestError::KeyFormat)?;
    let hash = KeyHash::of(text).ok_or(RequestError::KeyUnknown)?;
    let caller = match server.engine.access_of(text) {
        Some(active) => {
            let access = active.key.access.clone();
            resolve_tenant(access, Some(active), true, headers)?
        }
        None if admin_key.is_some_and(|admin| admin.is_same(&hash)) => {
            resolve_tenant(Access::admin(None), None, true, headers)?
        }
        None => return Err(RequestError::KeyUnknown),
    };
    caller.check(right)?;
    Ok(Some(caller))
}

/// The caller with the tenant that it acts in.
fn resolve_tenant(
    access: Access,
    key: Option<Arc<ActiveKey>>,
    needs_keys: bool,
    headers: &HeaderMap,
) -> Result<Caller, RequestError> {
    let named = named_tenant(headers)?;
    let tenant = match (&access.tenant, &named) {
        (Some(own), Some(named)) if own != named => {
            return Err(RequestError::Forbidden(
                "X-Tenant-Namespace names another tenant than the key's; leave it out, or use an \
                 admin key without a tenant",
            ));
        }
        (Some(own), _) => own.clone(),
        (None, Some(named)) => named.clone(),
        (None, None) => Tenant::default_tenant(),
    };
    let origin = Origin { request_id: headers.get(REQUEST_ID).cloned(), peer: None };
    Ok(Caller { tenant, access, is_named: named.is_some(), key, needs_keys, origin })
}

/// What a caller lacks who is refused a right.
fn missing_right(right: Right<'_>) -> &'static str {
    match right {
        Right::Any => "the key has no role that is known here",
        Right::Data(Permission::Read) => {
            "the key may not read here: that takes the role user or admin, and the permission read"
        }
        Right::Data(Permission::Write) => {
            "the key may not write here: that takes the role user or admin, and the permission \
             write"
        }
        Right::Subscribe => {
            "the key may not subscribe: what is read is sent somewhere, so that takes the role \
             user or admin, and the permissions read and write"
        }
        Right::Subscriptions(Permission::Read) => {
            "the key may not look at subscriptions: that takes the permission read"
        }
        Right::Subscriptions(Permission::Write) => {
            "the key may not run subscriptions: that takes the permission write"
        }
        Right::Facts(_) => "the key may not read the facts of this scope",
        Right::Operate(Permission::Read) => {
            "this takes a key with the role operator or admin, and the permission read"
        }
        Right::Operate(Permission::Write) => {
            "this takes a key with the role operator or admin, and the permission write"
        }
        Right::Manage(Permission::Read) => {
            "this takes a key with the role admin, and the permission read"
        }
        Right::Manage(Permission::Write) => {
            "this takes a key with the role admin, and the permission write"
        }
        Right::ManageAll => {
            "this concerns all tenants: it takes an admin key without a tenant that may write, \
             and no X-Tenant-Namespace"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(namespace: Option<&'static str>) -> HeaderMap {
        let pair = |value| (NAMESPACE, http::HeaderValue::from_static(value));
        namespace.map(pair).into_iter().collect()
    }

    /// What a key's tenant and the header come to: where, everywhere or not, under which name.
    #[test]
    fn only_an_admin_of_all_tenants_chooses_where_to_act() {
        let check =
            |own: Option<&str>, named, keys, expected: Option<(&str, bool, Option<&str>)>| {
                let caller = resolve_tenant(
                    Access::admin(own.map(|name| Tenant::parse(name).unwrap())),
                    None,
                    keys,
                    &headers(named),
                );
                let found = caller.as_ref().ok().map(|caller| {
                    let namespace = caller.namespace().map(Tenant::as_str);
                    (caller.tenant.as_str(), caller.is_everywhere(), namespace)
                });
                assert_eq!(found, expected, "{own:?} {named:?}");
            };
        check(None, None, true, Some(("default", true, None)));
        check(None, Some("acme"), true, Some(("acme", false, Some("acme"))));
        check(Some("acme"), None, true, Some(("acme", false, Some("acme"))));
        check(Some("acme"), Some("acme"), true, Some(("acme", false, Some("acme"))));
        check(Some("acme"), Some("beta"), true, None);
        check(Some("acme"), Some("Not a name"), true, None);
        check(Some("default"), None, false, Some(("default", false, None)));
        check(Some("default"), Some("default"), false, Some(("default", false, Some("default"))));
        check(Some("default"), Some("acme"), false, None);
    }

    #[test]
    fn an_admin_of_all_tenants_inside_one_is_its_admin() {
        let inside =
            resolve_tenant(Access::admin(None), None, true, &headers(Some("acme"))).unwrap();
        assert!(inside.access().tenant.is_some_and(|tenant| tenant.as_str() == "acme"));
        assert!(inside.check(Right::Manage(Permission::Write)).is_ok());
        assert!(inside.check(Right::ManageAll).is_err());
    }
}
