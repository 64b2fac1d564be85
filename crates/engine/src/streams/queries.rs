//! What the faces may ask about streams.

use reveille_core::key_range::{above, after_prefix};
use reveille_core::stream::append::{Append, AppendReceipt};
use reveille_core::stream::create::Create;
use reveille_core::stream::{Head, Rejected, StreamId};
use reveille_core::trace::Trace;
use reveille_core::{ReadFrom, StreamPath, Tenant};
use reveille_kernel::command::Traced;
use reveille_kernel::error::{Damaged, Error};
use reveille_kernel::fairness;
use reveille_schema::{keys, record};

use super::StreamError;
use super::access_times::AccessTimes;
use super::append::AppendToStream;
use super::create::{CreateStream, FetchedAnchor};
use super::delete::DeleteStream;
use super::lifetime::TouchStream;
use super::live::{LiveReaders, TailWatch};
use super::read::{self, Reading};
use crate::engine::Engine;
use crate::limits::{FORK_COPY_BYTES, LIST_PAGE_MAX, LIST_SCAN_MAX};
use crate::records::{Scan, TakeEntry, damaged};
use crate::wall::WallOffset;

/// A stream in a listing.
#[derive(Debug, Clone)]
pub struct StreamItem {
    pub path: StreamPath,
    pub head: Head,
}

/// Which streams of a tenant are looked for.
pub struct StreamFilter<'a> {
    /// Those whose path begins so.
    pub prefix: &'a str,
    pub is_wanted: &'a (dyn Fn(&Head) -> bool + Sync),
}

impl Engine {
    /// Makes a stream, or finds that it is there as asked for. Wakes that it causes belong to the
    /// trace.
    pub async fn create(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        request: Create,
        trace: Option<Trace>,
    ) -> Result<(Head, bool), StreamError> {
        self.fairness().request(tenant, fairness::TAKEN_IN);
        let copies = request.fork.as_ref().is_some_and(|fork| fork.sub_offset > 0);
        let _permit = if copies { Some(self.admit(tenant, FORK_COPY_BYTES).await?) } else { None };
        let anchor = self.fetch_anchor(tenant, &request)?;
        let command = CreateStream { tenant: tenant.clone(), path: path.clone(), request, anchor };
        let created = self.submit(tenant, &Traced { trace, command }).await?;
        Ok((*created.head, created.is_new))
    }

    /// Appends to a stream, or closes it. Wakes that it causes belong to the trace.
    pub async fn append(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        request: Append,
        trace: Option<Trace>,
    ) -> Result<AppendReceipt, StreamError> {
        self.fairness().request(tenant, fairness::TAKEN_IN);
        let command = AppendToStream { tenant: tenant.clone(), path: path.clone(), request };
        self.submit(tenant, &Traced { trace, command }).await
    }

    /// Ends a stream.
    pub async fn delete(&self, tenant: &Tenant, path: &StreamPath) -> Result<(), StreamError> {
        let command = DeleteStream { tenant: tenant.clone(), path: path.clone() };
        self.submit(tenant, &command).await
    }

    /// The stream at a path, as readers see it now.
    pub fn head(&self, tenant: &Tenant, path: &StreamPath) -> Result<Head, StreamError> {
        let shared = self.partition(tenant);
        let head = read::head(&shared.state.reader(), tenant, path)?;
        let head = head.ok_or(Error::Rejected(Rejected::NotFound))?;
        if head.soft_deleted {
            return Err(Error::Rejected(Rejected::Gone));
        }
        shared.domains.part::<WallOffset>().follow(self.clock().as_ref());
        if self.clock().now() >= shared.domains.part::<AccessTimes>().expires_at(&head) {
            let gone = if head.forks > 0 { Rejected::Gone } else { Rejected::NotFound };
            return Err(Error::Rejected(gone));
        }
        Ok(head)
    }

    /// Remembers that a stream was read, if that prolongs its life. Nobody waits for it.
    pub fn touch(&self, tenant: &Tenant, path: &StreamPath, head: &Head) {
        let now = self.clock().now();
        if self.partition(tenant).domains.part::<AccessTimes>().touch(head, now) {
            let (tenant, path) = (tenant.clone(), path.clone());
            let command = TouchStream { tenant: tenant.clone(), path, id: head.id, at: now };
            let engine = self.clone();
            tokio::spawn(async move {
                if let Err(error) = engine.submit(&tenant, &command).await {
                    tracing::debug!(%error, "a read was not written down");
                }
            });
        }
    }

    /// The bytes of a stream from a place up to its tail.
    pub fn read(
        &self,
        tenant: &Tenant,
        head: &Head,
        from: ReadFrom,
    ) -> Result<Reading, StreamError> {
        let state = &self.partition(tenant).state;
        let reading = Reading::open(state, tenant, head, head.offset(from), head.tail)?;
        Ok(reading.within(self.reply_room(tenant)))
    }

    /// What a failed read means: bytes of a stream that has ended meanwhile, or was trimmed, are
    /// not damaged, they are gone.
    pub fn explain_read(
        &self,
        tenant: &Tenant,
        path: &StreamPath,
        was: &Head,
        error: StreamError,
    ) -> StreamError {
        let Error::Damaged(_) = error else { return error };
        match self.head(tenant, path) {
            Err(ended @ Error::Rejected(_)) => ended,
            Ok(head) if head.id != was.id => Error::Rejected(Rejected::NotFound),
            Ok(head) if head.first > was.first => {
                Error::Rejected(Rejected::Trimmed { first: head.first })
            }
            _ => error,
        }
    }

    /// Watches a stream: whatever becomes durable after this call is heard.
    pub fn watch(&self, tenant: &Tenant, id: StreamId) -> TailWatch {
        let live = self.partition(tenant).domains.part::<LiveReaders>();
        live.watch_within(id, Some(self.reply_room(tenant)))
    }

    /// Streams whose path begins with `prefix`, in order, after a path. Returns the path after
    /// which the next page begins if there may be more.
    pub fn streams(
        &self,
        tenant: &Tenant,
        filter: &StreamFilter<'_>,
        after: Option<&str>,
        limit: usize,
        take: TakeEntry<'_, StreamItem>,
    ) -> Result<Option<String>, Damaged> {
        let shared = self.partition(tenant);
        let first = keys::stream_prefix(tenant, filter.prefix);
        let end = after_prefix(&first);
        let mut from = first;
        if let Some(after) = after {
            from = from.max(above(&keys::stream_prefix(tenant, after)));
        }
        let (reader, now) = (shared.state.reader(), self.clock().now());
        let mut left = limit.min(LIST_PAGE_MAX);
        let mut last = after.map(str::to_owned);
        for (looks, pair) in Scan::new(&reader, from, end).enumerate() {
            let (key, value) = pair?;
            let head = record::decode_head(&value).map_err(damaged)?;
            let Some((_, path)) = keys::parse_stream(&key) else { continue };
            if left == 0 || looks >= LIST_SCAN_MAX {
                return Ok(last);
            }
            let passed = path.as_str().to_owned();
            let expires_at = shared.domains.part::<AccessTimes>().expires_at(&head);
            if !head.soft_deleted && now < expires_at && (filter.is_wanted)(&head) {
                if !take(&StreamItem { path, head }) {
                    return Ok(last);
                }
                left -= 1;
            }
            last = Some(passed);
        }
        Ok(None)
    }

    /// Reads what a fork's decision will need of its source's bytes.
    fn fetch_anchor(
        &self,
        tenant: &Tenant,
        request: &Create,
    ) -> Result<Option<FetchedAnchor>, Damaged> {
        let Some(asked) = &request.fork else {
            return Ok(None);
        };
        let Some(at) = asked.at else { return Ok(None) };
        let reader = self.partition(tenant).state.reader();
        let Some(source) = read::head(&reader, tenant, &asked.source)? else {
            return Ok(None);
        };
        let anchor = read::anchor(&reader, tenant, &source, at)?;
        Ok(Some(FetchedAnchor { source_id: source.id, at, anchor }))
    }
}
