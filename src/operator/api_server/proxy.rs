//! Chooses the proxy on the way to the API server by the rules of kubectl, which are those of Go. Pure.

use std::net::IpAddr;

use http::Uri;
use thiserror::Error;

use crate::{masters::redact, operator::given::given};

/// The proxy of a client, and the setting that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChosenProxy {
    pub(super) url: Uri,
    pub(super) setting: &'static str,
}

/// A setting that names no proxy that can be used. `value` is without user and password.
#[derive(Debug, PartialEq, Eq, Error)]
pub(crate) enum ProxyError {
    #[error(
        "{setting}: {value:?} is not the url of a proxy: write http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"
    )]
    Url { setting: &'static str, value: String },
    /// The client would connect without them, and the proxy refuse it with an error that names no cause.
    #[error(
        "{setting}: {value:?} has a user or password, which redlock cannot send to a SOCKS proxy: remove them, or use a \
         proxy with http:// or https://"
    )]
    SocksLogin { setting: &'static str, value: String },
}

/// Chooses the proxy for this server. `proxy_url` is that of the kubeconfig, to which no exception applies; `variable` reads
/// the environment.
pub(super) fn choose(
    server: &Uri,
    proxy_url: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<ChosenProxy>, ProxyError> {
    if let Some(text) = proxy_url.and_then(given) {
        return parse("proxy-url of the kubeconfig", text).map(Some);
    }
    let names = match server.scheme_str() {
        Some("http") => ["HTTP_PROXY", "http_proxy"],
        _ => ["HTTPS_PROXY", "https_proxy"],
    };
    let read = |name: &'static str| {
        let value = variable(name)?;
        given(&value).map(|text| (name, text.to_owned()))
    };
    let Some((setting, text)) = names.into_iter().find_map(read) else {
        return Ok(None);
    };
    let exceptions = ["NO_PROXY", "no_proxy"].into_iter().find_map(read);
    let exceptions = exceptions.map(|(_, list)| list).unwrap_or_default();
    if is_direct(server, &exceptions) {
        return Ok(None);
    }
    parse(setting, &text).map(Some)
}

fn parse(setting: &'static str, text: &str) -> Result<ChosenProxy, ProxyError> {
    let value = redact(text);
    let text = match text.split_once("://") {
        None => format!("http://{text}"),
        // The proxy resolves the names of both.
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("socks5h") => format!("socks5://{rest}"),
        Some((scheme, rest)) => format!("{}://{rest}", scheme.to_ascii_lowercase()),
    };
    let Ok(url) = text.parse::<Uri>() else {
        return Err(ProxyError::Url { setting, value });
    };
    let is_known = url
        .scheme_str()
        .is_some_and(|scheme| ["http", "https", "socks5"].contains(&scheme));
    if !is_known || url.host().is_none_or(str::is_empty) {
        return Err(ProxyError::Url { setting, value });
    }
    let has_login = url
        .authority()
        .is_some_and(|server| server.as_str().contains('@'));
    if has_login && url.scheme_str() == Some("socks5") {
        return Err(ProxyError::SocksLogin { setting, value });
    }
    Ok(ChosenProxy { url, setting })
}

/// Reports whether requests to this server bypass the proxy of a variable.
fn is_direct(server: &Uri, exceptions: &str) -> bool {
    let host = server.host().unwrap_or_default().to_lowercase();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = server
        .port_u16()
        .unwrap_or(if server.scheme_str() == Some("http") {
            80
        } else {
            443
        });
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let entries = exceptions.split(',').filter_map(given);
    entries
        .into_iter()
        .any(|entry| excepts(&entry.to_lowercase(), host, address, port))
}

/// Reports whether one entry of NO_PROXY names a host: `*`, a network, or an address or a domain with or without a port.
fn excepts(entry: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if entry == "*" {
        return true;
    }
    if let Some(network) = IpNetwork::parse(entry) {
        return address.is_some_and(|address| network.contains(address));
    }
    let (name, of_port) = match entry.rsplit_once(':') {
        Some((name, digits)) if !name.contains(':') || name.ends_with(']') => (name, Some(digits)),
        _ => (entry, None),
    };
    if of_port.is_some_and(|digits| digits.parse() != Ok(port)) {
        return false;
    }
    let name = name.trim_start_matches('[').trim_end_matches(']');
    if let Ok(excepted) = name.parse::<IpAddr>() {
        return address == Some(excepted);
    }
    let name = name
        .strip_prefix('*')
        .filter(|rest| rest.starts_with('.'))
        .unwrap_or(name);
    match name.strip_prefix('.') {
        // A domain with a dot in front excepts the names below it, and not itself.
        Some(_) => host.ends_with(name),
        None => !name.is_empty() && (host == name || host.ends_with(&format!(".{name}"))),
    }
}

/// A network such as `10.0.0.0/8`.
struct IpNetwork {
    address: IpAddr,
    prefix: u32,
}

impl IpNetwork {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix): (IpAddr, u32) = (address.parse().ok()?, prefix.parse().ok()?);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        (prefix <= bits).then_some(Self { address, prefix })
    }

    fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let ignored = 32 - self.prefix;
                own.to_bits().checked_shr(ignored) == other.to_bits().checked_shr(ignored)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let ignored = 128 - self.prefix;
                own.to_bits().checked_shr(ignored) == other.to_bits().checked_shr(ignored)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(
        server: &str,
        proxy_url: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Option<(String, &'static str)> {
        let variable = |name: &str| {
            let known = variables.iter().find(|(known, _)| *known == name);
            known.map(|(_, value)| (*value).to_owned())
        };
        let chosen = choose(&server.parse().unwrap(), proxy_url, variable).unwrap();
        chosen.map(|proxy| (proxy.url.to_string(), proxy.setting))
    }

    #[test]
    fn proxy_is_that_of_the_kubeconfig_or_of_a_variable() {
        let (away, proxy) = ("https://api.example:6443", ("HTTPS_PROXY", "http://p:3128"));
        let of = |url: &str, source| Some((url.to_owned(), source));
        assert_eq!(chosen(away, None, &[]), None);
        assert_eq!(chosen(away, None, &[proxy]), of("http://p:3128/", "HTTPS_PROXY"));
        assert_eq!(
            chosen(away, None, &[("HTTPS_PROXY", ""), ("https_proxy", "p:1")]),
            of("http://p:1/", "https_proxy")
        );
        assert_eq!(
            chosen(away, None, &[("HTTP_PROXY", "p:1"), ("ALL_PROXY", "p:1")]),
            None
        );
        assert_eq!(chosen("http://api.example", None, &[proxy]), None);
        assert_eq!(
            chosen("http://api.example", None, &[("HTTP_PROXY", "p:1")]),
            of("http://p:1/", "HTTP_PROXY")
        );
        assert_eq!(
            chosen(away, Some(" "), &[proxy]),
            of("http://p:3128/", "HTTPS_PROXY")
        );
        let own = Some("SOCKS5h://[::1]:1080");
        let of_file = of("socks5://[::1]:1080/", "proxy-url of the kubeconfig");
        assert_eq!(chosen(away, own, &[proxy, ("NO_PROXY", "*")]), of_file);
        assert_eq!(chosen("https://127.0.0.1:6443", own, &[]), of_file);
        let with_login = of("http://u:p@p:1/", "proxy-url of the kubeconfig");
        assert_eq!(chosen(away, Some("http://u:p@p:1"), &[]), with_login);
    }

    #[test]
    fn exceptions_are_those_of_go() {
        for (server, exceptions, direct) in [
            ("https://localhost:6443", "", true),
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://api.example:6443", "", false),
            ("https://api.example:6443", "*", true),
            ("https://api.example:6443", "x, ,*,", true),
            ("https://api.example:6443", "example", true),
            ("https://api.example:6443", ".example", true),
            ("https://api.example:6443", "*.example", true),
            ("https://API.example:6443", "api.EXAMPLE", true),
            ("https://api.example:6443", "pi.example", false),
            ("https://example:6443", ".example", false),
            ("https://api.example:6443", "api.example:6443", true),
            ("https://api.example:6443", "api.example:443", false),
            ("https://api.example", "api.example:443", true),
            ("https://api.example", "api.example:port", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://10.1.2.3:6443", "10.1.2.3", true),
            ("https://10.1.2.3:6443", "10.1.2.3:6443,", true),
            ("https://10.1.2.3:6443", "11.0.0.0/8,10.1.2.3:443", false),
            ("https://10.1.2.3:6443", "0.0.0.0/0", true),
            ("https://10.1.2.3:6443", "10.0.0.0/33", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8:6443", false),
            ("https://[fd00::5]:6443", "fd00::/8", true),
            ("https://[fd00::5]:6443", "::/0", true),
            ("https://[fd00::5]:6443", "fd00::5", true),
            ("https://[fd00::5]:6443", "[fd00::5]", true),
            ("https://[fd00::5]:6443", "[fd00::5]:6443", true),
            ("https://[fd00::5]:6443", "[fd00::5]:443", false),
            ("https://api.example:6443", "10.0.0.0/8", false),
            ("https://api.example:6443", "no/host,:,[],.", false),
        ] {
            let variables = [("HTTPS_PROXY", "p:1"), ("NO_PROXY", exceptions)];
            assert_eq!(
                chosen(server, None, &variables).is_none(),
                direct,
                "{server}: {exceptions}"
            );
        }
        let lower = [("HTTPS_PROXY", "p:1"), ("NO_PROXY", " "), ("no_proxy", "example")];
        assert_eq!(chosen("https://api.example", None, &lower), None);
    }

    #[test]
    fn login_of_a_socks_proxy_is_refused() {
        for (url, shown) in [
            ("socks5://u:secret@p:1", "socks5://***@p:1"),
            ("SOCKS5H://u@p:1", "SOCKS5H://***@p:1"),
        ] {
            let error = choose(&"https://a".parse().unwrap(), Some(url), |_| None).unwrap_err();
            let expected = format!("proxy-url of the kubeconfig: {shown:?} has a user or password");
            assert!(error.to_string().starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn proxy_that_cannot_be_used_is_named_without_its_password() {
        for (text, shown) in [
            ("ftp://u:secret@p:1", "ftp://***@p:1"),
            ("http://", "http://"),
            ("http://a b", "http://a b"),
            ("u:secret@:1", "u:***@:1"),
        ] {
            let variable = |name: &str| (name == "HTTPS_PROXY").then(|| text.to_owned());
            let error = choose(&"https://a".parse().unwrap(), None, variable)
                .unwrap_err()
                .to_string();
            assert!(
                error.starts_with(&format!("HTTPS_PROXY: {shown:?} is not")),
                "{error}"
            );
        }
    }
}
