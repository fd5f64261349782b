//! GET over https: time limits, redirects followed by hand, and the headers that the hub uses.
//!
//! Invariants: plain http only to loopback or to the configured endpoint; never from https down to http; the token
//! goes to the endpoint's origin alone; the hub's own hash is believed from the endpoint's origin alone.
//! Protocol: RFC 9110 (Range, If-Range, Content-Range); `X-Linked-Etag` and `X-Linked-Size` as the hub's `resolve`
//! route sends them for files in large file storage.

use std::io::Read;

use ureq::{
    Agent, Proxy,
    http::{HeaderMap, Uri},
    tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem},
};

use crate::{
    config::HubConfig,
    error::{Error, Result},
};

const REDIRECTS_MAX: usize = 10;
const PEM_BYTES_MAX: u64 = 16 << 20;
/// Hosts that no proxy can reach.
const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// A client with the configured limits.
pub(crate) struct Http {
    agent: Agent,
    endpoint: Uri,
    token: Option<String>,
}

/// The answer to a GET, after redirects.
pub(crate) struct Reply {
    /// Status code.
    pub status: u16,
    /// Bytes of the body that follow.
    pub length: Option<u64>,
    /// `Content-Range`: first byte and total.
    pub range: Option<(u64, u64)>,
    /// Strong entity tag of the final answer.
    pub etag: Option<String>,
    /// sha256 that the hub declares for the file.
    pub linked_sha256: Option<String>,
    /// Size that the hub declares for the file.
    pub linked_size: Option<u64>,
    /// Seconds that the server asks to wait.
    pub retry_after: Option<String>,
    /// The body.
    pub body: Box<dyn Read>,
}

impl Http {
    /// A client for `config`.
    pub fn new(config: &HubConfig) -> Result<Self> {
        let endpoint: Uri = config
            .endpoint
            .parse()
            .map_err(|e| Error::http(&config.endpoint, format!("the hub endpoint is not an address: {e}")))?;
        let builder = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .user_agent(concat!("hanzo/", env!("CARGO_PKG_VERSION")))
            .proxy(proxy(config)?)
            .tls_config(tls(config)?)
            .timeout_resolve(Some(config.connect_timeout))
            .timeout_connect(Some(config.connect_timeout))
            .timeout_recv_response(Some(config.stall_timeout))
            .timeout_per_read(Some(config.stall_timeout))
            .timeout_per_write(Some(config.stall_timeout));
        Ok(Self { agent: builder.build().into(), endpoint, token: config.token.clone() })
    }

    /// GETs `url` with `headers`, following redirects.
    pub fn get(&self, url: &str, headers: &[(&str, String)]) -> Result<Reply> {
        let mut at: Uri = url.parse().map_err(|e| Error::http(url, format!("not an address: {e}")))?;
        self.check_scheme(&at).map_err(|what| Error::http(url, what))?;
        let (mut linked_sha256, mut linked_size) = (None, None);
        for _ in 0..=REDIRECTS_MAX {
            let mut request = self.agent.get(at.clone());
            for (name, value) in headers {
                request = request.header(*name, value);
            }
            if let Some(token) = self.token.as_ref().filter(|_| self.may_have_token(&at)) {
                request = request.header("Authorization", format!("Bearer {token}"));
            }
            let response = request.call().map_err(|e| Error::http(at.to_string(), explain(&e)))?;
            let status = response.status().as_u16();
            if same_origin(&at, &self.endpoint) {
                linked_sha256 = linked_sha256.or_else(|| linked_hash(response.headers()));
                linked_size =
                    linked_size.or_else(|| header(response.headers(), "x-linked-size")?.parse().ok());
            }
            if !matches!(status, 301 | 302 | 303 | 307 | 308) {
                return Ok(reply(response, linked_sha256, linked_size));
            }
            let location = header(response.headers(), "location")
                .ok_or_else(|| Error::http(at.to_string(), format!("status {status} without a Location")))?;
            at = self.redirect(&at, location).map_err(|what| Error::http(url, what))?;
        }
        Err(Error::http(url, format!("more than {REDIRECTS_MAX} redirects")))
    }

    /// GETs a document of at most `bytes_max`.
    pub fn get_small(&self, url: &str, bytes_max: u64) -> Result<(u16, Vec<u8>)> {
        let reply = self.get(url, &[])?;
        let mut text = Vec::new();
        reply
            .body
            .take(bytes_max + 1)
            .read_to_end(&mut text)
            .map_err(|e| Error::http(url, format!("answer cut off: {e}")))?;
        if text.len() as u64 > bytes_max {
            return Err(Error::http(url, format!("answer is longer than {bytes_max} bytes")));
        }
        Ok((reply.status, text))
    }

    fn redirect(&self, from: &Uri, location: &str) -> std::result::Result<Uri, String> {
        let text = join(from, location);
        let to: Uri = text.parse().map_err(|e| format!("redirect to {location:?}, not an address: {e}"))?;
        if from.scheme_str() == Some("https") && to.scheme_str() != Some("https") {
            return Err(format!("redirect from https to {to}: refused"));
        }
        self.check_scheme(&to)?;
        Ok(to)
    }

    fn check_scheme(&self, uri: &Uri) -> std::result::Result<(), String> {
        match (uri.scheme_str(), uri.host()) {
            (Some("https"), Some(_)) => Ok(()),
            (Some("http"), Some(_)) if is_loopback(uri) || same_origin(uri, &self.endpoint) => Ok(()),
            _ => Err(format!("{uri}: only https is downloaded from")),
        }
    }

    fn may_have_token(&self, uri: &Uri) -> bool {
        same_origin(uri, &self.endpoint) && (uri.scheme_str() == Some("https") || is_loopback(uri))
    }
}

fn reply(response: ureq::http::Response<ureq::Body>, sha256: Option<String>, size: Option<u64>) -> Reply {
    let headers = response.headers();
    let text = |name| header(headers, name).map(str::to_owned);
    Reply {
        status: response.status().as_u16(),
        length: header(headers, "content-length").and_then(|length| length.parse().ok()),
        range: header(headers, "content-range").and_then(content_range),
        etag: text("etag").filter(|tag| tag.starts_with('"') && tag.len() <= 256),
        linked_sha256: sha256,
        linked_size: size,
        retry_after: text("retry-after").filter(|after| after.len() <= 40),
        body: Box::new(response.into_body().into_reader()),
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim)
}

/// `X-Linked-Etag: "<sha256>"`.
fn linked_hash(headers: &HeaderMap) -> Option<String> {
    let tag = header(headers, "x-linked-etag")?.trim_matches('"').to_ascii_lowercase();
    crate::manifest::is_sha256(&tag).then_some(tag)
}

/// First byte and total of `bytes FIRST-LAST/TOTAL`.
fn content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total): (u64, u64, u64) =
        (first.parse().ok()?, last.parse().ok()?, total.parse().ok()?);
    (first <= last && last < total).then_some((first, total))
}

fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if uri.scheme_str() == Some("http") { 80 } else { 443 })
}

fn same_origin(a: &Uri, b: &Uri) -> bool {
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme() == b.scheme() && host(a) == host(b) && port(a) == port(b)
}

/// `location` seen from `base` (RFC 3986, without dot segments: servers resolve those).
fn join(base: &Uri, location: &str) -> String {
    let origin = format!(
        "{}://{}",
        base.scheme_str().unwrap_or("https"),
        base.authority().map_or("", ureq::http::uri::Authority::as_str)
    );
    if location.contains("://") {
        location.to_owned()
    } else if let Some(rest) = location.strip_prefix("//") {
        format!("{}://{rest}", base.scheme_str().unwrap_or("https"))
    } else if location.starts_with('/') {
        format!("{origin}{location}")
    } else {
        let dir = base.path().rfind('/').map_or("/", |slash| &base.path()[..=slash]);
        format!("{origin}{dir}{location}")
    }
}

/// `text` with all but unreserved characters and slashes percent-encoded.
pub(crate) fn encode_path(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'/') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&crate::manifest::hex(&[byte]).to_ascii_uppercase());
        }
    }
    out
}

/// A network error in the user's words.
fn explain(error: &ureq::Error) -> String {
    match error {
        ureq::Error::HostNotFound => "host not found (no network, or no such host)".to_owned(),
        ureq::Error::Timeout(ureq::Timeout::Resolve) => "host lookup took too long".to_owned(),
        ureq::Error::Timeout(ureq::Timeout::Connect) => "no connection in time".to_owned(),
        ureq::Error::Timeout(limit) => format!("server stopped answering ({limit})"),
        other => {
            let text = other.to_string();
            // The resolver's failure arrives as a bare text; these are its words on Unix and on Windows.
            if text.contains("lookup address") || text.contains("host is known") {
                format!("host not found (no network, or no such host): {text}")
            } else {
                format!("connection failed: {text}")
            }
        }
    }
}

/// The configured proxy, with its exceptions.
fn proxy(config: &HubConfig) -> Result<Option<Proxy>> {
    let Some(address) = &config.proxy else { return Ok(None) };
    let bad = |e: ureq::Error| Error::http("proxy", format!("its address is not understood: {e}"));
    let plain = Proxy::new(address).map_err(bad)?;
    let mut builder = Proxy::builder(plain.protocol()).host(plain.host()).port(plain.port());
    if let Some(user) = plain.username() {
        builder = builder.username(user);
    }
    if let Some(password) = plain.password() {
        builder = builder.password(password);
    }
    let exceptions = config.no_proxy.as_deref().unwrap_or_default().split(',');
    for host in exceptions.map(str::trim).filter(|host| !host.is_empty()).chain(LOOPBACK) {
        builder = builder.no_proxy(host);
    }
    builder.build().map(Some).map_err(bad)
}

/// Certificate roots: the built-in set, or those of `ca_file`.
fn tls(config: &HubConfig) -> Result<TlsConfig> {
    let Some(path) = &config.ca_file else { return Ok(TlsConfig::default()) };
    let mut pem = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(PEM_BYTES_MAX).read_to_end(&mut pem))
        .map_err(|e| Error::io(path, e))?;
    let mut roots: Vec<Certificate<'static>> = Vec::new();
    for item in parse_pem(&pem) {
        match item {
            Ok(PemItem::Certificate(certificate)) => roots.push(certificate),
            Ok(_) => {}
            Err(e) => return Err(Error::file(path, format!("not a PEM file: {e}"))),
        }
    }
    if roots.is_empty() {
        return Err(Error::file(path, "no certificate in it"));
    }
    Ok(TlsConfig::builder().root_certs(RootCerts::new_with_certs(&roots)).build())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_joined() {
        let base: Uri = "https://h:8/a/b?q=1".parse().unwrap();
        for (location, want) in [
            ("https://other/x", "https://other/x"),
            ("//other/x", "https://other/x"),
            ("/x?y", "https://h:8/x?y"),
            ("x", "https://h:8/a/x"),
        ] {
            assert_eq!(join(&base, location), want);
        }
    }

    #[test]
    fn ranges_are_checked() {
        assert_eq!(content_range("bytes 5-9/10"), Some((5, 10)));
        for bad in ["bytes 5-9/*", "bytes 9-5/10", "bytes 5-10/10", "bytes -1-2/3", "5-9/10", "bytes 5-9", ""]
        {
            assert_eq!(content_range(bad), None, "{bad}");
        }
    }

    #[test]
    fn plain_http_and_downgrades_are_refused() {
        let http = Http::new(&HubConfig::new("unused")).unwrap();
        let uri = |text: &str| text.parse::<Uri>().unwrap();
        assert!(http.check_scheme(&uri("https://x/y")).is_ok());
        assert!(http.check_scheme(&uri("http://127.0.0.1:1/y")).is_ok());
        assert!(http.check_scheme(&uri("http://localhost/y")).is_ok());
        assert!(http.check_scheme(&uri("http://x/y")).is_err());
        assert!(http.check_scheme(&uri("http://127.0.0.1.x.example/y")).is_err());
        assert!(http.check_scheme(&uri("ftp://x/y")).is_err());
        assert!(http.redirect(&uri("https://x/y"), "http://127.0.0.1/z").is_err());
        assert!(http.redirect(&uri("https://x/y"), "/z").is_ok());
        assert!(http.may_have_token(&uri("https://huggingface.co/a")));
        assert!(!http.may_have_token(&uri("https://huggingface.co.x.example/a")));
        assert!(!http.may_have_token(&uri("https://cdn.example/a")));
        assert!(!http.may_have_token(&uri("http://huggingface.co/a")));
    }

    #[test]
    fn odd_file_names_are_encoded() {
        assert_eq!(encode_path("a b/c#d?é.gguf"), "a%20b/c%23d%3F%C3%A9.gguf");
    }
}
