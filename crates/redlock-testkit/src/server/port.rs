//! Chooses free ports for servers that are killed and restarted on the same port.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

use super::RedisServerError;

/// Below the range from which Linux and macOS take the ports of outgoing connections. Port 0 would give a port of that
/// range, and a client that redials a dead server there can get the very port that it calls: the client then connects
/// to itself, and the server cannot bind the port.
const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Returns a loopback port that nothing listens on now. Within one process no port is given twice before all were given
/// once.
pub fn free_port() -> Result<u16, RedisServerError> {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Programs that run at the same time start at different ports.
    let next = NEXT.get_or_init(|| AtomicU16::new(fastrand::u16(0..COUNT)));
    for _ in 0..COUNT {
        let port = FIRST + next.fetch_add(1, Ordering::Relaxed) % COUNT;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(RedisServerError::NoPort {
        tried: COUNT,
        first: FIRST,
        last: FIRST + COUNT - 1,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let mut ports: Vec<u16> = (0..200).map(|_| free_port().unwrap()).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 200);
    }

    #[test]
    fn a_port_in_use_is_not_given() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, free_port().unwrap())).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!((0..200).all(|_| free_port().unwrap() != port));
    }
}
