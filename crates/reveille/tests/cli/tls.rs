//! The commands over https: a real server behind TLS, with authorities that the test makes up.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::process::{Server, run, run_with};

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A certificate for this name; without an authority it is its own.
fn certificate(authority: Option<&Authority>, name: &str) -> (CertificateDer<'static>, KeyPair) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = match authority {
        Some(authority) => params.signed_by(&key, authority),
        None => params.self_signed(&key),
    };
    (certificate.unwrap().der().clone(), key)
}

/// Takes TLS off and passes the rest on to a server; returns where it listens.
fn terminate(server: &Server, (certificate, key): (CertificateDer<'static>, KeyPair)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let behind = server.address().to_owned();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (acceptor, behind) = (acceptor.clone(), behind.clone());
                tokio::spawn(async move {
                    // Clients that do not trust us hang up.
                    let Ok(mut socket) = acceptor.accept(socket).await else { return };
                    let mut behind = TcpStream::connect(behind).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut socket, &mut behind).await;
                });
            }
        });
    });
    format!("https://127.0.0.1:{}", address.port())
}

fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
}

fn file(directory: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn commands_speak_https_to_whom_they_trust() {
    let server = Server::start();
    let (ours, other) = (authority(), authority());
    let url = terminate(&server, certificate(Some(&ours), "127.0.0.1"));
    let directory = tempfile::tempdir().unwrap();
    // A file may have several authorities.
    let both = format!("{}\n{}", pem(other.der()), pem(ours.der()));
    let trusted = file(&directory, "trusted.pem", &both);
    let flags = ["--url", &url, "--ca-file", trusted.to_str().unwrap()];
    let with = |args: &[&str]| run(&[args, &flags].concat());
    with(&["append", "/notes", "hello "]).ok();
    with(&["append", "/notes", "world"]).ok();
    assert_eq!(with(&["read", "/notes"]).ok(), "hello world");
    assert!(with(&["streams"]).ok().contains("/notes"));
    let mut command = server.command(&["streams", "--url", &url]);
    command.env("REVEILLE_CA_FILE", &trusted);
    assert!(run_with(command, b"").ok().contains("/notes"));
    let jwks = format!("{url}/v1/stream/__ds/jwks.json");
    let verify = ["verify", "--header", "t=1,sha256=00", "--jwks", &jwks, "--ca-file"];
    let sentence = run(&[&verify[..], &[trusted.to_str().unwrap()]].concat()).error(1);
    assert!(sentence.contains("ed25519"), "the keys were fetched: {sentence}");
}

#[test]
fn whom_they_do_not_trust_is_told_in_one_sentence() {
    let server = Server::start();
    let ours = authority();
    let directory = tempfile::tempdir().unwrap();
    let trusted = file(&directory, "trusted.pem", &pem(ours.der()));
    let trusted = ["--ca-file", trusted.to_str().unwrap()];
    let check = |url: &str, more: &[&str], parts: &[&str]| {
        let sentence = run(&[&["streams", "--url", url], more].concat()).error(1);
        for part in parts {
            assert!(sentence.contains(part), "{part}: {sentence}");
        }
    };
    let own = certificate(None, "127.0.0.1");
    let own_pem = file(&directory, "own.pem", &pem(&own.0));
    let url = terminate(&server, own);
    check(&url, &[], &[&url, "cannot be trusted", "--ca-file"]);
    check(&url, &trusted, &["cannot be trusted", "--ca-file"]);
    run(&["streams", "--url", &url, "--ca-file", own_pem.to_str().unwrap()]).ok();

    let url = terminate(&server, certificate(Some(&ours), "127.0.0.1"));
    check(&url, &[], &["cannot be trusted", "--ca-file"]);
    let url = terminate(&server, certificate(Some(&ours), "example.com"));
    check(&url, &trusted, &["cannot be trusted", "--url with a name"]);
    let url = server.url.replace("http://", "https://");
    check(&url, &[], &["cannot be trusted", "http://"]);

    let missing = directory.path().join("missing.pem");
    check(&url, &["--ca-file", missing.to_str().unwrap()], &["cannot read", "missing.pem"]);
    let empty = file(&directory, "empty.pem", "no certificate");
    check(&url, &["--ca-file", empty.to_str().unwrap()], &["empty.pem", "BEGIN CERTIFICATE"]);
}
