//! The HTTP client underneath: certificates, proxies, no redirects. The same for servers and for token services.

use reqwest::redirect;

use super::fault;
use crate::capped;
use crate::error::Error;
use crate::settings::Settings;

/// `https`: plain http never needs the certificates, and reading them costs milliseconds at every start. It goes to this
/// machine, or to the metadata server beside it, and never through a proxy, unless it is the user's own server.
pub(crate) fn http(settings: &Settings, https: bool) -> Result<reqwest::Client, Error> {
    let builder = builder(settings);
    let builder =
        if https { with_certificates(builder, settings)? } else { builder.no_proxy().tls_certs_only([]) };
    build(builder)
}

/// For the user's own server.
pub(super) fn to_server(settings: &Settings) -> Result<reqwest::Client, Error> {
    let mut builder = builder(settings);
    if settings.endpoint.is_loopback() {
        builder = builder.no_proxy();
    }
    let builder = if settings.endpoint.is_https() {
        with_certificates(builder, settings)?
    } else {
        builder.tls_certs_only([])
    };
    build(builder)
}

fn builder(settings: &Settings) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("dgem/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(settings.connect_timeout)
        // A redirect would carry the state, and perhaps the token, to a place the user did not name.
        .redirect(redirect::Policy::none())
}

fn with_certificates(
    builder: reqwest::ClientBuilder,
    settings: &Settings,
) -> Result<reqwest::ClientBuilder, Error> {
    let Some(path) = &settings.cacert else { return Ok(builder) };
    let refuse = |reason: String| Error::BadCertificates { path: path.clone(), reason };
    let pem = capped::read_file(path, capped::TOKEN_BYTES * 16).map_err(|cause| refuse(cause.to_string()))?;
    let certificates =
        reqwest::Certificate::from_pem_bundle(&pem).map_err(|cause| refuse(fault::root(&cause)))?;
    if certificates.is_empty() {
        return Err(refuse("there is none in it".to_owned()));
    }
    Ok(builder.tls_certs_merge(certificates))
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, Error> {
    builder.build().map_err(|cause| Error::HttpSetup { cause: fault::chain(&cause) })
}
