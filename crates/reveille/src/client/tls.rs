//! Whom the commands trust: the authorities that browsers trust, and those of `--ca-file`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, anyhow, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use tokio_rustls::TlsConnector;

use super::url::Url;
use crate::failure::usage_error;

/// What stands between us and a server that was reached.
#[derive(Debug)]
pub(crate) struct TlsProblem {
    pub(crate) cause: String,
    /// What to do about it.
    pub(crate) advice: &'static str,
}

/// What a connection to a server over TLS needs.
pub(crate) fn connector(
    url: &Url,
    ca_file: Option<&Path>,
) -> anyhow::Result<(TlsConnector, ServerName<'static>)> {
    let name = ServerName::try_from(url.host().to_owned())
        .map_err(|_| usage_error(format!("no certificate can be for the host of {url}")))?;
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(path) = ca_file {
        add_roots(&mut roots, path)?;
    }
    // The provider is passed rather than taken from the process, where another library may have
    // installed another one.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("cannot set up TLS")?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((TlsConnector::from(Arc::new(config)), name))
}

fn add_roots(roots: &mut RootCertStore, path: &Path) -> anyhow::Result<()> {
    let pem = std::fs::read(path)
        .with_context(|| format!("cannot read {}, which --ca-file names", path.display()))?;
    let not_pem = || {
        anyhow!(
            "{} is not PEM with certificates (-----BEGIN CERTIFICATE-----); pass the authority's \
             certificate to --ca-file",
            path.display()
        )
    };
    let mut found = 0;
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|_| not_pem())?;
        roots.add(certificate).map_err(|_| not_pem())?;
        found += 1;
    }
    ensure!(found > 0, not_pem());
    Ok(())
}

/// What is wrong with the other side, if that is why a handshake failed.
pub(crate) fn problem(error: &io::Error) -> Option<TlsProblem> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let advice = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "if it is yours, pass the certificate of the authority that signed its certificate \
             with --ca-file or REVEILLE_CA_FILE"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "pass --url with a name that its certificate is for",
        Error::InvalidCertificate(_) => {
            "give the server a certificate of its own, and pass that of the authority which signed \
             it with --ca-file"
        }
        Error::InvalidMessage(_) => "if it does not speak TLS, pass --url with http://",
        _ => "see how TLS is set up there",
    };
    Some(TlsProblem { cause: error.to_string(), advice })
}
