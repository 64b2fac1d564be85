//! What the measurements of the engine share: an engine on a new directory, an endpoint in the same
//! process, and how figures are taken.

#![allow(dead_code, reason = "each of them uses a part of it")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reveille_core::document::settings::DocumentSettings;
use reveille_core::subscription::Timings;
use reveille_deliver::client::HttpCourier;
use reveille_deliver::destination::Rules;
use reveille_deliver::resolve::{NameResolver, NameServers};
use reveille_engine::app::App;
use reveille_engine::doors::{Clock, SystemClock, SystemEntropy};
use reveille_engine::encoder::{
    DeliveryEncoders, DeliveryNotification, DeliveryTarget, Encoder, RefusedDelivery,
    WakeNotification,
};
use reveille_engine::quota::Quotas;
use reveille_engine::{Config, Engine, OutboundConfig, Retention};
use reveille_kernel::outbound::EncodedRequest;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

pub(crate) const WARM_UP: Duration = Duration::from_secs(1);
const YEAR_MS: u64 = 365 * 86_400_000;

/// `SECONDS ROUNDS DIRECTORY`, of a program of this name.
pub(crate) struct Arguments {
    pub(crate) seconds: f64,
    pub(crate) rounds: u32,
    pub(crate) directory: PathBuf,
}

pub(crate) fn arguments(name: &str) -> Arguments {
    let mut arguments = std::env::args().skip(1);
    let read = |arguments: &mut dyn Iterator<Item = String>| {
        let (seconds, rounds) = (arguments.next()?.parse().ok()?, arguments.next()?.parse().ok()?);
        Some(Arguments { seconds, rounds, directory: Path::new(&arguments.next()?).join(name) })
    };
    read(&mut arguments).unwrap_or_else(|| panic!("usage: {name} SECONDS ROUNDS DIRECTORY"))
}

/// An engine on a new directory, which delivers by these encoders.
pub(crate) fn open(directory: &Path, encoders: DeliveryEncoders, faces: fn(App) -> App) -> Engine {
    let _ = std::fs::remove_dir_all(directory);
    std::fs::create_dir_all(directory).unwrap();
    let clock = Arc::new(SystemClock::default());
    let now = clock.clone();
    let now: Arc<dyn Fn() -> u64 + Send + Sync> = Arc::new(move || now.now().0);
    let rules = Rules { allow_http_loopback: true, private_networks: Vec::new() };
    let resolver = Arc::new(NameResolver::new(now.clone(), NameServers::System));
    let config = Config {
        data_dir: directory.join("data"),
        documents: DocumentSettings::default(),
        secrets_key_file: None,
        partitions: Some(1),
        table_files: 64,
        sync: true,
        min_free_bytes: 0,
        segment_bytes: 16 << 20,
        on_fatal: Arc::new(|error| panic!("{error}")),
        outbound: OutboundConfig {
            timings: Timings::default(),
            rules: rules.clone(),
            courier: Arc::new(HttpCourier::new(rules, resolver, now)),
            encoder: Arc::new(NoWakes),
            delivery_encoders: encoders,
            faces,
            concurrency: 4_096,
            tenant_concurrency: 64,
            retention: Retention { events_ms: YEAR_MS, deliveries_ms: YEAR_MS },
        },
        quotas: Quotas::default(),
        poison: None,
    };
    Engine::open(&config, clock, Arc::new(SystemEntropy::default())).unwrap()
}

/// Ends whoever writes, and the engine once nobody uses it.
pub(crate) async fn stop(engine: Engine, writers: Vec<JoinHandle<()>>) {
    for writer in writers {
        writer.abort();
        let _ = writer.await;
    }
    engine.shutdown().await;
}

/// There are no consumers.
struct NoWakes;

impl Encoder for NoWakes {
    fn encode_wake(&self, _: &WakeNotification) -> EncodedRequest {
        EncodedRequest { headers: Vec::new(), body: Bytes::new() }
    }

    fn is_done(&self, _: &[u8]) -> bool {
        true
    }
}

/// Sends what is to be delivered as it is, to this address.
pub(crate) struct PlainTarget(pub(crate) String);

impl DeliveryTarget for PlainTarget {
    fn address(&self) -> String {
        self.0.clone()
    }

    fn encode(
        &self,
        notification: &DeliveryNotification,
    ) -> Result<EncodedRequest, RefusedDelivery> {
        Ok(EncodedRequest { headers: Vec::new(), body: notification.payload.clone() })
    }
}

/// What is delivered is shown to this, and answered when it is done.
pub(crate) trait Endpoint: Send + Sync + 'static {
    fn receive(&self, body: &[u8]) -> impl Future<Output = ()> + Send;
    /// It has its answer.
    fn answered(&self) {}
}

/// Where an endpoint is.
pub(crate) async fn listen(endpoint: Arc<impl Endpoint>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, endpoint.clone()));
        }
    });
    format!("http://{address}/deliveries")
}

async fn answer(stream: TcpStream, endpoint: Arc<impl Endpoint>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let (mut line, mut body) = (String::new(), Vec::new());
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            match line.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap_or(0);
                }
                _ if line == "\r\n" => break,
                _ => {}
            }
        }
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
        endpoint.receive(&body).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        endpoint.answered();
    }
}

/// Processor time of the whole process, in microseconds.
pub(crate) fn cpu_us() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
    // User and system time, in hundredths of a second.
    fields.skip(11).take(2).filter_map(|it| it.parse::<f64>().ok()).sum::<f64>() * 10_000.0
}

/// The median of each figure over the rounds, as JSON.
pub(crate) fn report(names: &[&str], rounds: &[Vec<f64>]) -> String {
    let figures = names.iter().enumerate().map(|(index, name)| {
        let mut values: Vec<f64> = rounds.iter().filter_map(|it| it.get(index)).copied().collect();
        values.sort_by(f64::total_cmp);
        let median = values.get(values.len() / 2).copied().unwrap_or(0.0);
        format!("\"{name}\":{median:.3}")
    });
    format!("{{{}}}", figures.collect::<Vec<_>>().join(","))
}
