//! TLS with authorities that the test makes up.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use reveille_deliver::client::{Authorities, AuthorityError, HttpCourier};
use reveille_deliver::courier::SendError;
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::sink::{
    Caller, Everything, OK, Sink, local_rules, read_request, wait_for_end, while_pending, within,
};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// What a server of this name needs; with `clients` it wants a certificate from everybody.
fn acceptor(authority: &Authority, name: &str, clients: bool) -> TlsAcceptor {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap().der().clone();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = if clients {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(authority.der().clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
        config.with_client_cert_verifier(verifier.unwrap())
    } else {
        config.with_no_client_auth()
    };
    let mut config = config.with_single_cert(vec![certificate], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn secure_sink(acceptor: TlsAcceptor) -> Sink {
    Sink::playing(move |socket, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut socket) = acceptor.accept(socket).await else { return };
            assert_eq!(socket.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
            while read_request(&mut socket).await.is_some() {
                socket.write_all(OK.as_bytes()).await.unwrap();
            }
        }
    })
    .await
}

fn pem(authority: &Authority) -> String {
    let text = STANDARD.encode(authority.der());
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn trusting(authority: &Authority) -> Caller {
    trusting_pem(&pem(authority))
}

fn trusting_pem(pem: &str) -> Caller {
    let authorities = Authorities::from_pem(pem.as_bytes()).unwrap();
    let resolver = Arc::new(Everything([127, 0, 0, 1].into()));
    Caller::made(|now| HttpCourier::trusting(local_rules(), resolver, now, authorities))
}

#[tokio::test]
async fn a_server_with_a_trusted_certificate_is_called_and_its_connection_reused() {
    let authority = authority();
    for name in ["localhost", "127.0.0.1"] {
        let sink = secure_sink(acceptor(&authority, name, false)).await;
        let caller = trusting(&authority);
        for _ in 0..3 {
            let answer = caller.post(&format!("https://{name}:{}/", sink.port)).await.unwrap();
            assert_eq!((answer.status, &answer.body[..]), (200, &b"ok"[..]));
        }
        assert_eq!((sink.accepts(), caller.courier.idle_connections()), (1, 1));
    }
}

#[tokio::test]
async fn a_secure_connection_closed_while_it_waits_does_no_harm() {
    let authority = authority();
    let acceptor = acceptor(&authority, "localhost", false);
    let sink = Sink::playing(move |socket, _| {
        let acceptor = acceptor.clone();
        async move {
            let mut socket = acceptor.accept(socket).await.unwrap();
            read_request(&mut socket).await.unwrap();
            socket.write_all(OK.as_bytes()).await.unwrap();
            // Without a word of farewell, which TLS demands and many servers leave out.
        }
    })
    .await;
    let caller = trusting(&authority);
    for number in 1..=5 {
        let url = format!("https://localhost:{}/", sink.port);
        assert_eq!(caller.post(&url).await.unwrap().status, 200);
        assert_eq!(sink.accepts(), number);
    }
}

#[tokio::test]
async fn dropping_a_request_closes_a_connection_that_is_shaking_hands() {
    let (began, begins) = oneshot::channel();
    let (ended, ends) = oneshot::channel();
    let reports = Mutex::new(Some((began, ended)));
    let sink = Sink::playing(move |mut socket, _| {
        let (began, ended) = reports.lock().unwrap().take().unwrap();
        async move {
            socket.read_u8().await.unwrap();
            began.send(()).unwrap();
            wait_for_end(&mut socket).await;
            ended.send(()).unwrap();
        }
    })
    .await;
    let caller = Caller::new();
    let mut posting = caller.begin(&format!("https://localhost:{}/", sink.port));
    while_pending(&mut posting, begins).await.unwrap();
    drop(posting);
    within(ends).await.unwrap();
}

#[tokio::test]
async fn a_server_with_a_certificate_of_an_unknown_authority_is_not_called() {
    let sink = secure_sink(acceptor(&authority(), "localhost", false)).await;
    let url = format!("https://localhost:{}/", sink.port);
    for caller in [Caller::new(), trusting(&authority())] {
        assert_eq!(caller.post(&url).await, Err(SendError::TlsHandshake));
        assert_eq!(caller.courier.idle_connections(), 0);
    }
}

#[tokio::test]
async fn a_server_with_a_certificate_for_another_name_is_not_called() {
    let authority = authority();
    let sink = secure_sink(acceptor(&authority, "other.example", false)).await;
    let url = format!("https://localhost:{}/", sink.port);
    assert_eq!(trusting(&authority).post(&url).await, Err(SendError::TlsHandshake));
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_of_ours_is_a_failed_handshake() {
    let authority = authority();
    let sink = secure_sink(acceptor(&authority, "localhost", true)).await;
    let url = format!("https://localhost:{}/", sink.port);
    assert_eq!(trusting(&authority).post(&url).await, Err(SendError::TlsHandshake));
}

#[tokio::test]
async fn a_server_without_tls_is_a_failed_handshake() {
    let sink = Sink::playing(|mut socket, _| async move {
        let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    })
    .await;
    let url = format!("https://localhost:{}/", sink.port);
    assert_eq!(Caller::new().post(&url).await, Err(SendError::TlsHandshake));
}

#[tokio::test]
async fn every_authority_of_a_file_is_trusted() {
    let (one, two) = (authority(), authority());
    let caller = trusting_pem(&format!("# ours\n{}\n{}", pem(&one), pem(&two)));
    for authority in [one, two] {
        let sink = secure_sink(acceptor(&authority, "localhost", false)).await;
        let answer = caller.post(&format!("https://localhost:{}/", sink.port)).await.unwrap();
        assert_eq!(answer.status, 200);
    }
}

#[test]
fn a_file_without_authorities_is_refused() {
    let refused = |text: &str| Authorities::from_pem(text.as_bytes()).unwrap_err();
    assert_eq!(refused("no certificate"), AuthorityError::Empty);
    let wrap =
        |inner: &str| format!("-----BEGIN CERTIFICATE-----\n{inner}\n-----END CERTIFICATE-----\n");
    assert_eq!(refused(&wrap("!!!")), AuthorityError::NotPem);
    let good = pem(&authority());
    assert_eq!(refused(&(good + &wrap("bm9uZQ=="))), AuthorityError::BadCertificate(2));
}

/// With two providers in one process, rustls panics when it is asked to choose.
#[test]
fn there_is_one_provider_of_cryptography() {
    let output = std::process::Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--prefix", "none", "--offline"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let tree = String::from_utf8(output.stdout).unwrap();
    let has = |package: &str| tree.lines().any(|line| line.split(' ').next() == Some(package));
    assert!(output.status.success() && has("aws-lc-rs"), "cargo tree works");
    assert!(!has("ring"));
}
