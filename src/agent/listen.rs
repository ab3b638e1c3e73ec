//! The addresses of the HTTP API for the app.

use std::{
    fmt,
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use nix::errno::Errno;
use tokio::net::TcpListener;

use crate::{http_server, operator::error::ProcessError};

/// Where the agent listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    /// Both loopback addresses: `localhost` is `::1` first on many machines, and some clients try no second address.
    Loopback {
        port: u16,
    },
    One(SocketAddr),
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let loopback = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
        let address = loopback
            .map(|port| Self::Loopback { port })
            .or_else(|| text.parse().ok().map(Self::One));
        address.ok_or_else(|| {
            "not an address: write localhost:PORT for both loopback addresses, or IP:PORT, such as 0.0.0.0:4040 or [::]:4040"
                .to_owned()
        })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback { port } => write!(f, "localhost:{port}"),
            Self::One(address) => write!(f, "{address}"),
        }
    }
}

impl ListenAddress {
    /// Binds the addresses.
    ///
    /// # Errors
    /// Returns an error if one cannot be bound, other than `::1` on a machine without IPv6.
    pub(super) fn bind(self) -> Result<Vec<TcpListener>, ProcessError> {
        self.bind_by(http_server::bind)
    }

    fn bind_by(
        self,
        bind: impl Fn(SocketAddr) -> io::Result<TcpListener>,
    ) -> Result<Vec<TcpListener>, ProcessError> {
        let listen =
            |address: SocketAddr| bind(address).map_err(|source| ProcessError::Listen { address, source });
        let port = match self {
            Self::One(address) => return Ok(vec![listen(address)?]),
            Self::Loopback { port } => port,
        };
        let first = listen((Ipv4Addr::LOCALHOST, port).into())?;
        let port = first.local_addr().map_or(port, |address| address.port());
        let address = (Ipv6Addr::LOCALHOST, port).into();
        match bind(address) {
            Ok(second) => Ok(vec![first, second]),
            Err(cause) if lacks_ipv6(&cause) => {
                tracing::debug!(%address, %cause, "this machine has no such address: the agent listens at 127.0.0.1 alone");
                Ok(vec![first])
            }
            Err(source) => Err(ProcessError::Listen { address, source }),
        }
    }
}

fn lacks_ipv6(cause: &io::Error) -> bool {
    cause.kind() == ErrorKind::AddrNotAvailable || cause.raw_os_error() == Some(Errno::EAFNOSUPPORT as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn machine_without_ipv6_listens_at_one_address() {
        let errors = [
            Errno::EADDRNOTAVAIL,
            Errno::EAFNOSUPPORT,
            Errno::EADDRINUSE,
            Errno::EACCES,
        ];
        for (cause, is_accepted) in errors.into_iter().zip([true, true, false, false]) {
            let without_ipv6 = |address: SocketAddr| match address {
                SocketAddr::V4(_) => http_server::bind(address),
                SocketAddr::V6(_) => Err(io::Error::from_raw_os_error(cause as i32)),
            };
            let bound = ListenAddress::Loopback { port: 0 }.bind_by(without_ipv6);
            match bound {
                Ok(listeners) => {
                    assert!(is_accepted, "{cause}");
                    let addresses: Vec<_> = listeners
                        .iter()
                        .map(|one| one.local_addr().unwrap().ip())
                        .collect();
                    assert_eq!(addresses, [Ipv4Addr::LOCALHOST]);
                }
                Err(error) => assert!(
                    !is_accepted && error.to_string().contains("[::1]:"),
                    "{cause}: {error}"
                ),
            }
            let asked = ListenAddress::One((Ipv6Addr::LOCALHOST, 0).into()).bind_by(without_ipv6);
            assert!(asked.is_err(), "{cause}: an address that the user wrote");
        }
    }

    #[test]
    fn localhost_stands_for_both_loopback_addresses() {
        for (text, address) in [
            ("localhost:4040", ListenAddress::Loopback { port: 4040 }),
            (" localhost:0\n", ListenAddress::Loopback { port: 0 }),
            (
                "127.0.0.1:4040",
                ListenAddress::One(([127, 0, 0, 1], 4040).into()),
            ),
            (
                "[::]:4040",
                ListenAddress::One((Ipv6Addr::UNSPECIFIED, 4040).into()),
            ),
        ] {
            assert_eq!(text.parse(), Ok(address));
        }
        for text in [
            "",
            "4040",
            "localhost",
            "localhost:",
            "localhost:port",
            "example:1",
            ":4040",
        ] {
            assert!(
                text.parse::<ListenAddress>()
                    .unwrap_err()
                    .contains("localhost:PORT"),
                "{text}"
            );
        }
    }
}
