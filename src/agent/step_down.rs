//! Decides which requests may make the agent give up its lock. Pure.
//!
//! Programs beside the agent request a step-down over the loopback address. A proxy in the same pod connects from a loopback
//! address, too, and a page in a browser can reach it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header, uri::Authority};

/// The names and prefixes of headers that proxies add: Envoy, and with it Istio, and linkerd add one to each request.
const OF_PROXIES: [&str; 5] = ["forwarded", "via", "x-forwarded-", "x-envoy-", "l5d-"];

/// Returns the reason for which the agent refuses a request for a step-down from this address with these headers.
pub(super) fn refusal(peer: IpAddr, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
    // Istio delivers requests from other pods from 127.0.0.6.
    if !is_loopback(peer.to_canonical()) {
        return Some("a step-down is only accepted from this machine or pod, from 127.0.0.1 or ::1\n");
    }
    if headers.contains_key(header::ORIGIN) {
        return Some(
            "a step-down is not accepted from a page in a browser: the request has the header Origin\n",
        );
    }
    let is_forwarded = headers
        .keys()
        .any(|name| OF_PROXIES.iter().any(|prefix| name.as_str().starts_with(prefix)));
    if is_forwarded {
        return Some(
            "a step-down is not accepted through a proxy: request it at the loopback address of this pod\n",
        );
    }
    let host = headers
        .get(header::HOST)
        .map(|host| host.to_str().unwrap_or_default());
    if host.is_some_and(|host| !names_loopback(host)) || uri.host().is_some_and(|host| !is_local_name(host)) {
        return Some("a step-down is only accepted for the host localhost, 127.0.0.1 or [::1]\n");
    }
    None
}

fn is_loopback(address: IpAddr) -> bool {
    address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST
}

/// Reports whether the value of a header Host, with or without a port, names this machine.
fn names_loopback(host: &str) -> bool {
    let authority = host.parse::<Authority>();
    authority.is_ok_and(|authority| is_local_name(authority.host()))
}

fn is_local_name(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn is_refused(peer: &str, headers: &[(&str, &str)]) -> bool {
        let headers = headers.iter().map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from_str(value).unwrap())
        });
        refusal(
            peer.parse().unwrap(),
            &Uri::from_static("/v1/step-down"),
            &headers.collect(),
        )
        .is_some()
    }

    #[test]
    fn programs_beside_the_agent_are_accepted() {
        for peer in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
            assert!(!is_refused(peer, &[]), "{peer}");
        }
        for host in [
            "localhost",
            "LOCALHOST:4040",
            "127.0.0.1:4040",
            "[::1]:4040",
            "[::1]",
        ] {
            assert!(!is_refused("127.0.0.1", &[("host", host)]), "{host}");
        }
    }

    #[test]
    fn other_machines_proxies_and_browsers_are_refused() {
        for peer in ["127.0.0.6", "10.0.0.7", "::ffff:127.0.0.6", "fe80::1"] {
            assert!(is_refused(peer, &[]), "{peer}");
        }
        for host in [
            "web.team.svc",
            "localhost.attacker.example",
            "127.0.0.6",
            "10.0.0.7:4040",
            "[::2]",
            "a b",
            "",
        ] {
            assert!(is_refused("127.0.0.1", &[("host", host)]), "{host}");
        }
        for header in [
            "origin",
            "via",
            "forwarded",
            "x-forwarded-proto",
            "x-envoy-attempt-count",
            "l5d-client-id",
        ] {
            assert!(
                is_refused("127.0.0.1", &[("host", "localhost"), (header, "null")]),
                "{header}"
            );
        }
    }

    #[test]
    fn absolute_form_names_the_host_as_well() {
        let headers = HeaderMap::new();
        let refused = |uri| refusal(Ipv4Addr::LOCALHOST.into(), &Uri::from_static(uri), &headers).is_some();
        assert!(
            refused("http://web.team.svc/v1/step-down") && !refused("http://localhost:4040/v1/step-down")
        );
    }
}
