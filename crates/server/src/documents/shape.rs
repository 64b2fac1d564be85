//! A document as an answer, and the name that a new one is given.

use http::StatusCode;
use http::header::{self, HeaderValue};
use reveille_core::Tenant;
use reveille_core::document::path::DocumentPath;
use reveille_core::document::snapshot::{Document, DocumentView};
use reveille_engine::Engine;

use crate::http::reply::{self, Reply, ReplyBody};

/// The answer that is a document. It may be large: while it leaves it counts for its tenant.
pub(super) fn document_reply(
    engine: &Engine,
    tenant: &Tenant,
    status: StatusCode,
    path: &DocumentPath,
    document: &Document,
) -> Reply {
    let (collection, id) = (path.collection().as_str(), path.id().as_str());
    let view = DocumentView { collection, id, document };
    let body = view.to_json();
    let mut reply = reply::status(status);
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, json);
    *reply.body_mut() = ReplyBody::Full(engine.reply_room(tenant).hold(body.into()));
    reply
}

/// A UUID of version 7: those that are made later sort later.
pub(super) fn fresh_uuid(engine: &Engine) -> String {
    let mut random = [0; 10];
    engine.entropy().fill(&mut random);
    uuid(engine.clock().wall().0, random)
}

fn uuid(at_ms: u64, random: [u8; 10]) -> String {
    let tail = random.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    let (version, variant) = (7_u128 << 76, 2_u128 << 62);
    let bits = u128::from(at_ms) << 80 | tail & !(0xf << 76 | 3 << 62) | version | variant;
    let hex = format!("{bits:032x}");
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_made_is_a_uuid_of_version_7() {
        assert_eq!(uuid(0, [0; 10]), "00000000-0000-7000-8000-000000000000");
        assert_eq!(uuid(0x0189_abcd_ef01, [0xff; 10]), "0189abcd-ef01-7fff-bfff-ffffffffffff");
    }
}
