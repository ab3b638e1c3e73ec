//! The url of a master: which urls are accepted, how two are compared, and how one is shown without its secrets. The same for
//! flags, variables and manifests.

use std::net::{IpAddr, Ipv6Addr};

use thiserror::Error;
use url::Url;

/// The form of a url.
pub const URL_SHAPE: &str = "write redis://HOST[:PORT][/DATABASE], or rediss:// for TLS";

const URL_LIMIT: usize = 512;
const DEFAULT_PORT: u16 = 6379;
/// Redis numbers databases with 31 bits, which every number of nine digits fits.
const DATABASE_DIGITS: usize = 9;

/// An accepted url.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MasterUrl {
    /// `host:port` in one spelling. The database is left out: two databases of one server fail together.
    pub address: String,
    pub tls: bool,
}

/// The reason why a url is refused. Continues a sentence that begins with the url, and contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MasterUrlError {
    #[error("contains a user or password, which every reader of the url can see: give them apart from it")]
    Credentials,
    #[error("{0}")]
    Shape(String),
}

impl MasterUrl {
    /// Parses the url of a master.
    ///
    /// # Errors
    /// Returns an error for a url with credentials, with parts that would have no effect, or of another form.
    pub fn parse(text: &str) -> Result<Self, MasterUrlError> {
        check_text(text)?;
        let refuse = |reason: String| Err(MasterUrlError::Shape(reason));
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(cause) => return refuse(format!("is not a url ({cause}): {URL_SHAPE}")),
        };
        let tls = match url.scheme() {
            "redis" => false,
            "rediss" => true,
            scheme => return refuse(format!("has the scheme {scheme:?}: {URL_SHAPE}")),
        };
        if url.query().is_some() || url.fragment().is_some() {
            return refuse(format!("has a part after \"?\" or \"#\": {URL_SHAPE}"));
        }
        let Some(host) = url.host_str().filter(|h| !h.is_empty()) else {
            return refuse(format!("names no host: {URL_SHAPE}"));
        };
        if is_mapped(host) {
            return refuse(format!(
                "is not the url of a master: it contains an IPv4-mapped IPv6 address, which would hide that two urls \
                 name one server: {URL_SHAPE}"
            ));
        }
        let port = url.port().unwrap_or(DEFAULT_PORT);
        if port == 0 {
            return refuse(format!(
                "has port 0: use a port from 1 to 65535, or none for {DEFAULT_PORT}"
            ));
        }
        let database = url.path().strip_prefix('/').unwrap_or_default();
        if database.len() > DATABASE_DIGITS || !database.bytes().all(|b| b.is_ascii_digit()) {
            return refuse(format!(
                "has {database:?} where the number of a database is expected: {URL_SHAPE}"
            ));
        }
        if !written_plainly(text, port) {
            return refuse(format!(
                "is not the url of a master, with a host of letters, digits, \".\", \"-\" and \"_\": {URL_SHAPE}"
            ));
        }
        Ok(Self {
            address: format!("{}:{port}", one_spelling(host)),
            tls,
        })
    }
}

/// Checks what the parser of urls accepts or hides.
fn check_text(text: &str) -> Result<(), MasterUrlError> {
    let refuse = |reason: String| Err(MasterUrlError::Shape(reason));
    if text.is_empty() {
        return refuse(format!("is empty: {URL_SHAPE}"));
    }
    if text.chars().count() > URL_LIMIT {
        return refuse(format!("is longer than {URL_LIMIT} characters"));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return refuse(format!(
            "contains white space or a control character: {URL_SHAPE}"
        ));
    }
    // Before the parser: a password with a `/` ends the host early, and a later message would quote the rest of it.
    if text.contains('@') {
        return Err(MasterUrlError::Credentials);
    }
    Ok(())
}

/// The parser also accepts hosts that cannot be resolved, and ports such as `:` and `:00007001`.
fn written_plainly(text: &str, port: u16) -> bool {
    let after_scheme = text.split_once("://").map_or("", |(_, rest)| rest);
    let server = after_scheme.split('/').next().unwrap_or_default();
    let host = server.strip_suffix(&format!(":{port}")).unwrap_or(server);
    // The parser has checked the text in the brackets.
    let address = host.starts_with('[') && host.ends_with(']');
    address
        || host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

/// Whether the host is an IPv4 address in IPv6 notation, such as `[::ffff:10.0.0.1]`.
fn is_mapped(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<Ipv6Addr>()
        .is_ok_and(|address| address.to_ipv4_mapped().is_some())
}

/// Returns the host in one spelling: names compare without case and final dot, addresses by value.
fn one_spelling(host: &str) -> String {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        Ok(IpAddr::V4(address)) => address.to_string(),
        Err(_) => bare.trim_end_matches('.').to_lowercase(),
    }
}

/// Returns `text` without the parts of a url that may be secret: everything between the scheme and the last `@`, and
/// everything after a `?`. Removes too much rather than too little, so that it also serves for texts that quote a url.
#[must_use]
pub fn redact(text: &str) -> String {
    let Some((before, after)) = text.rsplit_once('@') else {
        return without_query(text);
    };
    let scheme = before
        .find("://")
        .map_or_else(|| before.find(':').map(|i| i + 1), |i| Some(i + 3));
    let kept = scheme.and_then(|end| before.get(..end)).unwrap_or_default();
    format!("{}***@{}", without_query(kept), without_query(after))
}

fn without_query(text: &str) -> String {
    match text.split_once('?') {
        Some((before, _)) if before.contains(':') => format!("{before}?***"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_that_are_one_server_have_one_address() {
        let table = [
            ("redis://127.0.0.1:7001", "127.0.0.1:7001", false),
            ("redis://h", "h:6379", false),
            ("redis://h/", "h:6379", false),
            ("redis://H.Example.:6379/0", "h.example:6379", false),
            ("rediss://h:6379/15", "h:6379", true),
            ("REDIS://h", "h:6379", false),
            ("redis://[::1]:7001", "[::1]:7001", false),
            ("redis://[0:0:0:0:0:0:0:1]:7001", "[::1]:7001", false),
        ];
        for (text, address, tls) in table {
            assert_eq!(
                MasterUrl::parse(text),
                Ok(MasterUrl {
                    address: address.into(),
                    tls
                }),
                "{text}"
            );
        }
    }

    #[test]
    fn an_unusable_value_is_refused_with_its_reason() {
        let table = [
            ("", "is empty"),
            ("127.0.0.1:7001", "is not a url"),
            ("h:7001", "scheme \"h\""),
            ("http://h", "scheme \"http\""),
            ("redis-sentinel://h", "scheme"),
            ("unix:///run/redis.sock", "scheme"),
            ("redis:h", "names no host"),
            ("redis://", "names no host"),
            ("redis://:7001", "is not a url"),
            ("redis://h:0", "port 0"),
            ("redis://h:65536", "is not a url"),
            ("redis://h/x", "\"x\" where the number of a database"),
            ("redis://h/-1", "database"),
            ("redis://h/1/2", "database"),
            ("redis://h//1", "database"),
            ("redis://h/+1", "database"),
            ("redis://h:", "not the url of a master"),
            ("redis://h:007001", "not the url of a master"),
            ("redis://h,i", "not the url of a master"),
            ("redis://ä", "not the url of a master"),
            ("redis://%68", "not the url of a master"),
            ("redis://[::1]:", "not the url of a master"),
            ("redis://[::g]", "is not a url"),
            ("redis://[::ffff:10.0.0.1]", "IPv4-mapped IPv6 address"),
            ("redis://[::ffff:a00:1]", "IPv4-mapped IPv6 address"),
            ("redis://h?protocol=resp3", "after"),
            ("rediss://h#insecure", "after"),
            ("redis://h\n", "white space"),
            (" redis://h", "white space"),
        ];
        for (text, reason) in table {
            let error = MasterUrl::parse(text).unwrap_err();
            assert!(error.to_string().contains(reason), "{text:?}: {error}");
        }
        assert!(
            MasterUrl::parse(&format!("redis://{}", "h".repeat(505)))
                .unwrap_err()
                .to_string()
                .contains("512")
        );
    }

    #[test]
    fn credentials_are_refused_and_never_shown() {
        let table = [
            ("redis://:secret@h:1", "redis://***@h:1"),
            ("redis://user:secret@h:1", "redis://***@h:1"),
            ("redis://secret@h", "redis://***@h"),
            ("redis://user:sec@secret@h", "redis://***@h"),
            ("redis://:secret/x@h", "redis://***@h"),
            ("redis://:sec ret@h", "redis://***@h"),
            ("redis::secret@h", "redis:***@h"),
            ("secret@h", "***@h"),
            ("redis://h?password=secret", "redis://h?***"),
            ("redis://:secret?x@h", "redis://***@h"),
            ("http://u:secret@h", "http://***@h"),
            ("redis://u:1/secret@h:1/0", "redis://***@h:1/0"),
            ("redis://u:sec#secret@h:1/0", "redis://***@h:1/0"),
            ("redis://u:sec://secret@h:1/0", "redis://***@h:1/0"),
        ];
        for (text, shown) in table {
            let error = MasterUrl::parse(text).unwrap_err();
            assert_eq!(redact(text), shown, "{text}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
        assert_eq!(redact("redis://h:1/2"), "redis://h:1/2");
        assert_eq!(redact("no url?"), "no url?");
    }

    proptest! {
        #[test]
        fn no_url_panics_and_an_accepted_one_has_a_port(text in "(redis://|rediss://|)\\PC{0,40}") {
            if let Ok(url) = MasterUrl::parse(&text) {
                prop_assert!(url.address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap() > 0);
            }
        }

        #[test]
        fn a_password_is_never_shown(password in "[a-z0-9/:?#@%]{1,12}") {
            let secret = format!("Q{password}Q");
            let url = format!("redis://u:{secret}@h:1");
            if let Err(error) = MasterUrl::parse(&url) {
                let shown = format!("{} {error}", redact(&url));
                prop_assert!(!shown.contains(&secret), "{}", shown);
            } else {
                prop_assert!(false, "accepted a password");
            }
        }
    }
}
