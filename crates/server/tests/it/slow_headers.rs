//! Connections on which nothing, or only half of a request, ever comes. hyper measures this on
//! tokio's clock, which stands still here and jumps whenever there is nothing to do.

use std::sync::Arc;
use std::time::Duration;

use reveille_core::document::settings::DocumentSettings;
use reveille_engine::doors::{SystemClock, SystemEntropy};
use reveille_engine::quota::Quotas;
use reveille_engine::{Config, Engine};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::Setup;

/// Longer than any request may take to begin.
const A_MINUTE: Duration = Duration::from_secs(60);

async fn start(directory: &std::path::Path) -> std::net::SocketAddr {
    let config = Config {
        data_dir: directory.join("data"),
        secrets_key_file: None,
        partitions: None,
        table_files: 64,
        sync: true,
        min_free_bytes: 0,
        segment_bytes: 2 << 20,
        on_fatal: Arc::new(|error| panic!("{error}")),
        outbound: Setup::default().outbound(),
        quotas: Quotas::default(),
        poison: None,
        documents: DocumentSettings::default(),
    };
    let clock = Arc::new(SystemClock::default());
    let engine = Engine::open(&config, clock, Arc::new(SystemEntropy::default())).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answers = reveille_server::Config {
        long_poll_timeout_ms: 1_000,
        max_trigger_timeout_ms: 30_000,
        reader_timeout_ms: 60_000,
        connections_max: 64,
        max_body_bytes: 1 << 20,
        public_url: None,
        auth: reveille_server::Auth::Off,
        workers: reveille_server::Workers::default(),
        facts: reveille_server::FactSettings::default(),
    };
    tokio::spawn(reveille_server::serve(listener, engine, answers, std::future::pending()));
    address
}

/// Whether the server hangs up within a minute on a client that sends this and no more.
#[allow(clippy::disallowed_methods, reason = "time that is not waited for")]
async fn is_hung_up_on(address: std::net::SocketAddr, begin: &str) -> bool {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(begin.as_bytes()).await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(A_MINUTE, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn half_a_request_is_hung_up_on() {
    let directory = tempfile::tempdir().unwrap();
    let address = start(directory.path()).await;
    let idle = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for begin in ["G", "GET /healthz", "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-", idle] {
        assert!(is_hung_up_on(address, begin).await, "still open after {begin:?} and a minute");
    }
}

/// Every connection takes one of a limited number of places.
#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nothing_comes_is_hung_up_on() {
    let directory = tempfile::tempdir().unwrap();
    let address = start(directory.path()).await;
    for begin in ["", "P", "PRI * HTTP/2.0\r\n\r\n"] {
        assert!(is_hung_up_on(address, begin).await, "still open after {begin:?} and a minute");
    }
}
