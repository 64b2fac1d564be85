//! The same documents as rows of a table with `jsonb`, as people have them in PostgreSQL.

use std::net::SocketAddr;

use super::body::GROUP_SIZE;
use super::{DocumentMode, DocumentRequests};
use crate::postgres::{self, Statement, execute};

pub(super) struct TableDocuments {
    pub(super) address: SocketAddr,
    pub(super) collection: String,
}

impl TableDocuments {
    /// The table, and indexes over expressions for the same fields.
    pub(super) async fn create(&self, fields: u32, queries: bool) -> anyhow::Result<()> {
        let mut statements = vec![
            "CREATE TABLE IF NOT EXISTS documents (collection text, id text, \
             version bigint NOT NULL, created_at timestamptz NOT NULL, \
             updated_at timestamptz NOT NULL, data jsonb NOT NULL, \
             PRIMARY KEY (collection, id))"
                .to_owned(),
        ];
        statements.extend((0..fields).map(|field| {
            format!("CREATE INDEX ON documents (collection, ((data->>'f{field}')::bigint))")
        }));
        if queries {
            statements.push(
                "CREATE INDEX ON documents (collection, ((data->>'group')::bigint), \
                 ((data->>'n')::bigint))"
                    .to_owned(),
            );
        }
        postgres::run(self.address, &statements).await
    }

    /// What a server that was just filled would do by itself after a minute.
    pub(super) async fn analyze(&self) -> anyhow::Result<()> {
        postgres::run(self.address, &["VACUUM ANALYZE documents".to_owned()]).await
    }

    /// What every connection of a pool executes.
    pub(super) fn statement(&self, mode: DocumentMode) -> Statement {
        let (sql, rows) = match mode {
            DocumentMode::Writes | DocumentMode::Transactions | DocumentMode::Fill => (
                "INSERT INTO documents VALUES ($1, $2, 1, now(), now(), $3) \
                 ON CONFLICT (collection, id) DO UPDATE SET data = excluded.data, \
                 version = documents.version + 1, updated_at = now() \
                 RETURNING version, updated_at"
                    .to_owned(),
                1,
            ),
            DocumentMode::Reads => (
                "SELECT version, created_at, updated_at, data FROM documents \
                 WHERE collection = $1 AND id = $2"
                    .to_owned(),
                1,
            ),
            DocumentMode::Queries => (
                format!(
                    "SELECT id, version, created_at, updated_at, data FROM documents \
                     WHERE collection = $1 AND (data->>'group')::bigint = $2 \
                     ORDER BY (data->>'n')::bigint LIMIT {GROUP_SIZE}"
                ),
                GROUP_SIZE,
            ),
        };
        Statement { sql: sql.into(), rows }
    }

    fn execute(&self, values: &[&[u8]], request: &mut Vec<u8>) {
        let collection = self.collection.as_bytes();
        let values: Vec<&[u8]> =
            std::iter::once(collection).chain(values.iter().copied()).collect();
        execute(&values, request).expect("three values are few");
    }
}

impl DocumentRequests for TableDocuments {
    fn write(&self, _number: u64, document: u64, body: &[u8], request: &mut Vec<u8>) {
        self.execute(&[document.to_string().as_bytes(), body], request);
    }

    /// There are no keys to be remembered.
    fn transact(&self, number: u64, document: u64, body: &[u8], request: &mut Vec<u8>) {
        self.write(number, document, body, request);
    }

    fn read(&self, document: u64, request: &mut Vec<u8>) {
        self.execute(&[document.to_string().as_bytes()], request);
    }

    fn query(&self, group: u64, request: &mut Vec<u8>) {
        self.execute(&[group.to_string().as_bytes()], request);
    }
}
