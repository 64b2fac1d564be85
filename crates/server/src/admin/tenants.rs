//! Which tenant a request of an operator is about.

use reveille_core::Tenant;

use crate::http::auth::Caller;
use crate::http::error::RequestError;
use crate::http::query::decode_path;

/// Where what belongs to a tenant is.
const TENANTS: &str = "/admin/v1/tenants/";

/// In the place of a tenant's name: the caller's own. No tenant can be called that, and whoever has
/// a key need not know whose it is.
const OWN: &str = "~";

/// The tenant of a path, if the caller may run it.
pub(super) fn tenant_of(caller: &Caller, path: &str) -> Result<Tenant, RequestError> {
    let rest = path.strip_prefix(TENANTS).unwrap_or_default();
    tenant_named(caller, rest.split('/').next().unwrap_or_default())
}

/// The tenant of a segment of a path, if the caller may run it.
pub(crate) fn tenant_named(caller: &Caller, segment: &str) -> Result<Tenant, RequestError> {
    let name = decode_path(segment);
    if name == OWN {
        return Ok(caller.tenant.clone());
    }
    let tenant = Tenant::parse(&name)
        .map_err(|error| RequestError::Query(format!("the tenant of the path: {error}")))?;
    if tenant == caller.tenant || caller.sees_all() {
        return Ok(tenant);
    }
    Err(RequestError::Forbidden(
        "the key is for its own tenant alone; for another one it takes a key without a tenant",
    ))
}
